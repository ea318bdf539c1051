"""Taking a session over, steps 2 and 3 of rule T: fates in one ledger transaction, then the condemned are killed and proved dead.

Step 1 (the log's floor) is Journal.raise_floor; step 4 (gather) may begin only when `take_over` has returned. Ordering: the floor
of the ledger is raised and every attempt without an exit record gets its fate in one record, so that an exit can only stand before
it (clean) or after it (cut).
"""

from eventlog import steps
from eventlog.ports import Clock, Host
from recovery.space import advance
from recovery.space.advance import advance_ledger, claimed_shims, greet_claimed
from recovery.space.condemned import NO_TRUST, Sweep, Trust
from recovery.space.epochs import check_advance
from recovery.space.ledger import Ledger
from recovery.space.local import SpacePaths
from recovery.space.marks import release_mark
from recovery.space.records import Fate, LedgerState
from recovery.state import SessionState


def take_over(
    ledger: Ledger, state: SessionState, hashes: list[str], log_id: str, epoch: int, paths: SpacePaths, clock: Clock, host: Host,
    may_claim: bool = True, trust: Trust = NO_TRUST, is_made_here: bool = False,
) -> Sweep:  # fmt: skip
    """Advance the ledger to `epoch`, give fates, kill what is condemned; without `may_claim` a running command too (a restore undoes its
    call). `trust` is what a person says of what cannot be proved. A ledger that was made in this takeover has its floor and knows of no
    attempt. Raises StaleEpochError, EpochTakenError, FenceIncompleteError."""
    if not is_made_here:
        _give_fates(ledger, state, hashes, log_id, epoch, host, may_claim)
    greet_claimed(ledger, epoch, paths)
    sweep = Sweep(paths.directory, clock, host, trust)
    sweep.kill_condemned(ledger, epoch, claimed_shims(ledger.state))
    _release_settled(ledger, state)
    steps.reach("takeover.killed")
    return sweep


def _give_fates(ledger: Ledger, state: SessionState, hashes: list[str], log_id: str, epoch: int, host: Host, may_claim: bool) -> None:
    steps.reach("ledger.advance.before")
    with ledger.transaction() as transaction:
        check_advance(epoch, transaction.state.floor, ledger.name, log_epoch=epoch)
        # A log that lacks what the ledger has seen stays behind in the ledger's memory: this takeover's own events must not cover it (D2).
        seen = (state.head_seq, state.head_hash) if is_abreast(transaction.state, hashes) else (0, "")
        advance_ledger(transaction, epoch, log_id, seen, _claimable_keys(state) if may_claim else (), host)


def is_abreast(ledger: LedgerState, hashes: list[str]) -> bool:
    """Whether the newest log event that the ledger has seen stands in the log (`hashes` are its events' in order). Pure."""
    return has_event(ledger.log_seq, ledger.log_hash, hashes)


def has_event(seq: int, digest: str, hashes: list[str]) -> bool:
    """Whether the event `seq` with this hash stands in the log; 0 is none, and stands in every log. Pure."""
    return seq == 0 or (seq <= len(hashes) and hashes[seq - 1] == digest)


def choose_fates(ledger: LedgerState, state: SessionState, alive: set[str]) -> dict[str, Fate]:
    """The fates of a session's takeover (T2). Pure; `alive` are the keys whose shim lives by identity."""
    return advance.choose_fates(ledger, _claimable_keys(state), alive)


def _claimable_keys(state: SessionState) -> tuple[str, ...]:
    """The key of the open call's newest attempt, unless a restore decision or a void stands over it."""
    call = state.open_call
    if call is None or state.obligation is not None or call.last.is_restored or call.last.is_void:
        return ()
    return (call.last.key,)


def _release_settled(ledger: Ledger, state: SessionState) -> None:
    """Give back the marks of commands whose outcome is in the log already: the driver that should have done it died before."""
    settled = {call.number for call in state.calls if call.ended is not None}
    for attempt in ledger.state.attempts.values():
        if attempt.prepared.kind == "command" and attempt.exit is not None and attempt.prepared.call in settled:
            release_mark(attempt.prepared.mark)
