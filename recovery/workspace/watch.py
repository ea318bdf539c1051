"""Which directories of a workspace changed since the last whole scan, as the kernel queued it; or that nobody knows, and all must be read.

Order, which everything rests on:
  1. `Watch.drain` empties the queue; 2. the scan reads; 3. `Hints.complete` forgets what was drained. What happens during 2 stays
  queued for the next drain; a scan that fails forgets nothing. Each directory is watched (`Hints.enter`) before its names are read.

In doubt everything is read and the watches are made anew: the queue overflowed, the limit of watches is reached, a watch ended by itself, a
mount at or around the root changed, the root is another directory, or its file system is not one on which this kernel sees every change.

What inotify does not tell, and who minds it: stores through a shared mapping that is still there (the caller names such directories by
`suspect`), writes through another name of a file with several (the hinted walk looks at all of those).
Not minded before the next whole scan: a file that gets its second name outside the workspace and is written to through that, and
inode flags set by chattr(1). Therefore hints are off unless asked for, and a whole scan stands at both ends of a drive.
"""

import errno
import os
import re
from collections.abc import Callable, Iterable

import msgspec

from eventlog.errors import required
from eventlog.kernel import Status, look_through
from eventlog.preflight import filesystem_of
from recovery.workspace import inotify
from recovery.workspace.inotify import Event, Inotify

# File systems whose changes all pass through this kernel. Others (NFS, FUSE, 9p, overlays with layers of their own) are not watched.
LOCAL_FILESYSTEMS = frozenset("ext2 ext3 ext4 xfs btrfs tmpfs ramfs f2fs jfs reiserfs bcachefs zfs".split())
_ARRIVED = inotify.CREATE | inotify.MOVED_TO
_MOST_SKIPPED = 64
_OCTAL = re.compile(r"\\([0-7]{3})")


class _Node(msgspec.Struct):
    """A watched directory as the last reading named it. `watch` None: its watch has ended."""

    above: "_Node | None"
    name: bytes
    watch: int | None = None
    below: dict[bytes, "_Node"] = msgspec.field(default_factory=dict)

    def path(self) -> bytes:
        names = []
        node = self
        while node.above is not None:
            names.append(node.name)
            node = node.above
        return b"/".join(reversed(names))


class Hints(msgspec.Struct, frozen=True):
    """What one scan must read. `doubt` not empty: everything, for that reason; the two sets are empty then.

    `changed`: directories whose names, entries and own attributes are looked at again; `whole`: directories to be read with all that is
    below them, as if never seen. Paths are relative to the root, the root is b"". A path may be gone by now.
    """

    watch: "Watch"
    doubt: str
    changed: frozenset[bytes] = frozenset()
    whole: frozenset[bytes] = frozenset()

    def enter(self, path: bytes, descriptor: int) -> bool:
        """The open directory `path` is about to be read: watch it first. Whether it is the one that was watched under that path."""
        return self.watch.enter(path, descriptor)

    def leave(self, path: bytes) -> None:
        """The directory `path` is no longer there: it and all below lose their watches."""
        self.watch.leave(path)

    def complete(self) -> None:
        """The scan is complete: what led to it is forgotten."""
        self.watch.complete(self)


class Watch:
    """The watches of one workspace, held by the process that scans it.

    `root` is absolute. `read_mountinfo` gives the text of /proc/self/mountinfo, `open_queue` a new inotify instance.
    """

    def __init__(
        self, root: str, *, read_mountinfo: Callable[[], str] | None = None, open_queue: Callable[[], Inotify] = Inotify
    ) -> None:
        self._root = os.path.realpath(root)
        self._read_mountinfo = read_mountinfo or _read_mountinfo
        self._open_queue = open_queue
        self._queue: Inotify | None = None
        self._top = _Node(None, b"")
        self._nodes: dict[int, _Node] = {}
        self._ended: set[int] = set()
        self._doubt = "the first scan"
        self._changed: set[bytes] = set()
        self._whole: set[bytes] = set()
        self._seen_root: tuple[int, int, int | None] | None = None
        self._mounts: tuple[str, ...] = ()
        self._watchable = False
        self._skip = 0
        self._skipped = 0

    def drain(self) -> Hints:
        """Empty the queue and say what to read. The scan begins after this; until it is complete the next drain says it again."""
        self._check_surroundings()
        if self._queue is not None:
            for event in self._queue.read():
                self._take(event)
        if self._doubt:
            self._rebuild()
            return Hints(self, self._doubt)
        return Hints(self, "", frozenset(self._changed), frozenset(self._whole))

    def suspect(self, directories: Iterable[bytes]) -> None:
        """Have these directories looked at by the next scan, whatever the kernel says. Not between a drain and its scan's end."""
        self._changed.update(directories)

    def enter(self, path: bytes, descriptor: int) -> bool:
        """Watch the open directory `path`. Whether that very directory was watched under this path already.

        No error when it cannot be: then the next drain is in doubt.
        """
        if self._queue is None:
            return False
        try:
            number = self._queue.add(descriptor)
        except OSError as error:
            self._give_up(error)
            return False
        node = required(self._find(path, make=True), "a directory to be watched was not noted")
        if node.watch == number and self._nodes.get(number) is node:
            return True
        self._end(node)
        node.watch = number
        self._nodes[number] = node
        return False

    def leave(self, path: bytes) -> None:
        """End the watches of `path` and of everything below it, but for directories that have been entered elsewhere meanwhile."""
        node = self._find(path, make=False)
        if node is None or node.above is None:
            return
        del node.above.below[node.name]
        stack = [node]
        while stack:
            one = stack.pop()
            stack += one.below.values()
            self._end(one)

    def complete(self, hints: Hints) -> None:
        """The scan of `hints` is complete."""
        if hints.doubt:
            if self._doubt == hints.doubt and self._queue is not None:
                self._doubt = ""
            self._changed.clear()
            self._whole.clear()
            return
        self._changed -= hints.changed
        self._whole -= hints.whole

    @property
    def count(self) -> int:
        """How many directories are watched."""
        return len(self._nodes)

    def close(self) -> None:
        """End all watches. The next drain begins anew."""
        self._discard("the watches were closed")

    def _check_surroundings(self) -> None:
        text = self._read_mountinfo()
        mounts = mounts_around(self._root, text)
        kind = filesystem_of(self._root, text)
        root = _identify(self._root)
        if kind not in LOCAL_FILESYSTEMS:
            self._discard(f"a {kind or 'strange'} file system may change without this kernel")
        elif self._seen_root is not None and mounts != self._mounts:
            self._discard("mounts changed")
        elif self._seen_root is not None and root != self._seen_root:
            self._discard("the root is another directory")
        self._mounts, self._seen_root = mounts, root
        self._watchable = kind in LOCAL_FILESYSTEMS and root is not None

    def _take(self, event: Event) -> None:
        if event.mask & inotify.OVERFLOW:
            self._doubt = "the kernel's queue overflowed"
            return
        node = self._nodes.get(event.watch)
        if event.mask & inotify.IGNORED:
            self._take_end(event.watch, node)
        elif node is None:
            if event.watch not in self._ended:
                self._doubt = "an event of a directory that is not watched"
        elif event.mask & inotify.UNMOUNT:
            self._doubt = "a watched file system was unmounted"
        else:
            self._take_change(event, node)

    def _take_end(self, watch: int, node: _Node | None) -> None:
        self._ended.discard(watch)
        self._nodes.pop(watch, None)
        if node is not None and node.watch == watch:
            self._doubt = "a watch ended by itself"

    def _take_change(self, event: Event, node: _Node) -> None:
        path = node.path()
        if event.mask & inotify.DELETE_SELF:
            self._whole.add(path)
            node.watch = None  # so that the IGNORED that follows is no surprise
        if event.mask & (inotify.DELETE_SELF | inotify.MOVE_SELF) and node.above is None:
            self._doubt = "the root was moved or removed"
        if event.mask & inotify.IS_DIRECTORY and event.mask & _ARRIVED:
            self._whole.add(path + b"/" + event.name if path else event.name)
        self._changed.add(path)

    def _rebuild(self) -> None:
        """New watches, none yet: the whole scan that follows makes them as it goes."""
        doubt = self._doubt
        self._discard(doubt)
        if not self._watchable:
            return
        if self._skipped < self._skip:
            self._skipped += 1
            return
        self._skipped = 0
        try:
            self._queue = self._open_queue()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """No watches for now; whole scans, and another try after twice as many of them as the last time."""
        limit = error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM)
        self._discard("the limit of watches is reached" if limit else f"a directory cannot be watched: {error.strerror}")
        self._skip = min(_MOST_SKIPPED, 2 * self._skip + 1)

    def _discard(self, doubt: str) -> None:
        if self._queue is not None:
            self._queue.close()
        self._queue = None
        self._top = _Node(None, b"")
        self._nodes.clear()
        self._ended.clear()
        self._changed.clear()
        self._whole.clear()
        self._doubt = doubt

    def _find(self, path: bytes, *, make: bool) -> _Node | None:
        node = self._top
        for name in path.split(b"/") if path else ():
            below = node.below.get(name)
            if below is None:
                if not make:
                    return None
                below = node.below[name] = _Node(node, name)
            node = below
        return node

    def _end(self, node: _Node) -> None:
        number, node.watch = node.watch, None
        if number is None or self._nodes.get(number) is not node:
            return  # entered elsewhere meanwhile: the watch is that directory's now
        del self._nodes[number]
        if self._queue is not None:
            self._ended.add(number)
            self._queue.remove(number)


def mounts_around(root: str, mountinfo: str) -> tuple[str, ...]:
    """The lines of mountinfo whose mount point is the root, above it or below it. Pure."""
    found = []
    for line in mountinfo.split("\n"):
        fields = line.split(" ")
        if len(fields) < 5:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        if root == point or root.startswith(point.rstrip("/") + "/") or point.startswith(root.rstrip("/") + "/"):
            found.append(line)
    return tuple(found)


def _read_mountinfo() -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _identify(root: str) -> tuple[int, int, int | None] | None:
    try:
        descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None  # the scan itself says what is wrong with the root
    try:
        status: Status = look_through(descriptor)
    finally:
        os.close(descriptor)
    return status.device, status.inode, status.birth_ns
