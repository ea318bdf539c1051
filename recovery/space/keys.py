"""What a key of the ledger stands for when somebody asks for it again, and `prepare`, the one way to announce an attempt (rules S3, S4).

The same key never runs twice: with the same request it is attached to while it runs and replayed once it has ended; with another request it
is refused; a key that was collected, voided or condemned is spent. All of it is judged under the ledger's lock.
"""

from collections.abc import Callable

import msgspec

from eventlog import steps
from eventlog.errors import InternalError, KeySpentError, MisuseError, RequestMismatchError
from eventlog.show import show_text
from recovery.space.epochs import check_epoch
from recovery.space.ledger import Ledger, LedgerTransaction
from recovery.space.records import Attempt, LedgerState, Prepare, decision_of

SHOWN_DIGITS = 12


class New(msgspec.Struct, frozen=True):
    """The key is announced now, and was never before: its command may be started, once."""


class Attach(msgspec.Struct, frozen=True):
    """It was announced with this very request and has not ended: wait for it. `attempt.start` is None while its shim has not marked it."""

    attempt: Attempt


class Replay(msgspec.Struct, frozen=True):
    """It has ended: its exit and kept output are the answer (`attempt.exit` stands)."""

    attempt: Attempt


class Mismatch(msgspec.Struct, frozen=True):
    """It stands for another request, whose digest this is."""

    digest: str


class Spent(msgspec.Struct, frozen=True):
    """It never runs (again); `reason` is a clause that says why."""

    reason: str


Answer = New | Attach | Replay | Mismatch | Spent


def judge_key(state: LedgerState, key: str, call: int | None, digest: str) -> Answer:
    """What asking for `key` with this request comes to. Pure.

    `call` is the call that the key belongs to (None for work outside any call and for commands started by hand).
    """
    attempt = state.find(key)
    if attempt is None:
        return _judge_absent(state, key, call)
    if attempt.prepared.digest != digest:
        return Mismatch(attempt.prepared.digest)
    if attempt.exit is not None:
        return Replay(attempt)
    if attempt.void:
        return Spent("it was declared void: it never started and never will")
    if attempt.fate == "condemned":
        what = "had not started" if attempt.start is None and not attempt.torn else "has no exit on record"
        return Spent(f"epoch {attempt.condemned_by} condemned it, and it {what}")
    return Attach(attempt)


def _judge_absent(state: LedgerState, key: str, call: int | None) -> New | Spent:
    if call is not None and call <= state.collected:
        return Spent(f"its outcome is in the log, and the ledger collected everything up to call {state.collected}")
    decision = decision_of(key) if call is None else None
    if decision is not None and decision <= state.collected_work:
        return Spent(f"the ledger collected all work for decisions up to seq {state.collected_work}")
    return New()


def check_key(key: str) -> None:
    """Raise MisuseError for a key that no record can hold."""
    try:
        is_text = bool(key.encode())
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise MisuseError(f"key {show_text(key)!r}: a key is UTF-8 text that is not empty; name another")


def prepare(ledger: Ledger, record: Prepare, *, is_told: bool = True) -> New | Attach | Replay:
    """Announce an attempt, or find it announced, in one transaction.

    Who is going to tell somebody of it syncs the ledger before that; with `is_told` it is synced when this returns.
    Raises StaleEpochError, MisuseError (no epoch, or one above the floor), RequestMismatchError, KeySpentError.
    """
    check_epoch(record.epoch)
    check_key(record.key)
    steps.reach("ledger.prepare.before")
    with ledger.transaction() as transaction:
        add = transaction.append_shared if is_told else transaction.announce
        return prepare_in(transaction, ledger.name, record, add)


def prepare_in(
    transaction: LedgerTransaction, name: str, record: Prepare, add: Callable[[Prepare], None] | None = None
) -> New | Attach | Replay:  # fmt: skip
    """`prepare` within a transaction of the ledger of this name, the record appended by `add` (synced at once when none is given)."""
    transaction.check_floor(record.epoch)
    answer = judge_key(transaction.state_of(record.key), record.key, record.call, record.digest)
    match answer:
        case New():
            (add or transaction.append)(record)
        case Mismatch(digest=known):
            raise RequestMismatchError(
                f"{name}: key {show_text(record.key)} stands for the request {known[:SHOWN_DIGITS] or 'of nothing'}, not for "
                f"{record.digest[:SHOWN_DIGITS] or 'nothing'}; nothing was started, give another request another key",
                known, record.digest,
            )  # fmt: skip
        case Spent(reason=reason):
            raise KeySpentError(
                f"{name}: key {show_text(record.key)} is spent: {reason}; nothing was started, a new attempt takes a new key"
            )
        case Attach() | Replay():
            pass
    return answer


def announce(ledger: Ledger, record: Prepare) -> None:
    """`prepare` by a driver, whose keys are new by their numbers; the record is on disk with its starting mark. Raises what `prepare`
    raises, InternalError for a key that is known."""
    if prepare(ledger, record, is_told=False) != New():
        raise InternalError(f"key {record.key} was announced before")
