"""The one way that unlinks (rule R4): what a call made is deleted, not kept in quarantine, where there is no room for its restore.

Order: the restore is an obligation already; the decision that names what goes is committed; it is moved to the quarantine of that restore
as ever, then deleted there by the file worker; then the restore is carried out. Killed in between, the next driver completes the restore
and deletes nothing more.
"""

from eventlog import events
from eventlog.errors import MisuseError, NeedsPersonError, required
from eventlog.records import Record
from eventlog.show import encode_bytes
from recovery.context import Context
from recovery.decision import decide
from recovery.fallback import choose_fallback, open_obligation
from recovery.files import empty_quarantine, ready_side
from recovery.labels import NOT_ACTED_ON, Label
from recovery.perform import complete_obligation, describe_refusal, end_handed_on, gather_all
from recovery.restore import displace, plan_displacing
from recovery.root import check_root
from recovery.workspace.actions import Displace
from recovery.workspace.quarantine import list_quarantine

_RESTORES = frozenset({Label.RESTORE_AND_RERUN, Label.RESTORE_AND_INTERRUPT})


def discard(context: Context, call: int) -> int:
    """Restore the image before the open call `call`, and delete what that displaces; how many paths went.

    Raises MisuseError for another call, NeedsPersonError where no restore of it is due or one that takes back more, and what a restore
    raises.
    """
    _owe_restore(context, call)
    check_root(context.root, context.journal.state)
    side = ready_side(context)
    plan = plan_displacing(context)
    obligation = required(context.journal.state.obligation, "the restore that was decided just now is owed by nobody")
    end_handed_on(context, obligation)
    kept = list_quarantine(side, f"{context.journal.log_id}-{obligation.seq}")
    paths = [*kept, *(action.path for action in plan.actions if isinstance(action, Displace))]
    facts = {"discarded": [encode_bytes(path) for path in paths]}
    now, label = context.clock.now_ms(), Label.DISCARD_BY_PERSON.value
    decided = events.RecoveryDecided(now, label, call, obligation.attempt, False, None, None, context.journal.state.mode, facts)
    context.journal.append([Record(decided)], (), "decision")
    empty_quarantine(context, [displace(context, plan)])
    complete_obligation(context)
    return len(paths)


def _owe_restore(context: Context, call: int) -> None:
    state = context.journal.state
    open_call = state.open_call
    if open_call is None or open_call.number != call:
        which = "no call is open" if open_call is None else f"call {open_call.number} is the open one"
        raise MisuseError(f"--discard {call}: {which}; only what the open call made can be deleted")
    if state.obligation is not None:
        if state.obligation.call != call:
            raise NeedsPersonError(
                f"--discard {call}: the restore decided at seq {state.obligation.seq} is not about it; `recovery drive STATE_DIR` goes on"
            )
        if state.obligation.goes_back or state.obligation.label == Label.LOG_BEHIND_RESTORE:
            raise NeedsPersonError(
                f"--discard {call}: the restore decided at seq {state.obligation.seq} ({state.obligation.label}) takes back more than call "
                f"{call}, and what other calls made is not deleted for want of room; make room, and `recovery drive STATE_DIR` completes it"
            )
        return
    evidence = gather_all(context)
    label = decide(evidence.facts)
    if label in NOT_ACTED_ON and label is not Label.ASK:
        raise NeedsPersonError(describe_refusal(label, evidence, context))
    if label not in _RESTORES:
        raise NeedsPersonError(
            f"--discard {call}: {label.value}: no restore of the call is due; `recovery drive STATE_DIR` goes on, "
            "`recovery settle STATE_DIR --undo` undoes it"
        )
    if choose_fallback(context, evidence.scan) is not None:
        raise NeedsPersonError(
            f"--discard {call}: the image before the call is not to be had, and a restore from an older checkpoint takes back more than "
            f"call {call}; make room, and `recovery drive STATE_DIR` does that"
        )
    open_obligation(context, label, evidence.facts.named(), evidence.scan)
