"""`cgroup1:PATH`: a leaf of the freezer hierarchy of cgroup v1. Everything in it is frozen, so that nothing can fork, then killed, then
thawed to die, until no task is left in it.

A leaf shows only tasks that are visible in the reader's pid namespace, so that its emptiness proves nothing elsewhere: there the proof is
that the kernel lets it be removed.
"""

import contextlib

from eventlog import durable
from eventlog.errors import FenceIncompleteError
from eventlog.ports import Clock, Host
from recovery.space.allowance import Allowance
from recovery.space.marks.cgroup import (
    Leaf,
    check_visible,
    explain_writable,
    kill_listed,
    list_leaf,
    own_directory,
    remove_leaf,
    tell_undying,
)
from recovery.space.marks.process import kill_owner
from recovery.space.marks.values import COMMAND, DEATH_SECS, Target

FREEZE_SECS = 1.0
"""How long a leaf is waited for to freeze as a whole; after it what is there is killed all the same, and looked at again."""


def explain_freezer_base() -> tuple[str, str]:
    """A directory of the freezer hierarchy in which this process may make leaves and join them; or "", and why there is none."""
    base = own_directory("cgroup", "freezer", ":freezer:")
    return explain_writable(base) if base else ("", "no freezer hierarchy of cgroup v1 is mounted")


def kill_frozen(leaf: str, clock: Clock, seconds: float = DEATH_SECS) -> bool:
    """Kill everything in a leaf and below, and wait until it is empty; False when something still lives after `seconds`."""
    allowance = Allowance(clock, seconds)
    while list_leaf(leaf, "tasks"):
        _set_state(leaf, "FROZEN")
        frozen = clock.monotonic() + FREEZE_SECS
        while _read_state(leaf) == "FREEZING" and clock.monotonic() < frozen:
            clock.pause(0.001)
        kill_listed(leaf)
        _set_state(leaf, "THAWED")
        if allowance.is_spent():
            return False
        clock.pause(0.001)
    return True


def _set_state(leaf: str, state: str) -> None:
    with contextlib.suppress(FileNotFoundError, OSError), open(f"{leaf}/freezer.state", "w", encoding="ascii") as file:
        file.write(state)


def _read_state(leaf: str) -> str:
    with contextlib.suppress(OSError), open(f"{leaf}/freezer.state", encoding="ascii") as file:
        return file.read().strip()
    return ""


class Freezer(Leaf):
    """Kind `cgroup1`."""

    def _empty(self, leaf: str, clock: Clock) -> bool:
        return kill_frozen(leaf, clock)

    def kill(self, value: str, target: Target, host: Host, clock: Clock) -> None:
        if target.owner is not None:
            check_visible(value, target.owner, host)
        if not kill_frozen(value, clock):
            raise tell_undying(value)
        if target.owner is None:
            remove_leaf(value)
        elif target.owner.pid_namespace == host.pid_namespace():
            kill_owner(target, host, clock)  # one that had not joined yet
            remove_leaf(value)
        else:
            _prove_by_removal(value, target.owner.pid)


def _prove_by_removal(leaf: str, owner: int) -> None:
    for path in (leaf + COMMAND, leaf):
        try:
            with contextlib.suppress(FileNotFoundError):
                durable.remove_cgroup(path)
        except OSError as error:
            raise FenceIncompleteError(
                f"{path}, where process {owner} of another pid namespace was put, is in use by processes that cannot be seen from here "
                f"({error.strerror}); no workspace path was touched; end that container and drive again"
            ) from error
