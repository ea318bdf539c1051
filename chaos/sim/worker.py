"""The simulated file worker: every change of files that the engine asks for, in the order of `recovery.workspace.worker`, with its steps.

Each request has its starting mark, by the engine's own function, so that one below the floor changes nothing. Killed between two acts,
what was done stands. It ends when its driver is gone and it has nothing to do.
"""

from typing import Any, assert_never

from chaos.sim.ledger import SimLedger
from chaos.sim.process import Process
from chaos.sim.tree import FILE_MODE, Node
from chaos.sim.world import SIDE, World
from eventlog import steps
from eventlog.errors import CrashworthyError, InternalError, StaleEpochError
from eventlog.events import Exit
from eventlog.show import show_path
from recovery.space.ledger import Ledger, append_fenced
from recovery.space.protocol import (
    ApplyPlan,
    DeletePath,
    Done,
    EditFile,
    EmptyQuarantine,
    Failed,
    PrepareSide,
    Stale,
    TakeRoot,
    WorkerRequest,
    WriteFile,
)
from recovery.space.records import Exited, Register, Start
from recovery.space.starting import append_start
from recovery.workspace.actions import (
    Action,
    Displace,
    FinishDirectory,
    LinkFile,
    MakeDirectory,
    PlaceDirectory,
    PlaceFile,
    PlaceLink,
    PlacePipe,
    RestorePlan,
    SetAttributes,
    StageDirectory,
    decode_plan,
)

_PRIVATE = 0o700
Effect = tuple[Exit, str, dict[str, Any]]


class Worker:
    """One epoch's file worker, and the socket between it and its driver: `ask`, `answer`."""

    process: Process

    def __init__(self, world: World, driver: Process, epoch: int, mark: str) -> None:
        self._world = world
        self._driver = driver
        self._epoch = epoch
        self._mark = mark
        self._request: WorkerRequest | None = None
        self.answer: Done | Stale | Failed | None = None
        self.is_ready = False
        self.is_let_go = False
        self.refusal = ""

    def ask(self, request: WorkerRequest) -> None:
        """Send a request."""
        self._request = request
        self.process.is_idle = False

    def serve(self) -> int:
        """Register, then carry out requests until the driver is gone."""
        world = self._world
        ledger: Any = SimLedger(world.ledgers)
        steps.enter("worker", self._epoch)
        try:
            append_fenced(ledger, self._epoch, Register("worker", self._epoch, self._mark, self.process.identity))
        except StaleEpochError as error:
            self.refusal = str(error)
            return 1
        self.is_ready = True
        while True:
            self.process.is_idle = True
            world.wait(lambda: self._request is not None or self.is_let_go or not self._driver.is_alive)
            self.process.is_idle = False
            request, self._request = self._request, None
            if request is None:
                return 0
            self.answer = self._carry_out(ledger, request)

    def _carry_out(self, ledger: Ledger, request: WorkerRequest) -> Done | Stale | Failed:
        try:
            append_start(ledger, request.epoch, Start(request.key, self.process.identity, ""))
            exit_, message, detail = self._do(request)
        except StaleEpochError as error:
            return Stale(str(error))
        except (CrashworthyError, OSError) as error:
            return Failed(str(error), type(error).__name__ if isinstance(error, CrashworthyError) else "")
        steps.reach("ledger.exit.before")
        with ledger.transaction() as transaction:
            transaction.append_shared(Exited(request.key, exit_, self.process.identity.boot_id, message=message, detail=detail))
        return Done(exit_, message, detail)

    def _do(self, request: WorkerRequest) -> Effect:
        match request:
            case PrepareSide():
                return Exit("exited", code=0), "", {"side": SIDE, "inside": False}
            case WriteFile(path=path, content=content, mode=mode):
                known = self._world.tree.nodes.get(path)
                return self._replace(path, content, mode if mode is not None else known.mode if known is not None else FILE_MODE)
            case EditFile(path=path, old=old, new=new):
                found = self._world.tree.nodes.get(path)
                if found is None or found.content is None or found.content.count(old) != 1:
                    return Exit("exited", code=1), f"cannot edit {show_path(path)}: the text to replace is not in it exactly once", {}
                return self._replace(path, found.content.replace(old, new), found.mode)
            case ApplyPlan():
                return self._apply(decode_plan(request.plan), request)
            case TakeRoot() | DeletePath() | EmptyQuarantine():
                raise InternalError(f"{type(request).__name__} is not simulated")
            case other:
                assert_never(other)

    def _replace(self, path: bytes, content: bytes, mode: int) -> Effect:
        steps.reach("file.write.half")
        steps.reach("file.sync.before")
        steps.reach("file.sync.after")
        steps.reach("file.rename.before")
        existing = self._world.tree.nodes.get(path)
        try:
            self._world.tree.put(path, Node(mode, content, self._world.now_ns()))
        except OSError as error:
            return Exit("exited", code=1), f"cannot write {show_path(path)}: {error.strerror}", {}
        steps.reach("file.rename.after")
        done = f"{'made' if existing is None else 'replaced'} {show_path(path)} ({len(content)} bytes)"
        return Exit("exited", code=0), done, {"broke_link": False}

    def _apply(self, plan: RestorePlan, request: ApplyPlan) -> Effect:
        rounds = self._world.durable.quarantine.setdefault(request.quarantine, [])
        rounds.append({})
        restore = _Restore(self._world, rounds[-1], self._world.packs.get(request.contents, {}))
        for action in plan.actions:
            restore.perform(action)
        return Exit("exited", code=0), "", {"restored": plan.restored, "displaced": plan.displaced, "round": len(rounds)}


class _Restore:
    """One round of a restore: victims go to `taken`, contents come from `pack`."""

    def __init__(self, world: World, taken: dict[bytes, Node], pack: dict[bytes, bytes]) -> None:
        self._world = world
        self._tree = world.tree
        self._taken = taken
        self._pack = pack
        self._staged: dict[bytes, Node] | None = None

    def perform(self, action: Action) -> None:
        """One action of the plan, with a step on either side."""
        match action:
            case Displace(path=path):
                steps.reach("restore.displace.move.before")
                self._taken.update(self._tree.take(path))
                steps.reach("restore.displace.move.after")
            case MakeDirectory(path=path):
                self._make(path, Node(_PRIVATE), "mkdir")
            case StageDirectory(path=path):
                self._staged = {path: Node(_PRIVATE)}
            case PlaceDirectory():
                staged, self._staged = self._staged or {}, None
                steps.reach("restore.place.move.before")
                for path, node in staged.items():
                    self._tree.put(path, node)
                steps.reach("restore.place.move.after")
            case PlaceFile(path=path, content=content, mode=mode, mtime_ns=mtime_ns):
                time = self._world.now_ns() if mtime_ns is None else mtime_ns
                self._make(path, Node(mode, self._pack[content], time), "place.move")
            case SetAttributes(path=path, mode=mode, mtime_ns=mtime_ns) | FinishDirectory(path=path, mode=mode, mtime_ns=mtime_ns):
                found = self._tree.nodes[path]
                self._tree.put(path, Node(mode, found.content, found.mtime_ns if mtime_ns is None else mtime_ns))
                steps.reach("restore.set.after" if isinstance(action, SetAttributes) else "restore.finish.after")
            case PlaceLink() | PlacePipe() | LinkFile():
                raise InternalError(f"{type(action).__name__} is not simulated")
            case other:
                assert_never(other)

    def _make(self, path: bytes, node: Node, step: str) -> None:
        if self._staged is not None:
            self._staged[path] = node
            return
        steps.reach(f"restore.{step}.before")
        self._tree.put(path, node)
        steps.reach(f"restore.{step}.after")
