"""Where the engine touches the world, and what stands there in a simulation. One table, put in place once for a process of its own.

The engine is the installed one (or the copy of `--engine`), module for module: decision, facts, fold, journal, calls, takeover, perform,
restore, the driver's order, the ledger's transactions and keys. What is replaced are its ways out: the names in its modules that stand for
files, processes, sockets and clocks. A name of the table that the engine does not have any more ends the runner before anything is
simulated, and a test runs trials under an audit hook that lets no file, socket or process be opened.
"""

import contextlib
import importlib
import os
import traceback
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from chaos.sim.ledger import SimLedger
from chaos.sim.log import SimWriter
from chaos.sim.space import SimSpace
from chaos.sim.tree import Tree
from chaos.sim.world import ROOT, SESSION, here
from eventlog import steps
from eventlog.errors import InternalError
from eventlog.image import Image
from eventlog.ports import Ids
from eventlog.process_identity import ProcessIdentity
from eventlog.values import StreamId
from recovery.driver.begin import Begun
from recovery.driver.epoch import under_epoch
from recovery.driver.order import Order, Ports
from recovery.facts import RootFact
from recovery.journal import read_state
from recovery.settings import Settings
from recovery.space.marks import MarkSetting
from recovery.state import SessionState
from recovery.workspace.actions import PlaceFile, RestorePlan
from recovery.workspace.side import RootIdentity
from recovery.workspace.values import Scan


class _Begun(Begun, frozen=True):
    """A session whose workspace nobody else wants."""

    def hold(self) -> None:
        """There is no registry of holders."""

    def release(self) -> None:
        """There is no registry of holders."""


def begin(order: Order, settings: Settings, ports: Ports) -> Begun:
    """The session was opened before the trial; its log is read as any driver reads it."""
    writer: Any = SimWriter(here().durable.store, ports.ids)
    holders: Any = None
    known = read_state(writer.reader, StreamId(SESSION))
    return _Begun(order, settings, ports, MarkSetting("cgroup", ""), None, ROOT, known, holders)


class _Spawner:
    """What the driver closes at its end."""

    def close(self) -> None:
        """Nothing is held."""


class _Ledger(SimLedger):
    """The ledger as a driver opens it."""

    def __init__(self, path: str, clock: Any) -> None:
        super().__init__(here().ledgers)


class _Writer:
    """The log as a driver opens it."""

    @staticmethod
    def open(path: str, ids: Ids, **bounds: Any) -> SimWriter:
        return SimWriter(here().durable.store, ids)


class _Kept:
    """Contents by their names, as a scan found them."""

    def __init__(self, tree: Tree) -> None:
        self.get = tree.kept.get


class _Scanner:
    """Every scan is whole and true: what a real one has to do for that is not simulated."""

    def __init__(self, root: str, profile: Any, **remembered: Any) -> None:
        self._tree = here().tree
        self.kept = _Kept(self._tree)

    def scan(self, rehash: bool = False, hints: Any = None, processes: Iterable[int] = (), against: Image | None = None) -> Scan:
        return Scan(self._tree.scan(), ())

    def learn(self, made: Any) -> None:
        """Nothing is remembered."""

    def save(self) -> None:
        """Nothing is remembered."""


class _Heartbeat(contextlib.AbstractContextManager[None]):
    """No thread beats."""

    def __init__(self, *arguments: Any) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


class _Os:
    """The few calls of `os` that recovery.restore makes: its packs are kept in memory, and one sync is as good as another."""

    O_RDONLY = O_DIRECTORY = O_CLOEXEC = 0
    path = os.path
    fsencode = staticmethod(os.fsencode)

    @staticmethod
    def makedirs(path: str, mode: int = 0, exist_ok: bool = False) -> None:
        """Every directory is there."""

    @staticmethod
    def listdir(path: str) -> list[str]:
        return []

    @staticmethod
    def open(path: str, flags: int) -> int:
        return -1

    @staticmethod
    def close(descriptor: int) -> None:
        """Nothing was opened."""


class _Durable:
    """Syncs and removals that only pass their steps: nothing that was written in a simulation is ever lost."""

    def unlink(self, path: str, step: str) -> None:
        steps.reach(f"{step}.unlink.before")
        steps.reach(f"{step}.unlink.after")

    def sync_filesystem(self, descriptor: int, step: str) -> None:
        steps.reach(f"{step}.syncfs.before")
        steps.reach(f"{step}.syncfs.after")


def write_pack(path: str, plan: RestorePlan, read: Any, step: str) -> None:
    """The contents that a plan needs, read through the engine."""
    needed = dict.fromkeys(action.content for action in plan.actions if isinstance(action, PlaceFile))
    here().packs[path] = {content: b"".join(read([content])) for content in needed}
    steps.reach(f"{step}.write.half")


def list_quarantine(side: str, directory: str) -> tuple[bytes, ...]:
    """`<round>/<path>` of every file in quarantine, in byte order."""
    rounds = here().durable.quarantine.get(directory, [])
    listed: list[bytes] = []
    for number, taken in enumerate(rounds, 1):
        above = {path.rpartition(b"/")[0] for path in taken}
        listed += [b"%d/%s" % (number, path) for path in taken if path not in above]
    return tuple(sorted(listed))


def read_root_identity(root: str) -> RootIdentity:
    """The root is the session's own."""
    return RootIdentity(f"{2:032x}", 1, 1, "simulated")


def observe_root(root: str, state: SessionState) -> RootFact:
    """The root is always there: what becomes of a lost one is not simulated."""
    return RootFact.PRESENT


def is_alive(identity: ProcessIdentity, host: Any) -> bool:
    """Whether this process lives, frozen or not."""
    return here().find(identity) is not None


def greet_shim(paths: Any, name: str, key: str, identity: ProcessIdentity, epoch: int) -> bool:
    """Whether the shim answers: one that is frozen does not."""
    process = here().find(identity)
    return process is not None and not process.is_frozen


def kill_mark(mark: str, owner: ProcessIdentity | None, host: Any, clock: Any, **target: Any) -> None:
    """Kill everything under a mark, at once and provably."""
    steps.reach("kill.before")
    world = here()
    for process in list(world.find_marked(mark)):
        if process.identity.pid not in target.get("spare", ()):
            world.kill(process)
    steps.reach("kill.after")


def kill_and_wait(identity: ProcessIdentity, host: Any, clock: Any, seconds: float, condition: Any = None) -> bool:
    """Kill one process, at once."""
    process = here().find(identity)
    if process is not None:
        here().kill(process)
    return True


def leave_identity(state: str, writing: Any) -> str:
    """Identity files are for those who find a lock held; none is ever found so."""
    steps.reach("identity.rename.after")
    return ""


def identify_self(host: Any) -> ProcessIdentity:
    """This driver. Its pid is the simulating process's own, as the engine asks whether a fork of it ends what it holds."""
    identity = here().me.identity
    return ProcessIdentity(os.getpid(), identity.start_ticks, identity.boot_id, identity.pid_namespace)


def say(line: str) -> None:
    """A protocol line of a driver."""
    world = here()
    world.durable.said.setdefault(world.me.epoch, []).append(line)


def tell(line: str) -> None:
    """A driver's line for people: the last one is kept."""
    world = here()
    world.told[world.me.epoch] = line


class _Traceback:
    """A bug of the engine is told by the trial that meets it."""

    @staticmethod
    def print_exc() -> None:
        tell(f"{traceback.format_exc(limit=-1).strip()}")


def _nothing(*arguments: Any, **options: Any) -> None:
    return None


def _zero(*arguments: Any) -> int:
    return 0


def _no_pids(newest: int) -> list[int]:
    return []


def _no_users(pids: Collection[int], *arguments: Any, **options: Any) -> list[Any]:
    return []


def _not_ended(directory: str, identity: Any, clock: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Seam:
    """A name in a module of the engine, and what stands for it in a simulation."""

    module: str
    name: str
    stands_in: Any


SEAMS = (
    # The driver from its entry to its end.
    Seam("recovery.driver.entry", "begin", begin),
    Seam("recovery.driver.entry", "fork_spawner", lambda clock, host: _Spawner()),
    Seam("recovery.driver.entry", "tell", tell),
    Seam("recovery.driver.entry", "under_epoch", partial(under_epoch, tell=tell)),
    Seam("recovery.driver.entry", "say", say),
    Seam("recovery.driver.entry", "traceback", _Traceback),
    Seam("recovery.driver.epoch", "Ledger", _Ledger),
    Seam("recovery.driver.epoch", "Writer", _Writer),
    Seam("recovery.driver.epoch", "LocalSpace", SimSpace),
    Seam("recovery.driver.epoch", "Scanner", _Scanner),
    Seam("recovery.driver.epoch", "Heartbeat", _Heartbeat),
    Seam("recovery.driver.epoch", "leave_identity", leave_identity),
    Seam("recovery.driver.epoch", "identify_self", identify_self),
    Seam("recovery.driver.epoch", "forget_dead", _nothing),
    Seam("recovery.driver.epoch", "highest_intended", _zero),
    Seam("recovery.driver.epoch", "issued_epoch", _zero),
    Seam("recovery.driver.epoch", "hold_namespace", _nothing),
    Seam("recovery.driver.epoch", "observe_root", observe_root),
    Seam("recovery.driver.epoch", "durable", _Durable()),
    Seam("recovery.journal", "wal_bytes", _zero),
    # Processes.
    Seam("recovery.takeover", "release_mark", _nothing),
    Seam("recovery.space.advance", "is_alive", is_alive),
    Seam("recovery.space.advance", "greet_shim", greet_shim),
    Seam("recovery.space.condemned", "kill_mark", kill_mark),
    Seam("recovery.space.condemned", "kill_and_wait", kill_and_wait),
    Seam("recovery.space.condemned", "is_ended", _not_ended),
    Seam("recovery.left_behind", "list_begun_since", _no_pids),
    Seam("recovery.left_behind", "find_users", _no_users),
    # The workspace.
    Seam("recovery.root", "observe_root", observe_root),
    Seam("recovery.gather", "observe_root", observe_root),
    Seam("recovery.perform", "observe_root", observe_root),
    Seam("recovery.files", "read_root_identity", read_root_identity),
    Seam("recovery.restore", "os", _Os),
    Seam("recovery.restore", "durable", _Durable()),
    Seam("recovery.restore", "write_pack", write_pack),
    Seam("recovery.restore", "read_made", lambda path: ()),
    Seam("recovery.restore", "list_quarantine", list_quarantine),
)


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """The engine of this process touches a simulated world while this is entered. Raises InternalError where a name of the table is none of
    the engine's."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for seam in SEAMS:
            module = importlib.import_module(seam.module)
            if not hasattr(module, seam.name):
                raise InternalError(f"the simulation replaces {seam.module}.{seam.name}, which this engine has not (chaos/sim/seams.py)")
            before.append((module, seam.name, getattr(module, seam.name)))
            setattr(module, seam.name, seam.stands_in)
        yield
    finally:
        for module, name, was in reversed(before):
            setattr(module, name, was)
        steps.become(steps.Process())


