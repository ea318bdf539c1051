"""Every fsync, rename, link, unlink and directory sync of the project. Nothing else calls them (a house test says so).

Ordering invariants of the functions here: a file is synced before it gets its name (`publish`), and the directory is synced before
the function that promised durability returns. Each operation passes the steps `<step>.<operation>.before` and `.after`, so
that a campaign can crash on either side of it; `write_all` also passes `<step>.write.half` between the two halves of what it writes.

Paths are bytes or str, absolute or relative to a directory descriptor. Errors are the operating system's own `OSError`.
"""

import ctypes
import errno
import os
from collections.abc import Iterable, Sequence

from eventlog import steps

Path = bytes | str
MOST_PIECES = 1024
"""What one writev takes (IOV_MAX of Linux)."""
_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = _libc.renameat2
_renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100


def write_all(descriptor: int, data: bytes, step: str) -> None:
    """Write every byte of `data` at the descriptor's position, in two halves with a crash point between them.

    Where no harness listens there is one write: nobody can be held between the halves, and a kill tears the one write as well.
    """
    if not steps.is_watched():
        written = os.write(descriptor, data)
        if written != len(data):
            _write_fully(descriptor, memoryview(data)[written:])
        return
    half = len(data) // 2
    _write_fully(descriptor, memoryview(data)[:half])
    steps.reach(f"{step}.write.half")
    _write_fully(descriptor, memoryview(data)[half:])


def write_pieces(descriptor: int, pieces: Sequence[bytes], step: str) -> None:
    """`write_all` of one piece after another (at most MOST_PIECES), without putting them together where no harness listens."""
    if steps.is_watched():
        if pieces:
            write_all(descriptor, b"".join(pieces), step)
        return
    written = os.writev(descriptor, pieces) if pieces else 0
    if written != sum(map(len, pieces)):
        _write_fully(descriptor, memoryview(b"".join(pieces))[written:])


def _write_fully(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


def append_record(descriptor: int, data: bytes, step: str) -> None:
    """Append `data` with one write and sync it. A short write raises: the caller seals the torn end."""
    append_unsynced(descriptor, data, step)
    sync_appended(descriptor, [step])


def append_unsynced(descriptor: int, data: bytes, step: str) -> None:
    """The first half of `append_record`: written, and to be synced before anybody is told."""
    steps.reach(f"{step}.append.before")
    written = os.write(descriptor, data)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
    steps.reach(f"{step}.append.unsynced")


def sync_appended(descriptor: int, names: Iterable[str], *, is_synced: bool = False) -> None:
    """The second half, for the steps `names`. `is_synced`: somebody else's sync, begun after these were written, has ended."""
    if not is_synced:
        os.fdatasync(descriptor)
    tell_appended(names)


def tell_appended(names: Iterable[str]) -> None:
    """The end of the second half: the steps `names` are on disk."""
    for step in names:
        steps.reach(f"{step}.append.after")


def overwrite_tail(descriptor: int, offset: int, data: bytes, step: str) -> None:
    """Replace everything from `offset` on by `data`, synced; a crash in between leaves a torn end, which the next writer replaces again."""
    steps.reach(f"{step}.tail.before")
    os.pwrite(descriptor, data, offset)
    os.ftruncate(descriptor, offset + len(data))
    os.fdatasync(descriptor)
    steps.reach(f"{step}.tail.after")


def sync_file(descriptor: int, step: str) -> None:
    """Make a file's content durable."""
    steps.reach(f"{step}.sync.before")
    os.fsync(descriptor)
    steps.reach(f"{step}.sync.after")


def sync_directory(path: Path, step: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(descriptor, step)
    finally:
        os.close(descriptor)


def sync_filesystem(descriptor: int, step: str) -> None:
    """syncfs(2), checked: everything on the file system of `descriptor` is durable when this returns."""
    steps.reach(f"{step}.syncfs.before")
    if _libc.syncfs(ctypes.c_int(descriptor)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    steps.reach(f"{step}.syncfs.after")


def rename(source: Path, target: Path, step: str, *, source_dir: int | None = None, target_dir: int | None = None) -> None:
    """Rename, replacing what is at `target`."""
    steps.reach(f"{step}.rename.before")
    os.rename(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir)
    steps.reach(f"{step}.rename.after")


def move(source: Path, target: Path, step: str, *, source_dir: int | None = None, target_dir: int | None = None) -> None:
    """Rename that replaces nothing: `FileExistsError` when `target` is there (R3: moves do not replace)."""
    steps.reach(f"{step}.move.before")
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
    steps.reach(f"{step}.move.after")


def link(source: Path, target: Path, step: str, *, source_dir: int | None = None, target_dir: int | None = None) -> None:
    """Give a file, symlink (never followed) or FIFO a second name; `FileExistsError` when `target` is there."""
    steps.reach(f"{step}.link.before")
    os.link(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False)
    steps.reach(f"{step}.link.after")


def unlink(path: Path, step: str, *, directory: int | None = None) -> None:
    """Remove a name the project itself made (I10: no restore unlinks anything else), or one that a caller of the delete tool names."""
    steps.reach(f"{step}.unlink.before")
    os.unlink(path, dir_fd=directory)
    steps.reach(f"{step}.unlink.after")


def remove_cgroup(path: str) -> None:
    """Give an empty cgroup back to the kernel. It is no file and nothing durable hangs on it, so it is no crash point."""
    os.rmdir(path)


def remove_directory(path: Path, step: str, *, directory: int | None = None) -> None:
    """Remove an empty directory: as for `unlink`."""
    steps.reach(f"{step}.rmdir.before")
    os.rmdir(path, dir_fd=directory)
    steps.reach(f"{step}.rmdir.after")


def write_new(path: str, pieces: Iterable[bytes], step: str, *, mode: int = 0o600) -> None:
    """Write a file that is not there yet, from pieces, and sync it. `FileExistsError` when it is there; any failure takes it away again.

    What `pieces` raises comes out as it is.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            steps.reach(f"{step}.write.before")
            for piece in pieces:
                _write_fully(descriptor, memoryview(piece))
            steps.reach(f"{step}.write.after")
            sync_file(descriptor, step)
        finally:
            os.close(descriptor)
    except BaseException:
        os.unlink(path)
        raise


def publish(path: str, data: bytes, step: str, *, mode: int = 0o600, replace: bool = True) -> None:
    """Write a whole file so that `path` holds either nothing new or all of `data`, durably.

    The temporary name is `<path>.new-<pid>`, in the same directory. With `replace=False` an existing `path` raises
    `FileExistsError` and stays as it is.
    """
    temporary = f"{path}.new-{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            write_all(descriptor, data, step)
            sync_file(descriptor, step)
        finally:
            os.close(descriptor)
    except OSError:
        os.unlink(temporary)  # on a full disk, above all: what comes next needs the room
        raise
    if replace:
        rename(temporary, path, step)
    else:
        try:
            link(temporary, path, step)
        finally:
            unlink(temporary, step)
    sync_directory(os.path.dirname(path) or ".", step)
