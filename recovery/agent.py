"""The scripted agent: which call of the script comes next. Pure over the folded state."""

from dataclasses import dataclass

from recovery.script import OnInterrupted
from recovery.state import CallState, SessionState


@dataclass(frozen=True, slots=True)
class RunNext:
    """Run the call with this index of the script."""

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


Next = RunNext | AskPerson | ScriptDone


def choose_next(state: SessionState, on_interrupted: OnInterrupted) -> Next:
    """What to do now. No call may be open."""
    scripted = [call for call in state.calls if call.script_index is not None]
    if not scripted:
        return _at(0, state)
    last = scripted[-1]
    index = last.script_index or 0
    if last.ended == "finished" and last.undone_by is None:
        return _at(index + 1, state)
    if last.undone_by is not None and on_interrupted == "reissue":
        return RunNext(_first_undone(scripted))
    match on_interrupted:
        case "reissue":
            return RunNext(index)
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


def _at(index: int, state: SessionState) -> Next:
    return RunNext(index) if index < len(state.opened.script) else ScriptDone()
