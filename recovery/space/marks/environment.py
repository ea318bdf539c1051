"""`environment:NAME`: session, subreaper and an environment variable; the weakest mark, to be had everywhere.

Death is proved only while the shim lives as subreaper and has no living child; with the shim gone nothing is proved
under this boot: DeathUnprovedError. What still carries the variable is ended then too, and what may belong to it is named.
"""

import os

from eventlog.errors import DeathUnprovedError, MisuseError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, identify, read_stat
from recovery.space.identity import kill_and_wait
from recovery.space.marks.descendants import describe, end_children, is_zombie, list_living, list_processes
from recovery.space.marks.process import check_namespace, kill_owner
from recovery.space.marks.subreaper import kill_by_subreaper
from recovery.space.marks.values import DEATH_SECS, ENVIRONMENT_VARIABLE, Joined, Target


class Environment:
    """Kind `environment`; the value is what the variable holds after the kind."""

    def join(self, value: str) -> Joined:
        return Joined()  # the owner makes itself a subreaper, its command gets the variable

    def join_command(self, value: str) -> None:
        """Nothing more: the variable comes with the command's environment."""

    def list_members(self, value: str, joined: Joined) -> list[int]:
        return list_living(os.getpid())

    def end_members(self, value: str, joined: Joined, host: Host, clock: Clock) -> None:
        end_children(clock)

    def keep_members(self, value: str, joined: Joined) -> None:
        raise MisuseError("the environment mark proves nothing of what outlives its shim, so nothing can be kept; use another kill mark")

    def kill(self, value: str, target: Target, host: Host, clock: Clock) -> None:
        if target.owner is None:
            return
        check_namespace(target.owner, host)
        if target.is_owner_spared:
            return  # nothing is kept under this mark
        if not kill_by_subreaper(target.owner, target.spare, host, clock) and target.has_command:
            raise _tell_unproved(f"environment:{value}", target.owner, host, clock)
        kill_owner(target, host, clock)

    def release(self, value: str) -> None:
        """Nothing is held."""


def _tell_unproved(mark: str, owner: ProcessIdentity, host: Host, clock: Clock) -> DeathUnprovedError:
    for pid in _find_carriers(mark):
        identity = identify(pid, host)
        if identity is not None:
            kill_and_wait(identity, host, clock, DEATH_SECS)
    suspects = find_orphans_since(owner)
    named = f"; orphans since then, which may be among them: {describe(suspects)}" if suspects else ""
    return DeathUnprovedError(
        f"shim {owner.pid} is dead and only the environment mark is in force, so the death of what its command started "
        f"cannot be proved{named}; end it, and another boot is proof"
    )


def _find_carriers(mark: str) -> list[int]:
    """Processes whose environment carries this very mark."""
    wanted = f"{ENVIRONMENT_VARIABLE}={mark}".encode("utf-8", "surrogateescape")
    found = []
    for pid in list_processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue  # it ended meanwhile, or is another person's
    return found


def find_orphans_since(owner: ProcessIdentity) -> list[int]:
    """Living processes of this user that began not before `owner` and whose parent is gone: whoever escaped looks like this."""
    found = []
    for pid in list_processes():
        fields = read_stat(pid)
        if fields is None or int(fields[1]) != 1 or int(fields[19]) < owner.start_ticks or is_zombie(pid):
            continue
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.geteuid():
                found.append(pid)
        except FileNotFoundError:
            continue
    return found
