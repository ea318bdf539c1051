"""What stands in a ledger, for people: one row a key, each with one word for its state. Pure: who lives is told by the caller."""

from collections.abc import Collection
from enum import Enum

import msgspec

from eventlog.errors import InternalError
from eventlog.events import Exit
from eventlog.process_identity import ProcessIdentity
from recovery.space.records import Attempt, Kind, LedgerState


class AttemptWord(Enum):
    """The state of an attempt. Each says something that is known, and `lost` and `torn` that it is not."""

    PREPARED = "prepared"  # announced; may start yet
    RUNNING = "running"  # its starting mark stands, no exit, its shim lives
    EXITED = "exited"  # its exit stands and was recorded before any condemnation
    KEPT = "kept"  # exited, and processes that it left behind were kept alive by policy
    CUT = "cut"  # condemned by a newer epoch before an exit was recorded, whatever was recorded after
    VOID = "void"  # provably never started, and never will: voided, or condemned without a starting mark
    LOST = "lost"  # started, no exit on record, its shim is dead: how it ended nobody knows
    TORN = "torn"  # a torn record may have been its starting mark: whether it started nobody knows


class ListedAttempt(msgspec.Struct, frozen=True):
    """One key. Times are unix milliseconds, 0 where nothing was recorded; sizes are bytes; `cut_by` is the epoch that cut or voided it
    (0: none); `shim` is who owns or owned the command."""

    key: str
    kind: Kind
    word: AttemptWord
    epoch: int
    call: int | None
    attempt: int
    digest: str
    cut_by: int
    started_ms: int
    ended_ms: int
    exit: Exit | None
    output_total: int
    output_kept: int
    stderr_total: int
    stderr_kept: int
    survivors: int
    left: int
    held_output: bool
    shim: ProcessIdentity | None
    mark: str


def list_attempts(state: LedgerState, alive: Collection[str]) -> list[ListedAttempt]:
    """Every key that the ledger holds: those that ended by hand, then the others, each in their order. `alive` are the keys whose shim
    lives by identity.

    Raises InternalError for a combination that no sound ledger holds.
    """
    return [_list(attempt, attempt.prepared.key in alive) for attempt in state.every()]


def word_of(attempt: Attempt, is_alive: bool) -> AttemptWord:
    """The one word for an attempt. Raises InternalError for what cannot be."""
    contradiction = find_contradiction(attempt)
    if contradiction:
        raise InternalError(f"key {attempt.prepared.key}: {contradiction}")
    if attempt.void:
        return AttemptWord.VOID
    if attempt.exit is not None:
        return AttemptWord.CUT if attempt.cut else AttemptWord.KEPT if attempt.has_kept else AttemptWord.EXITED
    if attempt.start is not None:
        return _word_of_started(attempt, is_alive)
    if attempt.torn:
        return AttemptWord.TORN
    return AttemptWord.VOID if attempt.fate == "condemned" else AttemptWord.PREPARED


def _word_of_started(attempt: Attempt, is_alive: bool) -> AttemptWord:
    if attempt.is_lost:
        return AttemptWord.LOST
    if attempt.fate == "condemned":
        return AttemptWord.CUT
    return AttemptWord.RUNNING if is_alive else AttemptWord.LOST


def find_contradiction(attempt: Attempt) -> str:
    """Why an attempt cannot be as it is, "" when it can."""
    if attempt.void and attempt.start is not None:
        return "it is void and has started"
    if attempt.exit is not None and attempt.start is None:
        return "it has ended and never started"
    if attempt.cut and (attempt.exit is None or attempt.fate != "condemned"):
        return "an exit is cut by a condemnation, and by nothing else"
    if attempt.is_lost and attempt.start is None:
        return "it is lost and never started"
    if (attempt.condemned_by != 0) != (attempt.fate == "condemned"):
        return "a condemnation and the epoch that made it stand together"
    return ""


def _list(attempt: Attempt, is_alive: bool) -> ListedAttempt:
    prepared, start, end = attempt.prepared, attempt.start, attempt.exit
    word = word_of(attempt, is_alive)
    return ListedAttempt(
        key=prepared.key,
        kind=prepared.kind,
        word=word,
        epoch=attempt.epoch,
        call=prepared.call,
        attempt=prepared.attempt,
        digest=prepared.digest,
        cut_by=0 if word in (AttemptWord.EXITED, AttemptWord.KEPT) else attempt.condemned_by,
        started_ms=start.at_ms if start else 0,
        ended_ms=end.at_ms if end else 0,
        exit=end.exit if end else None,
        output_total=end.output_total if end else 0,
        output_kept=end.output_kept if end else 0,
        stderr_total=end.stderr_total if end else 0,
        stderr_kept=end.stderr_kept if end else 0,
        survivors=end.survivors if end else 0,
        left=end.left if end else 0,
        held_output=end.held_output if end else False,
        shim=start.identity if start else None,
        mark=prepared.mark,
    )
