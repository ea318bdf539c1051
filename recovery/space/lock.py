"""The ledger's lock: a POSIX record lock on a file of its own, so that its holder can be named and dies with its process.

A process opens the lock file once and never opens it a second time (closing any descriptor of it would drop the lock). Locks are not
inherited by fork: a child that keeps the descriptor holds nothing.
"""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator

from eventlog.errors import BusyError
from eventlog.holder import Holder, describe, look_up_holder
from eventlog.ports import Clock
from eventlog.show import show_text
from recovery.space.private import open_private

SHORTEST_PAUSE_SECS = 0.0001
LONGEST_PAUSE_SECS = 0.02
PAUSE_SHARE = 0.25
"""A lock that was let go is taken within this share of the time that it was waited for. There is no wait for a POSIX lock that ends at a
deadline, but by a signal; most hold it for less than a first pause takes to pass, and one who is frozen is asked for 50 times a second."""
LOCK_SECS = 10.0
"""The bound of whoever judges no holder (spawner, shims, file worker, the registry): above a driver's, which ends who does not let go."""


def try_lock(descriptor: int, byte: int | None = None) -> bool:
    """Take the lock on a file, or on one byte of it; False when another process has it."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, *_range(byte))
        return True
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False


def unlock(descriptor: int, byte: int | None = None) -> None:
    """Let that lock go."""
    fcntl.lockf(descriptor, fcntl.LOCK_UN, *_range(byte))


def _range(byte: int | None) -> tuple[int, int]:
    return (0, 0) if byte is None else (1, byte)


def choose_pause(waited: float) -> float:
    """How long to pause before the next look at what has been waited for so long, both in seconds. Pure."""
    return min(max(SHORTEST_PAUSE_SECS, PAUSE_SHARE * waited), LONGEST_PAUSE_SECS)


class FileLock:
    """An exclusive lock between processes, with a bounded wait."""

    def __init__(self, path: str, clock: Clock, what: str = "ledger", seconds: float = LOCK_SECS) -> None:
        self._path = path
        self._what = what
        self._clock = clock
        self._seconds = seconds
        self._unlock: Callable[[BusyError], bool] | None = None
        self._descriptor = open_private(path, os.O_RDWR | os.O_CREAT, f"the lock of the {what}")

    def judge_holders(self, seconds: float, unlock: Callable[[BusyError], bool]) -> None:
        """From now on wait `seconds` and then ask `unlock`: True when the holder is gone and the lock is to be tried for again."""
        self._seconds, self._unlock = seconds, unlock

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
            unlock(self._descriptor)

    def _acquire(self) -> None:
        while True:
            try:
                self._acquire_in_time()
                return
            except BusyError as error:
                if self._unlock is None or not self._unlock(error):
                    raise

    def _acquire_in_time(self) -> None:
        began = self._clock.monotonic()
        while True:
            if try_lock(self._descriptor):
                return
            waited = self._clock.monotonic() - began
            if waited >= self._seconds:
                holder = self.find_holder()
                raise BusyError(
                    f"{show_text(self._path)}: LogBusy: {describe(holder)}; the {self._what} is locked for more than "
                    f"{self._seconds:g} s; end that process and drive again",
                    holder,
                )
            self._clock.pause(choose_pause(waited))

    def find_holder(self) -> Holder | None:
        """Who holds the lock, None when nobody else does."""
        question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(self._descriptor, fcntl.F_GETLK, question))
        return None if kind == fcntl.F_UNLCK else look_up_holder(max(pid, 0))
