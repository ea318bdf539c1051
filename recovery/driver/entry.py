"""A driver from its first line to its exit code.

Order: fork the spawner (before any thread or log handle); claim the workspace; open or find the session; the ledger; the identity
file; raise the log's floor (T1); ledger fates (T2); kill (T3); gather, decide, act (T4 to T6); run the script; finish. Exit codes:
0 finished, 75 fenced, 78 needs a person or another configuration, 1 try again, 70 a bug.
"""

import contextlib
import errno
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eventlog import durable, events, steps
from eventlog.errors import CorruptError, CrashworthyError, LogMissingError, MisuseError, NeedsPersonError, ScanError
from eventlog.identity_files import DRIVE, Writing, forget_dead, highest_intended, leave_identity
from eventlog.ports import Clock, Host, Ids
from eventlog.preflight import check_writable_place
from eventlog.process_identity import identify_self
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.show import show_text
from eventlog.values import Epoch, StreamId
from eventlog.writer import Writer
from recovery import calls
from recovery.agent import AskPerson, RunNext, ScriptDone, choose_next
from recovery.capture import Capture, capture_outside, commit_look
from recovery.context import Context
from recovery.decision import decide
from recovery.driver.heartbeat import Heartbeat
from recovery.facts import LOST_ROOTS, LedgerFact
from recovery.gather import gather, open_ledger_fact
from recovery.journal import Journal, Known, only_stream, read_state
from recovery.opening import (
    check_log_exists,
    check_places,
    ensure_ledger,
    is_finished,
    log_missing,
    log_path,
    open_session,
    remove_second_names,
    scan_cache_path,
    space_paths,
)
from recovery.perform import describe_row, recover
from recovery.restore import sync_workspace
from recovery.root import observe_root
from recovery.script import BashCall, Call, OnInterrupted, Session, call_from_json, call_to_json, decode_bytes
from recovery.settings import Settings
from recovery.space.bubblewrap import Bubblewrap, SpaceKind, choose_bubblewrap, parse_space
from recovery.space.condemned import Trust
from recovery.space.containers import hold_namespace
from recovery.space.epochs import check_epoch
from recovery.space.holders import Holders
from recovery.space.ledger import Ledger
from recovery.space.local import LocalSpace
from recovery.space.marks import MarkSetting, choose_marks
from recovery.space.places import contains, look_at
from recovery.space.spawner import fork_spawner
from recovery.state import SessionState
from recovery.takeover import take_over
from recovery.unlock import Unlock
from recovery.workspace.scan import Scanner
from recovery.workspace.watch import Watch

FINISH_SCANS = 3  # rule C6
BUG = 70
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Ports:
    """The world of one driver."""

    clock: Clock
    ids: Ids
    host: Host


@dataclass(frozen=True, slots=True)
class Act:
    """What a driver does in place of the script, once it has taken over (T1 to T3). `command` is what a refusal names to be run again;
    without `may_claim` a running command is condemned with the rest; with `is_fresh` its scans trust nothing that an earlier process
    remembered."""

    work: Callable[[Context], int]
    command: str
    may_claim: bool = True
    is_fresh: bool = False
    are_processes_dead: bool = False  # a person says so, of what cannot be proved (recovery settle --processes-dead)


@dataclass(frozen=True, slots=True)
class Order:
    """What to drive: a session file's content, or (None) whatever the state directory holds. Only with `finish` is a session without a
    script ended, for good."""

    state: str
    session: Session | None
    on_interrupted: OnInterrupted | None = None
    accept_outside: str = ""
    act: Act | None = None
    finish: bool = False


def drive(order: Order, settings: Settings, ports: Ports) -> int:
    """Drive a session to its end; the exit code. Prints one sentence on stderr for every error."""
    steps.enter("driver", settings.epoch or 0)
    try:
        with contextlib.closing(fork_spawner(ports.clock, ports.host)) as spawner:
            return _drive(order, settings, ports, spawner)
    except CrashworthyError as error:
        _tell(f"recovery: {_advise(order, str(error))}")
        return error.exit_code
    except OSError as error:
        _tell(f"recovery: {_advise(order, _describe_system_error(error, order.state))}")
        return 1
    except KeyboardInterrupt:
        again = f"recovery drive {show_text(order.state)}" if order.act is None else order.act.command
        _tell(f"recovery: interrupted; `{again}` goes on")
        return 130
    except Exception:  # noqa: BLE001
        # A bug: keep the evidence, and let no session go on from here.
        traceback.print_exc()
        return BUG


def _describe_system_error(error: OSError, state: str) -> str:
    where = show_text(os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else state)
    if error.errno in _NO_ROOM:
        text = "nothing recorded is lost and nothing more was done: make room there and drive again"
        return f"{where}: no room is left ({error.strerror}); {text}"
    return f"{where}: {error.strerror or error}; nothing more was done, drive again when that is mended"


def _advise(order: Order, text: str) -> str:
    """A message with the command to be run next: for an act its own, because a drive runs the script on, and ends the session."""
    if order.act is not None:
        text = text.replace("recovery drive STATE_DIR --accept", f"{order.act.command} --accept")
        text = text.replace("drive again", f"run `{order.act.command}` again")
    return text.replace("STATE_DIR", show_text(order.state))


def _drive(order: Order, settings: Settings, ports: Ports, spawner: socket.socket) -> int:
    setting = choose_marks(settings.kill_mark)
    _check_left_behind([call_to_json(call) for call in order.session.calls] if order.session else [], settings, setting)
    name, workspace, script = _find_session(order)
    check_places(order.state, workspace)
    root = os.path.realpath(workspace)
    bubblewrap = _find_bubblewrap(order, settings, root, script)  # before anything is made
    state_directory = os.path.realpath(order.state)
    holders = Holders(settings.holders, ports.clock)
    is_new = holders.claim(root, name, state_directory, is_finished)
    known: Known | None = None
    if order.session is not None:
        if not os.path.exists(log_path(order.state)) and holders.has_begun(root, name, state_directory):
            raise log_missing(order.state)
        try:
            known = open_session(order.session, settings.epoch, settings.allow_network, ports.clock, ports.ids, ports.host.boot_id())
        except (CrashworthyError, OSError):
            # A session that could not begin must not keep the workspace from any other; one that another process began meanwhile must.
            if is_new and not os.path.exists(log_path(order.state)):
                holders.release(root, name, state_directory)
            raise
        holders.claim(root, name, state_directory, is_finished)  # again: another process may have given up and let go in between
    check_log_exists(order.state)
    holders.note_begun(root, name, state_directory)
    check_writable_place(order.state, allow_network=settings.allow_network)
    remove_second_names(order.state)
    known = known or _read(order.state, StreamId(name))
    _check_left_behind(known[0].opened.script, settings, setting)
    if known[0].is_finished and order.act is not None:
        raise finished_error(order.state, name)
    if known[0].is_finished:
        holders.release(root, name, state_directory)
        return _say_finished(order.state, name, None)
    ensure_ledger(known[0], space_paths(order.state))
    code = _drive_epoch(
        order, settings, ports, spawner, setting, bubblewrap, root, known,
        lambda: holders.claim(root, name, state_directory, is_finished),
    )  # fmt: skip
    if code == 0 and order.act is None:
        holders.release(root, name, state_directory)
    return code


def _check_left_behind(script: list[dict[str, Any]], settings: Settings, setting: MarkSetting) -> None:
    """Raise MisuseError where processes are to be kept of which nothing could be proved once their shim has ended."""
    said = {settings.left_behind} if settings.left_behind else {call.get("left_behind") for call in script}
    if setting.kind == "environment" and "keep" in said:
        raise MisuseError(
            "left_behind = keep needs a stronger kill mark than environment, under which nothing is provable of what outlives its shim; "
            "use kill or fail"
        )


def finished_error(state: str, name: str) -> NeedsPersonError:
    """The refusal of an act on a session that has ended."""
    return NeedsPersonError(
        f"session {name} in {show_text(state)} has finished and nothing follows its end; "
        f"`eventlog checkout` gives the files of any point, `recovery image NEWLOG --workspace DIR --new` begins another"
    )


def _say_finished(state: str, name: str, identity_file: str | None) -> int:
    if identity_file is not None:
        durable.unlink(identity_file, "identity")
    _tell(f"session {name} has finished; `eventlog show {show_text(state)}` prints its history")
    return 0


def _find_session(order: Order) -> tuple[str, str, Sequence[Call]]:
    """Name, workspace, and the calls of which some may still have to run: from the session file, else from the log."""
    if order.session is not None:
        return order.session.name, order.session.workspace, order.session.calls
    check_log_exists(order.state)
    state = _read(order.state, None)[0]
    tables = [] if state.is_finished else state.opened.script
    script = [call_from_json(call, f"script call {number}") for number, call in enumerate(tables, 1)]
    return state.opened.name, os.fsdecode(decode_bytes(state.opened.workspace, "workspace")), script


def _find_bubblewrap(order: Order, settings: Settings, root: str, script: Sequence[Call]) -> Bubblewrap | None:
    """What confines the commands of this drive, None where there is nothing to confine. Raises MisuseError."""
    override = _space_override(settings)
    calls = [call for call in script if isinstance(call, BashCall) and (override or call.space) == "namespaced"]
    if order.act is not None or not calls:  # an act runs none
        return None
    keeps = any((settings.left_behind or call.left_behind) == "keep" for call in calls)
    _check_writable(order.state, settings.space_writable)
    path = settings.command_environment.get("PATH")
    return choose_bubblewrap(["namespaced"], root, path, "keep" if keeps else "kill", settings.space_writable)


def _check_writable(state: str, writable: Sequence[str]) -> None:
    """Raise MisuseError where a confined command could write log or ledger."""
    own = look_at(state)
    for path in writable:
        if contains(look_at(path), own) or contains(own, look_at(path)):
            raise MisuseError(
                f"SESSION_SPACE_WRITABLE: {show_text(path)} and the state directory {show_text(state)} contain each other; name another"
            )


def _space_override(settings: Settings) -> SpaceKind | None:
    return parse_space(settings.space, "SESSION_SPACE") if settings.space else None


def _read(state: str, stream: StreamId | None) -> Known:
    reader = Reader.open(log_path(state))
    try:
        return read_state(reader, stream or only_stream(reader))
    finally:
        reader.close()


def _drive_epoch(
    order: Order, settings: Settings, ports: Ports, spawner: socket.socket, setting: MarkSetting, bubblewrap: Bubblewrap | None,
    root: str, known: Known, hold: Callable[[], bool],
) -> int:  # fmt: skip
    state = known[0]
    paths = space_paths(order.state)
    ledger = _open_ledger(paths.ledger, ports.clock)
    epoch = settings.epoch or _next_epoch(order.state, state, ledger)
    hold_namespace(paths.directory, ports.host)
    identity = identify_self(ports.host)
    nonce = ports.ids.new_id().hex()
    driver = events.DriverIdentity(nonce, identity.pid, identity.start_ticks, identity.boot_id, identity.pid_namespace)
    identity_file = leave_identity(order.state, Writing(nonce, identity, epoch, DRIVE))
    try:
        hold()  # again: a release that saw no driver here may have let go of the workspace; from now on it sees one
    except CrashworthyError:
        durable.unlink(identity_file, "identity")
        raise
    unlock = Unlock(order.state, epoch, ports.clock, ports.host, _tell)
    if isinstance(ledger, Ledger):
        ledger.judge_holders(settings.lock_secs, unlock.free_ledger(ledger))
    busy_ms = max(1, round(settings.lock_secs * 1000))
    writer = Writer.open(log_path(order.state), ports.ids, unlock=unlock.free_log, busy_ms=busy_ms)
    writer.on_pinned_wal = lambda pinned: _tell(f"{show_text(order.state)}: {pinned}; it grows until that ends")
    journal = Journal(writer, StreamId(state.opened.name), Epoch(epoch), known)
    try:
        opened = journal.state.opened
        if not journal.raise_floor(
            events.DriverStarted(ports.clock.now_ms(), driver, opened.ledger_id, opened.generation, setting.kind)
        ):
            if order.act is not None:
                durable.unlink(identity_file, "identity")
                raise finished_error(order.state, journal.stream)
            return _say_finished(order.state, journal.stream, identity_file)
        steps.reach("floor.raised")
        forget_dead(order.state, epoch, ports.host)
        sound = _check_ledger(ledger, journal, root, ports, order.accept_outside)
        trust = Trust(settings.container_ends_all, order.act is not None and order.act.are_processes_dead)
        # Where the workspace is gone nothing that runs is adopted, so nothing is claimed (D3).
        may_claim = (order.act is None or order.act.may_claim) and not _is_root_lost(root, journal.state)
        sweep = take_over(
            sound, journal.state, journal.hashes, journal.log_id, epoch, paths, ports.clock, ports.host, may_claim, trust
        )  # fmt: skip
        space = LocalSpace(
            spawner, paths, sound, setting, epoch, ports.clock, ports.host, journal.check_fence, bubblewrap=bubblewrap
        )  # fmt: skip
        space.tell = _tell
        space.silent_secs = settings.silent_secs
        say = _say if order.act is None else _say_nothing  # an act prints its own answer on stdout and nothing else
        context = Context(
            ports.clock,
            ports.host,
            ports.ids,
            root,
            settings.command_environment,
            paths,
            journal,
            sound,
            space,
            say,
            _tell,
            sweep,
            order.accept_outside,
            Scanner(
                root,
                journal.state.profile,
                cache_path=scan_cache_path(order.state),
                boot_id=ports.host.boot_id(),
                is_fresh=order.act is not None and order.act.is_fresh,
            ),
            Watch(root) if settings.hints == "watch" else None,
            settings.left_behind,
            _space_override(settings),
        )
        with Heartbeat(epoch, settings.heartbeat_secs, ports.clock, say, _progress(journal)):
            code = _work(context, order) if order.act is None else order.act.work(context)
        if context.scanner is not None:
            context.scanner.save()
        space.close()
        journal.tidy(ports.clock)
    finally:
        journal.close()
    durable.unlink(identity_file, "identity")
    return code


def _work(context: Context, order: Order) -> int:
    recover(context)
    on_interrupted = order.on_interrupted or context.journal.state.opened.on_interrupted
    while True:
        match choose_next(context.journal.state, on_interrupted):
            case RunNext(index=index):
                calls.run_call(context, index, call_from_json(context.journal.state.opened.script[index], f"script call {index + 1}"))
            case AskPerson() as ask:
                raise NeedsPersonError(_describe_ask(ask, order.state))
            case ScriptDone():
                if not context.journal.state.opened.script and not order.finish:
                    raise NeedsPersonError(_describe_scriptless(context.journal.stream, order.state))
                return _finish(context)


def _describe_scriptless(name: str, state: str) -> str:
    """Why a drive of a log of images ends here: nobody's script says that the work is done."""
    return (
        f"session {name} has no script and is not finished by a drive; what there was to recover is recovered, and `recovery image` and "
        f"`recovery restore` go on with it. `recovery drive {show_text(state)} --finish` ends it for good"
    )


def _describe_ask(ask: AskPerson, state: str) -> str:
    """What became of the last call, and the two commands to choose from."""
    which = f"call {ask.call} (call {ask.index + 1} of the script)"
    again = f"`recovery drive {show_text(state)} --on-interrupted reissue`"
    if ask.undone_by is None:
        return (
            f"{which} was interrupted and the workspace restored to the image before it; {again} runs it again, "
            "`--on-interrupted continue` goes on without it"
        )
    return (
        f"{which} was undone by the restore that a person had decided at seq {ask.undone_by}; {again} runs the script again from its "
        f"call {ask.again + 1}, the first that was undone, `--on-interrupted continue` goes on after call {ask.index + 1}"
    )


def _finish(context: Context) -> int:
    """C6: what was kept ends; then the session ends on an image that was scanned, is on disk, and is the head's."""
    ended = context.sweep.end_kept(context.ledger, context.epoch)
    if ended:
        context.tell(f"what {ended} commands had left running was ended: the session ends")
    for _ in range(FINISH_SCANS):
        found = commit_look(lambda: _observe(context))
        if found.differs:
            continue
        now = context.clock.now_ms()
        sync_workspace(context.root, "finish")
        synced = events.Synced(now, found.root, context.host.boot_id())
        context.journal.append([Record(synced), Record(events.SessionFinished(now, found.root))], (), "finish")
        context.tell(f"session {context.journal.stream} finished: image {found.root}")
        return 0
    raise ScanError("the workspace keeps changing outside any call; end what changes it and drive again")


def _observe(context: Context) -> Capture:
    """Capture what was changed outside any call, and commit it. The last look of a session is whole, whatever a watcher says."""
    found = capture_outside(context, whole=True)
    if found.differs:
        observed = events.WorkspaceObserved(context.clock.now_ms(), found.root, found.untracked)
        context.journal.append([Record(observed, found.changes)], found.blobs, "observed")
    return found


def _open_ledger(path: str, clock: Clock) -> Ledger | LogMissingError | CorruptError:
    try:
        return Ledger(path, clock)
    except (LogMissingError, CorruptError) as error:
        return error


def _is_root_lost(root: str, state: SessionState) -> bool:
    """Whether the workspace is seen to be lost; one that cannot be looked at, or may not be mounted, may come back with all that runs."""
    try:
        return observe_root(root, state) in LOST_ROOTS
    except ScanError:
        return False


def _check_ledger(ledger: Ledger | LogMissingError | CorruptError, journal: Journal, root: str, ports: Ports, accepted: str) -> Ledger:
    """A ledger that is lost, damaged or another's ends the drive here, with the label of its row (D2)."""
    fact = open_ledger_fact(ledger, journal.state)
    if isinstance(ledger, Ledger) and fact is LedgerFact.SOUND:
        return ledger
    evidence = gather(journal.state, journal.hashes, None, fact, root, ports.host, accepted)
    why = f" ({ledger})" if isinstance(ledger, CrashworthyError) else ""
    raise NeedsPersonError(describe_row(decide(evidence.facts), evidence, root, journal.state) + why)


def _next_epoch(state: str, session: SessionState, ledger: Ledger | LogMissingError | CorruptError) -> int:
    """L1: one above everything that was ever used or intended."""
    ledger_floor = ledger.state.floor if isinstance(ledger, Ledger) else 0
    return check_epoch(max(session.floor, ledger_floor, highest_intended(state)) + 1)


def _progress(journal: Journal) -> Callable[[], int]:
    return lambda: sum(call.ended is not None for call in journal.state.calls)


def _say(line: str) -> None:
    # A reader that is gone, or a full device behind stdout, must not stop a session: the log has every outcome, the line only tells of it.
    with contextlib.suppress(OSError):
        os.write(1, line.encode() + b"\n")


def _say_nothing(line: str) -> None:
    """Swallow a protocol line."""


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # as for stdout
        print(line, file=sys.stderr, flush=True)
