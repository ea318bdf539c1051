"""A person's word on what the log and the ledger cannot tell of the open call, and on a restore that does not end (rules D4, R5).

Each is an act of a driver that has taken over (T1 to T4), and a decision under a label of its own: these are the one source of "it ran" and
"it did not run" without proof. None is taken where something is proved, and none of the first two while a restore is open.
"""

import msgspec

from eventlog import events
from eventlog.errors import MisuseError, NeedsPersonError, required
from eventlog.records import Record
from eventlog.show import encode_bytes
from recovery import calls
from recovery.behind import end_missing, interrupt_missing, rejoin
from recovery.capture import Capture, capture, commit_look
from recovery.context import Context
from recovery.decision import decide
from recovery.facts import AttemptFact
from recovery.fallback import open_obligation
from recovery.files import ready_side
from recovery.gather import Evidence
from recovery.labels import NOT_ACTED_ON, Label
from recovery.left_behind import handle_outsiders
from recovery.modes import commit_image
from recovery.perform import complete_obligation, describe_refusal, gather_all
from recovery.person_restore import undone_calls
from recovery.restore import sync_workspace
from recovery.root import check_root
from recovery.state import CallState, Obligation
from recovery.words import WORDS
from recovery.workspace.quarantine import list_quarantine

_UNKNOWN = frozenset({Label.ASK, Label.RESTORE_AND_RERUN, Label.RESTORE_AND_INTERRUPT})
"""Rows in which nobody but a person could know what the open call did."""
RAN = "a person says that it ran; how it ended is not known"
NOT_RUN = "a person says that it did not run"
UNDONE = "a person had it undone: the workspace was restored to the image before it"
ACCEPTED = "the restore did not end, and a person took the workspace as it was found"


def ran(context: Context) -> None:
    """The open call ran: what is there is its result. Its exit is not known and none is made up (I8).

    Raises MisuseError, NeedsPersonError."""
    label, evidence = _decide(context)
    call = _unknown_call(context, label, evidence, "--ran")
    if evidence.facts.attempt is AttemptFact.RESTORED:
        raise NeedsPersonError(
            f"call {call.number}: the workspace was restored to the image before it, so nothing of it is there to be its result; "
            "`recovery settle STATE_DIR --not-run` runs it, `recovery settle STATE_DIR --undo` ends it as interrupted"
        )
    check_root(context.root, context.journal.state)
    attempt = context.ledger.state.attempts.get(call.last.key)
    if attempt is not None and attempt.prepared.kind == "command":
        handle_outsiders(context, attempt, calls.KEY_VARIABLE, "kill")  # else it would go on changing what is taken for the result
    _note(context, Label.RAN_BY_PERSON, evidence)
    calls.settle_by_person(context, Label.RAN_BY_PERSON.value, RAN)


def not_run(context: Context) -> None:
    """The open call did not run: the image before it is restored, whatever is there, and the next drive runs it. Raises MisuseError,
    NeedsPersonError, and what a restore raises."""
    label, evidence = _decide(context)
    _unknown_call(context, label, evidence, "--not-run")
    open_obligation(context, Label.NOT_RUN_BY_PERSON, evidence.facts.named(), evidence.scan)
    complete_obligation(context)


def undo(context: Context) -> None:
    """The open call is undone: the image before it is restored, and it ends interrupted, whatever is known of it. A restore that is open is
    tried again first. Raises MisuseError, and what a restore raises."""
    label, evidence = _decide(context)
    if label in NOT_ACTED_ON and label is not Label.ASK:
        raise NeedsPersonError(describe_refusal(label, evidence, context))
    if label in (Label.LOG_BEHIND_ADOPT, Label.LOG_BEHIND_RESTORE):
        raise NeedsPersonError(_describe_proved(label))
    if context.journal.state.obligation is not None:
        _note(context, Label.COMPLETE_RESTORE, evidence)
        complete_obligation(context)
        evidence = gather_all(context)
    call = context.journal.state.open_call
    if call is None:
        return
    if call.last.is_restored:
        _note(context, Label.UNDO_BY_PERSON, evidence)
        context.journal.append([calls.interrupt_call(context, Label.UNDO_BY_PERSON, UNDONE)], (), "interrupt")
        calls.collect(context, call.number)
        return
    open_obligation(context, Label.UNDO_BY_PERSON, evidence.facts.named(), evidence.scan)
    complete_obligation(context)


def accept_workspace(context: Context, root: str) -> str:
    """Close the open restore with the workspace as it is found, whose root hash must be `root`: that is the head, and the open call ends
    interrupted. The hash. Raises MisuseError, NeedsPersonError where another one is found; then nothing is recorded."""
    if context.journal.state.obligation is None:
        raise MisuseError("no restore is open; `recovery drive STATE_DIR` recovers, `recovery settle STATE_DIR --ran` is about a call")
    evidence = gather_all(context)
    check_root(context.root, context.journal.state)
    if context.journal.state.obligation.label == Label.LOG_BEHIND_RESTORE:
        end_missing(context)  # as the restore itself does before it touches a path: nothing of a lost call goes on, and this log does
        rejoin(context)
    side = ready_side(context)
    found = commit_look(lambda: _commit_accepted(context, root, side, evidence))
    calls.collect(context, len(context.journal.state.calls))
    return found.root


def _commit_accepted(context: Context, root: str, side: str, evidence: Evidence) -> Capture:
    state = context.journal.state
    obligation = required(state.obligation, "a workspace is accepted under an open obligation only")
    found = capture(context, whole=True)
    if found.root != root:
        raise NeedsPersonError(
            f"the workspace has the root hash {found.root} now, and not {root}; look at it, then "
            f"`recovery settle STATE_DIR --accept-workspace {found.root}`"
        )
    sync_workspace(context.root, "accepted")
    now = context.clock.now_ms()
    name = f"{context.journal.log_id}-{obligation.seq}"
    kept = list_quarantine(side, name)
    finished = events.RestoreFinished(
        now, obligation.seq, found.root, 0, len(kept), len({path.split(b"/")[0] for path in kept}), 0, 0, accepted=True
    )
    records = [
        _decided(context, Label.ACCEPT_BY_PERSON, evidence),
        Record(events.Quarantined(now, obligation.seq, name, [encode_bytes(path) for path in kept])),
        Record(finished, found.changes),
        Record(events.Synced(now, found.root, context.host.boot_id())),
        *_ends(context, obligation, found),
    ]
    commit_image(context, found, records, "accepted")
    return found


def _ends(context: Context, obligation: Obligation, found: Capture) -> list[Record]:
    """How the calls end that the restore was about: all of them on the image that was found."""
    state, now = context.journal.state, context.clock.now_ms()
    ends: list[Record] = []
    if obligation.goes_back:
        undone = undone_calls(state, obligation.target_seq)
        ends += [Record(events.CallUndone(now, call.number, ACCEPTED, obligation.seq)) for call in undone]
    if state.open_call is not None:
        ends.append(calls.interrupt_call(context, Label.ACCEPT_BY_PERSON, ACCEPTED))
    if obligation.label == Label.LOG_BEHIND_RESTORE:
        ends += interrupt_missing(context)
    return [
        Record(msgspec.structs.replace(one.event, root=found.root, untracked=found.untracked))
        if isinstance(one.event, events.CallSettled) else one
        for one in ends
    ]


def _decide(context: Context) -> tuple[Label, Evidence]:
    evidence = gather_all(context)
    return decide(evidence.facts), evidence


def _unknown_call(context: Context, label: Label, evidence: Evidence, option: str) -> CallState:
    """The open call, of which a person may say what it did; a refusal where that is known, decided, or not to be asked yet."""
    state = context.journal.state
    if state.obligation is not None:
        raise NeedsPersonError(
            f"{option}: the restore decided at seq {state.obligation.seq} is open: what it undoes is neither taken for done nor run again "
            "before its end; `recovery settle STATE_DIR --undo` tries it again, `--accept-workspace HASH` ends it with what is there"
        )
    if label in NOT_ACTED_ON and label is not Label.ASK:
        raise NeedsPersonError(describe_refusal(label, evidence, context))
    call = state.open_call
    if call is None:
        raise MisuseError(f"{option}: no call is open, so there is nothing to be said of one; `recovery drive STATE_DIR` goes on")
    if label not in _UNKNOWN:
        raise NeedsPersonError(f"{option}: call {call.number}: {_describe_proved(label)}")
    return call


def _describe_proved(label: Label) -> str:
    return f"{label.value}: {WORDS[label]}; no person's word is needed, `recovery drive STATE_DIR` does that"


def _note(context: Context, label: Label, evidence: Evidence) -> None:
    context.journal.append([_decided(context, label, evidence)], (), "decision")


def _decided(context: Context, label: Label, evidence: Evidence) -> Record:
    call = context.journal.state.open_call
    number, attempt = (call.number, call.last.number) if call else (None, None)
    facts = evidence.facts.named()
    return Record(
        events.RecoveryDecided(context.clock.now_ms(), label.value, number, attempt, False, None, None, context.journal.state.mode, facts)
    )  # fmt: skip
