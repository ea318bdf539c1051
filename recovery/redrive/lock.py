"""The lock of the one redriver of a session: `redriver.lock` in its state directory, a POSIX lock that dies with its process."""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator

from eventlog.errors import BusyError
from eventlog.holder import Holder, describe, look_up_holder
from eventlog.ports import Clock
from eventlog.show import show_text
from recovery.space.lock import FileLock

LOCK_NAME = "redriver.lock"


@contextlib.contextmanager
def claim(state: str, clock: Clock) -> Iterator[None]:
    """Be the one redriver of a session. Raises BusyError naming the one that is, OSError."""
    lock = FileLock(os.path.join(state, LOCK_NAME), clock, "redriver", 0.0)
    try:
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(lock.held())
            except BusyError as error:
                who = describe(error.holder)
                raise BusyError(f"{show_text(state)}: another redriver is at work on it ({who}); leave it to that", error.holder) from error
            yield
    finally:
        lock.close()


def find_redriver(state: str) -> Holder | None:
    """Who redrives a session now, None when nobody does. Not for the process that does: it would drop its own lock."""
    try:
        descriptor = os.open(os.path.join(state, LOCK_NAME), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else look_up_holder(max(pid, 0))
