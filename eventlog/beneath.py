"""Directories below one root, reached component by component: no link is followed, no other mount entered, no path is too long or too deep.

A directory that is already open stays open for reuse, at most `_OPEN_LIMIT` at a time. An open directory is the inode, not the
name: whoever moves a directory away must `forget` it. Errors are `OSError`; ELOOP or ENOTDIR mean that a component is not a
directory, EXDEV that another file system is mounted on it.
"""

import errno
import os
from collections import OrderedDict
from types import TracebackType

from eventlog.image import name_of, parent_of
from eventlog.kernel import look_through

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_NODE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_LIMIT = 64


class Beneath:
    """Open directories of the tree at `root`. Use as a context manager; descriptors handed out are lent, not given."""

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._root_status = look_through(self._root)
        self._open: OrderedDict[bytes, int] = OrderedDict()

    def __enter__(self) -> "Beneath":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.forget_all()
        os.close(self._root)

    def directory(self, path: bytes) -> int:
        """A descriptor of the directory `path`, good until the next but `_OPEN_LIMIT` directories are opened or it is forgotten."""
        known, missing = self._find_known(path)
        descriptor = known
        for below in reversed(missing):
            descriptor = self._open_below(descriptor, below)
        return descriptor

    def parent(self, path: bytes) -> tuple[int, bytes]:
        """The open directory that holds `path`, and the name of `path` in it."""
        return self.directory(parent_of(path)), name_of(path)

    def forget(self, path: bytes) -> None:
        """Close what is open at and below `path`, because that name is about to stand for something else."""
        prefix = path + b"/"
        for known in [known for known in self._open if known == path or known.startswith(prefix)]:
            os.close(self._open.pop(known))

    def forget_all(self) -> None:
        """Close everything but the root."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _find_known(self, path: bytes) -> tuple[int, list[bytes]]:
        missing: list[bytes] = []
        while path:
            descriptor = self._open.get(path)
            if descriptor is not None:
                self._open.move_to_end(path)
                return descriptor, missing
            missing.append(path)
            path = parent_of(path)
        return self._root, missing

    def _open_below(self, directory: int, path: bytes) -> int:
        descriptor = os.open(name_of(path), OPEN_DIRECTORY, dir_fd=directory)
        if not look_through(descriptor).is_on_mount_of(self._root_status):
            os.close(descriptor)
            raise OSError(errno.EXDEV, "another file system is mounted there")
        if len(self._open) >= _OPEN_LIMIT:
            os.close(self._open.popitem(last=False)[1])
        self._open[path] = descriptor
        return descriptor
