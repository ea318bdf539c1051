"""What a session's log says, folded event by event. Pure; nobody caches beside it.

Invariants: an open call is the last one; at most one obligation is open; an attempt that was restored or voided is never adopted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from eventlog import events
from eventlog.errors import CorruptError, NeedsPersonError
from eventlog.image import ImageTree, fold_changes
from eventlog.reader import StoredEvent
from recovery.labels import Label
from recovery.mode_state import ModeState, begin_modes, fold_switched, fold_taken
from recovery.script import decode_bytes
from recovery.workspace.profile import Profile, profile_of
from recovery.workspace.values import Untracked

FALLBACK = "fallback_checkpoint"
"""The fact of a decision to restore that names the older checkpoint which stands in for the newest."""
TO_RESTORE = "to_restore"
"""The fact of a decision to restore that counts the paths that differed then."""


@dataclass(frozen=True, slots=True)
class AttemptState:
    """One attempt, and what the log says became of it without an outcome."""

    number: int
    seq: int
    key: str
    is_restored: bool = False
    is_void: bool = False
    at_ms: int = 0
    is_redacted: bool = False


@dataclass(frozen=True, slots=True)
class CallState:
    """One call and its attempts, in order. `undone_by` is the decision (seq) of the person's restore that took it back, finished or not."""

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
    work_ms: int = 0
    """From the finished attempt's intent to its outcome: what doing it again would cost."""

    @property
    def last(self) -> AttemptState:
        """The newest attempt."""
        return self.attempts[-1]


@dataclass(frozen=True, slots=True)
class Obligation:
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


@dataclass(frozen=True, slots=True)
class SessionState:
    """The fold. `image_seq` is the newest event that changed the image, `image_boot` the boot under which it was written."""

    opened: events.SessionOpened
    head_seq: int
    head_hash: str
    floor: int
    boot_id: str
    image: ImageTree = field(repr=False)
    image_seq: int
    image_boot: str
    root: str
    untracked: tuple[Untracked, ...]
    profile: Profile = field(default_factory=Profile)
    calls: tuple[CallState, ...] = ()
    obligation: Obligation | None = None
    is_restored_this_epoch: bool = False
    synced_root: str = ""
    is_finished: bool = False
    has_driver: bool = False
    untracked_since: tuple[tuple[int, tuple[Untracked, ...]], ...] = ()
    root_recorded: events.RootIdentity | None = None
    modes: ModeState = field(default_factory=ModeState)
    observed_seq: int = 0
    """The newest event that recorded a change made outside any call."""
    fallback_seq: int = 0
    """The newest decision to restore an older image because the head's was not to be had."""
    lost_calls: int = 0
    """Finished calls that were undone by such decisions (C7)."""

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
        return self.calls[-1] if self.calls and self.calls[-1].ended is None else None


def fold_stream(stored: Iterable[StoredEvent], where: str) -> SessionState:
    """Fold a whole stream. Raises CorruptError for a history no driver of this project writes, NeedsPersonError for one that this
    version does not drive."""
    following = iter(stored)
    first = next(following, None)
    if first is not None and isinstance(first.event, events.SessionForked):
        raise NeedsPersonError(
            f"{where}: it is a fork, which this version keeps and does not drive; `eventlog checkout` gives the files of any point of it"
        )
    if first is None or not isinstance(first.event, events.SessionOpened):
        raise CorruptError(f"{where}: the session does not begin with session_opened")
    opened = first.event
    image = fold_changes(ImageTree(), first.changes)
    untracked = read_untracked(opened.untracked)
    profile = profile_of(opened)
    since = ((1, untracked),)
    modes = begin_modes(opened)
    state = SessionState(
        opened, 1, first.hash.hex(), 0, "", image, 1, "", opened.root, untracked, profile, untracked_since=since, modes=modes
    )  # fmt: skip
    for event in following:
        state = fold_event(state, event, where)
    return state


def read_untracked(listed: list[events.Untracked]) -> tuple[Untracked, ...]:
    """The untracked nodes of an event, paths as bytes."""
    return tuple(Untracked(decode_bytes(node.path, "untracked"), node.kind) for node in listed)


def fold_event(state: SessionState, stored: StoredEvent, where: str) -> SessionState:
    """The state after one more event."""
    state = _fold(state, stored, where)
    if state.untracked == state.untracked_since[-1][1]:
        return state
    return replace(state, untracked_since=(*state.untracked_since, (stored.seq, state.untracked)))


def _fold(state: SessionState, stored: StoredEvent, where: str) -> SessionState:
    place = f"{where} seq {stored.seq}"
    _check_legal(state, stored.event, place)
    state = replace(state, head_seq=stored.seq, head_hash=stored.hash.hex())
    if stored.changes:
        image = fold_changes(state.image, stored.changes)
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
        case events.Quarantined() | events.Noted() | events.InputAdmitted():
            return state
        case (
            events.SessionForked()
            | events.SessionPaused()
            | events.SessionResumed()
            | events.SessionMoved()
            | events.SessionFailed()
        ) as event:
            moved = "it was moved away and lives on where its bundle was imported" if isinstance(event, events.SessionMoved) else event.kind
            raise NeedsPersonError(f"{place}: {moved}; this version keeps such a session and does not drive it")


def _check_legal(state: SessionState, event: events.Event, place: str) -> None:
    """What no driver writes while an obligation or a call is open (R1, C3, I4). Raises CorruptError."""
    match event:
        case events.AttemptStarted() | events.CallSettled() | events.WorkspaceObserved() | events.SessionFinished():
            if state.obligation is not None:
                raise CorruptError(f"{place}: {event.kind} while the restore decided at seq {state.obligation.seq} is open")
        case _:
            pass
    call = state.open_call
    is_cut = call is not None and not (call.last.is_restored or call.last.is_void)
    match event:
        case events.AttemptStarted() | events.WorkspaceObserved() if call is not None and is_cut:
            raise CorruptError(f"{place}: {event.kind} while call {call.number} attempt {call.last.number} is neither restored nor void")
        case events.SessionFinished() if call is not None:
            raise CorruptError(f"{place}: {event.kind} while call {call.number} is open")
        case _:
            pass


def _fold_attempt(state: SessionState, event: events.AttemptStarted, seq: int, place: str) -> SessionState:
    attempt = AttemptState(event.attempt, seq, event.key, at_ms=event.at_ms, is_redacted=event.redacted)
    open_call = state.open_call
    if open_call is None:
        if event.call != len(state.calls) + 1 or event.attempt != 1:
            raise CorruptError(
                f"{place}: call {event.call} attempt {event.attempt} begins where call {len(state.calls) + 1} attempt 1 belongs"
            )
        call = CallState(event.call, event.script_index, event.tool, event.policy, event.input, (attempt,))
        return replace(state, calls=(*state.calls, call), synced_root="")
    if event.call != open_call.number or event.attempt != open_call.last.number + 1:
        raise CorruptError(
            f"{place}: call {event.call} attempt {event.attempt} begins while "
            f"call {open_call.number} attempt {open_call.last.number} is open"
        )
    state = replace(state, synced_root="")  # whatever the attempt writes, also the same bytes again, is not known to be on disk
    return _replace_call(state, replace(open_call, attempts=(*open_call.attempts, attempt)))


def _replace_call(state: SessionState, call: CallState) -> SessionState:
    return replace(state, calls=(*state.calls[:-1], call))


def _fold_settled(state: SessionState, event: events.CallSettled, seq: int, place: str) -> SessionState:
    call = state.open_call
    if call is None or call.number != event.call or call.last.number != event.attempt:
        raise CorruptError(f"{place}: call {event.call} attempt {event.attempt} is settled and is not open")
    work_ms = max(0, event.at_ms - call.last.at_ms)
    state = _replace_call(state, replace(call, ended=event.ended, root=event.root, settled_seq=seq, work_ms=work_ms))
    return replace(state, root=event.root, untracked=read_untracked(event.untracked))


def _fold_undone(state: SessionState, event: events.CallUndone, place: str) -> SessionState:
    """C3: a finished call is undone once at most."""
    call = state.calls[event.call - 1] if 0 < event.call <= len(state.calls) else None
    if call is None or call.ended != "finished" or call.undone_by is not None:
        raise CorruptError(f"{place}: call {event.call} is undone and is not a finished call that still stands")
    calls = (*state.calls[: event.call - 1], replace(call, undone_by=event.decision_seq), *state.calls[event.call :])
    lost = state.lost_calls + (event.decision_seq == state.fallback_seq)
    return replace(state, calls=calls, lost_calls=lost)


def _fold_replayed(state: SessionState, event: events.CallReplayed, place: str) -> SessionState:
    """C3: a call that is run again from a checkpoint is a finished one, and reaches the root that it had."""
    call = state.calls[event.call - 1] if 0 < event.call <= len(state.calls) else None
    if call is None or call.ended != "finished" or call.undone_by is not None or call.root != event.root:
        raise CorruptError(f"{place}: call {event.call} is replayed to an image that no finished call of it had")
    return replace(state, root=event.root)


def _fold_decided(state: SessionState, event: events.RecoveryDecided, seq: int, place: str) -> SessionState:
    if event.label == Label.VOID_AND_RUN:
        return _change_attempt(state, event.call, event.attempt, place, "void")
    if not event.obligation:
        return state
    if state.obligation is not None or event.target_seq is None or event.target_root is None:
        raise CorruptError(f"{place}: an obligation without a target, or beside another")
    counted = event.facts.get(TO_RESTORE)
    to_restore = counted if isinstance(counted, int) else 0
    is_fallback = event.facts.get(FALLBACK) is not None
    obligation = Obligation(seq, event.label, event.call, event.attempt, event.target_seq, event.target_root, is_fallback, to_restore)
    return replace(state, obligation=obligation, fallback_seq=seq if is_fallback else state.fallback_seq)


def _fold_restored(state: SessionState, event: events.RestoreFinished, place: str) -> SessionState:
    obligation = state.obligation
    if obligation is None or obligation.seq != event.decision_seq:
        raise CorruptError(f"{place}: restore_finished for decision {event.decision_seq}, which is not open")
    if event.root != obligation.target_root:
        raise CorruptError(f"{place}: restore_finished with another image than decision {event.decision_seq} aims at")
    state = replace(state, obligation=None, is_restored_this_epoch=True, root=event.root)
    if obligation.goes_back:
        state = replace(state, untracked=state.untracked_at(obligation.target_seq))
    if obligation.call is None:
        return state
    if obligation.label == Label.RESTORE_BY_PERSON and state.open_call is not None:
        state = _replace_call(state, replace(state.open_call, undone_by=obligation.seq))
    return _change_attempt(state, obligation.call, obligation.attempt, place, "restored")


def _change_attempt(
    state: SessionState, call: int | None, attempt: int | None, place: str, became: Literal["restored", "void"]
) -> SessionState:
    open_call = state.open_call
    if open_call is None or open_call.number != call or open_call.last.number != attempt:
        raise CorruptError(f"{place}: decides on call {call} attempt {attempt}, which is not open")
    last = replace(open_call.last, is_restored=True) if became == "restored" else replace(open_call.last, is_void=True)
    return _replace_call(state, replace(open_call, attempts=(*open_call.attempts[:-1], last)))
