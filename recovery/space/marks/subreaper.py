"""Killing through a shim that lives: stopped, it inherits every orphan below it and reaps none, so that nobody gets away."""

import signal

from eventlog.errors import FenceIncompleteError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, is_dead, open_process
from recovery.space.allowance import Allowance
from recovery.space.identity import is_stopped
from recovery.space.marks.descendants import kill_descendants
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED


def kill_by_subreaper(owner: ProcessIdentity, spare: frozenset[int], host: Host, clock: Clock) -> bool:
    """Stop `owner` and kill everything below it but the trees of `spare`; False when it is dead, or ends meanwhile: then nothing is
    proved. Raises FenceIncompleteError."""
    with open_process(owner, host) as descriptor:
        if descriptor is None or is_dead(descriptor):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)  # it records nothing more either
        allowance = Allowance(clock, DEATH_SECS)
        while not is_stopped(owner) and not is_dead(descriptor):
            if allowance.is_spent():
                raise FenceIncompleteError(f"process {owner.pid} does not stop (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")
            clock.pause(0.001)
        kill_descendants(owner.pid, clock, spare)
        return not is_dead(descriptor)
