"""The scripted agent: which call of the script comes next. Pure over the folded state."""

from typing import Any

import msgspec

from recovery.script import OnInterrupted
from recovery.state import CallState, Rejection, SessionState


class RunNext(msgspec.Struct, frozen=True):
    """Run the call with this index of the script; where a person edited it, `edited` in its place."""

    index: int
    edited: dict[str, Any] | None = None


class AskApproval(msgspec.Struct, frozen=True):
    """The call with this index of the script begins only when a person approves, and nobody was asked yet."""

    index: int


class AwaitAnswer(msgspec.Struct, frozen=True):
    """A person was asked about call `call`, with this index of the script, and has not answered yet."""

    call: int
    index: int


class AskPerson(msgspec.Struct, frozen=True):
    """The last call was interrupted, or undone by a restore, and the session file does not say what then.

    `undone_by` is that restore's decision (seq; the newest, where several took calls back), `again` the script index from which `reissue`
    goes on then, and `undone` the calls that were undone. A call that was interrupted has them where calls before it were undone.
    """

    call: int
    index: int
    undone_by: int | None = None
    again: int = 0
    undone: tuple[int, ...] = ()


class ScriptDone(msgspec.Struct, frozen=True):
    """Every call of the script has its end."""


Next = RunNext | AskApproval | AwaitAnswer | AskPerson | ScriptDone


def choose_next(state: SessionState, on_interrupted: OnInterrupted) -> Next:
    """What to do now. No call may be open."""
    scripted = [call for call in state.calls if call.script_index is not None]
    rejected = state.rejected
    if rejected is not None and (not scripted or _is_behind(scripted[-1], rejected)):
        return _at(rejected.script_index + 1, state)
    if not scripted:
        return _at(0, state)
    last = scripted[-1]
    index = last.script_index or 0
    undone = _list_undone(scripted)
    if last.ended == "finished" and not undone:
        return _at(index + 1, state)
    match on_interrupted:
        case "reissue":
            return _at((undone[0].script_index or 0) if undone else index, state)
        case "continue":
            return _at(index + 1, state)
        case "stop" if undone:
            newest = max(call.undone_by or 0 for call in undone)
            return AskPerson(last.number, index, newest, undone[0].script_index or 0, tuple(call.number for call in undone))
        case "stop":
            return AskPerson(last.number, index)


def _list_undone(scripted: list[CallState]) -> list[CallState]:
    """The calls that restores took back since the last one began, in order: the script is run again from the first of them. The last may
    stand itself, or have been cut, when a restore goes back to before calls that had finished."""
    last = scripted[-1]
    since = last.attempts[0].seq if last.undone_by is None else min(last.attempts[0].seq, last.undone_by)
    return [call for call in scripted if call.undone_by is not None and call.undone_by >= since]


def _is_behind(call: CallState, rejected: Rejection) -> bool:
    """Whether a rejection came after all that became of a call; what a restore took back was taken back with it."""
    return rejected.seq > max(call.attempts[0].seq, call.undone_by or 0)


def _at(index: int, state: SessionState) -> Next:
    if index >= len(state.opened.script):
        return ScriptDone()
    asked = state.approval
    if asked is not None and asked.script_index == index and asked.call == len(state.calls) + 1:
        if asked.answer is None:
            return AwaitAnswer(asked.call, index)
        if asked.answer != "rejected":
            return RunNext(index, asked.edited)
    return AskApproval(index) if state.opened.script[index].get("approve") else RunNext(index)
