"""The script of a session, call by call, and its end; what a driver does once nothing is left to recover."""

from typing import NoReturn, assert_never

from eventlog import events
from eventlog.errors import NeedsPersonError, ScanError
from eventlog.records import Record
from eventlog.show import show_text, show_word
from recovery import calls
from recovery.agent import AskApproval, AskPerson, AwaitAnswer, RunNext, ScriptDone, choose_next
from recovery.capture import Capture, capture_outside, commit_look
from recovery.context import Context
from recovery.driver.order import Order
from recovery.fallback import describe_lost_work, describe_undone
from recovery.modes import commit_image
from recovery.perform import recover
from recovery.restore import sync_workspace
from recovery.script import Call, call_from_json, call_to_json
from recovery.state import SessionState
from recovery.words import describe_way_on

FINISH_SCANS = 3  # rule C6


def run_script(context: Context, order: Order) -> int:
    """Recover, run what of the script is left, and end the session; the exit code. Raises NeedsPersonError where the script asks."""
    recover(context)
    if context.journal.state.opened.script or order.finish:
        resume(context)  # otherwise nothing goes on here, and a pause is not ended
    on_interrupted = order.on_interrupted or context.journal.state.opened.on_interrupted
    while True:
        context.journal.refresh()
        state = context.journal.state
        if state.pause_asked is not None:
            pause(context, state.pause_asked)
        match choose_next(state, on_interrupted):
            case RunNext(index=index, edited=edited):
                calls.run_call(context, index, call_from_json(edited or state.opened.script[index], f"script call {index + 1}"))
            case AskApproval(index=index):
                ask_approval(context, index)
            case AwaitAnswer(call=call, index=index):
                raise NeedsPersonError(describe_question(call, index))
            case AskPerson() as ask:
                raise NeedsPersonError(_describe_ask(ask, order.state, state))
            case ScriptDone():
                if not context.journal.state.opened.script and not order.finish:
                    raise NeedsPersonError(_describe_scriptless(context.journal.stream, order.state))
                return finish(context)
            case other:
                assert_never(other)


def _describe_scriptless(name: str, state: str) -> str:
    """Why a drive of a log of images ends here: nobody's script says that the work is done."""
    return (
        f"session {name} has no script and is not finished by a drive; what there was to recover is recovered. The program that opened it, "
        "started again (`open_session`), `recovery image` and `recovery restore` go on with it. "
        f"`recovery drive {show_word(state)} --finish` ends it for good"
    )


def _describe_ask(ask: AskPerson, directory: str, state: SessionState) -> str:
    """What became of the last call, of those that were undone with it, and the two commands to choose from."""
    which = f"call {ask.call} (call {ask.index + 1} of the script)"
    again = f"`recovery drive {show_word(directory)} --on-interrupted reissue`"
    if ask.undone_by is None:
        return (
            f"{which} was interrupted and the workspace restored to the image before it; {again} runs it again, "
            "`--on-interrupted continue` goes on without it"
        )
    undone = [call for call in (state.calls[number - 1] for number in ask.undone) if call.ended == "finished"]
    became = "was interrupted" if state.calls[ask.call - 1].ended == "interrupted" else "finished"
    what = "was undone" if ask.call in ask.undone else f"{became}, and calls before it were undone"
    why = f" ({describe_undone([call.number for call in undone], undone[0].undone_why)})" if undone else ""
    lost = f"; {describe_lost_work(state)}" if state.lost_calls else ""
    return (
        f"{which} {what} by the restore decided at seq {ask.undone_by}{why}{lost}; {again} runs the script again from its "
        f"call {ask.again + 1}, the first that was undone, `--on-interrupted continue` goes on after call {ask.index + 1}"
    )


def finish(context: Context) -> int:
    """C6: what was kept ends; then the session ends on an image that was scanned, is on disk, and is the head's."""
    root = come_to_rest(context, "the session ends")
    now = context.clock.now_ms()
    sync_workspace(context.root, "finish")
    synced = events.Synced(now, root, context.host.boot_id())
    context.journal.append([Record(synced), Record(events.SessionFinished(now, root))], (), "finish")
    state = context.journal.state
    lost = f"; {describe_lost_work(state)}" if state.opened.checkpoints is not None else ""
    context.tell(f"session {context.journal.stream} finished: image {root}{lost}")
    return 0


def pause(context: Context, reason: str) -> NoReturn:
    """The planned pause at a call boundary: what was kept ends, and the image that was scanned is on disk and known to be before the log
    says `session_paused`. So whatever differs when the session goes on, days and boots later, was changed outside it (D5).

    Raises NeedsPersonError when it is paused: exit 78, the workspace stays claimed.
    """
    root = come_to_rest(context, "the session pauses")
    now = context.clock.now_ms()
    sync_workspace(context.root, "pause")
    synced = events.Synced(now, root, context.host.boot_id())
    context.journal.append([Record(synced), Record(events.SessionPaused(now, root, reason))], (), "pause")
    why = f" ({show_text(reason)})" if reason else ""
    way_on = describe_way_on(bool(context.journal.state.opened.script), "STATE_DIR")
    raise NeedsPersonError(f"session {context.journal.stream} is paused{why}: image {root}; {way_on} goes on with it")


def resume(context: Context) -> None:
    """Say that a paused session goes on, once what changed meanwhile is recorded."""
    if context.journal.state.is_paused:
        context.journal.append([Record(events.SessionResumed(context.clock.now_ms()))], (), "resume")
        context.tell(f"session {context.journal.stream} goes on after its pause")


def ask_approval(context: Context, index: int) -> NoReturn:
    """Commit that a person is asked about the script's call `index`. Raises NeedsPersonError with the ways to answer."""
    state = context.journal.state
    call, asked = len(state.calls) + 1, state.opened.script[index]
    question = events.ApprovalAsked(context.clock.now_ms(), call, index, str(asked["tool"]), asked, request_id="", request_digest="")
    context.journal.append([Record(question)], (), "asked")
    raise NeedsPersonError(describe_question(call, index))


def ask_about(context: Context, call: Call, key: str) -> None:
    """Commit that a person is asked about a call that no script names, under its caller's own id."""
    asked = call_to_json(call)
    number, digest = len(context.journal.state.calls) + 1, calls.request_digest(call)
    question = events.ApprovalAsked(context.clock.now_ms(), number, None, str(asked["tool"]), asked, key, digest)
    context.journal.append([Record(question)], (), "asked")


def describe_request(call: int, key: str) -> str:
    """Which call that no script names waits for a person, and how to answer."""
    return (
        f"call {call} (key {show_text(repr(key))}) waits for a person's word and has not begun: `recovery answer STATE_DIR --approve` lets "
        "it run, `--edit FILE` runs what FILE says in its place, `--reject` ends it without; then ask again under the same key"
    )


def describe_question(call: int, index: int) -> str:
    """Which call waits for a person, and how to answer."""
    return (
        f"call {call} (call {index + 1} of the script) waits for a person's word and has not begun: "
        "`recovery answer STATE_DIR --approve` lets it run, `--edit FILE` runs what FILE says in its place, `--reject` goes on without it; "
        "`recovery drive STATE_DIR` then goes on"
    )


def come_to_rest(context: Context, why: str) -> str:
    """End what calls have left running, and scan until nothing changed outside any call since the scan before; the root of the image.
    Raises ScanError for a workspace that never rests."""
    ended = context.sweep.end_kept(context.ledger, context.epoch)
    if ended:
        context.tell(f"what {ended} commands had left running was ended: {why}")
    for _ in range(FINISH_SCANS):
        found = commit_look(lambda: _observe(context))
        if not found.differs:
            return found.root
    raise ScanError("the workspace keeps changing outside any call; end what changes it and drive again")


def _observe(context: Context) -> Capture:
    """Capture what was changed outside any call, and commit it. The last look of a session is whole, whatever a watcher says."""
    found = capture_outside(context, whole=True)
    if found.differs:
        observed = events.WorkspaceObserved(context.clock.now_ms(), found.root, found.untracked)
        commit_image(context, found, [Record(observed, found.changes)], "observed")
    return found
