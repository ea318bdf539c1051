"""`process:NAME`: a helper that executes nothing, known by its recorded identity alone. What the spawner forked and what is not on record
yet is stopped by the floor (S4), and what is on record has a mark of its own."""

from eventlog.errors import DeathUnprovedError, FenceIncompleteError, MisuseError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from recovery.space.identity import kill_and_wait
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED, Joined, Target


def check_namespace(owner: ProcessIdentity, host: Host) -> None:
    """Raise FenceIncompleteError for a process of another pid namespace: its pid means nothing here (S9)."""
    if owner.pid_namespace != host.pid_namespace():
        raise DeathUnprovedError(f"process {owner.pid} was seen in another pid namespace and cannot be proved dead from here", True)


def kill_owner(target: Target, host: Host, clock: Clock) -> None:
    """Kill exactly the owner, unless it is to be left alone, and wait for its death. Raises FenceIncompleteError."""
    owner = target.owner
    if owner is None or target.is_owner_spared:
        return
    if not kill_and_wait(owner, host, clock, DEATH_SECS):
        raise FenceIncompleteError(f"process {owner.pid} does not die (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")


class Process:
    """Kind `process`; the value only tells marks apart."""

    def join(self, value: str) -> Joined:
        return Joined()

    def join_command(self, value: str) -> None:
        raise MisuseError(f"process:{value} is the mark of a helper, and has no command")

    def list_members(self, value: str, joined: Joined) -> list[int]:
        return []

    def end_members(self, value: str, joined: Joined, host: Host, clock: Clock) -> None:
        """There are none."""

    def keep_members(self, value: str, joined: Joined) -> None:
        """There are none."""

    def kill(self, value: str, target: Target, host: Host, clock: Clock) -> None:
        if target.owner is not None:
            check_namespace(target.owner, host)
            kill_owner(target, host, clock)

    def release(self, value: str) -> None:
        """Nothing is held."""
