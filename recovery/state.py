"""What a session's log says, folded event by event. Pure; nobody caches beside it.

Invariants: an open call is the last one; at most one obligation is open; an attempt that was restored or voided is never adopted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from eventlog import events
from eventlog.errors import CorruptError, NeedsPersonError
from eventlog.image import Change, ImageTree, fold_changes
from eventlog.image_diff import fold_into
from eventlog.image_tree import Draft
from eventlog.reader import StoredEvent
from recovery.call_list import CallList
from recovery.labels import BEHIND, RENEWALS, Label
from recovery.mode_state import ModeState, begin_modes, fold_switched, fold_taken
from recovery.script import decode_bytes
from recovery.workspace.profile import Profile, profile_of
from recovery.workspace.values import Untracked

FALLBACK = "fallback_checkpoint"
"""The fact of a decision to restore that names the older checkpoint which stands in for the newest."""
FoldImage = Callable[[ImageTree, Sequence[Change]], ImageTree]
TO_RESTORE = "to_restore"
"""The fact of a decision to restore that counts the paths that differed then."""

EXCLUDED = "excluded"
"""The fact of a person's decision that names the path that no image holds from then on."""

MISSING_CALLS = "missing_calls"
"""The fact of a decision on a log that lost its tail that lists the numbers of the lost calls."""

SEEN_CALL = "seen_call"
SEEN_SEQ = "seen_seq"
SEEN_HASH = "seen_hash"
"""Facts of a decision to make the ledger anew: the highest call that the lost one had seen; and, where the log lacks it, the newest log
event."""

NEW_GENERATION = "new_generation"
"""The fact of a decision to make the ledger anew that says which generation the new one has."""


class AttemptState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One attempt, and what the log says became of it without an outcome. A struct, as a call is: a long history makes many."""

    number: int
    seq: int
    key: str
    is_restored: bool = False
    is_void: bool = False
    at_ms: int = 0
    is_redacted: bool = False


class CallState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One call and its attempts, in order. `undone_by` is the decision (seq) of the restore that took it back, finished or not: a person's,
    or that of a log that had lost its tail. `request_id` is its caller's own id of it ("" for none), `request_digest` that of what was
    asked for, whatever of it is recorded. `forked` is what a fork knows of a call that its parent settled: its attempts and input are the
    parent's."""

    number: int
    script_index: int | None
    tool: str
    policy: str
    input: dict[str, Any]
    attempts: tuple[AttemptState, ...]
    ended: events.Ended | None = None
    root: str = ""
    settled_seq: int = 0
    undone_by: int | None = None
    request_id: str = ""
    request_digest: str = ""
    forked: events.ForkedCall | None = None
    undone_why: str = ""
    work_ms: int = 0
    """From the finished attempt's intent to its outcome: what doing it again would cost."""

    @property
    def last(self) -> AttemptState:
        """The newest attempt."""
        return self.attempts[-1]


class Obligation(msgspec.Struct, frozen=True):
    """A restore that the log says has begun and not ended (R1)."""

    seq: int
    label: str
    call: int | None
    attempt: int | None
    target_seq: int
    target_root: str
    is_fallback: bool = False
    """The target is an older image, because the head image has no checkpoint that is whole (C7)."""
    to_restore: int = 0
    """How many paths differed when it was decided; 0 where the log does not say."""

    @property
    def goes_back(self) -> bool:
        """Whether the head moves to an older image: not what stands beside the head image may stay then, but what stood beside that one."""
        return self.is_fallback or self.label == Label.RESTORE_BY_PERSON


class Approval(msgspec.Struct, frozen=True):
    """What a person is asked before a call begins: `seq` is the question's. `answer` None: nobody has answered yet; `edited` is the call
    that runs in its place. `request_id` and `request_digest` are those of a call that no script names."""

    seq: int
    call: int
    script_index: int | None
    answer: Literal["approved", "edited", "rejected"] | None = None
    edited: dict[str, Any] | None = None
    tool: str = ""
    request_id: str = ""
    request_digest: str = ""


class RejectedRequest(msgspec.Struct, frozen=True):
    """A call under its caller's own id that a person rejected (`seq` of the answer): that is its one end (C3)."""

    seq: int
    request_id: str
    request_digest: str
    reason: str


class Rejection(msgspec.Struct, frozen=True):
    """A call of the script that a person rejected (`seq` of the answer): it never began, and it is at its end."""

    seq: int
    script_index: int


class SessionState(msgspec.Struct, frozen=True):
    """The fold. `image_seq` is the newest event that changed the image, `image_boot` the boot under which it was written."""

    opened: events.SessionOpened
    head_seq: int
    head_hash: str
    floor: int
    boot_id: str
    image: ImageTree
    image_seq: int
    image_boot: str
    root: str
    untracked: tuple[Untracked, ...]
    profile: Profile = msgspec.field(default_factory=Profile)
    calls: CallList[CallState] = msgspec.field(default_factory=CallList)
    obligation: Obligation | None = None
    is_restored_this_epoch: bool = False
    synced_root: str = ""
    is_finished: bool = False
    has_driver: bool = False
    untracked_since: tuple[tuple[int, tuple[Untracked, ...]], ...] = ()
    root_recorded: events.RootIdentity | None = None
    excluded_seq: int = 0
    """The newest decision of a person to exclude a path; the image without it stands in the event after it."""
    taken_back: int = 0
    """The call whose lost intent was appended again from the ledger's bytes (D2); 0: none was."""
    behind_seq: int = 0
    """The newest decision to restore because the log had lost its tail: what it interrupts is undone by it."""
    renewed_generation: int = 0
    renewed_seq: int = 0
    """The newest decision to make the ledger anew: of an attempt that began before it the ledger knows nothing. 0: there was none."""
    seen_call: int = 0
    """The highest call that any ledger is known to have seen, from decisions on lost ledgers and on lost tails."""
    unmet: tuple[int, str] | None = None
    """The log event (seq, hash) that a lost ledger had seen and this log lacks, until it is decided what was lost."""
    pause_asked: str | None = None
    """Why a pause at the next call boundary is asked for; None where none is."""
    is_paused: bool = False
    approval: Approval | None = None
    """The newest question about a call that has not begun, answered or not."""
    rejected: Rejection | None = None
    """The newest call of the script that was rejected."""
    rejected_requests: tuple[RejectedRequest, ...] = ()
    """The calls that no script names and that were rejected, in order."""
    is_placed: bool = True
    """False for a session that was forked, imported or moved and has no workspace yet; `opened` names none then."""
    inputs: tuple[events.ForkedInput, ...] = ()
    """What was admitted, in order."""
    modes: ModeState = msgspec.field(default_factory=ModeState)
    observed_seq: int = 0
    """The newest event that recorded a change made outside any call."""
    fallback_seq: int = 0
    """The newest decision to restore an older image because the head's was not to be had."""
    lost_calls: int = 0
    """Finished calls that were undone by such decisions (C7)."""

    @property
    def generation(self) -> int:
        """The generation of the ledger in force."""
        return self.renewed_generation or self.opened.generation

    @property
    def mode(self) -> events.Mode:
        """The mode in force."""
        return self.modes.mode

    @property
    def unsaved_calls(self) -> tuple[CallState, ...]:
        """The finished calls that the newest checkpoint does not have, in order: what would be lost, or replayed, with the workspace."""
        newest = self.modes.newest.seq if self.modes.newest is not None else 0
        found: list[CallState] = []
        for call in reversed(self.calls):
            if 0 < call.settled_seq < newest:
                break
            if call.ended == "finished" and call.undone_by is None:
                found.append(call)
        return tuple(reversed(found))

    @property
    def root_identity(self) -> events.RootIdentity:
        """The identity of the directory that is the workspace: the newest recorded one, else the one it began with (R6)."""
        return self.root_recorded or self.opened.root_identity

    def untracked_at(self, seq: int) -> tuple[Untracked, ...]:
        """What the image at `seq` did not cover."""
        return next(listed for since, listed in reversed(self.untracked_since) if since <= seq)

    @property
    def open_call(self) -> CallState | None:
        """The call without an end, or None."""
        newest = self.calls.newest
        return newest if newest is not None and newest.ended is None else None


class _Folding(SessionState, frozen=False):  # type: ignore[misc]  # a frozen value's shape, while nobody else has it
    """A state while a whole stream is folded: nobody but that fold has it, and it is changed in place. A function of the fold takes a state
    and gives one; it may not look at what it was given once it has replaced something in it."""


V = TypeVar("V", bound=msgspec.Struct)


def replace(value: V, **changes: Any) -> V:
    """`value` with these fields changed: another value, but for a state that is being folded."""
    if type(value) is not _Folding:
        return msgspec.structs.replace(value, **changes)
    for name, field in changes.items():  # most of a long fold's time is spent here
        setattr(value, name, field)
    return value


def fold_stream(stored: Iterable[StoredEvent], where: str) -> SessionState:
    """Fold a whole stream. Raises CorruptError for a history no driver of this project writes, NeedsPersonError for one that this
    version does not drive."""
    following = iter(stored)
    first = next(following, None)
    if first is None or not isinstance(first.event, events.SessionOpened | events.SessionForked):
        raise CorruptError(f"{where}: the session does not begin with session_opened or session_forked")
    forked = first.event if isinstance(first.event, events.SessionForked) else None
    opened = first.event if isinstance(first.event, events.SessionOpened) else open_forked(first.event)
    image = fold_changes(ImageTree(), first.changes)
    untracked = read_untracked(opened.untracked)
    profile = profile_of(opened)
    since = ((1, untracked),)
    modes = begin_modes(opened)
    state = SessionState(
        opened, 1, first.hash.hex(), 0, "", image, 1, "", opened.root, untracked, profile, untracked_since=since, modes=modes
    )  # fmt: skip
    if forked is not None:
        calls = _carry_calls(forked, where)
        state = replace(state, calls=CallList(calls), is_placed=False, inputs=tuple(forked.inputs))
    return fold_further(state, following, where)


def fold_further(state: SessionState, following: Iterable[StoredEvent], where: str) -> SessionState:
    """The state after all of these events, which follow its head. Raises what `fold_stream` does."""
    draft = Draft(state.image)

    def fold_on(unchanged: ImageTree, changes: Sequence[Change]) -> ImageTree:
        fold_into(draft, changes)
        return unchanged

    head = None
    folded: SessionState = _Folding(*msgspec.structs.astuple(state))
    for head in following:
        folded = _fold_one(folded, head, where, fold_on)
    if head is None:
        return state
    whole = SessionState(*msgspec.structs.astuple(folded))
    return replace(whole, head_seq=head.seq, head_hash=head.hash.hex(), image=draft.finish())


def open_forked(forked: events.SessionForked) -> events.SessionOpened:
    """A fork as a session that was opened nowhere yet: `session_placed` names its workspace and ledger."""
    nowhere = events.RootIdentity("", 0, None, "")
    return events.SessionOpened(
        at_ms=forked.at_ms, name=forked.name, workspace="", mode=forked.mode, on_interrupted=forked.on_interrupted, script=forked.script,
        root=forked.root, root_identity=nowhere, ledger_id="", generation=0, untracked=forked.untracked, excludes=forked.excludes,
        track=forked.track, limits=forked.limits, checkpoints=forked.checkpoints,
    )  # fmt: skip


def _carry_calls(forked: events.SessionForked, where: str) -> tuple[CallState, ...]:
    """The calls that the parent settled. No key of theirs is known here: they are the parent's (C9)."""
    if [call.call for call in forked.calls] != list(range(1, len(forked.calls) + 1)):
        raise CorruptError(f"{where} seq 1: the calls that it takes over are not numbered from 1")
    return tuple(
        CallState(
            call.call, call.script_index, call.tool, "never", {}, (AttemptState(1, 1, ""),), call.ended, call.root, 1,
            request_id=call.request_id, request_digest=call.request_digest, forked=call,
        )
        for call in forked.calls
    )  # fmt: skip


def read_untracked(listed: list[events.Untracked]) -> tuple[Untracked, ...]:
    """The untracked nodes of an event, paths as bytes."""
    return tuple(Untracked(decode_bytes(node.path, "untracked"), node.kind) for node in listed)


def fold_event(state: SessionState, stored: StoredEvent, where: str) -> SessionState:
    """The state after one more event."""
    return replace(_fold_one(state, stored, where, fold_changes), head_seq=stored.seq, head_hash=stored.hash.hex())


def _fold_one(state: SessionState, stored: StoredEvent, where: str, fold_image: FoldImage) -> SessionState:
    """All that an event says but that it is the head. `fold_image` gives the image after its changes."""
    state = _fold(state, stored, where, fold_image)
    if state.untracked == state.untracked_since[-1][1]:
        return state
    return replace(state, untracked_since=(*state.untracked_since, (stored.seq, state.untracked)))


def _fold(state: SessionState, stored: StoredEvent, where: str, fold_image: FoldImage) -> SessionState:
    place = f"{where} seq {stored.seq}"
    _check_legal(state, stored.event, stored.seq, place)
    if stored.changes:
        image = fold_image(state.image, stored.changes)
        state = replace(state, image=image, image_seq=stored.seq, image_boot=state.boot_id, synced_root="")
    match stored.event:
        case events.SessionOpened():
            raise CorruptError(f"{place}: a second session_opened")
        case events.DriverStarted() as event:
            return replace(state, floor=stored.epoch, boot_id=event.identity.boot_id, is_restored_this_epoch=False, has_driver=True)
        case events.WorkspaceObserved() as event:
            seq = stored.seq if stored.changes else state.observed_seq
            return replace(state, root=event.root, untracked=read_untracked(event.untracked), observed_seq=seq)
        case events.AttemptStarted() as event:
            return _fold_attempt(state, event, stored.seq, place)
        case events.CallSettled() as event:
            return _fold_settled(state, event, stored.seq, place)
        case events.RecoveryDecided() as event:
            return _fold_decided(state, event, stored.seq, place)
        case events.RestoreFinished() as event:
            return _fold_restored(state, event, place)
        case events.CallUndone() as event:
            return _fold_undone(state, event, place)
        case events.Synced() as event:
            return replace(state, synced_root=event.root)
        case events.SessionFinished():
            return replace(state, is_finished=True)
        case events.RootRecorded() as event:
            return replace(state, root_recorded=event.identity)
        case events.CheckpointTaken() as event:
            return replace(state, modes=fold_taken(state.modes, event, stored.seq, state.root, place))
        case events.ModeSwitched() as event:
            return replace(state, modes=fold_switched(state.modes, event, place))
        case events.CallReplayed() as event:
            return _fold_replayed(state, event, place)
        case events.PauseRequested() as event:
            return state if state.is_paused else replace(state, pause_asked=event.reason)
        case events.SessionPaused():
            return replace(state, is_paused=True, pause_asked=None)
        case events.SessionResumed():
            return replace(state, is_paused=False, pause_asked=None)
        case events.ApprovalAsked() as event:
            return replace(state, approval=_fold_question(event, stored.seq))
        case events.ApprovalAnswered() as event:
            return _fold_answer(state, event, stored.seq)
        case events.SessionPlaced() as event:
            return _fold_placed(state, event, place)
        case events.InputAdmitted() as event:
            return replace(state, inputs=(*state.inputs, events.ForkedInput(event.request_id, event.input)))
        case events.Quarantined() | events.Noted():
            return state
        case events.SessionForked():
            raise CorruptError(f"{place}: session_forked, which is a first event only")
        case events.SessionMoved():
            raise NeedsPersonError(
                f"{place}: it was moved away and lives on where its bundle was imported (`eventlog import NEW_STATE BUNDLE --new`, then "
                "`recovery place NEW_STATE --workspace DIR`); here it is kept, and not driven any more"
            )
        case events.SessionFailed() as event:
            raise NeedsPersonError(f"{place}: {event.kind}; this version keeps such a session and does not drive it")


def _check_legal(state: SessionState, event: events.Event, seq: int, place: str) -> None:
    """What no driver writes while an obligation or a call is open (R1, C3, I4). Raises CorruptError."""
    call = state.open_call
    if call is None and state.obligation is None and not state.is_paused:
        return
    match event:
        case events.AttemptStarted() | events.CallSettled() | events.WorkspaceObserved() | events.SessionFinished():
            if state.obligation is not None:
                raise CorruptError(f"{place}: {event.kind} while the restore decided at seq {state.obligation.seq} is open")
        case _:
            pass
    is_cut = call is not None and not (call.last.is_restored or call.last.is_void)
    match event:
        case events.AttemptStarted() | events.SessionFinished() if state.is_paused:
            raise CorruptError(f"{place}: {event.kind} while the session is paused")
        case events.SessionPaused() | events.ApprovalAsked() if call is not None:
            raise CorruptError(f"{place}: {event.kind} while call {call.number} is open")
        case events.WorkspaceObserved() if state.excluded_seq == seq - 1:
            pass  # an image without the path, and nothing else: whatever the open call did is as unknown as before
        case events.AttemptStarted() | events.WorkspaceObserved() if call is not None and is_cut:
            raise CorruptError(f"{place}: {event.kind} while call {call.number} attempt {call.last.number} is neither restored nor void")
        case events.SessionFinished() if call is not None:
            raise CorruptError(f"{place}: {event.kind} while call {call.number} is open")
        case _:
            pass


def _fold_question(event: events.ApprovalAsked, seq: int) -> Approval:
    return Approval(
        seq, event.call, event.script_index, tool=event.tool, request_id=event.request_id, request_digest=event.request_digest
    )  # fmt: skip


def _fold_answer(state: SessionState, event: events.ApprovalAnswered, seq: int) -> SessionState:
    """A question has one answer; what answers none that is open says nothing."""
    asked = state.approval
    if asked is None or asked.seq != event.asked_seq or asked.answer is not None:
        return state
    state = replace(state, approval=replace(asked, answer=event.answer, edited=event.input))
    if event.answer == "rejected" and asked.script_index is not None:
        state = replace(state, rejected=Rejection(seq, asked.script_index))
    if event.answer == "rejected" and asked.request_id:
        one = RejectedRequest(seq, asked.request_id, asked.request_digest, event.reason)
        state = replace(state, rejected_requests=(*state.rejected_requests, one))
    return state


def _check_approved(state: SessionState, event: events.AttemptStarted, place: str) -> None:
    """A call that a person was asked about begins when the answer lets it."""
    asked = state.approval
    if asked is None or (asked.call, asked.script_index, asked.request_id) != (event.call, event.script_index, event.request_id):
        return
    if event.script_index is None and not event.request_id:
        return
    if asked.answer not in ("approved", "edited"):
        raise CorruptError(f"{place}: call {event.call} begins, and what was asked at seq {asked.seq} is {asked.answer or 'not answered'}")


def _fold_placed(state: SessionState, event: events.SessionPlaced, place: str) -> SessionState:
    """A session has one place for good: only one that was forked and not driven yet takes it."""
    if state.is_placed:
        raise CorruptError(f"{place}: session_placed in a session that has its place")
    opened = msgspec.structs.replace(
        state.opened, workspace=event.workspace, root_identity=event.root_identity, ledger_id=event.ledger_id, generation=event.generation
    )
    modes = replace(state.modes, store=decode_bytes(event.store, "store")) if event.store else state.modes
    return replace(state, opened=opened, modes=modes, is_placed=True)


def _replayable(event: events.AttemptStarted) -> str:
    """The policy of a call; one whose recorded input was redacted cannot be run again from the log (D)."""
    return "never" if event.redacted and event.policy in ("safe", "after-restore") else event.policy


def _fold_attempt(state: SessionState, event: events.AttemptStarted, seq: int, place: str) -> SessionState:
    attempt = AttemptState(event.attempt, seq, event.key, at_ms=event.at_ms, is_redacted=event.redacted)
    open_call = state.open_call
    if open_call is None:
        _check_approved(state, event, place)
        if state.approval is not None and state.approval.answer is None:
            state = replace(state, approval=None)  # another call began: what was asked is not what comes next any more
    if open_call is None:
        if event.call != len(state.calls) + 1 or event.attempt != 1:
            raise CorruptError(
                f"{place}: call {event.call} attempt {event.attempt} begins where call {len(state.calls) + 1} attempt 1 belongs"
            )
        call = CallState(
            event.call, event.script_index, event.tool, _replayable(event), event.input, (attempt,), request_id=event.request_id,
            request_digest=event.request_digest,
        )  # fmt: skip
        return replace(state, calls=state.calls.append(call), synced_root="")
    if event.call != open_call.number or event.attempt != open_call.last.number + 1:
        raise CorruptError(
            f"{place}: call {event.call} attempt {event.attempt} begins while "
            f"call {open_call.number} attempt {open_call.last.number} is open"
        )
    state = replace(state, synced_root="")  # whatever the attempt writes, also the same bytes again, is not known to be on disk
    return _replace_call(state, replace(open_call, attempts=(*open_call.attempts, attempt)))


def _replace_call(state: SessionState, call: CallState) -> SessionState:
    return replace(state, calls=state.calls.with_newest(call))


def _fold_settled(state: SessionState, event: events.CallSettled, seq: int, place: str) -> SessionState:
    call = state.open_call
    if call is None or call.number != event.call or call.last.number != event.attempt:
        raise CorruptError(f"{place}: call {event.call} attempt {event.attempt} is settled and is not open")
    undone_by = state.behind_seq if event.label == Label.LOG_BEHIND_RESTORE else call.undone_by
    work_ms = max(0, event.at_ms - call.last.at_ms)
    settled = replace(call, ended=event.ended, root=event.root, settled_seq=seq, undone_by=undone_by, work_ms=work_ms)
    calls = state.calls.with_newest(settled)
    return replace(state, calls=calls, root=event.root, untracked=read_untracked(event.untracked))


def _fold_undone(state: SessionState, event: events.CallUndone, place: str) -> SessionState:
    """C3: a finished call is undone once at most."""
    call = state.calls[event.call - 1] if 0 < event.call <= len(state.calls) else None
    if call is None or call.ended != "finished" or call.undone_by is not None:
        raise CorruptError(f"{place}: call {event.call} is undone and is not a finished call that still stands")
    undone = replace(call, undone_by=event.decision_seq, undone_why=event.reason)
    calls = (*state.calls[: event.call - 1], undone, *state.calls[event.call :])
    lost = state.lost_calls + (event.decision_seq == state.fallback_seq)
    return replace(state, calls=CallList(calls), lost_calls=lost)


def _fold_replayed(state: SessionState, event: events.CallReplayed, place: str) -> SessionState:
    """C3: a call that is run again from a checkpoint is a finished one, and reaches the root that it had."""
    call = state.calls[event.call - 1] if 0 < event.call <= len(state.calls) else None
    if call is None or call.ended != "finished" or call.undone_by is not None or call.root != event.root:
        raise CorruptError(f"{place}: call {event.call} is replayed to an image that no finished call of it had")
    return replace(state, root=event.root)


def _fold_decided(state: SessionState, event: events.RecoveryDecided, seq: int, place: str) -> SessionState:
    if event.label == Label.VOID_AND_RUN:
        return _change_attempt(state, event.call, event.attempt, place, "void")
    if event.label in RENEWALS:
        generation = event.facts.get(NEW_GENERATION)
        if not isinstance(generation, int) or generation <= state.generation:
            raise CorruptError(f"{place}: {event.label} names no ledger of a newer generation than {state.generation}")
        seen, digest = _read_number(event, SEEN_SEQ), str(event.facts.get(SEEN_HASH, ""))
        state = replace(state, unmet=(seen, digest) if seen else None, seen_call=max(state.seen_call, _read_number(event, SEEN_CALL)))
        return replace(state, renewed_generation=generation, renewed_seq=seq)
    if event.label == Label.EXCLUDE_BY_PERSON:
        left_out = state.profile.left_out | {decode_bytes(event.facts.get(EXCLUDED), f"{place}: {EXCLUDED}")}
        return replace(state, profile=replace(state.profile, left_out=left_out), excluded_seq=seq)
    if event.label in BEHIND:
        # The lost calls show that the pause ended and the question was answered: what said so was lost with the tail.
        listed = event.facts.get(MISSING_CALLS)
        missing = [number for number in listed if isinstance(number, int)] if isinstance(listed, list) else []
        seen = max([state.seen_call, *missing])
        state = replace(state, is_paused=False, pause_asked=None, approval=None, unmet=None, seen_call=seen)
    if event.label == Label.LOG_BEHIND_ADOPT:
        return replace(state, taken_back=event.call or 0)
    if not event.obligation:
        return state
    if event.label == Label.LOG_BEHIND_RESTORE:
        state = replace(state, behind_seq=seq)
    if state.obligation is not None or event.target_seq is None or event.target_root is None:
        raise CorruptError(f"{place}: an obligation without a target, or beside another")
    to_restore = _read_number(event, TO_RESTORE)
    is_fallback = event.facts.get(FALLBACK) is not None
    obligation = Obligation(seq, event.label, event.call, event.attempt, event.target_seq, event.target_root, is_fallback, to_restore)
    return replace(state, obligation=obligation, fallback_seq=seq if is_fallback else state.fallback_seq)


def _read_number(event: events.RecoveryDecided, name: str) -> int:
    """A number among the facts of a decision; 0 where it says none."""
    found = event.facts.get(name)
    return found if isinstance(found, int) else 0


def _fold_restored(state: SessionState, event: events.RestoreFinished, place: str) -> SessionState:
    obligation = state.obligation
    if obligation is None or obligation.seq != event.decision_seq:
        raise CorruptError(f"{place}: restore_finished for decision {event.decision_seq}, which is not open")
    if event.root != obligation.target_root and not event.accepted:
        raise CorruptError(f"{place}: restore_finished with another image than decision {event.decision_seq} aims at")
    state = replace(state, obligation=None, is_restored_this_epoch=True, root=event.root)
    if obligation.goes_back and not event.accepted:
        state = replace(state, approval=None)  # the script may go on from another call
        state = replace(state, untracked=state.untracked_at(obligation.target_seq))
    if obligation.call is None:
        return state
    if obligation.label == Label.RESTORE_BY_PERSON and state.open_call is not None:
        state = _replace_call(state, replace(state.open_call, undone_by=obligation.seq))
    state = _change_attempt(state, obligation.call, obligation.attempt, place, "restored")
    if obligation.label == Label.NOT_RUN_BY_PERSON:
        return _change_attempt(state, obligation.call, obligation.attempt, place, "void")  # a person's word stands for the proof
    return state


def _change_attempt(
    state: SessionState, call: int | None, attempt: int | None, place: str, became: Literal["restored", "void"]
) -> SessionState:
    open_call = state.open_call
    if open_call is None or open_call.number != call or open_call.last.number != attempt:
        raise CorruptError(f"{place}: decides on call {call} attempt {attempt}, which is not open")
    last = replace(open_call.last, is_restored=True) if became == "restored" else replace(open_call.last, is_void=True)
    return _replace_call(state, replace(open_call, attempts=(*open_call.attempts[:-1], last)))
