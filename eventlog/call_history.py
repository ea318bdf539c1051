"""What became of each call of a stream, for people: tool, attempts, decision, end, size, duration. Pure, over stored events."""

from collections.abc import Iterable, Iterator

import msgspec

from eventlog import events
from eventlog.image import Change
from eventlog.reader import StoredEvent
from eventlog.values import CallNumber, Seq


class CallHistory(msgspec.Struct, frozen=True):
    """One call. `size` is the bytes of the files that its settlement put into the image, each path counted. `duration_ms` is the time
    between the intent of its last attempt and its settlement by the clocks of its drivers, for people only. `decision` is the label
    under which it was settled. An open call has no decision, end, settlement or duration. `is_undone`: a restore took it back later."""

    call: CallNumber
    tool: str
    attempts: int
    decision: str | None
    ended: events.Ended | None
    size: int
    duration_ms: int | None
    started_seq: Seq
    settled_seq: Seq | None
    is_undone: bool = False


class Annotated(msgspec.Struct, frozen=True):
    """A stored event, with what else is known of the call it belongs to; None where it does not apply."""

    stored: StoredEvent
    call: CallNumber | None = None
    tool: str | None = None
    decision: str | None = None
    size: int | None = None
    duration_ms: int | None = None
    attempts: int = 0
    started_seq: Seq | None = None


class _Begun(msgspec.Struct):
    """A call whose attempts are being read."""

    tool: str
    attempts: int
    seq: Seq
    at_ms: int


def count_bytes(changes: Iterable[Change]) -> int:
    """The bytes of all files put by these changes."""
    return sum(change.entry.size for change in changes if change.entry is not None)


def find_undone(stored: Iterable[StoredEvent]) -> frozenset[CallNumber]:
    """The calls that a stream says were undone later."""
    return frozenset(CallNumber(one.event.call) for one in stored if isinstance(one.event, events.CallUndone))


def iterate_calls(stored: Iterable[StoredEvent], undone: frozenset[CallNumber] = frozenset()) -> Iterator[CallHistory]:
    """Each call of a stream as it is settled, those still open at the end. Calls that a fork took over from its parent are the parent's."""
    open_calls: dict[CallNumber, CallHistory] = {}
    for one in annotate(stored):
        if one.call is None or one.tool is None or one.started_seq is None:
            continue
        match one.stored.event:
            case events.AttemptStarted():
                open_calls[one.call] = CallHistory(one.call, one.tool, one.attempts, None, None, 0, None, one.started_seq, None)
            case events.CallSettled() as event:
                open_calls.pop(one.call, None)
                yield CallHistory(
                    one.call, one.tool, one.attempts, one.decision, event.ended, one.size or 0, one.duration_ms,
                    one.started_seq, one.stored.seq, one.call in undone,
                )  # fmt: skip
            case _:
                pass
    yield from open_calls.values()


def annotate(stored: Iterable[StoredEvent]) -> Iterator[Annotated]:
    """Each event of a stream with the call, tool, decision, size and duration that apply to it."""
    begun: dict[int, _Begun] = {}
    for one in stored:
        size = count_bytes(one.changes) if one.changes else None
        match one.event:
            case events.AttemptStarted() as event:
                before = begun.get(event.call)
                begun[event.call] = _Begun(event.tool, before.attempts + 1 if before else 1, one.seq, event.at_ms)
                yield _of_call(one, event.call, begun.get(event.call), size)
            case events.CallSettled() as event:
                yield _settled(one, event, begun.pop(event.call, None))
            case events.RecoveryDecided() as event:
                yield _of_call(one, event.call, begun.get(event.call or 0), size, event.label)
            case events.CallUndone() | events.CallReplayed() as event:
                yield _of_call(one, event.call, None, size)
            case _:
                yield Annotated(one, size=size)


def _settled(stored: StoredEvent, event: events.CallSettled, begun: _Begun | None) -> Annotated:
    size = count_bytes(stored.changes)
    if begun is None:
        return _of_call(stored, event.call, None, size, event.label)
    duration_ms = event.at_ms - begun.at_ms
    call = CallNumber(event.call)
    return Annotated(stored, call, begun.tool, event.label, size, duration_ms, begun.attempts, begun.seq)


def _of_call(stored: StoredEvent, call: int | None, begun: _Begun | None, size: int | None, decision: str | None = None) -> Annotated:
    number = None if call is None else CallNumber(call)
    if begun is None:
        return Annotated(stored, number, decision=decision, size=size)
    return Annotated(stored, number, begun.tool, decision, size, None, begun.attempts, begun.seq)
