"""What a drive does once nothing is left to recover, as far as the log and the foreseen rows tell. Pure."""

from collections.abc import Collection, Sequence

import msgspec

from eventlog import events
from recovery.agent import AskApproval, AskPerson, AwaitAnswer, RunNext, ScriptDone, choose_next
from recovery.behind import decode_intent, first_attempt, missing_calls
from recovery.call_list import CallList
from recovery.labels import BEHIND, INTERRUPTS, NOT_ACTED_ON, Label
from recovery.person_restore import undone_calls
from recovery.space.records import LedgerState
from recovery.state import AttemptState, CallState, SessionState, replace
from recovery.words import describe_way_on

NEEDED = "then a person is needed"
_INTERRUPTING = INTERRUPTS | {Label.INTERRUPT_RESTORED}
_COMPLETING = frozenset({Label.COMPLETE_RESTORE, Label.COMPLETE_REBUILD})


class Ahead(msgspec.Struct, frozen=True):
    """What comes after recovery. `commands` are the ways on where the drive stops there with exit 78; none where it goes on."""

    then: str
    commands: tuple[str, ...] = ()
    stops: bool = False


def look_ahead(
    state: SessionState, labels: Sequence[Label], ledger: LedgerState | None, own: str, given_up: Collection[int] = ()
) -> Ahead:
    """What the drive does after the rows `labels` were acted on. `own` is the state directory as a person writes it; `given_up` are the
    finished calls that an older checkpoint in the newest one's place undoes."""
    if any(label in NOT_ACTED_ON for label in labels):
        return Ahead(NEEDED, stops=True)
    if labels[-1] in BEHIND:
        state = replace(state, pause_asked=None, is_paused=False, approval=None)  # they went with the log's end
    state = _undo(state, given_up, state.head_seq + 1)
    if state.pause_asked is not None:
        said = "then the session pauses, as was asked, and the drive stops with exit 78"
        return Ahead(said, (f"`recovery drive {own}` pauses it",), True)
    after = _recovered(state, labels[-1], ledger)
    if after is None:
        return _ask_lost(own) if state.opened.script and state.opened.on_interrupted == "stop" else Ahead("then the script goes on")
    return _describe(after, own)


def _recovered(state: SessionState, last: Label, ledger: LedgerState | None) -> SessionState | None:
    """The state as the rows leave it, as far as the script's next step depends on it; None where that cannot be told."""
    if last in BEHIND:
        return _with_lost(state, last, ledger)
    label = Label(state.obligation.label) if last in _COMPLETING and state.obligation is not None else last
    if state.obligation is not None and state.obligation.goes_back:
        numbers = [call.number for call in undone_calls(state, state.obligation.target_seq)]
        state = _undo(state, numbers, state.obligation.seq)
    return _end(state, "interrupted" if label in _INTERRUPTING else "finished")


def _undo(state: SessionState, numbers: Collection[int], by: int) -> SessionState:
    if not numbers:
        return state
    calls = [replace(call, undone_by=by) if call.number in numbers else call for call in state.calls]
    return replace(state, calls=CallList(calls))


def _end(state: SessionState, how: events.Ended) -> SessionState:
    call = state.open_call
    return state if call is None else replace(state, calls=state.calls.with_newest(replace(call, ended=how)))


def _with_lost(state: SessionState, label: Label, ledger: LedgerState | None) -> SessionState | None:
    """The lost calls with the ends that they will have; None where the ledger does not say which call of the script one was."""
    is_adopted = label is Label.LOG_BEHIND_ADOPT
    ended: events.Ended = "finished" if is_adopted else "interrupted"
    by = None if is_adopted else state.head_seq + 1
    if not is_adopted and state.open_call is not None:
        state = replace(state, calls=state.calls.with_newest(replace(state.open_call, undone_by=by)))
    state = _end(state, ended)
    for number in missing_calls(state, ledger) if ledger is not None else ():
        attempt = first_attempt(ledger, number) if ledger is not None else None
        intent = decode_intent(attempt) if attempt is not None else None
        if intent is None:
            return None
        begun = (AttemptState(1, state.head_seq + 1, intent.key),)
        call = CallState(number, intent.script_index, intent.tool, intent.policy, intent.input, begun, ended, undone_by=by)
        state = replace(state, calls=state.calls.append(call))
    return state


def _describe(state: SessionState, own: str) -> Ahead:
    count = len(state.opened.script)
    match choose_next(state, state.opened.on_interrupted):
        case RunNext(index=index):
            return Ahead(f"then call {index + 1} of {count} of the script runs")
        case AskApproval(index=index):
            which = f"call {index + 1} of {count} of the script"
            said = f"then a person is asked whether {which} may run, and the drive stops with exit 78"
            return Ahead(said, (f"`recovery drive {own}` asks; `recovery answer {own}` answers",), True)
        case AwaitAnswer(call=call):
            said = f"then the drive stops with exit 78: call {call} waits for `recovery answer {own}`"
            ways = f"`recovery answer {own} --approve` lets it run, `--edit FILE` runs what FILE says, `--reject` goes on without it"
            return Ahead(said, (ways,), True)
        case AskPerson() as ask:
            return _ask(ask, own)
        case ScriptDone() if state.approval is not None and state.approval.answer is None and state.approval.request_id:
            said = f"then the drive stops with exit 78: call {state.approval.call} waits for `recovery answer {own}`"
            ways = f"`recovery answer {own}` with --approve, --edit FILE or --reject; the program that opened it, started again, goes on"
            return Ahead(said, (ways,), True)
        case ScriptDone() if not state.opened.script:
            said = "then the drive stops with exit 78: the session has no script, and only `recovery drive --finish` ends it"
            goes_on = f"{describe_way_on(False, own)} goes on, as do `recovery image` and `recovery restore`"
            return Ahead(said, (goes_on, f"`recovery drive {own} --finish` ends it, for good"), True)
        case ScriptDone():
            return Ahead("then the session finishes, for good: nothing can be recorded or restored in it after that")


def _ask_lost(own: str) -> Ahead:
    said = "then a person is asked about the calls that the log lost, and the drive stops with exit 78"
    reissue = f"`recovery drive {own} --on-interrupted reissue` runs them again"
    return Ahead(said, (reissue, f"`recovery drive {own} --on-interrupted continue` goes on after them"), True)


def _ask(ask: AskPerson, own: str) -> Ahead:
    what = "interrupted" if ask.undone_by is None else "undone"
    said = f"then a person is asked about {what} call {ask.call}, and the drive stops with exit 78"
    again = "runs it again" if ask.undone_by is None and not ask.undone else f"runs the script again from its call {ask.again + 1}"
    reissue = f"`recovery drive {own} --on-interrupted reissue` {again}"
    return Ahead(said, (reissue, f"`recovery drive {own} --on-interrupted continue` goes on after it"), True)
