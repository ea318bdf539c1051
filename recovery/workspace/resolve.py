"""Where a path given by a tool leads inside the workspace, with links resolved by hand so that none leads out."""

import errno
import os

from eventlog.beneath import Beneath
from eventlog.kernel import kind_of, look_at
from recovery.workspace.side import RESERVED_NAME

_LINKS_LIMIT = 40


class PathRefused(Exception):
    """The path is not one a tool may write. The text says why, without naming the path."""


def resolve_inside(tree: Beneath, path: bytes, *, follows_last: bool = True) -> bytes:
    """The real path, relative to the root, that `path` names. Its last component, and then further ones before it, may be missing.

    Links in the way, and with `follows_last` at the end, are followed, at most 40, as long as they stay inside the root. Raises
    `PathRefused`, or `OSError` when a component cannot be looked at.
    """
    if not path or b"\0" in path or path.startswith(b"/"):
        raise PathRefused("it must be a path relative to the workspace")
    if path.endswith((b"/", b"/.", b"/..")) or path in (b".", b".."):
        raise PathRefused("it names a directory")
    return _Resolver(tree, path, follows_last).run()


class _Resolver:
    """Components still to walk, last first, and the real directories walked so far."""

    def __init__(self, tree: Beneath, path: bytes, follows_last: bool) -> None:
        self._tree = tree
        self._pending = path.split(b"/")[::-1]
        self._real: list[bytes] = []
        self._links = 0
        self._follows_last = follows_last
        self._missing = False

    def run(self) -> bytes:
        while self._pending:
            self._step(self._pending.pop())
            if self._real and self._real[0].startswith(RESERVED_NAME):
                raise PathRefused("the name is reserved")
        if not self._real:
            raise PathRefused("it names the workspace itself")
        return b"/".join(self._real)

    def _step(self, name: bytes) -> None:
        if name in (b"", b"."):
            return
        if name == b"..":
            self._go_up()
        elif self._missing:
            self._real.append(name)
        else:
            self._go_down(name)

    def _go_up(self) -> None:
        if self._missing:
            raise PathRefused("a directory on the way is missing")
        if not self._real:
            raise PathRefused("it leads out of the workspace")
        self._real.pop()

    def _go_down(self, name: bytes) -> None:
        directory = self._tree.directory(b"/".join(self._real))
        try:
            kind = kind_of(look_at(name, directory).mode)
        except FileNotFoundError:
            self._missing = True
            self._real.append(name)
            return
        if kind == "l" and (self._pending or self._follows_last):
            self._follow(os.readlink(name, dir_fd=directory))
            return
        if kind != "d" and self._pending:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._real.append(name)

    def _follow(self, target: bytes) -> None:
        self._links += 1
        if self._links > _LINKS_LIMIT:
            raise PathRefused("too many links on the way")
        if target.startswith(b"/"):
            raise PathRefused("a link on the way leads out of the workspace")
        self._pending += target.split(b"/")[::-1]
