"""The three files of an open log, compared with those at its path (L5). Asked by name, never by opening (L6)."""

import os

from eventlog.errors import LogMissingError
from eventlog.show import show_text

HeldFiles = tuple[tuple[int, int] | None, ...]
"""Device and inode of database, WAL and index; None for a side file that is not there."""


def look_at_files(path: str) -> HeldFiles:
    """What stands at `path` now. Raises LogMissingError when the database does not."""
    database = _identity(path)
    if database is None:
        raise LogMissingError(f"{show_text(path)}: the log is gone from its path; put it back before driving again")
    return database, _identity(path + "-wal"), _identity(path + "-shm")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None  # the caller says what a missing file means
    return status.st_dev, status.st_ino
