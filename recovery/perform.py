"""Acting on decisions until recovery has settled (rules T5, T6). One decision, one act, then everything is gathered afresh.

Repeating is safe: a decision that binds stands in the log before its act begins, every act is either one commit or a restore that
converges, and a crash in between leaves the next driver the same or a later state (I12).
"""

import os
from typing import assert_never

import msgspec

from eventlog import events, steps
from eventlog.errors import InternalError, NeedsPersonError, ScanError, StaleEpochError, required
from eventlog.records import Record
from eventlog.show import show_text
from recovery import calls
from recovery.behind import describe_missing, end_missing, interrupt_missing, rejoin, take_back_intent
from recovery.capture import capture_outside, commit_look, count_scan_failure, describe_outside_deletion, refuse_over_limit
from recovery.context import Context
from recovery.decision import decide
from recovery.facts import LOST_ROOTS, BootFact, DifferenceFact, LedgerFact
from recovery.fallback import append_fallback, open_obligation
from recovery.files import mark_root, ready_side, take_root
from recovery.gather import Evidence, gather
from recovery.labels import BEHIND, INTERRUPTS, NOT_ACTED_ON, REBUILDS, Label
from recovery.left_behind import describe_stale, handle_outsiders, is_stale
from recovery.modes import commit_image
from recovery.person_restore import Aim, aim_at, check_room, decide_restore, undo_calls
from recovery.restore import complete_restore, forget_contents, sync_workspace
from recovery.root import describe_root, observe_root
from recovery.space.advance import claimed_keys
from recovery.space.ledger import append_fenced
from recovery.space.records import Condemn
from recovery.state import Obligation, SessionState

_UNMARKED = frozenset({Label.ROOT_LOST, Label.ROOT_LOST_BY_CALL, Label.COMPLETE_REBUILD}) | BEHIND
"""Before these are decided nothing is prepared in the ledger: its memory of the log stays as it is (D2), and there may be no root."""
_REBUILDING = frozenset({Label.ROOT_LOST, Label.ROOT_LOST_BY_CALL, Label.COMPLETE_REBUILD})
_REASONS = {
    Label.RESTORE_AND_INTERRUPT: "what the call did is not known whole; the workspace was restored to the image before it",
    Label.ROOT_LOST_BY_CALL: "the workspace root was gone after the call; it was rebuilt to the image before it",
    Label.LOG_BEHIND_RESTORE: "the log lost its end with its tail; the workspace was restored to the image before it",
    Label.UNDO_BY_PERSON: "a person had it undone: the workspace was restored to the image before it",
    Label.REBUILD_BY_PERSON: "a person had the workspace rebuilt to the image before the call",
}


def recover(context: Context) -> None:
    """Decide and act until nothing is left to recover. Raises NeedsPersonError for rows this version does not act on."""
    forget_contents(context)
    refuse_over_limit(context)
    is_marked = False
    while True:
        steps.reach("gather.before")
        evidence = gather_all(context)
        label = decide(evidence.facts)
        steps.reach("decided")
        if label in NOT_ACTED_ON:
            raise NeedsPersonError(describe_refusal(label, evidence, context))
        if not is_marked and label not in _UNMARKED:
            # Only now: rows that need a person touch no workspace path.
            mark_root(context)
            is_marked = True
        if label is Label.SETTLED:
            _note_synced(context, evidence)
            break
        _act(context, label, evidence)
        if label is Label.RECORD_OUTSIDE:
            # What changes again is met by the scan before the next call or the end: a workspace that never rests must not hold us here.
            break
    steps.reach("recovered")


def restore_to(context: Context, seq: int) -> Aim:
    """A person's restore, to its end: an older obligation is completed first (D1); the open call and finished ones after `seq` are undone.

    Raises NeedsPersonError, and RestoreIncompleteError, FullError, CompactedError before the decision where it could not be met.
    """
    forget_contents(context)
    while True:
        steps.reach("gather.before")
        evidence = gather_all(context)
        label = decide(evidence.facts)
        steps.reach("decided")
        if label in NOT_ACTED_ON and label not in (Label.ASK, Label.OUTSIDE_DELETION):
            raise NeedsPersonError(describe_refusal(label, evidence, context))
        if label in _REBUILDING or (label in BEHIND and not is_stale(context.journal.state.untracked)):
            _act(context, label, evidence)
            continue
        mark_root(context)
        if label is not Label.COMPLETE_RESTORE:
            break
        _act(context, label, evidence)
    found = required(evidence.scan, "the root is there and was not scanned")
    aim = aim_at(context.contents, context.journal.state, found, seq)
    if not aim.is_idle or context.journal.state.open_call is not None:
        check_room(aim.plan, context.root, lambda content: context.contents.read([content]))
        decide_restore(context, aim, evidence.facts.named())
        complete_obligation(context)
    steps.reach("recovered")
    return aim


def check_decidable(context: Context) -> None:
    """Raise NeedsPersonError where ledger, log or root are not what recovery could work with: then nothing is changed (D2, D3)."""
    evidence = gather_all(context)
    label = decide(evidence.facts)
    if label in NOT_ACTED_ON and label not in (Label.ASK, Label.OUTSIDE_DELETION):
        raise NeedsPersonError(describe_refusal(label, evidence, context))
    if label in BEHIND:
        raise NeedsPersonError(f"{label.value}: the log lost its tail; `recovery drive STATE_DIR` recovers what there is first")


def _note_synced(context: Context, evidence: Evidence) -> None:
    """After a restart of the machine: the head image was found whole, so it is made known synced. Otherwise a later change by a
    person would pass for a lost write (D5)."""
    facts = evidence.facts
    if facts.boot is BootFact.OTHER and facts.difference is DifferenceFact.EQUAL and not facts.is_restored:
        sync_workspace(context.root, "synced")
        synced = events.Synced(context.clock.now_ms(), context.journal.state.root, context.host.boot_id())
        context.journal.append([Record(synced)], (), "synced")


def gather_all(context: Context) -> Evidence:
    """All facts; a scan that fails while a call is open is counted (C5).

    Raises StaleEpochError: a ledger that a newer epoch has taken knows more of the log than this driver does, which must not look like a
    log that lost its tail."""
    if context.ledger.floor > context.epoch:
        raise StaleEpochError(f"epoch {context.epoch} was superseded by epoch {context.ledger.floor}")
    state = context.journal.state
    try:
        return gather(
            state,
            context.journal.hashes,
            context.ledger.state,
            LedgerFact.SOUND,
            context.root,
            context.host,
            context.accept_outside,
            context.scanner,
            context.space.list_processes(),
        )
    except ScanError as error:
        if state.open_call is not None:
            count_scan_failure(context, state.open_call.number, error)
        raise


def describe_refusal(label: Label, evidence: Evidence, context: Context) -> str:
    """`describe_row` for a driver that has taken over."""
    return describe_row(label, evidence, context.root, context.journal.state)


def describe_row(label: Label, evidence: Evidence, root: str, state: SessionState) -> str:
    """The sentence for a row that ends with exit 78: what, which, and the way out there is."""
    facts = evidence.facts
    match label:
        case Label.OUTSIDE_DELETION:
            return describe_outside_deletion(evidence.removed, evidence.scanned_root)
        case Label.ROOT_UNMOUNTED | Label.ROOT_REPLACED:
            return describe_root(facts.root, root, state)
        case Label.ASK:
            number = state.open_call.number if state.open_call is not None else 0
            return (
                f"{label.value}: what call {number} did is not known and its policy is `ask`: `recovery settle STATE_DIR --ran` takes what "
                "is there for its result, `--not-run` restores the image before it and runs it, `--undo` restores and interrupts it"
            )
        case _:
            raise InternalError(f"{label.value} is acted on and has no refusal")


def _act(context: Context, label: Label, evidence: Evidence) -> None:
    named = evidence.facts.named()
    match label:
        case Label.COMPLETE_RESTORE | Label.COMPLETE_REBUILD:
            context.journal.append([Record(_decided(context, label, named))], (), "decision")
            complete_obligation(context)
        case Label.RESTORE_AND_RERUN | Label.RESTORE_AND_INTERRUPT | Label.RESTORE_UNSYNCED_HEAD:
            open_obligation(context, label, named, evidence.scan)
            complete_obligation(context)
        case Label.ROOT_LOST | Label.ROOT_LOST_BY_CALL:
            _refuse_stale(context, label)
            condemn_claims(context)
            open_obligation(context, label, named, None)
            complete_obligation(context)
        case Label.RERUN_RESTORED | Label.RUN_VOIDED:
            _note(context, label, named)
            calls.run_again(context)
        case Label.INTERRUPT_RESTORED:
            context.journal.append([calls.interrupt_call(context, label, "the call was cut and the workspace restored")], (), "interrupt")
            calls.collect(context, len(context.journal.state.calls))
        case Label.ADOPT_EXIT:
            _note(context, label, named)
            exited = context.ledger.state.attempts[calls.open_attempt(context).key].exit
            if exited is None:
                raise InternalError("adopt without an exit record")
            calls.settle_command(context, exited, label.value)
        case Label.REATTACH:
            _note(context, label, named)
            _reattach(context)
        case Label.VOID_AND_RUN:
            calls.void_attempt(context)
            _note(context, label, named)
            calls.run_again(context)
        case Label.RECORD_OUTSIDE:
            _record_outside(context, named)
        case (
            Label.RESTORE_BY_PERSON
            | Label.REBUILD_BY_PERSON
            | Label.RAN_BY_PERSON
            | Label.NOT_RUN_BY_PERSON
            | Label.UNDO_BY_PERSON
            | Label.ACCEPT_BY_PERSON
            | Label.EXCLUDE_BY_PERSON
            | Label.DISCARD_BY_PERSON
        ):
            raise InternalError("a person's decision follows from no facts")
        case Label.ASK | Label.OUTSIDE_DELETION | Label.ROOT_UNMOUNTED | Label.ROOT_REPLACED | Label.SETTLED:
            raise InternalError(f"{label.value} is not acted on")
        case Label.LEDGER_LOST | Label.LEDGER_EXCHANGED | Label.LEDGER_DAMAGED | Label.COMPLETE_WITHOUT_LEDGER:
            raise InternalError(f"{label.value} is acted on in the takeover, before this")
        case Label.LOG_BEHIND_ADOPT:
            _adopt_lost_call(context, named)
        case Label.LOG_BEHIND_RESTORE:
            _refuse_stale(context, label)
            condemn_claims(context)
            lost = describe_missing(context.journal.state, context.ledger.state)
            context.tell(f"{label.value}: the log lost its tail; lost calls: {lost['missing_calls'] or 'none'}")
            open_obligation(context, label, named | lost, evidence.scan)
            complete_obligation(context)
        case _:
            assert_never(label)


def _note(context: Context, label: Label, facts: dict[str, object]) -> None:
    """Commit a decision that binds nobody: it says what was known and why the next events stand there."""
    decided = _decided(context, label, facts)
    context.journal.append([Record(decided)], (), "decision")
    context.tell(f"call {decided.call} attempt {decided.attempt}: {label.value}" if decided.call else label.value)


def _decided(context: Context, label: Label, facts: dict[str, object]) -> events.RecoveryDecided:
    call = context.journal.state.open_call
    number, attempt = (call.number, call.last.number) if call else (None, None)
    mode = context.journal.state.mode
    return events.RecoveryDecided(context.clock.now_ms(), label.value, number, attempt, False, None, None, mode, facts)


def _ensure_root(context: Context) -> None:
    """Make the root anew where it is lost; from here on the log knows the new one, and no file is in it yet (R6)."""
    if observe_root(context.root, context.journal.state) in LOST_ROOTS:
        context.journal.append([Record(take_root(context, "rebuilt"))], (), "root")


def end_handed_on(context: Context, obligation: Obligation) -> None:
    """What the call that is undone handed on outside its mark ends before a path is touched (I7): nothing else has ended it."""
    call = context.journal.state.open_call
    attempt = context.ledger.state.attempts.get(call.last.key) if call is not None and obligation.call is not None else None
    if attempt is not None and attempt.prepared.kind == "command":
        handle_outsiders(context, attempt, calls.KEY_VARIABLE, "kill")


def _refuse_stale(context: Context, label: Label) -> None:
    """Raise NeedsPersonError where the newest image does not say what the files held: nothing is made equal to it unasked (C8)."""
    refusal = describe_stale_target(label, context.journal.state)
    if refusal:
        raise NeedsPersonError(refusal)


def describe_stale_target(label: Label, state: SessionState) -> str:
    """Why a row is not acted on for a stale head image, with the way out; "" where it is. Pure."""
    if not is_stale(state.untracked):
        return ""
    match label:
        case Label.ROOT_LOST | Label.ROOT_LOST_BY_CALL:
            return (
                f"the workspace is lost and its newest image is stale: {describe_stale(state.untracked)}; "
                "`recovery settle STATE_DIR --rebuild` rebuilds it all the same, with what was seen of it"
            )
        case Label.LOG_BEHIND_RESTORE:
            return (
                f"{label.value}: the log lost its tail and its newest image is stale: {describe_stale(state.untracked)}; "
                "`recovery restore STATE_DIR --at SEQ --workspace DIR` restores an image before that"
            )
        case _:
            return ""


def _adopt_lost_call(context: Context, named: dict[str, object]) -> None:
    """Append the lost call's intent again, from the ledger's bytes, and adopt the call; its command does not run again."""
    label = Label.LOG_BEHIND_ADOPT
    lost = describe_missing(context.journal.state, context.ledger.state)
    if context.journal.state.open_call is None:
        intent = take_back_intent(context)
        decided = msgspec.structs.replace(_decided(context, label, named | lost), call=intent.call, attempt=intent.attempt)
        context.journal.append([Record(decided), Record(intent)], (), "decision")
    rejoin(context)
    context.tell(f"call {len(context.journal.state.calls)}: {label.value}")
    exited = context.ledger.state.attempts[calls.open_attempt(context).key].exit
    if exited is None:
        raise InternalError("adopt without an exit record")
    calls.settle_command(context, exited, label.value)


def condemn_claims(context: Context) -> None:
    """A command that runs on where its workspace is gone is killed: nothing it does is adopted (D3)."""
    claimed = claimed_keys(context.ledger.state)
    if claimed:
        append_fenced(context.ledger, context.epoch, Condemn(context.epoch, claimed))
        context.sweep.kill_condemned(context.ledger, context.epoch, frozenset())


def complete_obligation(context: Context) -> None:
    """Carry the open obligation out and close it; an interrupted call is settled in the same commit."""
    obligation = context.journal.state.obligation
    if obligation is None:
        raise InternalError("no obligation is open")
    label = Label(obligation.label)
    end_handed_on(context, obligation)
    if label is Label.LOG_BEHIND_RESTORE:
        end_missing(context)
        rejoin(context)
    _ensure_root(context)
    side = ready_side(context)
    records = complete_restore(context, side)
    interrupts = label in INTERRUPTS and obligation.call is not None
    if obligation.is_fallback:
        append_fallback(context, obligation, side, records)
        if label is Label.LOG_BEHIND_RESTORE:
            context.journal.append(interrupt_missing(context), (), "interrupt")
    else:
        if label is Label.RESTORE_BY_PERSON:
            records = undo_calls(context, obligation, records)
        elif interrupts:
            records.append(calls.interrupt_call(context, label, _REASONS[label]))
        if label is Label.LOG_BEHIND_RESTORE:
            records += interrupt_missing(context)
        context.journal.append(records, (), "restored")
    did, counted = ("rebuilt", "reimaged") if label in REBUILDS else ("restored", "reverted")
    finished = next(one.event for one in records if isinstance(one.event, events.RestoreFinished))
    kept = os.path.join(side, "quarantine", f"{context.journal.log_id}-{obligation.seq}")
    # The directory is there for every restore that changed anything: it also holds what was changed in place.
    moved = f"; what was moved away is in {show_text(kept)}" if finished.displaced else ""
    count = f"{finished.restored} paths {counted}"
    context.tell(f"{obligation.label}: workspace {did} to the image at seq {obligation.target_seq}, {count}{moved}")
    forget_contents(context)
    if interrupts or label is Label.LOG_BEHIND_RESTORE:
        calls.collect(context, len(context.journal.state.calls))


def _reattach(context: Context) -> None:
    key = calls.open_attempt(context).key
    start = context.ledger.state.attempts[key].start
    if start is None:
        raise InternalError("reattach to an attempt without a starting mark")
    calls.settle_command(context, context.space.wait_command(key, start.identity), Label.REATTACH.value)


def _record_outside(context: Context, facts: dict[str, object]) -> None:
    commit_look(lambda: _commit_outside(context, facts))


def _commit_outside(context: Context, facts: dict[str, object]) -> None:
    found = capture_outside(context)
    if found.differs:
        decided = _decided(context, Label.RECORD_OUTSIDE, facts)
        observed = events.WorkspaceObserved(context.clock.now_ms(), found.root, found.untracked)
        commit_image(context, found, [Record(decided), Record(observed, found.changes)], "observed")
