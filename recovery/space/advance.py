"""An advance of the space by itself: fates in one ledger transaction, then the condemned are killed and proved dead (T2, T3).

A session's takeover (recovery.takeover) and an advance by hand are the same act; which attempt may be claimed is told by the caller.
"""

from collections.abc import Collection

from eventlog import steps
from eventlog.ports import Clock, Host
from eventlog.process_identity import is_alive
from recovery.space.ledger import Ledger, LedgerTransaction
from recovery.space.local import SpacePaths, greet_shim
from recovery.space.marks import kill_mark
from recovery.space.records import Advance, Attempt, Condemn, Fate, Helper, LedgerState, ProvedDead


def advance_ledger(
    transaction: LedgerTransaction, epoch: int, log_id: str, seen: tuple[int, str], claimable: Collection[str], host: Host
) -> dict[str, Fate]:
    """Raise the floor and give every attempt without an exit its fate, in one record. Whether the floor may rise was checked by the caller
    in this transaction; `seen` is the newest log event that the ledger is to know."""
    state = transaction.state
    alive = {key for key, attempt in state.attempts.items() if attempt.is_open and _lives(attempt, host)}
    fates = choose_fates(state, claimable, alive)
    transaction.append(Advance(epoch, log_id, *seen, fates, sorted(state.helpers), find_lost(state, alive)))
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
            and attempt.is_open
            and attempt.prepared.kind == "command"
            and attempt.start is not None
            and attempt.fate != "condemned"
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
                transaction.append(Condemn(epoch, [key]))


def kill_condemned(ledger: Ledger, epoch: int, clock: Clock, host: Host) -> None:
    ledger.refresh()
    state = ledger.state
    condemned = {key: attempt for key, attempt in state.attempts.items() if attempt.fate == "condemned" and not attempt.is_proved_dead}
    helpers = {mark: helper for mark, helper in state.helpers.items() if helper.condemned}
    if not condemned and not helpers:
        return
    spare = frozenset(_shim_pid(state.attempts[key]) for key in claimed_keys(state))
    # The spawner dies first: then no fork of it can still join an attempt's mark. With the environment mark the shims die first, while
    # they live as subreapers: what is below a spawner is killed with it. A fork that is not registered yet is stopped by the floor.
    by_descent = {mark: helper for mark, helper in helpers.items() if mark.startswith("environment:")}
    _kill_helpers({mark: helper for mark, helper in helpers.items() if mark not in by_descent}, clock, host, spare)
    _kill_attempts(condemned, clock, host)
    _kill_helpers(by_descent, clock, host, spare)
    steps.reach("ledger.proved_dead.before")
    with ledger.transaction() as transaction:
        transaction.check_floor(epoch)
        transaction.append(ProvedDead(epoch, sorted(condemned), sorted(helpers)))


def _shim_pid(attempt: Attempt) -> int:
    return attempt.start.identity.pid if attempt.start is not None else 0


def _kill_helpers(helpers: dict[str, Helper], clock: Clock, host: Host, spare: frozenset[int]) -> None:
    for mark, helper in sorted(helpers.items()):
        kill_mark(mark, helper.registered.identity, host, clock, has_command=False, spare=spare)


def _kill_attempts(condemned: dict[str, Attempt], clock: Clock, host: Host) -> None:
    for _, attempt in sorted(condemned.items()):
        if attempt.prepared.kind == "command":
            owner, first = (attempt.start.identity, attempt.start.first) if attempt.start is not None else (None, None)
            if attempt.start is not None and attempt.start.mark:
                # A shim beside its command's mark dies first: then it forks nothing more into that.
                kill_mark(attempt.start.mark, owner, host, clock, has_command=False)
            kill_mark(attempt.prepared.mark, owner, host, clock, has_command=owner is not None and attempt.exit is None, first=first)
