"""The three files of an open log, compared with those at its path (L5). Asked by name, never by opening (L6)."""

import os

from eventlog.errors import LogMissingError
from eventlog.show import show_text

HeldFiles = tuple[tuple[int, int] | None, ...]
"""Device and inode of database, WAL and index; None for a side file that is not there."""


def look_at_files(path: str) -> HeldFiles:
    """What stands at `path` now. Raises LogMissingError when the database does not."""
    return look_at_names((path, path + "-wal", path + "-shm"))


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
