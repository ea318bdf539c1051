"""The three files of an open log, compared with those at its path (L5): by their names, or by the directory that has them while it is at
rest. Never by opening (L6)."""

import contextlib
import os

from eventlog.errors import CorruptError, LogMissingError, MisuseError
from eventlog.show import as_word, show_text

HeldFiles = tuple[tuple[int, int] | None, ...]
"""Device and inode of database, WAL and index; None for a side file that is not there."""
SETTLED_NS = 50_000_000
"""A directory's time tells of its changes once it is older by this much than the WAL's newest write: more than a tick of any kernel's clock
(1 to 10 ms), so that whatever is changed in it from then on bears another time."""


def resolve_log(path: str) -> str:
    """The place of the log itself, absolute: SQLite follows a symlink and keeps the side files beside the file that it leads to, and a
    process may change its directory while it has the log open."""
    return os.path.realpath(path) if os.path.islink(path) else os.path.abspath(path)


def check_one_name(path: str) -> None:
    """Raise MisuseError for a log that has a second name (a hard link). Each name has a WAL of its own: who writes under one of them knows
    nothing of what was written under the other, and damages it (SQLite, "How To Corrupt An SQLite Database File").

    The name under which a log is made is none: it goes away by itself, and with it what a killed maker has left.
    """
    if not os.path.exists(path) or os.stat(path).st_nlink <= 1:
        return
    directory, name = os.path.split(path)
    others = 0
    for other in os.listdir(directory or "."):
        with contextlib.suppress(FileNotFoundError):
            others += other.startswith(f"{name}.new-") and os.path.samefile(os.path.join(directory, other), path)
    if os.stat(path).st_nlink - others > 1:
        raise MisuseError(
            f"{show_text(path)}: this file has a second name (a hard link), and each name would have a WAL of its own: what is written "
            "under one damages the other; remove the other name, and copy log.sqlite and its -wal together where a second log is wanted"
        )


def look_at_files(path: str) -> HeldFiles:
    """What stands at `path` now. Raises LogMissingError when the database does not."""
    return look_at_names((path, path + "-wal", path + "-shm"))


class Held:
    """The files that a writing handle holds, and how to ask before each commit whether they still stand at their names.

    Names are exchanged, made and removed in their directory only, and that gives it another ctime: while the directory at its path is the
    one that was there when all three names were last compared, with the ctime it had then, the names lead where they led, and one look
    tells it. A ctime says so once it is settled: by the times of one file system, the WAL was written at least SETTLED_NS after it and
    before the names were compared. A directory that changes all the time only costs the look at the names.

    `files` are those that stood there when this was made. Raises LogMissingError when the database did not.
    """

    __slots__ = ("_directory", "_names", "_settled", "files")

    def __init__(self, path: str) -> None:
        self._names = (path, path + "-wal", path + "-shm")
        self._directory = os.path.dirname(path)
        self._settled: tuple[int, int, int] | None = None
        self.files = look_at_names(self._names)

    def are_in_place(self) -> bool:
        """Whether the names lead to the files held. Raises LogMissingError when the database's leads nowhere."""
        try:
            found = os.stat(self._directory)
        except FileNotFoundError:
            return look_at_names(self._names) == self.files
        directory = found.st_ctime_ns, found.st_ino, found.st_dev
        return directory == self._settled or self._compare(directory)

    def _compare(self, directory: tuple[int, int, int]) -> bool:
        """The names compared, one by one; `directory` was looked at before."""
        self._settled = None
        if look_at_names(self._names) != self.files:
            return False
        if self.files[1] is not None and os.stat(self._names[1]).st_ctime_ns - directory[0] > SETTLED_NS:
            self._settled = directory
        return True


def look_at_names(names: tuple[str, str, str]) -> HeldFiles:
    """`look_at_files` for names made beforehand: database, WAL, index."""
    try:
        database, wal, index = map(os.stat, names)
        return (database.st_dev, database.st_ino), (wal.st_dev, wal.st_ino), (index.st_dev, index.st_ino)
    except FileNotFoundError:
        return _look_at_each(names)


def _look_at_each(names: tuple[str, str, str]) -> HeldFiles:
    database = _identity(names[0])
    if database is None:
        raise LogMissingError(f"{show_text(names[0])}: the log is gone from its path; put it back before driving again")
    return database, _identity(names[1]), _identity(names[2])


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None  # the caller says what a missing file means
    return status.st_dev, status.st_ino


def check_wal_is_there(path: str) -> None:
    """Raise CorruptError where the WAL is gone and its index is not: whoever opens such a log begins a new WAL in silence, and with the old
    one go the commits since the last checkpoint. Beside a process that has the log open, two WALs would then share one index.

    SQLite makes the WAL before the index and removes it after: so the state is never one in between.
    """
    index, wal = path + "-shm", path + "-wal"
    if os.path.exists(index) and not os.path.exists(wal) and os.path.exists(index):
        name = show_text(path)
        raise CorruptError(
            f"{name}: its -wal is gone and its -shm is not: somebody removed it, and what was committed since the last checkpoint with it; "
            f"put {name}-wal back, or remove {name}-shm to go on without it (`eventlog doctor {as_word(name)}` says what else can tell)"
        )
