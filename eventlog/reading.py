"""Opening a log to look at it, wherever it lies: a log in a directory that cannot be written is read as a copy of its two files.

SQLite needs its `-shm` beside a WAL, also to read. The copy is taken before this process has a handle of the log (L6), anew when a writer
was at work meanwhile, and is removed at the end.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator

from eventlog.copying import copy_log
from eventlog.held_files import check_wal_is_there, resolve_log
from eventlog.reader import Reader
from eventlog.show import show_text


@contextlib.contextmanager
def open_anywhere(path: str) -> Iterator[Reader]:
    """A reader of the log at `path`, or of a copy where SQLite cannot work.

    Raises LogMissingError, CorruptError, MisuseError, BusyError, FullError.
    """
    name, path = show_text(path), resolve_log(path)
    with contextlib.ExitStack() as stack:
        check_wal_is_there(path)  # a copy has no index to tell
        place = path if _is_workable(path) else copy_log(path, stack.enter_context(tempfile.TemporaryDirectory(prefix="eventlog-")))
        reader = Reader.open(place, name=name)  # messages name what the person named
        stack.callback(reader.close)
        yield reader


def _is_workable(path: str) -> bool:
    directory = os.path.dirname(path) or "."
    if not os.path.exists(path):
        return True  # the reader says what is wrong
    read_only = bool(os.statvfs(directory).f_flag & os.ST_RDONLY) or not os.access(directory, os.W_OK)
    return not read_only
