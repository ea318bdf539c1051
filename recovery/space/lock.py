"""The ledger's lock: a POSIX record lock on a file of its own, so that its holder can be named and dies with its process.

A process opens the lock file once and never opens it a second time (closing any descriptor of it would drop the lock). Locks are not
inherited by fork: a child that keeps the descriptor holds nothing.
"""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator

from eventlog.errors import BusyError
from eventlog.ports import Clock
from eventlog.show import show_text

FIRST_PAUSE_SECS = 0.0005
LONGEST_PAUSE_SECS = 0.02


class FileLock:
    """An exclusive lock between processes, with a bounded wait."""

    def __init__(self, path: str, clock: Clock, what: str = "ledger", seconds: float = 10.0) -> None:
        self._path = path
        self._what = what
        self._clock = clock
        self._seconds = seconds
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Give the lock file back; a lock that is held is dropped."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock. Raises BusyError naming the holder when it is not to be had within the bound (rule L4)."""
        self._acquire()
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _acquire(self) -> None:
        deadline = self._clock.monotonic() + self._seconds
        pause = FIRST_PAUSE_SECS
        while True:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
            if self._clock.monotonic() >= deadline:
                raise BusyError(
                    f"{show_text(self._path)}: the {self._what} is locked ({self._holder()}) for more than {self._seconds:g} s; "
                    "end that process and drive again"
                )
            self._clock.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECS)

    def _holder(self) -> str:
        question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(self._descriptor, fcntl.F_GETLK, question)
        pid = struct.unpack("hhqqi4x", answer)[4]
        return f"held by pid {pid}" if pid else "holder not visible from here"
