"""Facts for the decision, gathered only after everything condemned is dead (rule T4). Asks, judges nothing, changes nothing."""

from collections.abc import Collection

import msgspec

from eventlog.errors import CorruptError, LogMissingError
from eventlog.image import diff, is_identity_change, root_hash
from eventlog.ports import Host
from recovery.capture import count_removed, look
from recovery.facts import AttemptFact, BootFact, CallFact, DifferenceFact, Facts, LedgerFact, LogFact, PolicyFact, RootFact
from recovery.left_behind import is_stale
from recovery.root import observe_root
from recovery.space.ledger import LedgerView
from recovery.space.records import Attempt, LedgerState
from recovery.state import CallState, SessionState
from recovery.takeover import is_abreast
from recovery.workspace.scan import Scanner
from recovery.workspace.values import Scan


class Evidence(msgspec.Struct, frozen=True):
    """The facts, and what they were read from: the scan (None without a root) and the counts."""

    facts: Facts
    scan: Scan | None
    removed: int
    scanned_root: str


def open_ledger_fact(ledger: LedgerView | LogMissingError | CorruptError, state: SessionState) -> LedgerFact:
    """The ledger against the log: opened, this space's and of the generation in force, or not."""
    if isinstance(ledger, LogMissingError):
        return LedgerFact.MISSING
    if isinstance(ledger, CorruptError) or ledger.state.header is None:
        return LedgerFact.DAMAGED
    header = ledger.state.header
    expected = (state.opened.ledger_id, state.generation)
    return LedgerFact.SOUND if (header.ledger_id, header.generation) == expected else LedgerFact.OTHER_GENERATION


def is_newer(ledger: LedgerView, state: SessionState) -> bool:
    """Whether a ledger is this space's own and was made anew in a part of the log that the log has lost: nothing makes a ledger before
    the log has its generation (S10)."""
    header = ledger.state.header
    return header is not None and header.ledger_id == state.opened.ledger_id and header.generation > state.generation


def gather(
    state: SessionState,
    hashes: list[str],
    ledger: LedgerState | None,
    ledger_fact: LedgerFact,
    root: str,
    host: Host,
    accepted: str,
    scanner: Scanner | None = None,
    processes: Collection[int] = (),
) -> Evidence:
    """All facts. `accepted` is the root hash of an outside state that a person accepted (rule C4); `processes` the pids of the space that
    live, a claimed command's among them. Raises ScanError."""
    root_fact = observe_root(root, state)
    found = look(root, scanner, state.profile, state.image, processes) if root_fact is RootFact.PRESENT else None
    removed, difference, scanned = _compare(state, found)
    if difference is DifferenceFact.MASS_DELETION and scanned == accepted:
        difference = DifferenceFact.DIFFERENT
    call = state.open_call
    attempt = ledger.attempts.get(call.last.key) if call and ledger else None
    facts = Facts(
        is_obliged=state.obligation is not None,
        ledger=ledger_fact,
        log=log_fact(state, hashes, ledger, host),
        root=root_fact,
        call=_call_fact(state),
        attempt=AttemptFact.NONE if call is None else attempt_fact(call, attempt, ledger, state.renewed_seq),
        boot=_boot_fact(state, call, attempt, host),
        policy=PolicyFact(call.policy) if call else PolicyFact.NEVER,
        is_restored=state.is_restored_this_epoch,
        difference=difference,
    )
    return Evidence(facts, found, removed, scanned)


def _compare(state: SessionState, found: Scan | None) -> tuple[int, DifferenceFact, str]:
    if found is None:
        return 0, DifferenceFact.EQUAL, ""
    changes = diff(state.image, found.image)
    scanned = root_hash(found.image, state.profile.excludes).hex()
    if not is_identity_change(changes):
        return 0, DifferenceFact.EQUAL, scanned
    removed, is_mass = count_removed(state.image, found.image, changes)
    return removed, DifferenceFact.MASS_DELETION if is_mass else DifferenceFact.DIFFERENT, scanned


def _call_fact(state: SessionState) -> CallFact:
    if not state.calls:
        return CallFact.NONE
    call = state.open_call
    if call is None:
        return CallFact.SETTLED
    return CallFact.OPEN_COMMAND if call.tool == "bash" else CallFact.OPEN_FILE


def attempt_fact(call: CallState, attempt: Attempt | None, ledger: LedgerState | None, renewed_seq: int = 0) -> AttemptFact:
    """The newest attempt of an open call, from log and ledger. Pure. `renewed_seq` is the decision that made the ledger anew.

    "Never started" needs proof: an undamaged ledger of the right generation, no starting mark, nothing torn where one may have
    stood, and a call above the high-water mark of collected ones.
    """
    if call.last.is_void:
        return AttemptFact.VOID  # also where a person said so, and the workspace was restored
    if call.last.is_restored:
        return AttemptFact.RESTORED
    if ledger is None or call.number <= ledger.collected or call.last.seq < renewed_seq:
        return AttemptFact.UNKNOWN
    if attempt is None or attempt.void or attempt.start is None:
        torn = attempt.torn if attempt is not None else False
        return AttemptFact.UNKNOWN if torn else AttemptFact.NEVER_STARTED
    if attempt.exit is not None:
        return AttemptFact.EXIT_CUT if attempt.cut else AttemptFact.EXIT_CLEAN
    return AttemptFact.CLAIMED if attempt.fate == "claimed" else AttemptFact.UNKNOWN


def _boot_fact(state: SessionState, call: CallState | None, attempt: Attempt | None, host: Host) -> BootFact:
    if call is not None and attempt is not None and attempt.start is not None:
        boot = attempt.exit.boot_id if attempt.exit is not None else attempt.start.identity.boot_id
        return BootFact.SAME if boot == host.boot_id() else BootFact.OTHER
    if state.image_boot in ("", host.boot_id()):
        return BootFact.SAME
    # A stale image is never what a restore aims at (C8): what differs from it under a new boot is recorded as an outside change.
    return BootFact.SYNCED if state.synced_root == state.root or is_stale(state.untracked) else BootFact.OTHER


def log_fact(state: SessionState, hashes: list[str], ledger: LedgerState | None, host: Host) -> LogFact:
    """D2: the ledger remembers the newest log event it has seen, the highest call, and which calls had their outcome in the log. Each must
    be so in the log."""
    if ledger is None or ledger.log_seq == 0:
        return LogFact.ABREAST
    call = state.open_call
    had_ended = call is not None and call.number <= ledger.collected
    if is_abreast(ledger, hashes) and ledger.highest_call <= len(state.calls) and not had_ended:
        return LogFact.ABREAST
    return LogFact.BEHIND_ONE_CLEAN if _is_one_clean(state, ledger, host) else LogFact.BEHIND


def _is_one_clean(state: SessionState, ledger: LedgerState, host: Host) -> bool:
    call = state.open_call
    taken_back = call is not None and call.number == state.taken_back  # by a driver that was killed before it adopted it
    if (call is not None and not taken_back) or ledger.highest_call != len(state.calls) + (not taken_back):
        return False
    attempts = [attempt for attempt in ledger.attempts.values() if attempt.prepared.call == ledger.highest_call]
    return len(attempts) == 1 and _is_adoptable(attempts[0], host)


def _is_adoptable(attempt: Attempt, host: Host) -> bool:
    """Whether the intent and a clean exit of this boot are there; a file worker's exit proves nothing (S6)."""
    prepared, exited = attempt.prepared, attempt.exit
    has_intent = prepared.kind == "command" and prepared.attempt == 1 and "payload" in (prepared.intent or {})
    return has_intent and exited is not None and not attempt.cut and exited.boot_id == host.boot_id()
