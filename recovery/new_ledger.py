"""A ledger that is missing, damaged or of another generation is made anew, in a takeover and nowhere else (rules D2, S10, I5).

Order: everything that carries the space's marks is dead; the decision is committed, with the generation that the new ledger will have;
under the ledger's lock, where no newer epoch has the log, the old file gets a name of its own and the new one is made at once with its
floor. Killed at any step, the next driver finds a ledger that is not the one in force, and makes the next generation.

The ledger's id stays: it names the space, whose side directory and kill marks are known by it. What the old one knew of attempts is
unknown from here on, but for the numbers that can still be read of it: the highest call, so that no number is given twice, and where it
saw the log, so that a log that lost its tail is told also then. What the log has of a call stands.

A sound ledger of a newer generation than the log knows is not made anew: the log is the one that lost something.
"""

from collections.abc import Callable

import msgspec

from eventlog import events, steps
from eventlog.errors import BusyError, CorruptError, InternalError, LogMissingError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from eventlog.records import Record
from eventlog.show import show_text
from recovery.decision import decide
from recovery.facts import AttemptFact, BootFact, CallFact, DifferenceFact, Facts, LedgerFact, LogFact, PolicyFact, RootFact
from recovery.journal import Journal
from recovery.space.condemned import Trust
from recovery.space.epochs import check_advance
from recovery.space.ledger import LastSeen, Ledger, create_ledger, read_last_seen, readable_floor, set_aside
from recovery.space.ledger_lines import LEDGER_FORMAT
from recovery.space.local import SpacePaths
from recovery.space.lock import FileLock
from recovery.space.records import Advance, Header, ProvedDead
from recovery.space.unlisted import Drove, end_unlisted
from recovery.state import NEW_GENERATION, SEEN_CALL, SEEN_HASH, SEEN_SEQ
from recovery.takeover import has_event

Unlocking = Callable[[FileLock, str], Callable[[BusyError], bool]]


class Renewal(msgspec.Struct, frozen=True):
    """What a takeover needs to make a ledger anew. `unlock` judges who holds the ledger's lock, given the space's id (L4)."""

    journal: Journal
    paths: SpacePaths
    clock: Clock
    host: Host
    trust: Trust
    lock_secs: float
    unlock: Unlocking
    tell: Callable[[str], None]


def renew_ledger(renewal: Renewal, lost: Ledger | LogMissingError | CorruptError, fact: LedgerFact) -> Ledger:
    """The new ledger, open, its floor this driver's epoch.

    Raises FenceIncompleteError (nothing is changed then but the log's floor), StaleEpochError.
    """
    journal, paths = renewal.journal, renewal.paths
    generation = journal.state.generation
    if isinstance(lost, Ledger):
        header = lost.state.header
        generation = max(generation, header.generation if header is not None else 0)
        lost.close()  # before its lock is opened again: closing any descriptor of it would let the lock go
    space_id = journal.state.opened.ledger_id
    check_advance(journal.epoch, readable_floor(paths.ledger, space_id), show_text(paths.ledger), log_epoch=journal.epoch)
    assumed = _end_all(renewal, space_id)
    seen = _find_last_seen(journal, read_last_seen(paths.ledger, space_id))
    _decide(renewal, fact, generation + 1, seen)
    kept = _put_in_place(renewal, Header(LEDGER_FORMAT, space_id, generation + 1), seen)
    ledger = Ledger(paths.ledger, renewal.clock)
    if ledger.floor != journal.epoch:
        raise InternalError(f"the ledger made at epoch {journal.epoch} has the floor {ledger.floor}: no absence lowers a floor (I5)")
    if assumed:
        by = "person" if renewal.trust.all_dead else "container_ends_all"
        with ledger.transaction() as transaction:
            transaction.append(ProvedDead(journal.epoch, [], [], assumed, by))
    why = f" ({lost})" if isinstance(lost, CorruptError) else ""
    where = f"; the one that was there is kept as {show_text(kept)}" if kept else ""
    renewal.tell(f"the ledger was {fact.value}{why} and is made anew, generation {generation + 1}{where}; what it knew is unknown")
    return ledger


def keep_newer(renewal: Renewal, ledger: Ledger) -> Ledger:
    """A ledger of this space that the log says nothing of yet: the log lost the decision that had it made, with its tail. It is the one
    in force and goes on, with all that it knows; the decision is recorded again. Raises StaleEpochError, EpochTakenError."""
    journal, header = renewal.journal, ledger.state.header
    if header is None:
        raise InternalError("a ledger without a header was opened")
    check_advance(journal.epoch, ledger.floor, ledger.name, log_epoch=journal.epoch)
    _decide(renewal, LedgerFact.OTHER_GENERATION, header.generation, LastSeen(ledger.state.highest_call), is_kept=True)
    renewal.tell(f"the log lost the making of the ledger (generation {header.generation}) with its tail: the ledger is kept")
    return ledger


def _find_last_seen(journal: Journal, read: LastSeen) -> LastSeen:
    """What the new ledger is to know: what can be read of the lost one, and what the log says of those before it. `log_seq` is 0, for the
    log's head, unless a lost ledger had seen more: then the log lost its tail, and the new ledger must not cover that (D2)."""
    state = journal.state
    seen = [(read.log_seq, read.log_hash), *([state.unmet] if state.unmet is not None else [])]
    unmet = max((one for one in seen if not has_event(*one, journal.hashes)), default=(0, ""))
    return LastSeen(max(read.highest_call, state.seen_call), read.collected, *unmet)


def _end_all(renewal: Renewal, space_id: str) -> list[str]:
    journal = renewal.journal
    drove = [
        Drove(_identity(stored.event.identity), stored.event.kill_mark)
        for stored in journal.reader.events(journal.stream)
        if isinstance(stored.event, events.DriverStarted) and stored.epoch < journal.epoch
    ]
    call = journal.state.open_call
    is_command_open = call is not None and call.tool == "bash"
    steps.reach("renew.kill.before")
    return end_unlisted(space_id, drove, renewal.paths.directory, is_command_open, renewal.host, renewal.clock, renewal.trust)


def _identity(driver: events.DriverIdentity) -> ProcessIdentity:
    return ProcessIdentity(driver.pid, driver.start_ticks, driver.boot_id, driver.pid_namespace)


def _decide(renewal: Renewal, fact: LedgerFact, generation: int, seen: LastSeen, *, is_kept: bool = False) -> None:
    """Commit the row of the table with its evidence; from here on the ledger in force is the one of this generation.

    The rows about a ledger that is not sound depend on it and on the obligation, and on nothing else. The workspace is not looked at: a
    path that cannot be read must not keep a person's word on it from a ledger."""
    journal = renewal.journal
    known = Facts(
        journal.state.obligation is not None, fact, LogFact.ABREAST, RootFact.PRESENT, CallFact.NONE, AttemptFact.NONE, BootFact.SAME,
        PolicyFact.NEVER, False, DifferenceFact.EQUAL,
    )  # fmt: skip
    label, named = decide(known), known.named()
    call = journal.state.open_call
    number, attempt = (call.number, call.last.number) if call else (None, None)
    facts = {name: named[name] for name in ("obliged", "ledger")} | {NEW_GENERATION: generation, SEEN_CALL: seen.highest_call}
    if seen.log_seq:
        facts |= {SEEN_SEQ: seen.log_seq, SEEN_HASH: seen.log_hash}
    if is_kept:
        facts["kept"] = True
    decided = events.RecoveryDecided(renewal.clock.now_ms(), label.value, number, attempt, False, None, None, journal.state.mode, facts)
    journal.append([Record(decided)], (), "decision")


def _put_in_place(renewal: Renewal, header: Header, seen: LastSeen) -> str:
    """Set the old file aside and make the new one; what the old one is called now ("" when none was there)."""
    journal, path = renewal.journal, renewal.paths.ledger
    lock = FileLock(path + ".lock", renewal.clock)
    try:
        lock.judge_holders(renewal.lock_secs, renewal.unlock(lock, header.ledger_id))
        with lock.held():
            # Two drivers may be here: one that was superseded while it waited must not set the newer one's ledger aside.
            journal.check_fence()
            kept = set_aside(path, journal.epoch)
            state = journal.state
            log = (seen.log_seq, seen.log_hash) if seen.log_seq else (state.head_seq, state.head_hash)
            first = Advance(journal.epoch, journal.log_id, *log, {}, [], highest_call=seen.highest_call, collected=seen.collected)
            create_ledger(path, header, first)
    finally:
        lock.close()
    return kept
