"""Who of a session lives: drivers and commands at work on its log, spawners, file workers and shims, and what its cgroups hold.

Asks and names; judges nothing, ends nobody. What it does not find need not be dead: that is proved by a takeover's kills alone.
"""

import contextlib
import os
from collections.abc import Iterator

from eventlog.holder import describe
from eventlog.identity_files import Writing, read_identities
from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity, is_alive
from eventlog.show import show_text
from recovery.redrive.lock import find_redriver
from recovery.space.ledger import LedgerView
from recovery.space.records import Attempt, LedgerState


def find_living(state: str, ledger_path: str, host: Host) -> list[str]:
    """One clause for each process of the session in `state` that lives, or that cannot be looked at from here.

    Raises CorruptError, LogMissingError, MisuseError for files that cannot be read.
    """
    view = LedgerView(ledger_path)
    view.close()
    redriver = find_redriver(state)
    starting = [] if redriver is None else [f"the redriver, which would start the next driver ({describe(redriver)})"]
    return [*starting, *_living_writers(read_identities(state), host), *_living_in_space(view.state, host)]


def _living_writers(writing: list[Writing], host: Host) -> Iterator[str]:
    for one in writing:
        what = f"the driver of epoch {one.epoch}" if one.is_driver else "a command at work on its log"
        yield from _tell(one.identity, what, host)


def _living_in_space(ledger: LedgerState, host: Host) -> Iterator[str]:
    for helper in ledger.helpers.values():
        yield from _tell(helper.registered.identity, f"the {helper.registered.role} of epoch {helper.registered.epoch}", host)
    for attempt in ledger.attempts.values():
        if not attempt.is_resolved:
            yield from _living_of(attempt, host)


def _living_of(attempt: Attempt, host: Host) -> Iterator[str]:
    key = show_text(attempt.prepared.key)
    if attempt.start is not None and attempt.exit is None and attempt.prepared.kind == "command":
        yield from _tell(attempt.start.identity, f"the shim of {key}", host)
    for pid in _read_members(attempt.prepared.mark):
        if attempt.start is None or pid != attempt.start.identity.pid:
            yield f"process {pid} of {key}"


def _tell(identity: ProcessIdentity, what: str, host: Host) -> Iterator[str]:
    if identity.boot_id != host.boot_id():
        return  # the machine itself ended it
    if identity.pid_namespace != host.pid_namespace():
        yield f"{what} (process {identity.pid} of another pid namespace, which cannot be looked at from here)"
    elif identity.pid != os.getpid() and is_alive(identity, host):
        yield f"{what} (process {identity.pid})"


def _read_members(mark: str) -> list[int]:
    """The processes in the cgroup of a mark, and below it; none for other kinds of marks."""
    _, _, value = mark.partition(":")
    found: list[int] = []
    if os.path.isabs(value):
        for directory, _, _ in os.walk(value):
            with contextlib.suppress(OSError), open(f"{directory}/cgroup.procs", encoding="ascii") as file:
                found.extend(map(int, file.read().split()))
    return found
