"""Stopping and ending a process by its identity (eventlog/process_identity.py).

Nothing is signalled by number: a pidfd is opened first, then the identity compared, then the signal goes through the descriptor.
"""

import contextlib
import select
import signal
from collections.abc import Callable

from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, open_process, read_stat
from recovery.space.allowance import LOOK_SECS, Allowance


def is_stopped(identity: ProcessIdentity) -> bool:
    """True when this process is stopped by a signal or a tracer."""
    fields = read_stat(identity.pid)
    return fields is not None and fields[0] in ("T", "t") and int(fields[19]) == identity.start_ticks


def kill_and_wait(
    identity: ProcessIdentity, host: Host, clock: Clock, seconds: float, condition: Callable[[], bool] = lambda: True
) -> bool:  # fmt: skip
    """SIGKILL exactly this process and wait for its death; False when it still lives after `seconds`.

    `condition` is asked once the process is held by its pidfd: where it is false nothing is signalled, and True is returned.
    """
    with open_process(identity, host) as descriptor:
        if descriptor is None or not condition():
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        allowance = Allowance(clock, seconds)
        while not poll.poll(int(min(seconds, LOOK_SECS) * 1000)):
            if allowance.is_spent():
                return False
        return True
