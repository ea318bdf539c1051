"""The file worker: the one process that changes workspace paths for the engine (S6).

Every request is a ledger record with its own starting mark, made under the lock and refused below the floor, so that a worker of an
old epoch that wakes up changes nothing. Its exit record proves nothing: only the log's call_settled or restore_finished does. It
registers itself before it serves, and ends when its driver's socket closes.
"""

import os
import signal
import socket
from typing import Any

import msgspec

from eventlog import durable, steps
from eventlog.errors import CrashworthyError, NeedsPersonError, StaleEpochError
from eventlog.events import Exit, RootIdentity
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, identify_self
from eventlog.show import show_text
from recovery.space import protocol
from recovery.space.kernel import become_subreaper, name_process
from recovery.space.ledger import Ledger, append_fenced
from recovery.space.marks import has_leaf, join_mark
from recovery.space.protocol import (
    ApplyPlan,
    DeletePath,
    Done,
    EditFile,
    EmptyQuarantine,
    Failed,
    PrepareSide,
    Stale,
    StartWorker,
    TakeRoot,
    WorkerRequest,
    WriteFile,
)
from recovery.space.records import Exited, Register, Start
from recovery.space.starting import append_start
from recovery.workspace.actions import decode_plan
from recovery.workspace.apply import apply_plan
from recovery.workspace.made import SUFFIX, write_made
from recovery.workspace.quarantine_tree import empty
from recovery.workspace.side import (
    find_sides,
    is_same_root,
    prepare_side,
    read_root_identity,
    recorded_root,
    set_root_identity,
    take_root,
)
from recovery.workspace.tools import ToolResult, delete_path, edit_file, write_file

Effect = tuple[Exit, str, dict[str, Any]]


def serve(request: StartWorker, connection: socket.socket, ledger: Ledger, clock: Clock, host: Host) -> None:
    """Register, then carry out requests until the driver is gone. Runs in a process forked for it."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    join_mark(request.mark)
    become_subreaper()
    name_process("file worker")
    ledger.reopen()
    steps.enter("worker", request.epoch)
    identity = identify_self(host)
    append_fenced(ledger, request.epoch, Register("worker", request.epoch, request.mark, identity))
    _Worker(request, connection, ledger, identity, host).run()


class _Worker:
    def __init__(self, request: StartWorker, connection: socket.socket, ledger: Ledger, identity: ProcessIdentity, host: Host) -> None:
        self._root = os.fsdecode(request.root)
        self._space_id = request.space_id
        self._mark = request.mark
        self._is_synced = request.is_synced
        self._connection = connection
        self._ledger = ledger
        self._identity = identity
        self._host = host
        self._side = ""

    def run(self) -> None:
        while (request := protocol.receive(self._connection)) is not None:
            match request:
                case PrepareSide() | TakeRoot() | WriteFile() | EditFile() | DeletePath() | ApplyPlan() | EmptyQuarantine():
                    protocol.send(self._connection, self._answer(request))
                case _:
                    protocol.send(self._connection, Failed(f"the file worker does not know {type(request).__name__}"))

    def _answer(self, request: WorkerRequest) -> Done | Stale | Failed:
        try:
            append_start(self._ledger, request.epoch, Start(request.key, self._identity, ""))
            exit_, message, detail = self._carry_out(request)
            self._sync()
            steps.reach("ledger.exit.before")
            with self._ledger.transaction() as transaction:
                transaction.append_shared(Exited(request.key, exit_, self._host.boot_id(), message=message, detail=detail))
        except StaleEpochError as error:
            return Stale(str(error))
        except (CrashworthyError, OSError) as error:
            # No exit record (a full disk may refuse just that): the attempt stays unknown, and recovery restores whatever it had begun.
            return Failed(str(error), type(error).__name__ if isinstance(error, CrashworthyError) else "")
        return Done(exit_, message, detail)

    def _sync(self) -> None:
        """Without a log nothing commits the change later: its exit record is what is believed, and must not outlive it on disk."""
        if self._is_synced:
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                durable.sync_filesystem(descriptor, "file")
            finally:
                os.close(descriptor)

    def _carry_out(self, request: WorkerRequest) -> Effect:
        match request:
            case PrepareSide():
                return self._prepare_side(request)
            case TakeRoot():
                return self._take_root(request)
            case WriteFile():
                return _tool(write_file(self._root, request.path, request.content, request.mode, self._side, "file"))
            case EditFile():
                return _tool(edit_file(self._root, request.path, request.old, request.new, self._side, "file"))
            case DeletePath():
                return _tool(delete_path(self._root, request.path, "file"))
            case ApplyPlan():
                return self._apply(request)
            case EmptyQuarantine():
                return self._empty(request)

    def _prepare_side(self, request: PrepareSide) -> Effect:
        if not is_same_root(recorded_root(request.root), read_root_identity(self._root)):
            # Checked by who is about to mark it: a directory put in its place meanwhile must not be made the session's own (D3).
            raise NeedsPersonError(f"root_replaced: {show_text(self._root)} is not the directory this session began with; put it back")
        side = prepare_side(self._root, self._space_id)
        self._side = side.path
        if read_root_identity(self._root).id is None:
            set_root_identity(self._root, request.root.id)
        return Exit("exited", code=0), "", {"side": side.path, "inside": side.inside}

    def _take_root(self, request: TakeRoot) -> Effect:
        found = take_root(self._root, request.id, request.is_accepted)
        identity = RootIdentity(found.id or request.id, found.inode, found.birth_ns, found.filesystem)
        return Exit("exited", code=0), "", {"identity": msgspec.to_builtins(identity)}

    def _apply(self, request: ApplyPlan) -> Effect:
        plan = decode_plan(request.plan)
        applied = apply_plan(
            plan,
            root=self._root,
            side=self._side,
            quarantine_directory=request.quarantine,
            pack=request.contents,
            is_shared=has_leaf(self._mark),  # whoever proves this process dead proves its children dead there, and only there (I7)
        )
        write_made(request.contents + SUFFIX, applied.made)
        return Exit("exited", code=0), "", {"restored": applied.restored, "displaced": applied.displaced, "round": applied.round}

    def _empty(self, request: EmptyQuarantine) -> Effect:
        sides = find_sides(self._root, self._space_id)
        removed = sum(empty(side, name) for side in sides for name in request.directories)
        return Exit("exited", code=0), "", {"removed": removed}


def _tool(result: ToolResult) -> Effect:
    return Exit("exited", code=0 if result.ok else 1), result.message, {"broke_link": result.broke_link}
