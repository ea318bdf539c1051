"""A person's restore: the workspace, and the head of the log with it, made equal to the image at an earlier event.

The decision (`restore_by_person`) is an obligation like any other: it stands before the first path moves, binds every successor, and
one commit closes it. That commit carries the changes from the head image to the target on `restore_finished`, so that every
reader's fold goes on from the target; then each finished call after the target ends in one `call_undone`, and an open one interrupted (C3).
"""

import os
from collections.abc import Callable, Iterable

import msgspec

from eventlog import events
from eventlog.errors import FullError, InternalError, MisuseError, NeedsPersonError
from eventlog.image import Image, diff, root_hash
from eventlog.records import Record
from recovery.calls import interrupt_call
from recovery.capture import list_untracked
from recovery.contents import Contents
from recovery.context import Context
from recovery.labels import Label
from recovery.left_behind import UNSTABLE, is_stale
from recovery.restore import plan_for, target_at
from recovery.state import TO_RESTORE, CallState, Obligation, SessionState
from recovery.workspace.actions import PlaceFile, RestorePlan
from recovery.workspace.pack import count_holes
from recovery.workspace.values import OVER_LIMIT, Scan


class Aim(msgspec.Struct, frozen=True):
    """What a restore to `seq` would come to: the target image, the plan, the finished calls it undoes, and whether the head moves."""

    seq: int
    target: Image
    root: str
    plan: RestorePlan
    undone: tuple[CallState, ...]
    changes_head: bool

    @property
    def is_idle(self) -> bool:
        """True when workspace and log are there already."""
        return not (self.plan.actions or self.undone or self.changes_head)


def check_seq(history: list[tuple[int, int | None]], head: int, seq: int) -> None:
    """Raise MisuseError unless `seq` is an event of the session under which no restore was open. Pure; `history` has the (first, last)
    event of each restore, last None while it is open."""
    if not 1 <= seq <= head:
        raise MisuseError(f"--at {seq}: the session has the events 1 to {head}; `eventlog show LOG` lists them")
    for first, last in history:
        if first <= seq and (last is None or seq < last):
            raise MisuseError(f"--at {seq}: a restore was under way there, decided at seq {first}; name {first - 1}, the event before it")


def aim_at(contents: Contents, state: SessionState, found: Scan, seq: int) -> Aim:
    """The restore to `seq` against a scan. Changes nothing. Nothing restores to a stale image.

    Raises MisuseError, RestoreIncompleteError, CompactedError, CorruptError, CheckpointDamagedError."""
    check_not_stale(state, seq)
    target = target_at(contents.reader, state, seq)
    root = root_hash(target, state.profile.excludes).hex()
    contents.check(state, root, target, seq)
    plan = plan_for(state.profile, found, target, state.untracked_at(seq))
    changes_head = any(change.op != "times" for change in diff(state.image, target))
    return Aim(seq, target, root, plan, undone_calls(state, seq), changes_head)


def check_not_stale(state: SessionState, seq: int) -> None:
    """Raise MisuseError where the image at `seq` is stale (C8). Pure."""
    if is_stale(state.untracked_at(seq)):
        raise MisuseError(
            f"--at {seq}: the image there is stale: a process that was kept running wrote some of its files meanwhile, or it was above a "
            f"limit and not read (`eventlog show --json LOG` lists it as {UNSTABLE} or {OVER_LIMIT}); name an event before that call, or "
            "after the next one began"
        )


def undone_calls(state: SessionState, seq: int) -> tuple[CallState, ...]:
    """The finished calls whose effect the image at `seq` lacks, those undone before left out (C3). Pure."""
    return tuple(call for call in state.calls if call.ended == "finished" and call.settled_seq > seq and call.undone_by is None)


def check_room(plan: RestorePlan, root: str, read: Callable[[bytes], Iterable[bytes]]) -> None:
    """Raise FullError while nothing is decided yet: an obligation without room could not be met (R4).

    The sizes of the plan are an upper bound; only where they do not fit are the contents read (`read` yields the bytes of one) and
    their runs of zeros, which become holes, counted out.
    """
    room = os.statvfs(root)
    free = room.f_bavail * room.f_frsize
    needed = plan.needed_bytes
    if needed > free:
        needed -= sum(count_holes(read(action.content)) for action in plan.actions if isinstance(action, PlaceFile))
    if needed > free:
        raise FullError(
            f"the restore needs {needed} bytes and {free} are free beside the workspace; nothing was decided or moved. "
            "Free space and try again"
        )


def decide_restore(context: Context, aim: Aim, facts: dict[str, object]) -> None:
    """Commit the decision; from here on it binds every successor (R1)."""
    state = context.journal.state
    call = state.open_call
    if state.obligation is not None:
        raise NeedsPersonError(f"the restore decided at seq {state.obligation.seq} is open; `recovery drive STATE_DIR` completes it")
    number, attempt = (call.number, call.last.number) if call else (None, None)
    facts = facts | {TO_RESTORE: aim.plan.restored}
    decided = events.RecoveryDecided(
        context.clock.now_ms(), Label.RESTORE_BY_PERSON.value, number, attempt, True, aim.seq, aim.root, state.mode, facts
    )
    context.journal.append([Record(decided)], (), "decision")


def undo_calls(context: Context, obligation: Obligation, closing: list[Record]) -> list[Record]:
    """The records that close a person's restore: `closing` with the head moved to the target, and the end of every call after it."""
    state = context.journal.state
    target = target_at(context.journal.reader, state, obligation.target_seq)
    now = context.clock.now_ms()
    reason = f"a person had the image at seq {obligation.target_seq} restored"
    ends = [
        Record(events.CallUndone(now, call.number, reason, obligation.seq)) for call in undone_calls(state, obligation.target_seq)
    ]
    if obligation.call is not None:
        record = interrupt_call(context, Label.RESTORE_BY_PERSON, reason)
        if not isinstance(record.event, events.CallSettled):
            raise InternalError(f"an interrupted call ends in {type(record.event).__name__}")
        listed = state.untracked_at(obligation.target_seq)
        ends.append(Record(msgspec.structs.replace(record.event, root=obligation.target_root, untracked=list_untracked(listed))))
    records: list[Record] = []
    for one in closing:
        is_end = isinstance(one.event, events.RestoreFinished)
        records += [Record(one.event, diff(state.image, target)), *ends] if is_end else [one]
    return records
