"""A person's word on the workspace root (D3): rebuild it from the log in what is there, or take what is there as the workspace.

A rebuild commits its decision and the identity of the directory in one go: from then on it is a restore like any other, which every
successor completes. Before that commit nothing but the directory's id was written.
"""

from eventlog import events
from eventlog.errors import MisuseError, NeedsPersonError
from eventlog.records import Record
from eventlog.show import show_text
from recovery.context import Context
from recovery.decision import decide
from recovery.facts import RootFact
from recovery.files import take_root
from recovery.gather import Evidence
from recovery.labels import NOT_ACTED_ON, Label
from recovery.perform import complete_obligation, describe_refusal, gather_all
from recovery.restore import decided_restore

_ABOUT_ROOT = frozenset({Label.ROOT_LOST, Label.ROOT_LOST_BY_CALL, Label.ROOT_UNMOUNTED, Label.ROOT_REPLACED, Label.COMPLETE_REBUILD})


def rebuild(context: Context) -> None:
    """Make the workspace equal to the image before the open call, else the head's; an open call ends interrupted. What is in the directory
    and does not belong there is moved to quarantine. Raises MisuseError where the workspace is the session's own."""
    evidence = gather_all(context)
    label = decide(evidence.facts)
    if label is Label.COMPLETE_RESTORE or evidence.facts.root is RootFact.PRESENT:
        raise MisuseError(
            f"the workspace {show_text(context.root)} is the session's own directory: nothing is to be rebuilt; `recovery drive STATE_DIR` "
            "recovers it, `recovery restore STATE_DIR --at SEQ --workspace DIR` makes it equal to an image"
        )
    _check_about_root(context, label, evidence)
    taken = take_root(context, "accepted" if evidence.facts.root is RootFact.OTHER else "rebuilt")
    is_obliged = context.journal.state.obligation is not None
    decision = [] if is_obliged else [Record(decided_restore(context, Label.REBUILD_BY_PERSON, evidence.facts.named(), None))]
    context.journal.append([*decision, Record(taken)], (), "decision")
    complete_obligation(context)


def accept_root(context: Context) -> None:
    """Record that the directory with content that is there is the workspace. Raises MisuseError, NeedsPersonError; then it is not."""
    evidence = gather_all(context)
    facts, state = evidence.facts, context.journal.state
    if facts.root is not RootFact.PRESENT:
        _check_about_root(context, decide(facts), evidence)
    shown = show_text(context.root)
    if facts.root is not RootFact.OTHER:
        what = "the session's own directory already" if facts.root is RootFact.PRESENT else "missing or empty"
        raise MisuseError(f"the workspace {shown} is {what}; there is nothing to accept, `recovery drive STATE_DIR` goes on")
    if state.obligation is not None or state.open_call is not None:
        what = "a restore is open" if state.open_call is None else f"call {state.open_call.number} is open"
        raise NeedsPersonError(
            f"{what}, and cannot be ended in another directory than it began in; `recovery settle STATE_DIR --rebuild` rebuilds the "
            f"workspace in {shown} and keeps what is there in quarantine, or put the session's own directory back"
        )
    noted = events.Noted(context.clock.now_ms(), f"a person takes {shown} as the workspace (settle --accept-root)")
    context.journal.append([Record(take_root(context, "accepted")), Record(noted)], (), "settled")


def _check_about_root(context: Context, label: Label, evidence: Evidence) -> None:
    if label not in _ABOUT_ROOT:
        if label in NOT_ACTED_ON:
            raise NeedsPersonError(describe_refusal(label, evidence, context))
        raise MisuseError(f"{label.value}: this is not about the workspace root; `recovery drive STATE_DIR` goes on")
