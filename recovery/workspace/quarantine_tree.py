"""What lies in quarantine, looked at, copied out and deleted. The only code that deletes what a restore displaced.

    <side>/quarantine/<log id>-<decision seq>/<round>/<relative path>    (quarantine.py)
    <side>/quarantine/<log id>-<decision seq>/<round>.attributes         (in_place.py)

Everything is reached by directory descriptors: no link is followed, no FIFO or device opened, no other mount entered. Deleting goes
children first, so that a kill in between leaves less of the same tree, and doing it again ends it. Steps: `quarantine.note.*`,
`quarantine.empty.*`, `quarantine.copy.*`.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

import msgspec

from eventlog import durable, steps
from eventlog.attributes import open_node, read_acl, read_xattrs, set_attributes, set_link_time
from eventlog.beneath import OPEN_DIRECTORY, OPEN_FILE, Beneath
from eventlog.errors import CrashworthyError, FullError, MisuseError
from eventlog.image import name_of
from eventlog.image_values import MODE_BITS
from eventlog.kernel import Status, kind_of, look_at, look_through
from eventlog.show import show_path, show_text
from recovery.workspace.in_place import Before, read_before
from recovery.workspace.quarantine import QUARANTINE
from recovery.workspace.removal import exists, list_names, remove_tree

UNFINISHED_PREFIX = ".recovery-quarantine-unfinished-"
_PRIVATE = 0o700
_PRIVATE_FILE = 0o600
EMPTIED = ".emptied"  # beside a decision's directory: it was deleted by `empty`, or is about to be
_EMPTY_STEP = "quarantine.empty"
_NOTE_STEP = "quarantine.note"
_COPY_STEP = "quarantine.copy"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_PIECE = 1 << 20


class Kept(msgspec.Struct, frozen=True):
    """One node in quarantine: `<round>/<path>`, its kind as an image or an untracked list names it, its size, and what tells hard links."""

    path: bytes
    kind: str
    size: int
    inode: tuple[int, int]


class Displaced(msgspec.Struct, frozen=True):
    """What one decision displaced, as the directories say now: `nodes` leaves out directories with something in them. `in_place` has, by
    round, what it changed in place, as it was before."""

    seq: int
    name: str
    nodes: tuple[Kept, ...]
    rounds: int
    in_place: tuple[tuple[int, Before], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files, hard links counted once."""
        return sum({node.inode: node.size for node in self.nodes if node.kind == "f"}.values())


class Copied(msgspec.Struct, frozen=True):
    """What was copied; `left_out` are sockets and devices, which stay in quarantine only."""

    paths: int
    size: int
    left_out: tuple[Kept, ...]


def decision_directory(log_id: str, seq: int) -> str:
    """The name of a decision's directory."""
    return f"{log_id}-{seq}"


def find_displaced(sides: tuple[str, ...], log_id: str) -> tuple[Displaced, ...]:
    """What each decision of a log has in quarantine, by seq. `sides` are the side directories of its space (paths). Changes nothing.

    Raises MisuseError when something cannot be looked at.
    """
    numbers: set[int] = set()
    for side in sides:
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(os.path.join(side, QUARANTINE))
            tails = [name.removeprefix(f"{log_id}-") for name in names if name.startswith(f"{log_id}-")]
            numbers |= {int(tail) for tail in tails if tail.isascii() and tail.isdigit()}
    return tuple(_look(sides, seq, decision_directory(log_id, seq)) for seq in sorted(numbers))


def find_emptied(sides: tuple[str, ...], log_id: str) -> frozenset[int]:
    """The decisions of a log whose quarantine was emptied, as the side directories say."""
    found: set[int] = set()
    for side in sides:
        with contextlib.suppress(OSError):
            for name in os.listdir(os.path.join(side, QUARANTINE)):
                tail = name.removeprefix(f"{log_id}-").removesuffix(EMPTIED)
                if name == decision_directory(log_id, int(tail) if tail.isascii() and tail.isdigit() else 0) + EMPTIED:
                    found.add(int(tail))
    return frozenset(found)


def _look(sides: tuple[str, ...], seq: int, name: str) -> Displaced:
    nodes: list[Kept] = []
    in_place: list[tuple[int, Before]] = []
    rounds = 0
    for side in sides:
        in_place += _read_before(side, name)
        tree = _open(side, name)
        if tree is None:
            continue
        with tree:
            for path, status, is_leaf in _walk(tree, must_read=False):
                rounds += path.count(b"/") == 0 and kind_of(status.mode) == "d"
                if is_leaf and path.count(b"/"):
                    nodes.append(Kept(path, kind_of(status.mode), status.size, (status.device, status.inode)))
    return Displaced(seq, name, tuple(sorted(nodes, key=lambda node: node.path)), rounds, tuple(in_place))


def _read_before(side: str, name: str) -> list[tuple[int, Before]]:
    try:
        return read_before(os.path.join(side, QUARANTINE, name))
    except OSError as error:
        raise _told(error, os.fsencode(name)) from error


def _open(side: str, name: str) -> Beneath | None:
    try:
        return Beneath(os.path.join(side, QUARANTINE, name))
    except FileNotFoundError:
        return None


def _walk(tree: Beneath, must_read: bool) -> Iterator[tuple[bytes, Status, bool]]:
    """Every node below a root, a directory before what is in it; True for all but directories that hold something.

    Unless it `must_read` all, a directory that may not be listed counts as one without content. Raises MisuseError.
    """
    pending = [(b"", look_through(tree.directory(b"")))]
    while pending:
        path, status = pending.pop()
        below: list[tuple[bytes, Status]] = []
        try:
            if kind_of(status.mode) == "d":
                directory = tree.directory(path)
                names = sorted(list_names(directory), reverse=True)
                below = [(path + b"/" + name if path else name, look_at(name, directory)) for name in names]
        except PermissionError as error:
            if must_read:
                raise _told(error, path) from error
        except OSError as error:
            raise _told(error, path) from error
        if path:
            yield path, status, not below
        pending += below


def _told(error: OSError, path: bytes) -> CrashworthyError:
    if error.errno in _NO_ROOM:
        return FullError(f"{show_path(path)}: no room left ({error.strerror}); make room and run the same command again")
    return MisuseError(f"{show_path(path)} in quarantine: {error.strerror}; remove the cause and run the same command again")


# Deleting


def empty(side: str, name: str) -> int:
    """Delete what a decision displaced: the directory `name` of the quarantine in the side directory `side`; how many names went.

    Nothing there: 0. Killed in between, it is continued by being done again. Raises MisuseError naming the path that will not go.
    """
    if not name or "/" in name or name.startswith("."):
        raise MisuseError(f"not a name for a quarantine directory: {show_text(name)}")
    try:
        above = os.open(os.path.join(side, QUARANTINE), OPEN_DIRECTORY)
    except FileNotFoundError:
        return 0
    try:
        if exists(os.fsencode(name), above):  # said first: what is half deleted still lies there, what is gone was emptied and not lost
            durable.publish(os.path.join(side, QUARANTINE, name + EMPTIED), b"", _NOTE_STEP)
        removed = remove_tree(above, os.fsencode(name), _EMPTY_STEP, _told)
        durable.sync_file(above, _EMPTY_STEP)
    finally:
        os.close(above)
    return removed


# Copying


def copy_out(sides: tuple[str, ...], name: str, directory: str, unfinished: str) -> Copied:
    """Copy what a decision displaced into the new directory `directory`, as `<round>/<path>`, with attributes, times and hard links.

    Directories that it changed in place are made with what they had before; what it changed in place of files, symlinks and FIFOs, which
    are where they were, stands in `<round>.attributes`, copied too.
    Made whole under the name `unfinished` beside it, then moved to its own without replacing; a failure removes what was made.
    Raises MisuseError, FullError; the quarantine is not changed.
    """
    shown = show_text(directory)
    place, last = os.path.split(directory.rstrip("/"))
    if not last or "\0" in directory or os.path.lexists(directory):
        raise MisuseError(f"{shown or 'an empty name'}: there is something already; name a directory that is not there yet")
    try:
        parent = os.open(place or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise MisuseError(f"{shown}: {show_text(place)} cannot be opened: {error.strerror}; make that directory first") from error
    try:
        return _copy_and_name(sides, name, parent, unfinished, last)
    except OSError as error:
        raise _told(error, os.fsencode(directory)) from error
    finally:
        os.close(parent)


def _copy_and_name(sides: tuple[str, ...], name: str, parent: int, unfinished: str, last: str) -> Copied:
    os.mkdir(unfinished, _PRIVATE, dir_fd=parent)
    made = os.open(unfinished, OPEN_DIRECTORY, dir_fd=parent)
    try:
        try:
            with Beneath(f"/proc/self/fd/{made}") as target:
                copier = _Copier(target)
                for side in sides:
                    source = _open(side, name)
                    if source is not None:
                        with source:
                            copier.copy_all(source)
                        copier.give_back(_read_before(side, name))
                copier.finish()
            durable.sync_filesystem(made, _COPY_STEP)
            durable.move(unfinished, last, _COPY_STEP, source_dir=parent, target_dir=parent)
        except BaseException:
            with contextlib.suppress(CrashworthyError):  # the error on its way says more
                remove_tree(parent, os.fsencode(unfinished), f"{_COPY_STEP}.clear", _told)
            raise
        durable.sync_file(parent, _COPY_STEP)
    finally:
        os.close(made)
    return Copied(copier.paths, copier.size, tuple(copier.left_out))


class _Attributes(msgspec.Struct, frozen=True):
    mode: int
    xattrs: bytes | None
    acl: bytes
    owner: tuple[int, int] | None
    mtime_ns: int


class _Copier:
    """One tree being copied; directories get their attributes last, the deepest first, as what is made in them moves their time."""

    def __init__(self, target: Beneath) -> None:
        self._target = target
        self._directories: dict[bytes, _Attributes] = {}
        self._first: dict[tuple[int, int], bytes] = {}
        self.paths = 0
        self.size = 0
        self.left_out: list[Kept] = []

    def copy_all(self, source: Beneath) -> None:
        for path, status, _ in _walk(source, must_read=True):
            try:
                self._copy(source, path, status)
            except OSError as error:
                raise _told(error, path) from error

    def give_back(self, changed: list[tuple[int, Before]]) -> None:
        """Make the directories that were changed in place, where nothing displaced lies in them, and have them get what they had."""
        for number, before in changed:
            if before.kind != "d":
                continue
            path = b"%d/%s" % (number, before.path) if before.path else b"%d" % number
            try:
                self._make_way(path)
            except OSError as error:
                raise _told(error, path) from error
            owner = before.owner if os.geteuid() == 0 else None
            self._directories[path] = _Attributes(before.mode, before.xattrs, before.acl or b"", owner, before.mtime_ns)

    def _make_way(self, path: bytes) -> None:
        parts = path.split(b"/")
        for count in range(1, len(parts) + 1):
            above, name = self._target.parent(b"/".join(parts[:count]))
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, _PRIVATE, dir_fd=above)

    def finish(self) -> None:
        for path, attributes in sorted(self._directories.items(), reverse=True):
            try:
                _give(self._target.directory(path), attributes, f"{_COPY_STEP}.finish")
            except OSError as error:
                raise _told(error, path) from error

    def _copy(self, source: Beneath, path: bytes, status: Status) -> None:
        kind = kind_of(status.mode)
        inode = (status.device, status.inode)
        if kind not in ("f", "d", "l", "p"):
            self.left_out.append(Kept(path, kind, status.size, inode))
            return
        self.paths += path.count(b"/") > 0
        held = os.dup(source.parent(path)[0])
        try:
            if kind != "d" and status.links > 1 and inode in self._first:
                self._link(path, self._first[inode])
                return
            self._first[inode] = path
            self._make(path, name_of(path), held, kind, status)
        finally:
            os.close(held)

    def _link(self, path: bytes, first: bytes) -> None:
        held = os.dup(self._target.parent(path)[0])  # opening the other directory may close what is lent
        try:
            above, name = self._target.parent(first)
            durable.link(name, name_of(path), f"{_COPY_STEP}.link", source_dir=above, target_dir=held)
        finally:
            os.close(held)

    def _make(self, path: bytes, name: bytes, source: int, kind: str, status: Status) -> None:
        directory = self._target.parent(path)[0]
        steps.reach(f"{_COPY_STEP}.make.before")
        if kind == "l":
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=directory)
            set_link_time(name, directory, status.mtime_ns, _COPY_STEP)
            return
        with open_node(name, source, kind) as descriptor:
            attributes = _attributes(descriptor, status)
        if kind == "d":
            with contextlib.suppress(FileExistsError):  # a round of the same number in the other side directory
                os.mkdir(name, _PRIVATE, dir_fd=directory)
            # A round's own directory is ours and bears no attributes of anybody.
            if b"/" in path:
                self._directories[path] = attributes
            return
        if kind == "p":
            os.mkfifo(name, _PRIVATE_FILE, dir_fd=directory)
            with open_node(name, directory, "p") as made:
                _give(made, attributes, _COPY_STEP)
            return
        size = _copy_file(name, source, directory, attributes)
        self.size += size if b"/" in path else 0  # beside the rounds: what they changed in place


def _attributes(descriptor: int, status: Status) -> _Attributes:
    path = f"/proc/self/fd/{descriptor}"
    found = os.stat(path)
    owner = (found.st_uid, found.st_gid) if os.geteuid() == 0 else None  # nobody else may give a file away
    return _Attributes(status.mode & MODE_BITS, read_xattrs(path), read_acl(path) or b"", owner, status.mtime_ns)


def _give(descriptor: int, attributes: _Attributes, step: str) -> None:
    set_attributes(
        descriptor, attributes.mode, attributes.xattrs, attributes.mtime_ns, step, owner=attributes.owner, acl=attributes.acl
    )


def _copy_file(name: bytes, source: int, directory: int, attributes: _Attributes) -> int:
    """Copy one file, holes kept; its size."""
    reading = os.open(name, OPEN_FILE, dir_fd=source)
    try:
        if not stat.S_ISREG(os.fstat(reading).st_mode):
            raise OSError(errno.ESTALE, "it became another kind meanwhile")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(name, flags, _PRIVATE_FILE, dir_fd=directory)
        try:
            size = _copy_data(reading, writing)
            _give(writing, attributes, _COPY_STEP)
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return size


def _copy_data(reading: int, writing: int) -> int:
    size = os.fstat(reading).st_size
    offset = 0
    while offset < size:
        try:
            begin = os.lseek(reading, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # nothing but a hole is left
        end = os.lseek(reading, begin, os.SEEK_HOLE)
        os.lseek(reading, begin, os.SEEK_SET)
        os.lseek(writing, begin, os.SEEK_SET)
        while begin < end and (piece := os.read(reading, min(_PIECE, end - begin))):
            durable.write_all(writing, piece, _COPY_STEP)
            begin += len(piece)
        offset = end
    os.ftruncate(writing, size)
    return size
