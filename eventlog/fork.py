"""What a fork's first event says, from the stored events of its parent. Pure.

A point is forkable when no call is open there and no restore is owed (rule C9). No event of this format marks a call as one that only
reads, so that every open call counts as one that writes. A checkpoint belongs to the session that took it, and may be collected with it:
a fork begins without one, in whatever mode, and takes its own.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from eventlog import events
from eventlog.errors import CorruptError, MisuseError
from eventlog.excludes import excludes_of
from eventlog.image import Entry, check_image, diff, fold_into, root_hash
from eventlog.reader import StoredEvent
from eventlog.records import Record
from eventlog.show import show_text
from eventlog.values import LogId, Seq, StreamId

Reason = Literal["forked", "imported", "moved", "salvaged"]
_BY_PERSON = "restore_by_person"
"""The decision after which not the head's untracked nodes stand but those of the event that was chosen."""


def fork_record(
    stored: Iterable[StoredEvent], at: Seq, *, name: str, reason: Reason, parent_log: LogId, parent: StreamId, now_ms: int
) -> Record:
    """The `session_forked` of a stream `name` that goes on from the event `at` of a stream, with the whole image there as its changes.

    `stored` is that stream from its first event on; it is read up to `at`, and beyond only to name another point. `parent_log` and
    `parent` are those in whose names the events are hashed (the origin's, for an imported stream). A parent that is a fork itself hands
    on the calls it began with. A call that was undone later is carried as interrupted: nothing of it is left in the image (C3).

    Raises MisuseError, naming the nearest points that will do, when `at` is not a forkable point or not an event; CorruptError when the
    events do not make up a session or its image.
    """
    walk, found, before = _Walk(), None, Seq(0)
    for event in stored:
        walk.take(event)
        if found is not None:
            if not walk.refusal():
                raise _refused(parent, found, before, event.seq)
        elif event.seq == at:
            refusal = walk.refusal()
            if not refusal:
                return Record(walk.fork(event, name, reason, parent_log, parent, now_ms), diff({}, walk.image))
            found = f"seq {at}: {refusal}"
        elif not walk.refusal():
            before = event.seq
    if found is None:
        raise MisuseError(f"session {show_text(parent)} has no event {at}; its events are 1 to {walk.seq}")
    raise _refused(parent, found, before, None)


def newest_forkable(stored: Iterable[StoredEvent]) -> Seq:
    """The last point of a stream that can be forked: its first event always can.

    Raises CorruptError when the events do not begin as a session.
    """
    walk, newest = _Walk(), Seq(0)
    for event in stored:
        walk.take(event)
        if not walk.refusal():
            newest = event.seq
    if not newest:
        raise CorruptError("the session has no events; run `eventlog verify` on the log")
    return newest


def _refused(parent: StreamId, found: str, before: Seq, after: Seq | None) -> MisuseError:
    """The sentence for a point that is not forkable; there is always a point before it, the first event."""
    later = "no later one yet" if after is None else f"the next one after it is {after}"
    return MisuseError(
        f"session {show_text(parent)} cannot be forked at {found}; the nearest point before it that can be forked is {before}, {later}"
    )


class _Walk(msgspec.Struct):
    """What is known of a stream after some of its events."""

    seq: Seq = Seq(0)
    image: dict[bytes, Entry] = msgspec.field(default_factory=dict)
    first: events.SessionOpened | events.SessionForked | None = None
    untracked: list[events.Untracked] = msgspec.field(default_factory=list)
    untracked_since: list[tuple[int, list[events.Untracked]]] = msgspec.field(default_factory=list)
    chosen: dict[int, int] = msgspec.field(default_factory=dict)
    calls: dict[int, events.ForkedCall] = msgspec.field(default_factory=dict)
    inputs: list[events.ForkedInput] = msgspec.field(default_factory=list)
    open_calls: dict[int, events.AttemptStarted] = msgspec.field(default_factory=dict)
    owed: set[int] = msgspec.field(default_factory=set)
    mode: events.Mode = "transactional"

    def take(self, stored: StoredEvent) -> None:
        """Fold one more event. Raises CorruptError."""
        self.seq = stored.seq
        fold_into(self.image, stored.changes)
        match stored.event:
            case events.SessionOpened() as event:
                self._begin(event)
            case events.SessionForked() as event:
                self._begin(event)
                self.calls = {call.call: call for call in event.calls}
                self.inputs = list(event.inputs)
            case events.InputAdmitted() as event:
                self.inputs.append(events.ForkedInput(event.request_id, event.input))
            case events.WorkspaceObserved() as event:
                self.untracked = event.untracked
            case events.AttemptStarted() as event:
                self.open_calls[event.call] = event
            case events.CallSettled() as event:
                self._settle(event)
            case events.CallUndone() as event:
                if event.call in self.calls:
                    self.calls[event.call] = replace(self.calls[event.call], ended="interrupted")
            case events.RecoveryDecided() as event:
                self.owed |= {stored.seq} if event.obligation else set()
                if event.label == _BY_PERSON and event.target_seq is not None:
                    self.chosen[stored.seq] = event.target_seq
            case events.RestoreFinished() as event:
                self.owed.discard(event.decision_seq)
                if event.decision_seq in self.chosen:
                    self.untracked = self._untracked_at(self.chosen[event.decision_seq])
            case events.ModeSwitched():
                self.mode = "checkpoint"
            case (
                events.DriverStarted()
                | events.SessionPlaced()
                | events.CallReplayed()
                | events.CheckpointTaken()
                | events.Quarantined()
                | events.Synced()
                | events.PauseRequested()
                | events.ApprovalAsked()
                | events.ApprovalAnswered()
                | events.SessionPaused()
                | events.SessionResumed()
                | events.SessionMoved()
                | events.SessionFinished()
                | events.SessionFailed()
                | events.RootRecorded()
                | events.Noted()
            ):
                pass
        if self.first is None:
            raise CorruptError(f"seq {stored.seq}: the session does not begin with session_opened or session_forked")
        if not self.untracked_since or self.untracked_since[-1][1] != self.untracked:
            self.untracked_since.append((stored.seq, self.untracked))

    def _begin(self, event: events.SessionOpened | events.SessionForked) -> None:
        self.first, self.untracked, self.mode = event, event.untracked, event.mode

    def _untracked_at(self, seq: int) -> list[events.Untracked]:
        return next((listed for since, listed in reversed(self.untracked_since) if since <= seq), self.untracked)

    def _settle(self, event: events.CallSettled) -> None:
        started = self.open_calls.pop(event.call, None)
        if started is None:
            raise CorruptError(f"seq {self.seq}: call {event.call} is settled and was not open; run `eventlog verify` on the log")
        self.untracked = event.untracked
        self.calls[event.call] = events.ForkedCall(
            event.call, started.script_index, started.tool, event.ended, event.root, started.request_id, started.request_digest,
            event.exit, event.output,
        )  # fmt: skip

    def refusal(self) -> str:
        """Why the stream cannot be forked after the newest event taken; "" when it can (C9)."""
        if self.owed:
            return f"the restore decided at seq {min(self.owed)} is not finished there"
        if self.open_calls:
            return f"call {min(self.open_calls)} is open there"
        return ""

    def fork(self, at: StoredEvent, name: str, reason: Reason, parent_log: LogId, parent: StreamId, now_ms: int) -> events.SessionForked:
        """The event itself."""
        first = self.first
        if first is None:
            raise CorruptError(f"seq {at.seq}: the session does not begin with session_opened or session_forked")
        check_image(self.image)
        calls = [self.calls[number] for number in sorted(self.calls)]
        root = root_hash(self.image, excludes_of(first)).hex()
        checkpoints = None if first.checkpoints is None else replace(first.checkpoints, manifest="")
        return events.SessionForked(
            now_ms, name, reason, parent_log, parent, at.seq, at.hash.hex(), self.mode, first.on_interrupted, first.script,
            calls, root, self.untracked, first.excludes, first.track, first.limits, checkpoints, list(self.inputs),
        )  # fmt: skip
