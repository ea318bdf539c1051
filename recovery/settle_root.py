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
from recovery.facts import LogFact, RootFact
from recovery.fallback import choose_fallback
from recovery.files import take_root
from recovery.gather import Evidence
from recovery.labels import NOT_ACTED_ON, Label
from recovery.perform import complete_obligation, describe_refusal, gather_all
from recovery.restore import decided_restore
from recovery.root import observe_root
from recovery.state import SessionState

_ABOUT_ROOT = frozenset({Label.ROOT_LOST, Label.ROOT_LOST_BY_CALL, Label.ROOT_UNMOUNTED, Label.ROOT_REPLACED, Label.COMPLETE_REBUILD})


def check_away(root: str, state: SessionState) -> None:
    """Raise MisuseError where the workspace is the session's own: asked before the takeover too, as nothing is to be ended for that."""
    if observe_root(root, state) is RootFact.PRESENT:
        raise MisuseError(
            f"the workspace {show_text(root)} is the session's own directory: nothing is to be rebuilt or accepted; "
            "`recovery drive STATE_DIR` recovers it, `recovery restore STATE_DIR --at SEQ --workspace DIR` makes it equal to an image"
        )


def rebuild(context: Context) -> None:
    """Make the workspace equal to the image before the open call, else the head's; an open call ends interrupted. What is in the directory
    and does not belong there is moved to quarantine. Raises MisuseError where the workspace is the session's own."""
    evidence = gather_all(context)
    label = decide(evidence.facts)
    check_away(context.root, context.journal.state)
    _check_about_root(context, label, evidence)
    is_obliged = context.journal.state.obligation is not None
    fallback = None if is_obliged else choose_fallback(context, None)
    taken = take_root(context, "accepted" if evidence.facts.root is RootFact.OTHER else "rebuilt")
    decision = [] if is_obliged else [Record(decided_restore(context, Label.REBUILD_BY_PERSON, evidence.facts.named(), None, fallback))]
    context.journal.append([*decision, Record(taken)], (), "decision")
    complete_obligation(context)


def accept_root(context: Context) -> None:
    """Record that the directory with content that is there is the workspace. Raises MisuseError, NeedsPersonError; then it is not."""
    evidence = gather_all(context)
    facts, state = evidence.facts, context.journal.state
    check_away(context.root, state)
    _check_about_root(context, decide(facts), evidence)
    shown = show_text(context.root)
    if facts.root is not RootFact.OTHER:
        raise MisuseError(f"the workspace {shown} is missing or empty; there is nothing to accept, `recovery drive STATE_DIR` goes on")
    if facts.log is not LogFact.ABREAST:
        raise NeedsPersonError(
            "the log is older than the ledger, and what it lost cannot be told in another directory; `recovery settle STATE_DIR --rebuild` "
            f"rebuilds the workspace in {shown} and keeps what is there in quarantine, or put the session's own directory back"
        )
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
