"""The first half of an advance: the floor and every fate in one ledger transaction, and the handshake with what was claimed (T2).

A session's takeover (recovery.takeover) and an advance by hand are the same act; which attempt may be claimed is told by the caller.
"""

from collections.abc import Collection

from eventlog.ports import Host
from eventlog.process_identity import is_alive
from recovery.space.ledger import Ledger, LedgerTransaction
from recovery.space.local import SpacePaths, greet_shim
from recovery.space.records import Advance, Attempt, Condemn, Fate, LedgerState


def advance_ledger(
    transaction: LedgerTransaction, epoch: int, log_id: str, seen: tuple[int, str], claimable: Collection[str], host: Host
) -> dict[str, Fate]:
    """Raise the floor and give every attempt without an exit its fate, in one record. Whether the floor may rise was checked by the caller
    in this transaction; `seen` is the newest log event that the ledger is to know."""
    state = transaction.state
    alive = {key for key, attempt in state.attempts.items() if attempt.is_open and _lives(attempt, host)}
    fates = choose_fates(state, claimable, alive)
    transaction.append_shared(Advance(epoch, log_id, *seen, fates, sorted(state.helpers), find_lost(state, alive)))
    return fates


def choose_fates(state: LedgerState, claimable: Collection[str], alive: Collection[str]) -> dict[str, Fate]:
    """The fate of every attempt without an exit record, and of what exited ones left alive (T2): that is condemned, the exit stays as it
    is. A running command that is claimable, never condemned before and whose shim lives by identity (`alive`) goes on. Pure."""
    fates: dict[str, Fate] = {}
    for key, attempt in state.attempts.items():
        if not attempt.is_open and not attempt.has_kept:
            continue
        is_claimed = (
            key in claimable
            and attempt.prepared.kind == "command"
            and attempt.start is not None
            and attempt.fate != "condemned"
            and attempt.is_open
            and key in alive
        )
        fates[key] = "claimed" if is_claimed else "condemned"
    return fates


def find_lost(ledger: LedgerState, alive: set[str]) -> list[str]:
    """Attempts that started, have no exit, and whose shim does not live (`alive`): how they ended nobody can tell any more. Pure."""
    return sorted(
        key
        for key, attempt in ledger.attempts.items()
        if attempt.is_open and attempt.start is not None and attempt.fate != "condemned" and key not in alive
    )


def _lives(attempt: Attempt, host: Host) -> bool:
    return (
        attempt.start is not None
        and attempt.start.identity.pid_namespace == host.pid_namespace()
        and is_alive(attempt.start.identity, host)
    )


def claimed_keys(ledger: LedgerState) -> list[str]:
    """Keys that this epoch claimed and that have no exit yet."""
    return [key for key, attempt in ledger.attempts.items() if attempt.is_open and attempt.fate == "claimed"]


def greet_claimed(ledger: Ledger, epoch: int, paths: SpacePaths) -> None:
    """A claim whose shim fails the handshake becomes a condemnation (T2), unless its exit was recorded meanwhile."""
    for key in claimed_keys(ledger.state):
        start = ledger.state.attempts[key].start
        if start is not None and greet_shim(paths, start.socket, key, start.identity, epoch):
            continue
        with ledger.transaction() as transaction:
            transaction.check_floor(epoch)
            found = transaction.state.find(key)
            if found is not None and found.is_open:
                transaction.append_shared(Condemn(epoch, [key]))


def claimed_shims(state: LedgerState) -> frozenset[int]:
    """The pids of the shims of claimed attempts: no sweep may end them."""
    starts = [state.attempts[key].start for key in claimed_keys(state)]
    return frozenset(start.identity.pid for start in starts if start is not None)
