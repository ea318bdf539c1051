"""A ledger that is missing, damaged or of another generation is made anew, in a takeover and nowhere else (rules D2, S10, I5).

Order: everything that carries the space's marks is dead; the decision is committed, with the generation that the new ledger will have;
under the ledger's lock, where no newer epoch has the log, the old file gets a name of its own and the new one is made at once with its
floor. Killed at any step, the next driver finds a ledger that is not the one in force, and makes the next generation.

The ledger's id stays: it names the space, whose side directory and kill marks are known by it. What the old one knew of attempts is
unknown from here on; what the log has of a call stands.
"""

from collections.abc import Callable
from dataclasses import dataclass

from eventlog import events, steps
from eventlog.errors import BusyError, CorruptError, InternalError, LogMissingError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from eventlog.records import Record
from eventlog.show import show_text
from recovery.decision import decide
from recovery.facts import LedgerFact
from recovery.gather import gather
from recovery.journal import Journal
from recovery.space.condemned import Trust
from recovery.space.epochs import check_advance
from recovery.space.ledger import Ledger, create_ledger, readable_floor, set_aside
from recovery.space.ledger_lines import LEDGER_FORMAT
from recovery.space.local import SpacePaths
from recovery.space.lock import FileLock
from recovery.space.records import Advance, Header, ProvedDead
from recovery.space.unlisted import Drove, end_unlisted
from recovery.state import NEW_GENERATION

Unlocking = Callable[[FileLock, str], Callable[[BusyError], bool]]


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a takeover needs to make a ledger anew. `unlock` judges who holds the ledger's lock, given the space's id (L4)."""

    journal: Journal
    paths: SpacePaths
    root: str
    clock: Clock
    host: Host
    accepted: str
    trust: Trust
    lock_secs: float
    unlock: Unlocking
    tell: Callable[[str], None]


def renew_ledger(renewal: Renewal, lost: Ledger | LogMissingError | CorruptError, fact: LedgerFact) -> Ledger:
    """The new ledger, open, its floor this driver's epoch.

    Raises FenceIncompleteError (nothing is changed then but the log's floor), StaleEpochError, ScanError.
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
    _decide(renewal, fact, generation + 1)
    kept = _put_in_place(renewal, Header(LEDGER_FORMAT, space_id, generation + 1))
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


def _decide(renewal: Renewal, fact: LedgerFact, generation: int) -> None:
    """Commit the row of the table with its evidence; from here on the ledger in force is the one to be made."""
    journal = renewal.journal
    evidence = gather(journal.state, journal.hashes, None, fact, renewal.root, renewal.host, renewal.accepted)
    call = journal.state.open_call
    number, attempt = (call.number, call.last.number) if call else (None, None)
    facts = evidence.facts.named() | {NEW_GENERATION: generation}
    label = decide(evidence.facts)
    decided = events.RecoveryDecided(renewal.clock.now_ms(), label.value, number, attempt, False, None, None, journal.state.mode, facts)
    journal.append([Record(decided)], (), "decision")


def _put_in_place(renewal: Renewal, header: Header) -> str:
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
            create_ledger(path, header, Advance(journal.epoch, journal.log_id, state.head_seq, state.head_hash, {}, []))
    finally:
        lock.close()
    return kept
