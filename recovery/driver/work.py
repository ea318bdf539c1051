"""The script of a session, call by call, and its end; what a driver does once nothing is left to recover."""

from eventlog import events
from eventlog.errors import NeedsPersonError, ScanError
from eventlog.records import Record
from eventlog.show import show_text
from recovery import calls
from recovery.agent import AskPerson, RunNext, ScriptDone, choose_next
from recovery.capture import Capture, capture_outside, commit_look
from recovery.context import Context
from recovery.driver.order import Order
from recovery.modes import commit_image
from recovery.perform import recover
from recovery.restore import sync_workspace
from recovery.script import call_from_json

FINISH_SCANS = 3  # rule C6


def run_script(context: Context, order: Order) -> int:
    """Recover, run what of the script is left, and end the session; the exit code. Raises NeedsPersonError where the script asks."""
    recover(context)
    on_interrupted = order.on_interrupted or context.journal.state.opened.on_interrupted
    while True:
        match choose_next(context.journal.state, on_interrupted):
            case RunNext(index=index):
                calls.run_call(context, index, call_from_json(context.journal.state.opened.script[index], f"script call {index + 1}"))
            case AskPerson() as ask:
                raise NeedsPersonError(_describe_ask(ask, order.state))
            case ScriptDone():
                if not context.journal.state.opened.script and not order.finish:
                    raise NeedsPersonError(_describe_scriptless(context.journal.stream, order.state))
                return finish(context)


def _describe_scriptless(name: str, state: str) -> str:
    """Why a drive of a log of images ends here: nobody's script says that the work is done."""
    return (
        f"session {name} has no script and is not finished by a drive; what there was to recover is recovered, and `recovery image` and "
        f"`recovery restore` go on with it. `recovery drive {show_text(state)} --finish` ends it for good"
    )


def _describe_ask(ask: AskPerson, state: str) -> str:
    """What became of the last call, and the two commands to choose from."""
    which = f"call {ask.call} (call {ask.index + 1} of the script)"
    again = f"`recovery drive {show_text(state)} --on-interrupted reissue`"
    if ask.undone_by is None:
        return (
            f"{which} was interrupted and the workspace restored to the image before it; {again} runs it again, "
            "`--on-interrupted continue` goes on without it"
        )
    return (
        f"{which} was undone by the restore decided at seq {ask.undone_by}; {again} runs the script again from its "
        f"call {ask.again + 1}, the first that was undone, `--on-interrupted continue` goes on after call {ask.index + 1}"
    )


def finish(context: Context) -> int:
    """C6: what was kept ends; then the session ends on an image that was scanned, is on disk, and is the head's."""
    ended = context.sweep.end_kept(context.ledger, context.epoch)
    if ended:
        context.tell(f"what {ended} commands had left running was ended: the session ends")
    for _ in range(FINISH_SCANS):
        found = commit_look(lambda: _observe(context))
        if found.differs:
            continue
        now = context.clock.now_ms()
        sync_workspace(context.root, "finish")
        synced = events.Synced(now, found.root, context.host.boot_id())
        context.journal.append([Record(synced), Record(events.SessionFinished(now, found.root))], (), "finish")
        state = context.journal.state
        lost = f"; lost_calls={state.lost_calls} bound={state.modes.bound}" if state.opened.checkpoints is not None else ""
        context.tell(f"session {context.journal.stream} finished: image {found.root}{lost}")
        return 0
    raise ScanError("the workspace keeps changing outside any call; end what changes it and drive again")


def _observe(context: Context) -> Capture:
    """Capture what was changed outside any call, and commit it. The last look of a session is whole, whatever a watcher says."""
    found = capture_outside(context, whole=True)
    if found.differs:
        observed = events.WorkspaceObserved(context.clock.now_ms(), found.root, found.untracked)
        commit_image(context, found, [Record(observed, found.changes)], "observed")
    return found
