"""A private copy of a log's database and WAL, to look at a log without touching it, or to open what is damaged.

Taken before this process has any handle of the log (L6), database first. When the files change while they are copied the copy is taken
anew: a checkpoint in between would leave a copy that never was a log.
"""

import errno
import os
import shutil

from eventlog import durable
from eventlog.errors import BusyError, FullError, LogMissingError, MisuseError
from eventlog.show import show_text

TRIES = 5
_Signature = tuple[tuple[int, int, int] | None, ...]


def copy_log(path: str, directory: str) -> str:
    """Copy the log at `path` into an existing directory; the path of the copy.

    Raises LogMissingError, BusyError, MisuseError, FullError.
    """
    if not os.path.exists(path):
        raise LogMissingError(f"{show_text(path)}: there is no log here; check the path, or restore the file")
    target = os.path.join(directory, "log.sqlite")
    for _ in range(TRIES):
        before = _signature(path)
        try:
            for suffix in ("", "-wal"):
                if os.path.exists(path + suffix):
                    shutil.copyfile(path + suffix, target + suffix)
                elif os.path.exists(target + suffix):
                    durable.unlink(target + suffix, "copy")  # of the try before, when there still was one
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise FullError(
                    f"{show_text(directory)}: no room left for a copy of {show_text(path)}; make room there, or name a place that has it "
                    "in TMPDIR"
                ) from error
            raise MisuseError(f"{show_text(path)}: cannot be copied into {show_text(directory)} ({error.strerror})") from error
        if _signature(path) == before:
            return target
    raise BusyError(f"{show_text(path)}: a driver is writing to it all the while; wait for it, or end it, and run the same command again")


def _signature(path: str) -> _Signature:
    return tuple(_identify(path + suffix) for suffix in ("", "-wal"))


def _identify(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
