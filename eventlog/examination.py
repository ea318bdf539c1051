"""What can be told of a log's files without opening them with SQLite. Asks, and judges nothing; changes nothing."""

import os
import stat

import msgspec

from eventlog import connection
from eventlog.holder import describe
from eventlog.ports import Clock
from eventlog.preflight import filesystem_of

HEADER_BYTES = 100
LOCK_SECS = 2.0
"""A lock that is held this long is worth a word; a commit takes milliseconds."""
_POLL_SECS = 0.05


class Facts(msgspec.Struct, frozen=True):
    """A log's files. Sizes in bytes, None for a file that is not there; `holder` is "" when nobody holds the write lock for long;
    `names` counts the hard links of the database.
    """

    path: str
    size: int | None = None
    is_regular: bool = True
    is_readable: bool = True
    mode: int = 0o600
    header: bytes = b""
    wal_bytes: int | None = None
    shm_bytes: int | None = None
    filesystem: str = ""
    is_read_only: bool = False
    free_bytes: int = 1 << 40
    holder: str = ""
    has_journal: bool = False
    names: int = 1


def examine(path: str, clock: Clock) -> Facts:
    """The facts of the log at `path`. This process has no handle of it (L6)."""
    directory = os.path.dirname(os.path.realpath(path)) or "."
    wal, shm = _size(path + "-wal"), _size(path + "-shm")
    if not os.path.isdir(directory):
        return Facts(path)
    room = os.statvfs(directory)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        kind = filesystem_of(directory, file.read())
    read_only = bool(room.f_flag & os.ST_RDONLY) or not os.access(directory, os.W_OK | os.X_OK)
    free = room.f_bavail * room.f_frsize
    if not os.path.exists(path):
        return Facts(path, wal_bytes=wal, shm_bytes=shm, filesystem=kind, is_read_only=read_only, free_bytes=free)
    status = os.stat(path)
    regular, readable = stat.S_ISREG(status.st_mode), os.access(path, os.R_OK)
    header = _header(path) if regular and readable else b""
    holder = _find_holder(path, clock) if regular and shm is not None else ""
    return Facts(
        path, status.st_size, regular, readable, stat.S_IMODE(status.st_mode), header, wal, shm, kind, read_only, free, holder,
        os.path.lexists(path + "-journal"), status.st_nlink,
    )  # fmt: skip


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None  # not there, or out of reach: the facts of the log itself say which


def _header(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEADER_BYTES)


def _find_holder(path: str, clock: Clock) -> str:
    """Who holds the write lock and does not let go within LOCK_SECS."""
    deadline = clock.monotonic() + LOCK_SECS
    while (holder := connection.find_holder(path)) is not None:
        if clock.monotonic() >= deadline:
            return describe(holder)
        clock.pause(_POLL_SECS)
    return ""
