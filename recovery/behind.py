"""A log that lost its tail: an older copy of its files was put back, and the ledger has seen what is gone (rule D2, case 20).

Of a lost call the ledger still holds the intent, byte for byte, until the call was collected; of a collected one its number. One lost call
with a clean exit is taken back and adopted. Else the workspace is restored to the head image, and every lost call ends interrupted:
nothing of it is an outside change, and none is run again under its number.

Order: the decision is committed before the ledger is told that this log is the one that goes on (`rejoin`), so that nobody takes the log
for whole before it is decided what was lost; the lost calls stand in the commit that closes the restore, told by the ledger's highest
number.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from eventlog import events
from eventlog.errors import InternalError
from eventlog.records import Record
from recovery.capture import list_untracked
from recovery.context import Context
from recovery.labels import Label
from recovery.left_behind import handle_outsiders
from recovery.space.ledger import append_fenced
from recovery.space.records import Attempt, LedgerState, Rejoin
from recovery.state import MISSING_CALLS, SessionState

UNKNOWN_TOOL = "unknown"
WHY_KNOWN = "the log lost it with its tail; the workspace was restored to the image before it"
WHY_UNKNOWN = "the log lost it with its tail, and the ledger knows no more of it; the workspace was restored to the image before it"


def missing_calls(state: SessionState, ledger: LedgerState) -> range:
    """The numbers of the calls that the ledger has seen and the log has not. Pure."""
    return range(len(state.calls) + 1, ledger.highest_call + 1)


def first_attempt(ledger: LedgerState, call: int) -> Attempt | None:
    """What the ledger holds of a call's first attempt, None when it is collected. Pure."""
    found = (attempt for attempt in ledger.attempts.values() if attempt.prepared.call == call and attempt.prepared.attempt == 1)
    return next(found, None)


def decode_intent(attempt: Attempt) -> events.AttemptStarted | None:
    """The intent as the log had it, from the ledger's bytes; None where the ledger holds none. Raises CorruptError. Pure."""
    intent: dict[str, Any] = attempt.prepared.intent or {}
    if "payload" not in intent:
        return None
    where = f"the intent of {attempt.prepared.key}"
    event = events.decode(str(intent["kind"]), int(intent["version"]), str(intent["payload"]).encode(), where)
    if not isinstance(event, events.AttemptStarted):
        raise InternalError(f"the intent of {attempt.prepared.key} is {event.kind}")
    return event


def describe_missing(state: SessionState, ledger: LedgerState) -> dict[str, object]:
    """The evidence beside the facts: what is lost, and of which lost calls the number is all that is known. Pure."""
    missing = missing_calls(state, ledger)
    unknown = [number for number in missing if (found := first_attempt(ledger, number)) is None or decode_intent(found) is None]
    return {MISSING_CALLS: list(missing), "unknown_calls": unknown, "ledger_seen_seq": ledger.log_seq}


def rejoin(context: Context) -> None:
    """Have the ledger take this log for the one that goes on, from its head."""
    state = context.journal.state
    append_fenced(context.ledger, context.epoch, Rejoin(context.epoch, state.head_seq, state.head_hash))


def end_missing(context: Context) -> None:
    """End what the lost calls' commands handed on outside their marks, before a path is touched (I7)."""
    for number in missing_calls(context.journal.state, context.ledger.state):
        for attempt in [one for one in context.ledger.state.attempts.values() if one.prepared.call == number]:
            if attempt.prepared.kind == "command" and attempt.start is not None:
                handle_outsiders(context, attempt, "CALL_KEY", "kill")


def take_back_intent(context: Context) -> events.AttemptStarted:
    """The one lost call's intent, to be appended again. Raises InternalError where the facts did not say that there is one."""
    attempt = first_attempt(context.ledger.state, context.ledger.state.highest_call)
    intent = decode_intent(attempt) if attempt is not None else None
    if intent is None:
        raise InternalError("the ledger holds no intent of the call that is to be taken back")
    return intent


def interrupt_missing(context: Context) -> list[Record]:
    """The lost calls, each with its intent and its one end, for the commit that closes the restore."""
    records: list[Record] = []
    state = context.journal.state
    index = _next_index(state)
    for number in missing_calls(state, context.ledger.state):
        attempt = first_attempt(context.ledger.state, number)
        known = decode_intent(attempt) if attempt is not None else None
        intent = known or _unknown_intent(context, number, index)
        index = None if intent.script_index is None else min(intent.script_index + 1, len(state.opened.script) - 1)
        reason = WHY_UNKNOWN if known is None else WHY_KNOWN
        listed = list_untracked(state.untracked)
        settled = events.CallSettled(
            context.clock.now_ms(), number, 1, "interrupted", Label.LOG_BEHIND_RESTORE.value, reason, None, None, state.root, listed
        )
        records += [Record(msgspec.structs.replace(intent, call=number, attempt=1)), Record(settled)]
    return records


def _unknown_intent(context: Context, number: int, index: int | None) -> events.AttemptStarted:
    """The intent of a call of which only the number is known: it cannot be run again from it."""
    key = context.key(str(number), 1, "1")
    return events.AttemptStarted(
        context.clock.now_ms(), number, 1, index, UNKNOWN_TOOL, {}, "never", key, request_digest="", redacted=True, request_id=""
    )  # fmt: skip


def _next_index(state: SessionState) -> int | None:
    """Which call of the script the first lost one has been, the script being run in its order; None where there is no script. A call that
    is open in the log had its end, or no call would have followed it."""
    scripted: Sequence[int] = [call.script_index for call in state.calls if call.script_index is not None]
    if not state.opened.script:
        return None
    if not scripted:
        return 0
    last = state.calls[-1]
    is_again = last.ended is not None and (last.ended != "finished" or last.undone_by is not None)
    goes_on = not (is_again and state.opened.on_interrupted == "reissue")
    return min(scripted[-1] + goes_on, len(state.opened.script) - 1)
