"""Every fsync, rename, link, unlink and directory sync of the project. Nothing else calls them (a house test says so).

Ordering invariants of the functions here: a file is synced before it gets its name (`publish`), and the directory is synced before
the function that promised durability returns. Each operation passes the steps `<step>.<operation>.before` and `.after`, so
that a campaign can crash on either side of it; `write_all` also passes `<step>.write.half` between the two halves of what it writes.

Paths are bytes or str, absolute or relative to a directory descriptor. Errors are the operating system's own `OSError`.

A harness may install one observer (`observe`): it is told of every operation just before and just after it, with what a disk needs to know
of it, and may fail it with an `OSError` instead. Without one an operation costs a comparison more.
"""

import ctypes
import errno
import os
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from eventlog import steps

Path = bytes | str
Kind = Literal["create", "write", "truncate", "sync", "syncfs", "rename", "move", "link", "unlink", "rmdir"]
MOST_PIECES = 1024
"""What one writev takes (IOV_MAX of Linux)."""
_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = _libc.renameat2
_renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100


class Operation(msgspec.Struct, frozen=True):
    """One operation of this module as an observer is told of it.

    `descriptor` is what is written, truncated (to `offset`) or synced, a file or a directory; `data` is written at `offset`, or at the
    descriptor's position where that is None. `path` below the descriptor `directory` is what is created, renamed, linked or removed,
    `target` below `target_directory` its new name. `step` names the caller's purpose, "" where nobody gave one.
    """

    kind: Kind
    step: str
    descriptor: int = -1
    data: bytes = b""
    offset: int | None = None
    path: Path = b""
    directory: int | None = None
    target: Path = b""
    target_directory: int | None = None


class Observer(Protocol):
    """What a harness installs to learn of operations, or to fail them."""

    def begin(self, operation: Operation) -> None:
        """It is about to be done. An `OSError` raised here is what the caller gets in its place."""

    def end(self, operation: Operation) -> None:
        """It has been done; not called for one that failed."""


class _Process:
    """Who observes this process."""

    __slots__ = ("observer",)

    def __init__(self) -> None:
        self.observer: Observer | None = None


_process = _Process()


def observe(observer: Observer | None) -> None:
    """Have `observer` told of every operation of this process and of the processes it forks; None ends that."""
    _process.observer = observer


def _begin(
    kind: Kind, step: str, descriptor: int = -1, data: bytes = b"", offset: int | None = None, *,
    path: Path = b"", directory: int | None = None, target: Path = b"", target_directory: int | None = None,
) -> Operation | None:  # fmt: skip
    """Tell the observer what is about to be done; None where nobody observes."""
    observer = _process.observer
    if observer is None:
        return None
    operation = Operation(kind, step, descriptor, data, offset, path, directory, target, target_directory)
    observer.begin(operation)
    return operation


def _end(operation: Operation | None) -> None:
    """Tell the observer that it has been done."""
    if operation is not None and _process.observer is not None:
        _process.observer.end(operation)


def write_all(descriptor: int, data: bytes, step: str) -> None:
    """Write every byte of `data` at the descriptor's position, in two halves with a crash point between them.

    Where no harness listens there is one write: nobody can be held between the halves, and a kill tears the one write as well.
    """
    if not steps.is_watched():
        _write_fully(descriptor, data, step)
        return
    half = len(data) // 2
    _write_fully(descriptor, data[:half], step)
    steps.reach(f"{step}.write.half")
    _write_fully(descriptor, data[half:], step)


def write_pieces(descriptor: int, pieces: Sequence[bytes], step: str) -> None:
    """`write_all` of one piece after another (at most MOST_PIECES), without putting them together where no harness listens."""
    if steps.is_watched():
        if pieces:
            write_all(descriptor, b"".join(pieces), step)
        return
    if not pieces:
        return
    begun = _begin("write", step, descriptor, b"".join(pieces)) if _process.observer is not None else None
    written = os.writev(descriptor, pieces)
    if written != sum(map(len, pieces)):
        _write_rest(descriptor, memoryview(b"".join(pieces))[written:])
    _end(begun)


def _write_fully(descriptor: int, data: bytes, step: str) -> None:
    begun = _begin("write", step, descriptor, data)
    written = os.write(descriptor, data)
    if written != len(data):
        _write_rest(descriptor, memoryview(data)[written:])
    _end(begun)


def _write_rest(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


def append_record(descriptor: int, data: bytes, step: str) -> None:
    """Append `data` with one write and sync it. A short write raises: the caller seals the torn end."""
    append_unsynced(descriptor, data, step)
    sync_appended(descriptor, [step])


def append_unsynced(descriptor: int, data: bytes, step: str) -> None:
    """The first half of `append_record`: written, and to be synced before anybody is told."""
    steps.reach(f"{step}.append.before")
    begun = _begin("write", step, descriptor, data)
    written = os.write(descriptor, data)
    _end(begun)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
    steps.reach(f"{step}.append.unsynced")


def sync_appended(descriptor: int, names: Iterable[str], *, is_synced: bool = False) -> None:
    """The second half, for the steps `names`. `is_synced`: somebody else's sync, begun after these were written, has ended."""
    if not is_synced:
        begun = _begin("sync", "", descriptor)
        os.fdatasync(descriptor)
        _end(begun)
    tell_appended(names)


def tell_appended(names: Iterable[str]) -> None:
    """The end of the second half: the steps `names` are on disk."""
    for step in names:
        steps.reach(f"{step}.append.after")


def overwrite_tail(descriptor: int, offset: int, data: bytes, step: str) -> None:
    """Replace everything from `offset` on by `data`, synced; a crash in between leaves a torn end, which the next writer replaces again."""
    steps.reach(f"{step}.tail.before")
    begun = _begin("write", step, descriptor, data, offset)
    os.pwrite(descriptor, data, offset)
    _end(begun)
    begun = _begin("truncate", step, descriptor, offset=offset + len(data))
    os.ftruncate(descriptor, offset + len(data))
    _end(begun)
    begun = _begin("sync", step, descriptor)
    os.fdatasync(descriptor)
    _end(begun)
    steps.reach(f"{step}.tail.after")


def sync_file(descriptor: int, step: str) -> None:
    """Make a file's content durable."""
    steps.reach(f"{step}.sync.before")
    begun = _begin("sync", step, descriptor)
    os.fsync(descriptor)
    _end(begun)
    steps.reach(f"{step}.sync.after")


def sync_directory(path: Path, step: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(descriptor, step)
    finally:
        os.close(descriptor)


def make_directories(path: str, step: str, *, mode: int = 0o700, is_certain: bool = False) -> None:
    """Make a directory, and those above it that are missing, and make their names durable. Of one that is there nothing is done, but
    with `is_certain` its name is synced: whoever made it may have been killed before he did."""
    path = os.path.abspath(path)
    above = [os.path.dirname(path)] if is_certain or not os.path.isdir(path) else []
    while above and not os.path.isdir(above[-1]):
        above.append(os.path.dirname(above[-1]))
    os.makedirs(path, mode=mode, exist_ok=True)
    try:
        for directory in above:
            sync_directory(directory, step)
    except PermissionError:  # it may be entered and not be read
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_filesystem(descriptor, step)
        finally:
            os.close(descriptor)


def sync_filesystem(descriptor: int, step: str) -> None:
    """syncfs(2), checked: everything on the file system of `descriptor` is durable when this returns."""
    steps.reach(f"{step}.syncfs.before")
    begun = _begin("syncfs", step, descriptor)
    if _libc.syncfs(ctypes.c_int(descriptor)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    _end(begun)
    steps.reach(f"{step}.syncfs.after")


def rename(source: Path, target: Path, step: str, *, source_dir: int | None = None, target_dir: int | None = None) -> None:
    """Rename, replacing what is at `target`."""
    steps.reach(f"{step}.rename.before")
    begun = _begin("rename", step, path=source, directory=source_dir, target=target, target_directory=target_dir)
    os.rename(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir)
    _end(begun)
    steps.reach(f"{step}.rename.after")


def move(source: Path, target: Path, step: str, *, source_dir: int | None = None, target_dir: int | None = None) -> None:
    """Rename that replaces nothing: `FileExistsError` when `target` is there (R3: moves do not replace)."""
    steps.reach(f"{step}.move.before")
    begun = _begin("move", step, path=source, directory=source_dir, target=target, target_directory=target_dir)
    code = _renameat2(
        _AT_FDCWD if source_dir is None else source_dir,
        os.fsencode(source),
        _AT_FDCWD if target_dir is None else target_dir,
        os.fsencode(target),
        _RENAME_NOREPLACE,
    )
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(target))
    _end(begun)
    steps.reach(f"{step}.move.after")


def link(source: Path, target: Path, step: str, *, source_dir: int | None = None, target_dir: int | None = None) -> None:
    """Give a file, symlink (never followed) or FIFO a second name; `FileExistsError` when `target` is there."""
    steps.reach(f"{step}.link.before")
    begun = _begin("link", step, path=source, directory=source_dir, target=target, target_directory=target_dir)
    os.link(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False)
    _end(begun)
    steps.reach(f"{step}.link.after")


def unlink(path: Path, step: str, *, directory: int | None = None) -> None:
    """Remove a name the project itself made (I10: no restore unlinks anything else), or one that a caller of the delete tool names."""
    steps.reach(f"{step}.unlink.before")
    begun = _begin("unlink", step, path=path, directory=directory)
    os.unlink(path, dir_fd=directory)
    _end(begun)
    steps.reach(f"{step}.unlink.after")


def remove_cgroup(path: str) -> None:
    """Give an empty cgroup back to the kernel. It is no file and nothing durable hangs on it, so it is no crash point."""
    os.rmdir(path)


def remove_directory(path: Path, step: str, *, directory: int | None = None) -> None:
    """Remove an empty directory: as for `unlink`."""
    steps.reach(f"{step}.rmdir.before")
    begun = _begin("rmdir", step, path=path, directory=directory)
    os.rmdir(path, dir_fd=directory)
    _end(begun)
    steps.reach(f"{step}.rmdir.after")


def write_new(path: str, pieces: Iterable[bytes], step: str, *, mode: int = 0o600) -> None:
    """Write a file that is not there yet, from pieces, and sync it. `FileExistsError` when it is there; any failure takes it away again.

    What `pieces` raises comes out as it is.
    """
    begun = _begin("create", step, path=path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    _end(begun)
    try:
        try:
            steps.reach(f"{step}.write.before")
            for piece in pieces:
                _write_fully(descriptor, piece, step)
            steps.reach(f"{step}.write.after")
            sync_file(descriptor, step)
        finally:
            os.close(descriptor)
    except BaseException:
        _take_away(path, step)
        raise


def publish(path: str, data: bytes, step: str, *, mode: int = 0o600, replace: bool = True) -> None:
    """Write a whole file so that `path` holds either nothing new or all of `data`, durably.

    The temporary name is `<path>.new-<pid>`, in the same directory. With `replace=False` an existing `path` raises
    `FileExistsError` and stays as it is.
    """
    temporary = f"{path}.new-{os.getpid()}"
    begun = _begin("create", step, path=temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    _end(begun)
    try:
        try:
            write_all(descriptor, data, step)
            sync_file(descriptor, step)
        finally:
            os.close(descriptor)
    except OSError:
        _take_away(temporary, step)  # on a full disk, above all: what comes next needs the room
        raise
    if replace:
        rename(temporary, path, step)
    else:
        try:
            link(temporary, path, step)
        finally:
            unlink(temporary, step)
    sync_directory(os.path.dirname(path) or ".", step)


def _take_away(path: str, step: str) -> None:
    """Remove what was begun and failed. No crash point: a crash leaves it as it would in the middle of the writing."""
    begun = _begin("unlink", step, path=path)
    os.unlink(path)
    _end(begun)
