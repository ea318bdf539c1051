"""Who a process is, for ever: pid, start time, boot id, pid namespace (I8, cases 29 and 30). Names are for display only.

Nothing is signalled by number: a pidfd is opened first, then the identity compared, then the signal goes through the descriptor.
"""

import contextlib
import errno
import os
import select
from collections.abc import Iterator

import msgspec

from eventlog.ports import Host

_NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""What pidfd_open says of a number that is no process's: nobody has it, or it is a thread's by now (pids and thread ids are one sequence):
ENOENT from Linux 6.15 on, EINVAL before."""


class ProcessIdentity(msgspec.Struct, frozen=True):
    """`start_ticks` is field 22 of /proc/PID/stat: clock ticks since boot."""

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: int


def read_start_ticks(pid: int) -> int | None:
    """The start time of a process or zombie, or None when there is no such pid."""
    fields = read_stat(pid)
    return int(fields[19]) if fields else None


def read_stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name (state first), or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold blanks and parentheses; the last ")" ends it.
    return text[text.rindex(b")") + 2 :].decode("ascii").split()


def identify(pid: int, host: Host) -> ProcessIdentity | None:
    """The identity of a process of this boot and namespace."""
    ticks = read_start_ticks(pid)
    return None if ticks is None else ProcessIdentity(pid, ticks, host.boot_id(), host.pid_namespace())


def identify_self(host: Host) -> ProcessIdentity:
    """This process's identity."""
    identity = identify(os.getpid(), host)
    if identity is None:
        raise ProcessLookupError("this process is not in /proc")
    return identity


def open_pidfd(pid: int) -> int | None:
    """A pidfd of the process `pid`, or None where no process has that number (any more)."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in _NO_PROCESS:
            raise
        return None


@contextlib.contextmanager
def open_process(identity: ProcessIdentity, host: Host) -> Iterator[int | None]:
    """A pidfd of exactly this process, or None when it is dead (another boot, no such pid, or the pid is somebody else's now)."""
    if identity.boot_id != host.boot_id():
        yield None
        return
    descriptor = open_pidfd(identity.pid)
    if descriptor is None:
        yield None
        return
    try:
        same = read_start_ticks(identity.pid) == identity.start_ticks
        yield descriptor if same else None
    finally:
        os.close(descriptor)


def is_dead(descriptor: int) -> bool:
    """True when every thread of the process behind a pidfd has ended (a zombie leader with a living thread is alive)."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def is_alive(identity: ProcessIdentity, host: Host) -> bool:
    """True when exactly this process still runs."""
    with open_process(identity, host) as descriptor:
        return descriptor is not None and not is_dead(descriptor)
