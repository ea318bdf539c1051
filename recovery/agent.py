"""The scripted agent: which call of the script comes next. Pure over the folded state."""

from dataclasses import dataclass
from typing import Any

from recovery.script import OnInterrupted
from recovery.state import CallState, Rejection, SessionState


@dataclass(frozen=True, slots=True)
class RunNext:
    """Run the call with this index of the script; where a person edited it, `edited` in its place."""

    index: int
    edited: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AskApproval:
    """The call with this index of the script begins only when a person approves, and nobody was asked yet."""

    index: int


@dataclass(frozen=True, slots=True)
class AwaitAnswer:
    """A person was asked about call `call`, with this index of the script, and has not answered yet."""

    call: int
    index: int


@dataclass(frozen=True, slots=True)
class AskPerson:
    """The last call was interrupted, or undone by a restore, and the session file does not say what then.

    `undone_by` is that restore's decision (seq) and `again` the script index from which `reissue` goes on then.
    """

    call: int
    index: int
    undone_by: int | None = None
    again: int = 0


@dataclass(frozen=True, slots=True)
class ScriptDone:
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
    if last.ended == "finished" and last.undone_by is None:
        return _at(index + 1, state)
    if last.undone_by is not None and on_interrupted == "reissue":
        return _at(_first_undone(scripted), state)
    match on_interrupted:
        case "reissue":
            return _at(index, state)
        case "continue":
            return _at(index + 1, state)
        case "stop" if last.undone_by is not None:
            return AskPerson(last.number, index, last.undone_by, _first_undone(scripted))
        case "stop":
            return AskPerson(last.number, index)


def _first_undone(scripted: list[CallState]) -> int:
    """The script index of the earliest call that the restore which undid the last one took back: from there the script is run again."""
    undone_by = scripted[-1].undone_by
    return next(call.script_index or 0 for call in scripted if call.undone_by == undone_by)


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
