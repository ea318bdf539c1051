"""One pass over the tree, which brings what a scanner remembers up to date.

Walks by directory descriptors without following a link, entering another mount, recursing, or holding more than a fixed number of
descriptors; paths may be longer than the system takes. Every name is looked at; a file is read only when its version is not the one
remembered or is too young to be told from the next.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from eventlog.beneath import OPEN_DIRECTORY
from eventlog.errors import InternalError, ScanError
from eventlog.image import Entry, Image
from eventlog.kernel import Status, kind_of, look_at, look_through
from eventlog.show import show_path
from recovery.workspace import observe
from recovery.workspace.listing import CHANGE_TIME, Key, Listing, empty_listing
from recovery.workspace.observe import ChangedUnderneath, Keep, Tracking, key_of
from recovery.workspace.values import MOUNT

TRIES = 3
_OPEN_LIMIT = 64
_stat = os.stat  # a name of this module, so that a test can put a busy world behind it


class Excluding(Protocol):
    """What a profile says: the patterns of paths that are never looked at and in no image (`matches` True), and what is tracked."""

    @property
    def excludes(self) -> tuple[str, ...]: ...

    @property
    def left_out(self) -> frozenset[bytes]: ...

    @property
    def owners(self) -> bool: ...

    @property
    def acls(self) -> bool: ...

    def matches(self, path: bytes, is_directory: bool) -> bool: ...


class Trust(msgspec.Struct, frozen=True):
    """What may be believed without a look: change times below `before`, but no inode of `mapped` (None: no file), nothing when `rehash`."""

    before: int
    mapped: frozenset[int] | None = frozenset()
    rehash: bool = False

    @property
    def doubts_files(self) -> bool:
        """Whether every file must be read."""
        return self.rehash or self.mapped is None


class Frame(msgspec.Struct):
    """A directory being walked; `descriptor` is None while it is closed to keep within the bound."""

    path: bytes
    descriptor: int | None
    listing: Listing
    inode: tuple[int, int]
    pending: list[bytes] = msgspec.field(default_factory=list)
    tries: dict[bytes, int] = msgspec.field(default_factory=dict)


class Walk:
    """One pass. `known` is what is remembered, by path; what is found right is written into it at once, each part true in itself. `keep`
    gets the bytes of small files that had to be read, but for those that `against` has at the same path.

    After `run`: `seen` has the listing of every directory there is, `young` the paths of those in which something is not remembered because
    it is too young, `root` the root's entry and `root_untracked` what of it is not covered.
    """

    def __init__(
        self,
        root: int,
        known: dict[bytes, Listing],
        trust: Trust,
        mount_points: frozenset[bytes] | None,
        profile: Excluding | None,
        reserved: bytes | None,
        keep: Keep | None,
        against: Image,
    ) -> None:
        self.known = known
        self._trust = trust
        self._careful = None if mount_points is None else {point.rpartition(b"/")[0] for point in mount_points}
        self._root_status: Status = look_through(root)
        self._profile = profile if profile is not None and (profile.excludes or profile.left_out) else None
        self._tracking = Tracking(profile.owners, profile.acls) if profile is not None else Tracking()
        self._reserved = reserved
        self._keep = keep
        self._against = against
        self._frames: list[Frame] = []
        self.groups: dict[tuple[int, int], observe.Observed] = {}
        self._taken: set[int] = set()
        self._descriptor = root
        self.seen: dict[bytes, Listing] = {}
        self.young: set[bytes] = set()
        self.hashed = 0
        self.root: Entry = Entry("d", 0)
        self.root_untracked: tuple[str, ...] = ()

    def run(self) -> None:
        """Visit everything."""
        with _naming(b""):
            self.root, stamp, self.root_untracked = observe.observe_open_directory(self._descriptor, self._tracking, is_root=True)
            self._begin(b"", self._descriptor, stamp)
        while self._frames:
            frame = self._frames[-1]
            if frame.pending:
                self._enter(frame, frame.pending.pop())
            else:
                self._leave()

    def close(self) -> None:
        """Close what an error left open."""
        for frame in self._frames:
            if frame.descriptor is not None:
                os.close(frame.descriptor)
        if not self._frames and not self.seen:
            os.close(self._descriptor)
        self._frames.clear()

    def taken(self) -> set[int]:
        """The directories that are this scan's own copies."""
        return self._taken

    def _begin(self, path: bytes, descriptor: int, stamp: Key) -> None:
        """Take up an open directory: look at all its names, and note which to descend into."""
        listing = self.known.get(path)
        if listing is None:
            listing = self.known[path] = empty_listing()
        frame = Frame(path, descriptor, listing, (stamp[0], stamp[1]))
        if len(self._frames) >= _OPEN_LIMIT:
            self._suspend(self._frames[-_OPEN_LIMIT])
        self._frames.append(frame)
        self.seen[path] = listing
        self.read_names(frame, stamp)

    def read_names(self, frame: Frame, stamp: Key) -> None:
        """Look at the names of the innermost directory, and choose which to descend into."""
        self.look_at_names(frame, self._list(frame, stamp), frame.listing.keys)
        if stamp[CHANGE_TIME] < self._trust.before:  # only now: of a look that failed, the names not come to would be taken for gone (I11)
            frame.listing.stamp = stamp
        frame.pending = list(frame.listing.below)

    def _list(self, frame: Frame, stamp: Key) -> list[bytes]:
        """Bring the names up to date; those that are new, which is none when the directory is the version that was listed before."""
        listing = frame.listing
        if listing.stamp == stamp and stamp[CHANGE_TIME] < self._trust.before and not self._trust.rehash:
            return []
        listing.stamp = None
        listing.excluded.clear()  # of the new list, each is asked again: it may be of another kind now
        names = {os.fsencode(name) for name in os.listdir(self.current())}  # a busy directory may list a name twice
        if not frame.path and self._reserved is not None:
            names.discard(self._reserved)
        for name in listing.keys.keys() - names:
            self._forget(frame, name)
        return list(names - listing.keys.keys())

    def look_at_names(self, frame: Frame, new: Iterable[bytes], known: Mapping[bytes, Key | None]) -> None:
        """The hot loop: one stat for each name of `known`, and nothing else for what is as it was; the `new` are looked at closely."""
        descriptor, before = self.current(), self._trust.before
        mapped, doubts = self._trust.mapped, self._trust.doubts_files
        changed: list[bytes] = list(new)
        careful = self._careful is None or frame.path in self._careful
        stat_at: Callable[..., os.stat_result] = _stat
        for name, key in known.items():
            try:
                found = stat_at(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                changed.append(name)  # looked at again below, where an error gets the path's name
                continue
            ctime = found.st_ctime_ns
            if (
                key
                != (
                    found.st_dev,
                    found.st_ino,
                    found.st_mode,
                    found.st_nlink,
                    found.st_size,
                    found.st_mtime_ns,
                    ctime,
                )
                or ctime >= before
                or careful
                or (doubts and found.st_mode & 0o170000 == 0o100000)
                or (mapped and found.st_ino in mapped)
            ):
                changed.append(name)
        for name in changed:
            self._look_closely(frame, name)

    def _look_closely(self, frame: Frame, name: bytes) -> None:
        path = join(frame.path, name)
        for _ in range(TRIES):
            try:
                self._take(frame, name, path)
                return
            except FileNotFoundError:
                self._forget(frame, name)
                return
            except ChangedUnderneath:
                continue
            except OSError as error:
                raise _cannot_read(path, error) from error
        raise ScanError(f"{show_path(path)} keeps changing while it is read; try again when it is quiet")

    def _take(self, frame: Frame, name: bytes, path: bytes) -> None:
        descriptor = self.current()
        found = _stat(name, dir_fd=descriptor, follow_symlinks=False)
        key = key_of(found)
        kind = kind_of(key[2])
        if self._profile is not None and self._profile.matches(path, kind == "d"):
            self._forget(frame, name)
            frame.listing.excluded.add(name)
        elif (self._careful is None or frame.path in self._careful) and not self._is_on_our_mount(name, descriptor):
            self._note(frame, name, key, None, (MOUNT,))
        elif kind == "f":
            self._take_file(frame, name, path, key)
        elif kind == "d":
            entry, key, untracked = observe.observe_directory(name, descriptor, self._tracking)
            self._note(frame, name, key, entry, untracked)
            frame.listing.below[name] = key[:2]
        elif kind == "l":
            self._note_named(frame, name, observe.observe_link(name, descriptor, found, self._tracking))
        elif kind == "p":
            self._note_named(frame, name, observe.observe_pipe(name, descriptor, found, self._tracking))
        else:
            self._note(frame, name, key, None, (kind,))

    def _is_on_our_mount(self, name: bytes, descriptor: int) -> bool:
        return look_at(name, descriptor).is_on_mount_of(self._root_status)

    def _take_file(self, frame: Frame, name: bytes, path: bytes, key: Key) -> None:
        known = self.groups.get((key[0], key[1])) if key[3] > 1 else None
        if known is None or known[1] != key:
            known = observe.observe_file(name, self.current(), self._tracking, self._keep, self._against.get(path))
            self.hashed += 1
        self._note_named(frame, name, known)

    def _note_named(self, frame: Frame, name: bytes, observed: observe.Observed) -> None:
        """`_note` of a file, symlink or FIFO, which may have further names."""
        entry, key, untracked = observed
        self._note(frame, name, key, entry, untracked)
        if key[3] > 1:
            self.groups[(key[0], key[1])] = observed
            frame.listing.linked[name] = entry
            frame.listing.versions[name] = key

    def _note(self, frame: Frame, name: bytes, key: Key, entry: Entry | None, untracked: tuple[str, ...]) -> None:
        """Remember what a name stands for. A version too young to be told from the next is not remembered (case 1)."""
        listing = frame.listing
        if entry is None or entry.kind != "d":
            listing.below.pop(name, None)
        listing.linked.pop(name, None)
        listing.versions.pop(name, None)
        if listing.directory.entries.get(name) != entry:  # of a file with further names: until its group is known
            mine = listing.own(self._taken)
            if entry is None:
                mine.drop(name)
            else:
                mine.put(name, entry)
        if untracked:
            listing.untracked[name] = untracked
        else:
            listing.untracked.pop(name, None)
        if key[CHANGE_TIME] < self._trust.before:
            listing.keys[name] = key
        else:
            listing.keys[name] = None
            self.young.add(frame.path)

    def _forget(self, frame: Frame, name: bytes) -> None:
        """The name is not there, or is none of ours."""
        listing = frame.listing
        if name in listing.directory.entries:
            listing.own(self._taken).drop(name)
        listing.keys.pop(name, None)
        listing.linked.pop(name, None)
        listing.versions.pop(name, None)
        listing.untracked.pop(name, None)
        listing.below.pop(name, None)

    def _enter(self, frame: Frame, name: bytes) -> None:
        if name not in frame.listing.below:
            return
        path = join(frame.path, name)
        key = frame.listing.keys[name]
        with _naming(path):
            try:
                descriptor = observe.open_or_changed(name, self.current(), OPEN_DIRECTORY)
            except ChangedUnderneath:
                self._enter_again(frame, name, path)
                return
            try:
                stamp = key_of(os.fstat(descriptor))
                is_other = frame.listing.below[name] != stamp[:2]
                if not is_other and self._careful is None and not look_through(descriptor).is_on_mount_of(self._root_status):
                    is_other = True
            except BaseException:
                os.close(descriptor)
                raise
            if is_other or key != stamp and key is not None:
                os.close(descriptor)
                self._enter_again(frame, name, path)
                return
            try:
                self._begin(path, descriptor, stamp)
            except BaseException:
                if not self._frames or self._frames[-1].descriptor != descriptor:
                    os.close(descriptor)
                raise

    def _enter_again(self, frame: Frame, name: bytes, path: bytes) -> None:
        """The directory is no longer what was looked at: look again, a bounded number of times."""
        frame.tries[name] = frame.tries.get(name, 0) + 1
        if frame.tries[name] > TRIES:
            raise ScanError(f"{show_path(path)} keeps changing while it is read; try again when it is quiet")
        self._look_closely(frame, name)
        if name in frame.listing.below:
            frame.pending.append(name)

    def current(self) -> int:
        """The descriptor of the innermost directory."""
        descriptor = self._frames[-1].descriptor
        if descriptor is None:
            raise InternalError("the innermost directory of a scan is not open")
        return descriptor

    def _suspend(self, frame: Frame) -> None:
        if frame.descriptor is not None:
            os.close(frame.descriptor)
            frame.descriptor = None

    def _leave(self) -> None:
        left = self._frames[-1]
        above = self._frames[-2] if len(self._frames) > 1 else None
        if above is not None and above.descriptor is None:
            with _naming(above.path):
                above.descriptor = self._open_above(above)
        self._frames.pop()
        self._suspend(left)

    def _open_above(self, above: Frame) -> int:
        descriptor = os.open(b"..", OPEN_DIRECTORY, dir_fd=self.current())
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != above.inode:
            os.close(descriptor)
            raise ChangedUnderneath
        return descriptor


def join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


class _naming:
    """Turns an `OSError` inside into the `ScanError` that names `path`."""

    __slots__ = ("_path",)

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise _cannot_read(self._path, error) from error


def _cannot_read(path: bytes, error: OSError) -> ScanError:
    return ScanError(f"cannot read {show_path(path)}: {error.strerror}; make it readable and try again")
