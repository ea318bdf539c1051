"""Snapshot replay: from a settled event of a recorded session the rest is run again elsewhere, and must come to the same images.

A scratch fork goes on from the event in a workspace of its own, and is asked for each later call that finished, in order and with its
recorded input. After each the image's root and the exit must be the recorded ones. Calls that were interrupted left nothing and are passed
over; so are calls that a restore undid. What cannot be run again is refused by name before anything runs: a redacted input, a call that
acts outside the workspace, a call of which nobody knows how it ended, a change that was made outside any call, also by a restore.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping

import msgspec

from eventlog import events
from eventlog.differences import describe_difference, find_differences
from eventlog.errors import MisuseError, required
from eventlog.fork import fork_record
from eventlog.history import AtSeq, read_image
from eventlog.image import is_identity_change
from eventlog.reader import Reader, StoredEvent
from eventlog.show import show_text
from eventlog.values import Seq, StreamId
from recovery.driver.order import Ports
from recovery.opening import log_path
from recovery.place import fork_into
from recovery.script import call_from_json
from recovery.session import open_session
from recovery.settings import read_settings
from recovery.story import describe_exit

SHOWN = 20
"""Differing paths of one call that are named."""


class Recorded(msgspec.Struct, frozen=True):
    """A call that finished and still stands, as it was recorded. `started` is its last attempt's intent; `seq` is its settlement's."""

    seq: int
    started: events.AttemptStarted
    settled: events.CallSettled


class Rerun(msgspec.Struct, frozen=True):
    """What came of the run from one point: how many calls ran again, and the first difference in words, none when all was equal."""

    at: int
    ran: int
    differs: tuple[str, ...]


class Obstacle(msgspec.Struct, frozen=True):
    """What stands in the way of running from a point before `seq`; of a restore only from one after the event that it went back to, because
    what it undid is not run again from there."""

    seq: int
    why: str
    after: int = 0


class History(msgspec.Struct, frozen=True):
    """What is read of a session once: its points, its calls, and what stands in the way of running from before it."""

    points: tuple[int, ...]
    calls: tuple[Recorded, ...]
    obstacles: tuple[Obstacle, ...]

    def obstacle(self, at: int) -> str:
        """Why the rest cannot be run from `at`, "" when it can."""
        return next((one.why for one in self.obstacles if one.after < at < one.seq), "")


def read_history(stored: Iterable[StoredEvent]) -> History:
    """The session as it is to be run again. Pure. Points are its first event and every settlement at which nothing is open."""
    points, calls, obstacles = [], dict[int, Recorded](), list[Obstacle]()
    started: dict[int, events.AttemptStarted] = {}
    targets: dict[int, int] = {}
    for one in stored:
        match one.event:
            case events.SessionOpened() | events.SessionForked():
                points.append(int(one.seq))
            case events.AttemptStarted() as event:
                started[event.call] = event
            case events.CallSettled() as event:
                points.append(int(one.seq))
                if event.ended == "finished":
                    calls[event.call] = Recorded(one.seq, started[event.call], event)
            case events.CallUndone() as event:
                calls.pop(event.call, None)
            case events.WorkspaceObserved() if one.changes:
                obstacles.append(Obstacle(one.seq, f"seq {one.seq}: the workspace was changed outside any call"))
            case events.RecoveryDecided() as event:
                targets[one.seq] = event.target_seq or 0
            case events.RestoreFinished() as event if event.accepted:
                obstacles.append(Obstacle(one.seq, f"seq {one.seq}: a person took the workspace as it was found"))
            case events.RestoreFinished() as event if is_identity_change(one.changes):
                target = targets[event.decision_seq]
                obstacles.append(Obstacle(one.seq, f"seq {one.seq}: a restore to the image at seq {target} changed the workspace", target))
            case events.ModeSwitched() as event:
                where = f"seq {one.seq}: the session goes on in mode {event.mode}"
                obstacles.append(Obstacle(one.seq, f"{where}, whose images are not in the log"))
            case _:
                pass
    obstacles += [Obstacle(call.seq, why) for call in calls.values() if (why := _describe_obstacle(call))]
    in_order = sorted(obstacles, key=lambda one: one.seq)
    return History(tuple(points), tuple(calls[number] for number in sorted(calls)), tuple(in_order))


def _describe_obstacle(call: Recorded) -> str:
    """Why a call is not run again, "" when it may be."""
    started = call.started
    if started.redacted:
        return f"call {started.call}: its recorded input was redacted, so that it is not what the call was given"
    if started.input.get("effects") == "outside":
        return f"call {started.call}: it acts outside the workspace, and is never run again"
    if call.settled.exit is None:
        return f"call {started.call}: how it ended is not known, so that there is nothing to compare with"
    return ""


def rerun_from(
    log: str, stream: StreamId, at: int, history: History, environ: Mapping[str, str], ports: Ports, tell: Callable[[str], None]
) -> Rerun:
    """Run what follows the event `at` again, in a scratch directory that is gone afterwards.

    Raises MisuseError for what cannot be run again and for a point that cannot be forked, CompactedError, CorruptError, and what a session
    raises.
    """
    obstacle = history.obstacle(at)
    if obstacle:
        raise MisuseError(f"the session cannot be run again from seq {at}: {obstacle}; choose a later point")
    with tempfile.TemporaryDirectory(prefix="crashworthy-rerun-") as scratch:
        base = os.path.realpath(scratch)
        state, workspace = os.path.join(base, "state"), os.path.join(base, "work")
        given = {name: value for name, value in environ.items() if not name.startswith("SESSION_") or name in _KEPT}
        given["SESSION_HOLDERS_DIR"] = os.path.join(base, "holders")
        parents = read_settings(environ).checkpoints  # to read from
        settings = msgspec.structs.replace(read_settings(given), checkpoints=parents)
        fork_into(log, stream, AtSeq(Seq(at)), "rerun", state, workspace, settings, ports)
        rest = [call for call in history.calls if call.seq > at]
        return _run_rest(log, stream, at, rest, state, given, tell)


_KEPT = frozenset({"SESSION_KILL_MARK", "SESSION_SPACE", "SESSION_SPACE_WRITABLE", "SESSION_LEFT_BEHIND", "SESSION_CONTAINER_ENDS_ALL"})
"""How commands are run; everything else of the contract is about another session."""


def _run_rest(
    log: str, stream: StreamId, at: int, rest: list[Recorded], state: str, environ: Mapping[str, str], tell: Callable[[str], None]
) -> Rerun:
    with open_session(state, environ=environ) as session:
        for ran, recorded in enumerate(rest, 1):
            number = recorded.started.call
            call = call_from_json(recorded.started.input, f"call {number}")
            result = session.call(call, key=f"rerun {number}")
            was, now = describe_exit(recorded.settled.exit), describe_exit(result.exit)
            tell(f"call {number}: {now or result.ended}")
            if was != now:
                return Rerun(at, ran, (f"call {number} ended with {now or result.ended}, recorded is {was}",))
            if result.root != recorded.settled.root:
                return Rerun(at, ran, _describe_images(log, stream, state, recorded))
        session.finish()
    return Rerun(at, len(rest), ())


def _describe_images(log: str, stream: StreamId, state: str, recorded: Recorded) -> tuple[str, ...]:
    """The paths in which the image after a call differs from the recorded one, first what was recorded."""
    reader, again = Reader.open(log), Reader.open(log_path(state))
    try:
        row = required(again.stream(StreamId("rerun")), "the log of the scratch fork lacks the session that was run in it")
        images = read_image(reader, stream, Seq(recorded.seq)), read_image(again, row.id, row.head_seq)
    finally:
        reader.close()
        again.close()
    differing = [one for one in find_differences(*images) if one.aspects != ("times",)]
    lines = [describe_difference(one) for one in differing]
    more = [f"and {len(lines) - SHOWN} paths more"] if len(lines) > SHOWN else []
    return (f"call {recorded.started.call} came to another image than the recorded one at seq {recorded.seq}:", *lines[:SHOWN], *more)


def forkable(reader: Reader, stream: StreamId, points: Iterable[int]) -> list[int]:
    """The points from which a fork can go on (C9)."""
    found = []
    for at in points:
        try:
            fork_record(
                reader.events(stream), Seq(at), name="rerun", reason="forked", parent_log=reader.log_id, parent=stream, now_ms=0
            )
        except MisuseError:
            continue
        found.append(at)
    return found


def show_point(stream: StreamId, at: int) -> str:
    """A point in words."""
    return f"session {show_text(stream)} from seq {at}"
