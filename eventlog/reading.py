"""Opening a log to look at it, wherever it lies: a log in a directory that cannot be written is read as a copy of its two files.

SQLite needs its `-shm` beside a WAL, also to read. The copy is taken by a process without a log handle (L6), database first: what
the WAL then holds beyond it is replayed, and the copy is removed at the end.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from eventlog.errors import MisuseError
from eventlog.reader import Reader
from eventlog.show import show_text


@contextlib.contextmanager
def open_anywhere(path: str) -> Iterator[Reader]:
    """A reader of the log at `path`, or of a copy where SQLite cannot work. Raises LogMissingError, CorruptError, MisuseError."""
    with contextlib.ExitStack() as stack:
        place = path if _is_workable(path) else _copy(path, stack.enter_context(tempfile.TemporaryDirectory(prefix="eventlog-")))
        reader = Reader.open(place)
        reader.name = show_text(path)  # messages name what the person named
        stack.callback(reader.close)
        yield reader


def _is_workable(path: str) -> bool:
    directory = os.path.dirname(path) or "."
    if not os.path.exists(path):
        return True  # the reader says what is wrong
    read_only = bool(os.statvfs(directory).f_flag & os.ST_RDONLY) or not os.access(directory, os.W_OK)
    return not read_only


def _copy(path: str, directory: str) -> str:
    try:
        for name in (path, path + "-wal"):
            if os.path.exists(name):
                shutil.copyfile(name, os.path.join(directory, os.path.basename(name)))
    except OSError as error:
        raise MisuseError(f"{show_text(path)}: cannot be copied for reading: {error.strerror}; check that they are readable") from error
    return os.path.join(directory, os.path.basename(path))
