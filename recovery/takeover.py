"""Taking a session over, steps 2 and 3 of rule T: fates in one ledger transaction, then the condemned are killed and proved dead.

Step 1 (the log's floor) is Journal.raise_floor; step 4 (gather) may begin only when `take_over` has returned. Ordering: the floor
of the ledger is raised and every attempt without an exit record gets its fate in one record, so that an exit can only stand before
it (clean) or after it (cut).
"""

from eventlog import steps
from eventlog.ports import Clock, Host
from eventlog.process_identity import is_alive
from recovery.space.epochs import check_advance
from recovery.space.ledger import Ledger
from recovery.space.local import SpacePaths, greet_shim
from recovery.space.marks import kill_mark, release_mark
from recovery.space.records import Advance, Attempt, Condemn, Fate, Helper, LedgerState, ProvedDead
from recovery.state import SessionState


def take_over(
    ledger: Ledger, state: SessionState, hashes: list[str], log_id: str, epoch: int, paths: SpacePaths, clock: Clock, host: Host,
    may_claim: bool = True,
) -> None:  # fmt: skip
    """Advance the ledger to `epoch`, give fates, kill what is condemned; without `may_claim` a running command too (a restore undoes its
    call). Raises StaleEpochError, EpochTakenError, FenceIncompleteError."""
    _give_fates(ledger, state, hashes, log_id, epoch, host, may_claim)
    _greet_claimed(ledger, epoch, paths)
    _kill_condemned(ledger, epoch, clock, host)
    _release_settled(ledger, state)
    steps.reach("takeover.killed")


def _give_fates(ledger: Ledger, state: SessionState, hashes: list[str], log_id: str, epoch: int, host: Host, may_claim: bool) -> None:
    steps.reach("ledger.advance.before")
    with ledger.transaction() as transaction:
        check_advance(epoch, transaction.state.floor, ledger.name, log_epoch=epoch)
        # A log that lacks what the ledger has seen stays behind in the ledger's memory: this takeover's own events must not cover it (D2).
        seen = (state.head_seq, state.head_hash) if is_abreast(transaction.state, hashes) else (0, "")
        alive = {key for key, attempt in transaction.state.attempts.items() if attempt.is_open and _lives(attempt, host)}
        fates = choose_fates(transaction.state, state, alive if may_claim else set())
        helpers = sorted(transaction.state.helpers)
        transaction.append(Advance(epoch, log_id, *seen, fates, helpers, find_lost(transaction.state, alive)))


def find_lost(ledger: LedgerState, alive: set[str]) -> list[str]:
    """Attempts that started, have no exit, and whose shim does not live (`alive`): how they ended nobody can tell any more. Pure."""
    return sorted(
        key
        for key, attempt in ledger.attempts.items()
        if attempt.is_open and attempt.start is not None and attempt.fate != "condemned" and key not in alive
    )


def is_abreast(ledger: LedgerState, hashes: list[str]) -> bool:
    """Whether the newest log event that the ledger has seen stands in the log (`hashes` are its events' in order). Pure."""
    if ledger.log_seq == 0:
        return True
    return ledger.log_seq <= len(hashes) and hashes[ledger.log_seq - 1] == ledger.log_hash


def _lives(attempt: Attempt, host: Host) -> bool:
    return (
        attempt.start is not None
        and attempt.start.identity.pid_namespace == host.pid_namespace()
        and is_alive(attempt.start.identity, host)
    )


def choose_fates(ledger: LedgerState, state: SessionState, alive: set[str]) -> dict[str, Fate]:
    """The fate of every attempt without an exit record, and of what exited ones left alive (T2): that is condemned, the exit stays as it
    is. Pure; `alive` are the keys whose shim lives by identity."""
    claimable = _claimable_key(state)
    fates: dict[str, Fate] = {}
    for key, attempt in ledger.attempts.items():
        if not attempt.is_open and not attempt.has_kept:
            continue
        is_claimed = (
            key == claimable
            and attempt.prepared.kind == "command"
            and attempt.start is not None
            and attempt.fate != "condemned"
            and attempt.is_open
            and key in alive
        )
        fates[key] = "claimed" if is_claimed else "condemned"
    return fates


def _claimable_key(state: SessionState) -> str | None:
    """The key of the open call's newest attempt, unless a restore decision or a void stands over it."""
    call = state.open_call
    if call is None or state.obligation is not None or call.last.is_restored or call.last.is_void:
        return None
    return call.last.key


def claimed_keys(ledger: LedgerState) -> list[str]:
    """Keys that this epoch claimed and that have no exit yet."""
    return [key for key, attempt in ledger.attempts.items() if attempt.is_open and attempt.fate == "claimed"]


def _greet_claimed(ledger: Ledger, epoch: int, paths: SpacePaths) -> None:
    """A claim whose shim fails the handshake becomes a condemnation (T2), unless its exit was recorded meanwhile."""
    for key in claimed_keys(ledger.state):
        start = ledger.state.attempts[key].start
        if start is not None and greet_shim(paths, start.socket, key, start.identity, epoch):
            continue
        with ledger.transaction() as transaction:
            transaction.check_floor(epoch)
            if transaction.state.attempts[key].is_open:
                transaction.append(Condemn(epoch, [key]))


def _kill_condemned(ledger: Ledger, epoch: int, clock: Clock, host: Host) -> None:
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


def _release_settled(ledger: Ledger, state: SessionState) -> None:
    """Give back the marks of commands whose outcome is in the log already: the driver that should have done it died before."""
    settled = {call.number for call in state.calls if call.ended is not None}
    for attempt in ledger.state.attempts.values():
        if attempt.prepared.kind == "command" and attempt.exit is not None and attempt.prepared.call in settled:
            release_mark(attempt.prepared.mark)


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
            may_live = owner is not None and (attempt.exit is None or attempt.has_kept)
            kill_mark(attempt.prepared.mark, owner, host, clock, has_command=may_live, first=first)
