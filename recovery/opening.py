"""Opening a session: a new one is made all or nothing, an existing one is found, and a log that should exist and does not is never
made anew (L9)."""

import contextlib
import os
from collections.abc import Iterable, Iterator

from eventlog import durable, events
from eventlog.blobs import encode_content
from eventlog.codec import Blob
from eventlog.creation import create_log
from eventlog.errors import LogMissingError, MisuseError
from eventlog.identity_files import has_driver_file
from eventlog.image import Change, diff, root_hash
from eventlog.ports import Clock, Ids
from eventlog.preflight import check_writable_place
from eventlog.reader import Reader
from eventlog.records import Dropped, Record
from eventlog.show import encode_bytes, show_text, show_word
from eventlog.values import ContentId, StreamId
from recovery.capture import list_untracked
from recovery.checkpoints.vault import Vault, check_store_place, make_vault, open_vault, store_path
from recovery.fold_cache import FoldCache, Known
from recovery.journal import only_stream, read_state
from recovery.limits import find_crossing, measure
from recovery.redrive.record import has_record
from recovery.script import Session, call_to_json, decode_bytes
from recovery.space.ledger import create_ledger
from recovery.space.ledger_lines import LEDGER_FORMAT
from recovery.space.local import SpacePaths
from recovery.space.places import contains, look_at
from recovery.space.records import Header
from recovery.state import SessionState
from recovery.workspace.content import read_verified
from recovery.workspace.scan import Scanner
from recovery.workspace.side import read_root_identity
from recovery.workspace.values import Scan

LOG_NAME = "log.sqlite"
SPACE_DIRECTORY = "space"
SCAN_CACHE_NAME = "scan.cache"
FOLD_CACHE_NAME = "fold.cache"


def log_path(state: str) -> str:
    """The log of a state directory."""
    return os.path.join(state, LOG_NAME)


def scan_cache_path(state: str) -> str:
    """The stat cache of a state directory: losing it costs time only."""
    return os.path.join(state, SCAN_CACHE_NAME)


def fold_cache_of(state: str) -> FoldCache:
    """What is kept of the fold of the log in a state directory: losing it costs time only."""
    return FoldCache(os.path.join(state, FOLD_CACHE_NAME))


def space_paths(state: str) -> SpacePaths:
    """The space's own directory in a state directory."""
    return SpacePaths(os.path.join(state, SPACE_DIRECTORY))


def check_places(state: str, workspace: str) -> None:
    """Raise MisuseError when workspace and state directory contain each other (S1), by whatever way they are reached, or the latter is a
    file."""
    if os.path.exists(state) and not os.path.isdir(state):
        raise MisuseError(f"the state directory {show_text(state)} is not a directory; name another in the session file")
    in_state, in_workspace = look_at(state), look_at(workspace)
    for inner, outer, what in ((in_state, in_workspace, "state directory"), (in_workspace, in_state, "workspace")):
        if contains(outer, inner):
            other = "workspace" if what == "state directory" else "state directory"
            raise MisuseError(
                f"the {what} {show_text(os.fsdecode(inner.path))} lies inside the {other} {show_text(os.fsdecode(outer.path))}; "
                "move one of them out"
            )


def should_exist(state: str) -> bool:
    """L9: whether anything in a state directory says that there was a log."""
    return has_driver_file(state) or os.path.exists(space_paths(state).ledger) or has_record(state)


def check_log_exists(state: str) -> None:
    """Raise LogMissingError or MisuseError when there is no log to drive."""
    if os.path.exists(log_path(state)):
        return
    if should_exist(state):
        raise log_missing(state)
    raise MisuseError(f"{show_text(state)} is not the state directory of a session; start one with `recovery run SESSION.toml`")


def log_missing(state: str) -> LogMissingError:
    """The error for a log that should exist (L9)."""
    name = show_text(log_path(state))
    return LogMissingError(f"{name}: the log is missing, though its session has run; put it back: a missing log is never made anew")


def open_session(
    session: Session, epoch: int | None, allow_network: bool, clock: Clock, ids: Ids, boot_id: str = "", cache: FoldCache | None = None
) -> Known | None:
    """Make the session's log when there is none yet: None then. An existing session must be the same one, and its state is returned, read
    with `cache`.

    Raises MisuseError, LogMissingError, ScanError.
    """
    if os.path.exists(log_path(session.state)):
        return _read_same(session, cache)
    if should_exist(session.state) or (epoch or 1) > 1:
        raise log_missing(session.state)
    if not os.path.isdir(session.workspace):
        raise MisuseError(
            f"the workspace {show_text(session.workspace)} is not a directory; create it, or correct `workspace` in the session file"
        )
    check_writable_place(_nearest_directory(session.state), allow_network=allow_network)
    # Its name is on disk before anything in it is promised: a log is worth nothing in a directory that power loss takes away. One that is
    # there already is synced too: its maker may have been killed before.
    durable.make_directories(session.state, "state", is_certain=True)
    return _create(session, clock, ids, boot_id)


def _nearest_directory(path: str) -> str:
    """The directory that exists already, in which `path` would be made."""
    path = os.path.abspath(path)  # a bare name has no parent to climb to
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _create(session: Session, clock: Clock, ids: Ids, boot_id: str) -> Known | None:
    root = os.path.realpath(session.workspace)
    crossing = "" if session.limits is None else find_crossing(measure(root, session.profile), session.limits)
    if crossing and session.mode == "transactional":
        raise MisuseError(f'{crossing}; use mode = "auto" or "checkpoint", raise the limit, or exclude what is large')
    scanner = Scanner(root, session.profile, cache_path=scan_cache_path(session.state), boot_id=boot_id)
    found = scanner.scan()
    identity = read_root_identity(root)
    ledger_id = ids.new_id().hex()
    checkpoints = _begin_checkpoints(session, root, found, scanner, ledger_id, crossing, clock)
    opened = events.SessionOpened(
        at_ms=clock.now_ms(),
        name=session.name,
        workspace=encode_bytes(os.fsencode(root)),
        mode=session.mode,
        on_interrupted=session.on_interrupted,
        script=[call_to_json(call) for call in session.calls],
        root=root_hash(found.image, session.profile.excludes).hex(),
        root_identity=events.RootIdentity(identity.id or ids.new_id().hex(), identity.inode, identity.birth_ns, identity.filesystem),
        ledger_id=ledger_id,
        generation=1,
        untracked=list_untracked(found.untracked),
        excludes=[encode_bytes(line.encode("utf-8", "surrogateescape")) for line in session.profile.excludes],
        track=session.profile.track,
        limits=session.limits,
        checkpoints=checkpoints,
    )
    _remove_leftovers(session.state)
    record = Record(opened, diff({}, found.image))
    try:
        if checkpoints is not None and checkpoints.manifest:
            elsewhere = list_checkpointed(record.changes, clock)
            create_log(log_path(session.state), StreamId(session.name), record, (), ids, elsewhere=elsewhere)
        else:
            create_log(log_path(session.state), StreamId(session.name), record, _contents(root, found, scanner), ids)
    except FileExistsError:
        # Another process opened the session in the same moment: theirs stands.
        return _read_same(session)
    scanner.save()  # the driver, whose first scan is next, need not read what was just read
    return None


def _begin_checkpoints(
    session: Session, root: str, found: Scan, scanner: Scanner, owner: str, crossing: str, clock: Clock
) -> events.Checkpoints | None:
    """What the first event says of checkpoints: the first one is durable before it, where the session begins with one."""
    if session.mode == "transactional":
        return None
    store = store_path(session.store, session.state)
    check_store_place(store, root)
    vault = make_vault(store, owner, clock)
    manifest = ""
    if session.mode == "checkpoint" or crossing:
        with vault.writing() as writer:
            manifest = vault.take(writer, found.image, session.profile.excludes, root, scanner.kept)
    return events.Checkpoints(encode_bytes(os.fsencode(store)), session.lost_work_bound, manifest)


def list_checkpointed(changes: Iterable[Change], clock: Clock) -> list[Dropped]:
    """The contents that changes name, as the log has them on record when a checkpoint holds them. Pure but for the time."""
    now = clock.now_ms()
    found = {change.entry.content: change.entry.size for change in changes if change.entry is not None and change.entry.content is not None}
    return [Dropped(ContentId(content), size, "checkpointed", now) for content, size in sorted(found.items())]


def _contents(root: str, found: Scan, scanner: Scanner) -> Iterator[Blob]:
    seen: set[bytes] = set()
    for path, entry in found.image.items():
        if entry.content is not None and entry.content not in seen:
            seen.add(entry.content)
            kept = scanner.kept.get(entry.content)
            pieces = [kept] if kept is not None else read_verified(root, path, entry.content, entry.size)
            yield from encode_content(pieces, ContentId(entry.content))


def _remove_leftovers(state: str) -> None:
    """Half-made logs of killed openings: their maker's pid stands in the name and is nobody's now."""
    for name in os.listdir(state):
        pid = name.removeprefix(LOG_NAME + ".new-").partition("-")[0]
        if name.startswith(LOG_NAME + ".new-") and not (pid.isdigit() and os.path.exists(f"/proc/{pid}")):
            with contextlib.suppress(FileNotFoundError):
                durable.unlink(os.path.join(state, name), "log.leftover")


def remove_second_names(state: str) -> None:
    """A driver killed between giving the log its name and taking the temporary one away left both: the same file twice."""
    for name in os.listdir(state):
        path = os.path.join(state, name)
        with contextlib.suppress(FileNotFoundError):
            if name.startswith(LOG_NAME + ".new-") and os.path.samefile(path, log_path(state)):
                durable.unlink(path, "log.leftover")


def _read_same(session: Session, cache: FoldCache | None = None) -> Known:
    reader = Reader.open(log_path(session.state))
    try:
        known = read_state(reader, StreamId(session.name), cache=cache)
    finally:
        reader.close()
    if known[0].opened.script != [call_to_json(call) for call in session.calls]:
        raise MisuseError(
            f"session {session.name} in {show_text(session.state)} began with other calls than its file has now; "
            f"finish it as it began with `recovery drive {show_word(session.state)}`, or give the new calls another name and state"
        )
    if known[0].profile != session.profile:  # what a person left out later is not compared
        raise MisuseError(
            f"session {session.name} in {show_text(session.state)} began with another `exclude` or `track` than is asked for now, and both "
            f"are fixed for good; finish it as it began with `recovery drive {show_word(session.state)}`, or give another name and state"
        )
    _check_same_mode(session, known[0])
    return known


def _check_same_mode(session: Session, state: SessionState) -> None:
    """Raise MisuseError where the file says another mode, limit, store or bound than the session began with."""
    opened = state.opened
    store = "" if opened.checkpoints is None else os.fsdecode(decode_bytes(opened.checkpoints.store, "store"))
    began = (opened.mode, opened.limits, state.modes.bound, store if session.store is not None else "")
    asked = (session.mode, session.limits, session.lost_work_bound, "" if session.store is None else os.path.realpath(session.store))
    if began != asked:
        raise MisuseError(
            f"session {session.name} in {show_text(session.state)} began with another `mode`, `limits`, `store` or `lost_work_bound` than "
            f"is asked for now; finish it as it began with `recovery drive {show_word(session.state)}`, or give another name and state"
        )


def ensure_ledger(state: SessionState, paths: SpacePaths) -> None:
    """Make the session's first ledger. Only before any driver_started stands: from then on a missing ledger is a lost one (D2)."""
    paths.make()
    if state.has_driver or os.path.exists(paths.ledger):
        return
    with contextlib.suppress(FileExistsError):
        create_ledger(paths.ledger, Header(LEDGER_FORMAT, state.opened.ledger_id, state.opened.generation))


def is_finished(state: str) -> bool:
    """Whether the session in a state directory has finished; False when that cannot be read."""
    try:
        reader = Reader.open(log_path(state))
    except (LogMissingError, MisuseError):
        return False
    try:
        return read_state(reader, only_stream(reader), is_placed=False, cache=fold_cache_of(state))[0].is_finished
    finally:
        reader.close()


def read_log(state: str) -> SessionState:
    """The verified state of the one session in a state directory. Raises MisuseError, CorruptError, NeedsPersonError."""
    reader = Reader.open(log_path(state))
    try:
        return read_state(reader, only_stream(reader), cache=fold_cache_of(state))[0]
    finally:
        reader.close()


def find_vault(state: SessionState, said: str, clock: Clock) -> Vault | None:
    """The checkpoints of a session that has begun, None where it has none; `said` is where its store is now, if it was moved.

    Raises NeedsPersonError when the store is not there, MisuseError when what is there is none.
    """
    if state.opened.checkpoints is None:
        return None
    directory = os.path.realpath(said) if said else os.fsdecode(state.modes.store)
    return open_vault(directory, state.opened.ledger_id, clock)
