"""The file tools: write, edit and delete. They run only in the file worker (rule S6).

Ordering invariant: the new file is complete, with its mode and attributes, and synced in staging before missing parents are made
and before it takes its name by one rename. Killed at any instant, the path holds the old file or the new one, and nothing else in the
workspace but an empty parent differs.

What the caller asked for and cannot be (no such text, a directory in the way, no room) is a `ToolResult` with `ok` False, and then
nothing has changed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from eventlog import durable, steps
from eventlog.attributes import copy_xattrs, read_xattrs
from eventlog.beneath import OPEN_FILE, Beneath
from eventlog.image import name_of, parent_of
from eventlog.image_values import MODE_BITS
from eventlog.kernel import Status, kind_of, look_at, look_through
from eventlog.show import show_path
from recovery.workspace.observe import read_chunks
from recovery.workspace.resolve import PathRefused, resolve_inside
from recovery.workspace.staging import open_staging

_STAGED_MODE = 0o600
_NEW_FILE_MODE = 0o644
_NEW_DIRECTORY_MODE = 0o777
_KIND_WORDS = {"d": "directory", "p": "FIFO", "l": "symlink"}


class ToolResult(msgspec.Struct, frozen=True):
    """How a tool call ended. `message` is for the agent, names escaped; `broke_link`: the file had further names, which it left."""

    ok: bool
    message: str
    broke_link: bool = False


class _Refused(Exception):
    """A tool failure on the way; becomes a `ToolResult`."""


class _Existing(msgspec.Struct, frozen=True):
    """The file about to be replaced."""

    status: Status
    xattrs: bytes | None


def write_file(root: str, path: bytes, content: bytes, mode: int | None, side: str, step: str) -> ToolResult:
    """Make or replace the file `path` of the workspace with `content`.

    `mode` None keeps an existing file's twelve bits and gives a new one 0644. Attributes of an existing file are kept. Missing
    parents are made with the umask's mode. `side` is the side directory's path. Steps are `<step>.write.half`, `.sync.*`,
    `.mkdir.*`, `.rename.*`.
    """

    def work(tree: Beneath) -> ToolResult:
        real = resolve_inside(tree, path)
        existing = _look_at_existing(tree, real)
        return _replace(tree, real, content, mode, existing, side, step)

    return _attempt(root, "write", path, work)


def edit_file(root: str, path: bytes, old: bytes, new: bytes, side: str, step: str) -> ToolResult:
    """Replace the single occurrence of `old` in the file `path` by `new`; mode and attributes are kept. Steps as for `write_file`.

    Not found, found more than once (overlapping occurrences count) or empty: a failure.
    """

    def work(tree: Beneath) -> ToolResult:
        real = resolve_inside(tree, path)
        existing = _look_at_existing(tree, real)
        if existing is None:
            raise _Refused("there is no such file")
        edited = _edit(_read(tree, real), old, new)
        return _replace(tree, real, edited, None, existing, side, step)

    return _attempt(root, "edit", path, work)


def delete_path(root: str, path: bytes, step: str) -> ToolResult:
    """Remove the file, symlink (itself, whatever it leads to), FIFO or empty directory `path` of the workspace. Links on the way are
    followed inside the root. Steps are `<step>.unlink.*`, `.rmdir.*`.

    Nothing there, a directory that is not empty, a socket or a device: a failure.
    """

    def work(tree: Beneath) -> ToolResult:
        real = resolve_inside(tree, path, follows_last=False)
        directory, name = tree.parent(real)
        kind = kind_of(look_at(name, directory).mode)
        if kind == "d":
            durable.remove_directory(name, step, directory=directory)
        elif kind in ("f", "l", "p"):
            durable.unlink(name, step, directory=directory)
        else:
            raise _Refused("it is no file, link, FIFO or directory")
        return ToolResult(True, f"removed {show_path(real)}")

    return _attempt(root, "delete", path, work)


def _attempt(root: str, verb: str, path: bytes, work: Callable[[Beneath], ToolResult]) -> ToolResult:
    try:
        with Beneath(root) as tree:
            return work(tree)
    except (PathRefused, _Refused) as refusal:
        return ToolResult(False, f"cannot {verb} {show_path(path)}: {refusal}")
    except OSError as error:
        return ToolResult(False, f"cannot {verb} {show_path(path)}: {error.strerror}")


def _edit(content: bytes, old: bytes, new: bytes) -> bytes:
    if not old:
        raise _Refused("the text to replace is empty")
    at = content.find(old)
    if at < 0:
        raise _Refused("the text to replace is not in it")
    if content.find(old, at + 1) >= 0:
        raise _Refused("the text to replace is in it more than once")
    return content[:at] + new + content[at + len(old) :]


def _look_at_existing(tree: Beneath, real: bytes) -> _Existing | None:
    """The file at `real`, None when nothing is there; refuses anything that is not a regular file."""
    try:
        directory, name = tree.parent(real)
        status = look_at(name, directory)
    except FileNotFoundError:
        return None
    kind = kind_of(status.mode)
    if kind != "f":
        raise _Refused(f"it is a {_KIND_WORDS.get(kind, kind)}")
    with _open_regular(name, directory) as descriptor:
        return _Existing(look_through(descriptor), read_xattrs(descriptor))


def _read(tree: Beneath, real: bytes) -> bytes:
    directory, name = tree.parent(real)
    with _open_regular(name, directory) as descriptor:
        return b"".join(read_chunks(descriptor))


@contextmanager
def _open_regular(name: bytes, directory: int) -> Iterator[int]:
    descriptor = os.open(name, OPEN_FILE, dir_fd=directory)
    try:
        if kind_of(look_through(descriptor).mode) != "f":
            raise _Refused("it became another kind meanwhile")
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(tree: Beneath, real: bytes, content: bytes, mode: int | None, existing: _Existing | None, side: str, step: str) -> ToolResult:
    if mode is None:
        mode = _NEW_FILE_MODE if existing is None else existing.status.mode & MODE_BITS
    staging = open_staging(side)
    try:
        with _staged_file(staging, content, mode, existing, step) as staged:
            made = _make_parents(tree, parent_of(real), step)
            try:
                durable.rename(staged, name_of(real), step, source_dir=staging, target_dir=tree.directory(parent_of(real)))
            except OSError:
                _remove_parents(tree, made, step)
                raise
    finally:
        os.close(staging)
    return _say_done(real, content, existing)


def _say_done(real: bytes, content: bytes, existing: _Existing | None) -> ToolResult:
    message = f"{'made' if existing is None else 'replaced'} {show_path(real)} ({len(content)} bytes)"
    broke_link = existing is not None and existing.status.links > 1
    if broke_link:
        message += "; it had further names (hard links), which keep the old content"
    return ToolResult(True, message, broke_link)


@contextmanager
def _staged_file(staging: int, content: bytes, mode: int, existing: _Existing | None, step: str) -> Iterator[bytes]:
    """A complete, synced file in staging; removed again when the work inside fails."""
    name, descriptor = _create_staged(staging)
    try:
        try:
            durable.write_all(descriptor, content, step)
            if existing is not None:
                copy_xattrs(f"/proc/self/fd/{descriptor}", existing.xattrs)
            os.fchmod(descriptor, mode)
            durable.sync_file(descriptor, step)
        finally:
            os.close(descriptor)
        yield name
    except (OSError, PathRefused, _Refused):
        durable.unlink(name, step, directory=staging)
        raise


def _create_staged(staging: int) -> tuple[bytes, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    number = 0
    while True:
        name = b"tool-%d-%d" % (os.getpid(), number)
        try:
            return name, os.open(name, flags, _STAGED_MODE, dir_fd=staging)
        except FileExistsError:
            number += 1  # left by a killed worker with the same pid; the next restore clears it


class _MadeParents(msgspec.Struct):
    """Directories made for a new file, and the one they were made in with its time before."""

    above: bytes
    above_mtime_ns: int
    paths: list[bytes] = msgspec.field(default_factory=list)


def _make_parents(tree: Beneath, path: bytes, step: str) -> _MadeParents:
    """Make the missing directories down to `path`; those made are removed again when that fails with an `OSError`."""
    missing: list[bytes] = []
    while not _is_there(tree, path):
        missing.append(path)
        path = parent_of(path)
    made = _MadeParents(path, os.fstat(tree.directory(path)).st_mtime_ns)
    try:
        for one in reversed(missing):
            directory, name = tree.parent(one)
            steps.reach(f"{step}.mkdir.before")
            os.mkdir(name, _NEW_DIRECTORY_MODE, dir_fd=directory)
            steps.reach(f"{step}.mkdir.after")
            made.paths.append(one)
    except OSError:
        _remove_parents(tree, made, step)
        raise
    return made


def _is_there(tree: Beneath, path: bytes) -> bool:
    try:
        tree.directory(path)
    except FileNotFoundError:
        return False
    return True


def _remove_parents(tree: Beneath, made: _MadeParents, step: str) -> None:
    """Leave nothing changed, the time of the directory above included."""
    if not made.paths:
        return
    for path in reversed(made.paths):
        tree.forget(path)
        directory, name = tree.parent(path)
        durable.remove_directory(name, step, directory=directory)
    os.utime(tree.directory(made.above), ns=(made.above_mtime_ns, made.above_mtime_ns))
