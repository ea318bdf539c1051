"""Mounts beneath the workspace, from /proc/self/mountinfo: read before a walk, and asked after it whether any mount was made or taken away
meanwhile, so that no entry needs a look of its own.

The kernel counts what happens to mounts and tells it to whoever polls the open table, so that a mount that came and went during the walk is
seen too. Where the table cannot be had, `points` is None: then every entry is asked for its mount by statx.
"""

import functools
import os
import re
import select

_ESCAPED = re.compile(rb"\\([0-7]{3})")
_TABLE = "/proc/self/mountinfo"


class Mounts:
    """The mount points beneath an open directory, relative to it, as they stood when this was made. Close it."""

    def __init__(self, root: int) -> None:
        self._table: int | None = None
        self.points: frozenset[bytes] | None = None
        try:
            self._table = os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC)
            base = os.fsencode(os.readlink(f"/proc/self/fd/{root}"))
            if base.startswith(b"/") and not base.endswith(b" (deleted)"):
                self.points = _points_beneath(base, _read_all(self._table))
        except OSError:
            self.points = None  # no /proc here: the walk asks for each entry

    def have_changed(self) -> bool:
        """Whether any mount of this process's namespace was made, moved or taken away since."""
        if self._table is None:
            return False
        poll = select.poll()
        poll.register(self._table, select.POLLPRI)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self._table is not None:
            os.close(self._table)
            self._table = None


def _read_all(descriptor: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


@functools.lru_cache(maxsize=4)  # of most scans the table is that of the one before
def _points_beneath(base: bytes, table: bytes) -> frozenset[bytes]:
    prefix = base.rstrip(b"/") + b"/"
    points = (unescape(line.split(b" ", 5)[4]) for line in table.splitlines())
    return frozenset(point[len(prefix) :] for point in points if point.startswith(prefix) and len(point) > len(prefix))


def unescape(text: bytes) -> bytes:
    """A path as the mount table writes it, as it is."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), text) if b"\\" in text else text
