"""Who of a session lives: drivers and commands at work on its log, spawners, file workers and shims, and what its cgroups hold.

Asks and names; judges nothing, ends nobody. What it does not find need not be dead: that is proved by a takeover's kills alone.
"""

import os
from collections.abc import Iterator

from eventlog.errors import CorruptError, LogMissingError
from eventlog.holder import describe
from eventlog.identity_files import Writing, read_identities
from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity, is_alive
from eventlog.show import show_text
from recovery.facts import LedgerFact
from recovery.gather import open_ledger_fact
from recovery.redrive.lock import find_redriver
from recovery.space.ledger import LedgerView
from recovery.space.marks.cgroup import read_members
from recovery.space.records import Attempt, LedgerState
from recovery.space.unlisted import list_unlisted
from recovery.state import SessionState


def find_living(state: str, ledger_path: str, session: SessionState, host: Host) -> list[str]:
    """One clause for each process of the session in `state` that lives, or that cannot be looked at from here. Where the ledger is not the
    one in force they are found by the space's marks alone.

    Raises CorruptError, LogMissingError, MisuseError for files of the log that cannot be read.
    """
    redriver = find_redriver(state)
    starting = [] if redriver is None else [f"the redriver, which would start the next driver ({describe(redriver)})"]
    return [*starting, *_living_writers(read_identities(state), host), *_living_in_space(ledger_path, session, host)]


def _living_writers(writing: list[Writing], host: Host) -> Iterator[str]:
    for one in writing:
        what = f"the driver of epoch {one.epoch}" if one.is_driver else "a command at work on its log"
        yield from _tell(one.identity, what, host)


def _living_in_space(ledger_path: str, session: SessionState, host: Host) -> Iterator[str]:
    found: LedgerView | LogMissingError | CorruptError
    try:
        found = LedgerView(ledger_path)
        found.close()
    except (LogMissingError, CorruptError) as error:
        found = error
    if isinstance(found, LedgerView) and open_ledger_fact(found, session) is LedgerFact.SOUND:
        yield from _living_in_ledger(found.state, host)
    else:
        yield from list_unlisted(session.opened.ledger_id, host)


def _living_in_ledger(ledger: LedgerState, host: Host) -> Iterator[str]:
    for helper in ledger.helpers.values():
        yield from _tell(helper.registered.identity, f"the {helper.registered.role} of epoch {helper.registered.epoch}", host)
    for attempt in ledger.attempts.values():
        if not attempt.is_resolved:
            yield from _living_of(attempt, host)


def _living_of(attempt: Attempt, host: Host) -> Iterator[str]:
    key = show_text(attempt.prepared.key)
    if attempt.start is not None and attempt.exit is None and attempt.prepared.kind == "command":
        yield from _tell(attempt.start.identity, f"the shim of {key}", host)
    _, _, leaf = attempt.prepared.mark.partition(":")
    for pid in read_members(leaf) if os.path.isabs(leaf) else ():
        if attempt.start is None or pid != attempt.start.identity.pid:
            yield f"process {pid} of {key}"


def _tell(identity: ProcessIdentity, what: str, host: Host) -> Iterator[str]:
    if identity.boot_id != host.boot_id():
        return  # the machine itself ended it
    if identity.pid_namespace != host.pid_namespace():
        yield f"{what} (process {identity.pid} of another pid namespace, which cannot be looked at from here)"
    elif identity.pid != os.getpid() and is_alive(identity, host):
        yield f"{what} (process {identity.pid})"
