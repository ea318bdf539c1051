"""Restoring where images are in checkpoints (rule C7): which checkpoint, and what becomes of the calls after an older one.

A checkpoint is proved before the decision to restore, as far as the restore needs it: a decision binds every successor, and one to an image
that is not to be had could never be met. The newest checkpoint is the head image's, unless one was left out within the bound, or it is
damaged. Then an older one stands in, if the session allows it: no more finished calls come after it than `lost_work_bound`, or all of
them are `safe` and can be done again. Otherwise nothing is touched and what would be lost is named.

The calls after an older checkpoint are done again in order, inside the open obligation, if all of them are `safe`, none has a redacted
input and nothing was changed outside any call in between. Those whose roots are reached end in `call_replayed`; if one is not, the
workspace is restored once more and all of them end in `call_undone`. Either is one commit with `restore_finished`: killed before it, the
next driver begins again at the checkpoint. Where calls are undone the open call is interrupted in that commit, whatever would have become
of it: it would run on an image that lacks the calls before it.
"""

from collections.abc import Sequence
from typing import Literal, assert_never

import msgspec

from eventlog import events
from eventlog.errors import InternalError, NeedsPersonError, required
from eventlog.image import Change, Image, ImageTree, diff, root_hash
from eventlog.records import Record
from eventlog.values import ContentId
from recovery.behind import interrupt_missing
from recovery.calls import KEY_VARIABLE, check_tool, choose_left_behind, command_request, interrupt_call, is_confined
from recovery.capture import list_untracked, look_again
from recovery.checkpoints.errors import CheckpointDamagedError
from recovery.contents import Contents
from recovery.context import Context
from recovery.fallback_image import Fallback
from recovery.labels import INTERRUPTS, Label
from recovery.left_behind import handle_outsiders
from recovery.modes import vault_of
from recovery.person_restore import undone_calls
from recovery.restore import complete_restore, decided_restore, plan_for, target_at
from recovery.script import BashCall, EditCall, WriteCall, call_from_json
from recovery.space.keys import announce
from recovery.space.protocol import EditFile, WriteFile
from recovery.space.records import Prepare
from recovery.space.request import digest_request
from recovery.state import FALLBACK, CallState, Obligation, SessionState
from recovery.workspace.actions import PlaceFile
from recovery.workspace.values import Scan, Untracked


def open_obligation(context: Context, label: Label, facts: dict[str, object], found: Scan | None) -> None:
    """Commit the decision to restore to the head image, or what stands in for it; from here on it binds every successor. `found` is the
    scan it was decided on, None where nothing is there. Raises NeedsPersonError where no image is to be had."""
    fallback = choose_fallback(context, found)
    context.journal.append([Record(decided_restore(context, label, facts, found, fallback))], (), "decision")


def choose_fallback(context: Context, found: Scan | None) -> Fallback | None:
    """The older image to restore in place of the head's; None: the head image is to be had. Everything that a restore from the tree of
    `found` needs (None: from nothing) has been read and proved then.

    Raises NeedsPersonError: nothing is to be had that the session allows; what is damaged and what would be lost is named.
    """
    state = context.journal.state
    if state.modes.newest is None:
        return None  # the log has all contents
    fallback = find_fallback(Contents(context.journal.reader, vault_of(context)), state, found, context.accept_lost)
    if fallback is not None and may_replay(state, after := undone_calls(state, fallback.seq), fallback.seq):
        _check_startable(context, after)
    return fallback


def find_fallback(contents: Contents, state: SessionState, found: Scan | None, accept_lost: int) -> Fallback | None:
    """`choose_fallback` for who only forecasts: it asks not whether calls can be started here. `contents` has a vault. Raises
    NeedsPersonError."""
    damage = describe_damage(contents, state, found, state.root, state.image, state.untracked)
    if not damage:
        return None
    tried = {state.root}
    for taken in state.modes.list_taken():
        if taken.root in tried:
            continue
        tried.add(taken.root)
        image = target_at(contents.reader, state, taken.seq)
        if describe_damage(contents, state, found, taken.root, image, state.untracked_at(taken.seq)):
            continue
        after = undone_calls(state, taken.seq)
        if not may_replay(state, after, taken.seq) and len(after) > max(state.modes.bound, accept_lost):
            raise NeedsPersonError(_describe_lost(damage, after, state))
        numbers = [call.number for call in after]
        return Fallback(taken.seq, taken.root, image, {FALLBACK: taken.manifest, "why": damage, "calls_after": numbers})
    raise NeedsPersonError(_describe_nothing(damage))


def may_replay(state: SessionState, calls: Sequence[CallState], since: int) -> bool:
    """Whether these calls after the event `since` may be done again (C7). Pure."""
    return state.observed_seq <= since and all(call.policy == "safe" and not call.last.is_redacted for call in calls)


def _check_startable(context: Context, after: Sequence[CallState]) -> None:
    """Raise NeedsPersonError for calls to be done again that cannot be started here, while nothing of them is begun."""
    for call in after:
        request = call_from_json(call.input, f"call {call.number}")
        check_tool(context, call.number, request)
        if isinstance(request, BashCall) and is_confined(context, request) and not context.space.can_confine:
            raise NeedsPersonError(
                f"call {call.number} is to be done again from a checkpoint, in the namespaced space, in which nothing is started here; "
                "`recovery drive STATE_DIR`, or the program that opened the session, does that"
            )


def describe_damage(
    contents: Contents, state: SessionState, found: Scan | None, root: str, image: Image, untracked: tuple[Untracked, ...]
) -> str:
    """Why the image of this root cannot be restored from the tree that was found; "" when it can: all of it was read and proved. `contents`
    has a vault."""
    tree = Scan(ImageTree(), ()) if found is None else found
    plan = plan_for(state.profile, tree, image, untracked)
    wanted = {action.path: action.content for action in plan.actions if isinstance(action, PlaceFile)}
    lacking = [path for path, content in wanted.items() if not contents.reader.has_blob(ContentId(content))]
    if not lacking:
        return ""
    taken = state.modes.find_taken(root)
    if taken is None:
        return "no checkpoint was taken of the newest image"
    vault = required(contents.vault, "the log says that a checkpoint was taken, and the session has no store for one")
    try:
        vault.prove(taken.manifest, root, lacking)
    except CheckpointDamagedError as error:
        return str(error)
    return ""


def _describe_lost(damage: str, after: Sequence[CallState], state: SessionState) -> str:
    numbers = ", ".join(str(call.number) for call in after[:20])
    return (
        f"{damage}. With the checkpoint before it the finished calls {numbers} would be lost, which are not all `safe` and are more than "
        f"lost_work_bound = {state.modes.bound}; nothing was touched. Put the store's own files back (`recovery checkpoints verify "
        "STATE_DIR` names what is damaged) and drive again, or "
        f"`recovery drive STATE_DIR --accept-lost {len(after)}` goes back to that checkpoint and gives so many calls up"
    )


def _describe_nothing(damage: str) -> str:
    return (
        f"no checkpoint is left that could be restored: {damage}. Two ways out: put the checkpoint store's own files back "
        "(`recovery checkpoints verify STATE_DIR` names what is damaged) and drive again; "
        "or put a directory with the work in the workspace's place and take it as it is by `recovery settle STATE_DIR --accept-root`"
    )


def append_fallback(context: Context, obligation: Obligation, side: str, closing: list[Record]) -> None:
    """Do the calls after an older checkpoint again, or end them as undone, and commit the end of the restore with it. `closing` are the
    records of a restore that has reached the older image. Raises what commands, file workers and restores raise."""
    state = context.journal.state
    target = target_at(context.journal.reader, state, obligation.target_seq)
    after = undone_calls(state, obligation.target_seq)
    ends: list[Record] = []
    image: Image = target
    reason = f"the checkpoint of the image at seq {obligation.target_seq} is the newest that is whole"
    if after and may_replay(state, after, obligation.target_seq):
        _check_startable(context, after)  # whoever decided this may have been another program
        ends, image = _replay(context, obligation, after, target)
        if len(ends) < len(after):
            reason += f", and call {after[len(ends)].number}, done again from it, came to another image than it had"
            closing = complete_restore(context, side)  # what was done again did not lead to where it had
            ends, image = [], target
    if not ends:
        now = context.clock.now_ms()
        ends = [Record(events.CallUndone(now, call.number, reason, obligation.seq)) for call in after]
    records = [_with_changes(record, diff(state.image, target)) for record in closing]
    root = after[-1].root if image is not target else obligation.target_root
    _commit(context, obligation, [*records, *ends], image, root)
    if after and image is target:
        context.tell(f"{describe_undone([call.number for call in after], reason)}; {describe_lost_work(context.journal.state)}")


def describe_undone(calls: Sequence[int], reason: str) -> str:
    """Which finished calls were undone, and why."""
    what = f"the finished call {calls[0]} was" if len(calls) == 1 else f"the finished calls {', '.join(map(str, calls))} were"
    return f"{what} undone: {reason}"


def describe_lost_work(state: SessionState) -> str:
    """What was lost to damaged checkpoints, and how much may be (C7)."""
    return f"lost_calls={state.lost_calls} bound={state.modes.bound}"


def _with_changes(record: Record, changes: tuple[Change, ...]) -> Record:
    return Record(record.event, changes) if isinstance(record.event, events.RestoreFinished) else record


def _replay(
    context: Context, obligation: Obligation, calls: Sequence[CallState], image: Image
) -> tuple[list[Record], Image]:
    """Do the calls again one after another while each reaches its root: a record for each that did, and the image then."""
    ends: list[Record] = []
    for call in calls:
        _run_again(context, obligation, call)
        found = look_again(context, image)
        if root_hash(found.image, context.profile.excludes).hex() != call.root:
            break
        replayed = events.CallReplayed(context.clock.now_ms(), call.number, call.last.number + 1, call.root)
        ends.append(Record(replayed, diff(image, found.image)))
        image = found.image
    return ends, image


def _run_again(context: Context, obligation: Obligation, call: CallState) -> None:
    """Run a finished call once more, as work of the decision: its own keys are spent."""
    attempt = 1
    while context.ledger.state.find(key := context.key(f"d{obligation.seq}", attempt)) is not None:
        attempt += 1
    request = call_from_json(call.input, f"call {call.number}")
    context.tell(f"call {call.number} {call.tool}: done again from the checkpoint")
    match request:
        case BashCall():
            command = command_request(context, call.number, request, key)
            mark = context.space.mark(f"d{obligation.seq}-a{attempt}")
            _announce(context, key, "command", attempt, digest_request(command), mark)
            context.space.wait_command(key, context.space.start_command(command, mark))
            done = required(context.ledger.state.find(key), f"the ledger does not know {key}, which has just ended")
            handle_outsiders(context, done, KEY_VARIABLE, choose_left_behind(context, request))
            context.space.forget_attempt(mark)
        case WriteCall():
            _announce(context, key, "work", attempt, "replay", context.space.mark(f"e{context.epoch}-worker"))
            context.space.change_files(WriteFile(context.epoch, key, request.path, request.content, request.mode))
        case EditCall():
            _announce(context, key, "work", attempt, "replay", context.space.mark(f"e{context.epoch}-worker"))
            context.space.change_files(EditFile(context.epoch, key, request.path, request.old, request.new))
        case _:
            assert_never(request)


def _announce(context: Context, key: str, kind: Literal["command", "work"], attempt: int, digest: str, mark: str) -> None:
    state = context.journal.state
    announce(context.ledger, Prepare(key, kind, context.epoch, None, attempt, digest, mark, None, state.head_seq, state.head_hash))


def _is_cut_off(state: SessionState, label: Label, records: Sequence[Record]) -> bool:
    """Whether the open call ends because calls before it are undone; one that a person is still to be asked about waits for that."""
    is_asked = state.open_call is not None and state.open_call.policy == "ask" and label is not Label.NOT_RUN_BY_PERSON
    return not is_asked and any(isinstance(record.event, events.CallUndone) for record in records)


def _commit(context: Context, obligation: Obligation, records: list[Record], image: Image, root: str) -> None:
    label = Label(obligation.label)
    state = context.journal.state
    if obligation.call is not None and (label in INTERRUPTS or _is_cut_off(state, label, records)):
        record = interrupt_call(context, label, "the call was cut, and its workspace restored from an older checkpoint")
        if not isinstance(record.event, events.CallSettled):
            raise InternalError(f"an interrupted call ends in {type(record.event).__name__}")
        listed = list_untracked(state.untracked_at(obligation.target_seq))
        records = [*records, Record(msgspec.structs.replace(record.event, root=root, untracked=listed))]
    if label is Label.LOG_BEHIND_RESTORE:
        for one in interrupt_missing(context):
            is_end = isinstance(one.event, events.CallSettled)
            records = [*records, Record(msgspec.structs.replace(one.event, root=root)) if is_end else one]
    if root == obligation.target_root:
        context.journal.append(records, (), "restored")
        return
    vault = vault_of(context)
    with vault.writing() as writer:
        manifest = vault.take(writer, image, context.profile.excludes, context.root, None)
        taken = events.CheckpointTaken(context.clock.now_ms(), manifest, root, vault.took_ms)
        context.journal.append([*records, Record(taken)], (), "restored")
