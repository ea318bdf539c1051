"""Giving a session that was forked, imported or moved a workspace of its own, so that it can be driven (C9).

Ordering: the workspace is claimed, then one commit (`session_placed`, before any driver) names it, a root identity that no directory bears
and the id of a ledger that is not there. From there on it is a session whose root is lost: its first driver makes ledger, root and files
from the log as after any loss, killed as often as it may be (R6, D3). Nothing of the parent is touched: not its workspace, nor its
ledger, whose keys begin with another log's id.
"""

import contextlib
import os
from collections.abc import Iterator

import msgspec

from eventlog import durable, events
from eventlog.bundle_export import Fetch, export
from eventlog.bundle_import import import_into_new
from eventlog.command_writing import announced
from eventlog.errors import CrashworthyError, InternalError, MisuseError
from eventlog.fork import fork_record
from eventlog.history import Point, check_contents, find_point
from eventlog.image import fold_changes
from eventlog.preflight import check_writable_place
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.show import encode_bytes, show_text
from eventlog.streams import choose_stream
from eventlog.values import SESSION_NAME, Epoch, Seq, StreamId
from eventlog.writer import Writer
from recovery.checkpoints.directory import make_store
from recovery.checkpoints.vault import check_store_place, store_path
from recovery.driver.order import Ports
from recovery.elsewhere import find_elsewhere
from recovery.journal import only_stream, read_state
from recovery.opening import check_log_exists, check_places, is_finished, log_path
from recovery.script import decode_bytes
from recovery.settings import Settings
from recovery.space.holders import Holders
from recovery.state import SessionState

BUNDLE_NAME = "fork.bundle"
"""The parent's history on its way into the fork's own log."""


class Placed(msgspec.Struct, frozen=True):
    """A session and where it is driven. `parent` and `parent_seq` are what it goes on from; `is_new` is False where it had that place."""

    session: str
    state: str
    workspace: str
    parent: str
    parent_seq: int
    is_new: bool


def place_session(state: str, workspace: str, settings: Settings, ports: Ports) -> Placed:
    """Give the session in the state directory `state` the workspace, which is missing or empty. Done again it changes nothing.

    Raises MisuseError for a session that has another place or a directory that has something in it or is held, CorruptError, FullError.
    """
    check_log_exists(state)
    reader = Reader.open(log_path(state))
    try:
        stream = only_stream(reader)
        known = read_state(reader, stream, is_placed=False)[0]
        first = next(iter(reader.events(stream))).event
    finally:
        reader.close()
    if not isinstance(first, events.SessionForked):
        raise MisuseError(f"session {show_text(stream)} began in {show_text(state)} and has its workspace; `recovery fork` makes another")
    root = os.path.realpath(workspace)
    placed = Placed(stream, os.path.realpath(state), root, first.parent, first.parent_seq, not known.is_placed)
    if known.is_placed:
        return _check_same(known, placed)
    check_places(state, root)
    _check_empty(root)
    check_writable_place(state, allow_network=settings.allow_network)
    store = "" if first.checkpoints is None else store_path(None, state)
    if store:
        check_store_place(store, root)
    with _claimed(root, placed, settings, ports):
        if store:
            make_store(store)  # before the commit that names it: a session never names a store that was not there
        _commit(state, stream, root, store, ports)
    return placed


def _check_same(known: SessionState, placed: Placed) -> Placed:
    recorded = os.fsdecode(decode_bytes(known.opened.workspace, "workspace"))
    if recorded != placed.workspace:
        raise MisuseError(
            f"session {show_text(placed.session)} has the workspace {show_text(recorded)}, for good; `recovery fork` makes another session"
        )
    return placed


def _check_empty(root: str) -> None:
    """Nothing of anybody's is in the way, and the directory above is there."""
    try:
        if os.path.lexists(root) and os.listdir(root):
            raise MisuseError(f"the workspace {show_text(root)} has something in it; name a directory that is missing or empty")
    except OSError as error:
        raise MisuseError(f"the workspace {show_text(root)}: {error.strerror}; name a directory that is missing or empty") from error
    if not os.path.isdir(os.path.dirname(root)):
        raise MisuseError(f"the workspace {show_text(root)}: the directory above it is missing; make it first")


@contextlib.contextmanager
def _claimed(root: str, placed: Placed, settings: Settings, ports: Ports) -> Iterator[None]:
    """Hold the workspace from here on; it is free again where the body fails."""
    holders = Holders(settings.holders, ports.clock)
    try:
        is_new = holders.claim(root, placed.session, placed.state, is_finished)
        try:
            yield
        except (CrashworthyError, OSError):
            if is_new:
                holders.release(root, placed.session, placed.state)
            raise
    finally:
        holders.close()


def _commit(state: str, stream: StreamId, root: str, store: str, ports: Ports) -> None:
    above = root if os.path.isdir(root) else os.path.dirname(root)
    nobody = events.RootIdentity(ports.ids.new_id().hex(), 0, None, f"{os.statvfs(above).f_fsid:x}")
    where, checkpoints = encode_bytes(os.fsencode(root)), encode_bytes(os.fsencode(store))
    placed = events.SessionPlaced(ports.clock.now_ms(), where, nobody, ports.ids.new_id().hex(), 1, checkpoints)
    with announced(log_path(state), "fork"), contextlib.closing(Writer.open(log_path(state), ports.ids)) as writer:
        writer.append(stream, Epoch(0), [Record(placed)], (), "place")


def fork_into(
    log: str, session: str | None, point: Point, name: str | None, state: str, workspace: str, settings: Settings, ports: Ports
) -> Placed:
    """Fork a session of the log file `log` at a point into the new state directory `state`, with its history, and place it. Run again after
    a crash it goes on.

    Raises MisuseError for a point that cannot be forked (naming the nearest ones; also for one of whose image no checkpoint was taken
    where the log lacks files of it), a name, directory or state directory that will not do, NeedsPersonError when the checkpoint store
    is missing, CompactedError for contents that were given up: nothing was made then; CheckpointDamagedError, CorruptError, FullError.
    """
    if name is not None and not SESSION_NAME.match(name):
        raise MisuseError(f"{show_text(name)!r} is no name of a session; write 1 to 64 letters, digits, '.', '_' or '-'")
    if os.path.exists(state) and not os.path.isdir(state):
        raise MisuseError(f"the state directory {show_text(state)} is not a directory; name another")
    root = os.path.realpath(workspace)
    check_places(state, root)
    _check_empty(root)
    reader = Reader.open(log)
    try:
        row = choose_stream(reader, session)
        at = find_point(reader, row, point)
        origin = (reader.log_id, row.id) if row.origin is None else (row.origin.log_id, row.origin.stream)
        forked = name if name is not None else row.id if row.origin is None else row.origin.stream
        if not os.path.exists(log_path(state)):
            record = fork_record(reader.events(row.id), at, name=forked, reason="forked", parent_log=origin[0], parent=origin[1], now_ms=0)
            if not isinstance(record.event, events.SessionForked):
                raise InternalError(f"a fork begins with {type(record.event).__name__}")
            fetch = find_elsewhere(reader, row.id, at, settings.checkpoints, ports.clock)
            if fetch is None:
                check_contents(reader, fold_changes({}, record.changes))
            _take_over_history(reader, row.id, at, forked, state, settings, ports, fetch)
    finally:
        reader.close()
    _check_forked(state, origin, at)
    _forget_bundles(state)
    return place_session(state, workspace, settings, ports)


def _take_over_history(
    reader: Reader, stream: StreamId, at: Seq, name: str, state: str, settings: Settings, ports: Ports, fetch: Fetch | None
) -> None:
    """Make the fork's own log: the parent's events up to the point, read-only, and the session that goes on from them."""
    above = os.path.dirname(os.path.abspath(state))
    if not os.path.isdir(above):
        raise MisuseError(f"the state directory {show_text(state)}: the directory above it is missing; make it first")
    check_writable_place(above, allow_network=settings.allow_network)
    os.makedirs(state, mode=0o700, exist_ok=True)
    left = [one for one in os.listdir(state) if not one.startswith(BUNDLE_NAME) and not one.startswith("log.sqlite.new-")]
    if left:
        raise MisuseError(f"the state directory {show_text(state)} has something in it; name one that is missing or empty")
    _forget_bundles(state)
    bundle = os.path.join(state, BUNDLE_NAME)
    export(reader, stream, bundle, ports.ids, at, fetch)
    import_into_new(log_path(state), bundle, ports.ids, ports.clock, name)


def _forget_bundles(state: str) -> None:
    """Remove the history on its way: it is in the log now, or a fork that was killed has left it."""
    for one in os.listdir(state):
        if one.startswith(BUNDLE_NAME):
            durable.unlink(os.path.join(state, one), "fork.bundle")


def _check_forked(state: str, origin: tuple[str, str], at: Seq) -> None:
    """Raise MisuseError where the log in `state` is not this fork's."""
    reader = Reader.open(log_path(state))
    try:
        first = next(iter(reader.events(only_stream(reader)))).event
    finally:
        reader.close()
    is_this = isinstance(first, events.SessionForked) and (first.parent_log, first.parent, first.parent_seq) == (*origin, at)
    if not is_this:
        raise MisuseError(f"the state directory {show_text(state)} holds another session; name one that is missing or empty")
