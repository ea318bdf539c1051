"""Everything a simulated session has: what outlives its processes, and the processes.

`Durable` is what a crash leaves: log, ledger, workspace, quarantine, witness, outputs, and what was acknowledged. It can be copied at any
step, so that trials that are killed there need not come there again. `World` adds the processes of one trial.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from chaos.sim.ledger import Ledgers, copy_world
from chaos.sim.process import BOOT, NAMESPACE, Director, Process, Table
from chaos.sim.shell import make_program
from chaos.sim.tree import Node, Tree
from chaos.sim.workloads import Workload
from eventlog import events
from eventlog.errors import required
from eventlog.image import diff, root_hash
from eventlog.memory_store import MemoryStore
from eventlog.ports import CountingIds
from eventlog.process_identity import ProcessIdentity
from eventlog.records import Record
from eventlog.values import StreamId
from recovery.script import call_to_json
from recovery.space.memory import MemoryWorld

ROOT = "/simulated/work"
SIDE = "/simulated/side"
STATE = "/simulated/state"
SESSION = "simulated"
SPACE_ID = f"{1:032x}"
BEGAN_MS = 1_000_000_000_000


class VirtualClock:
    """Time that passes only when something is done: a millisecond for each thing, or what somebody pauses."""

    def __init__(self, ms: int = BEGAN_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def pause(self, seconds: float) -> None:
        self.ms += max(1, round(seconds * 1000))


class SimHost:
    """One boot of one machine."""

    def boot_id(self) -> str:
        return BOOT

    def pid_namespace(self) -> int:
        return NAMESPACE


@dataclass(slots=True)
class Durable:
    """What a crash leaves. `quarantine` is by decision, round and path; `said` are the lines of each driver's stdout, by
    its epoch."""

    workload: Workload
    store: MemoryStore
    space: MemoryWorld
    clock: VirtualClock
    ids: CountingIds
    tree: Tree
    quarantine: dict[str, list[dict[bytes, Node]]] = field(default_factory=dict)
    witness: bytearray = field(default_factory=bytearray)
    outputs: dict[str, bytes] = field(default_factory=dict)
    said: dict[int, list[str]] = field(default_factory=dict)

    def copy(self) -> "Durable":
        """The same, apart from now on."""
        clock = VirtualClock(self.clock.ms)
        return Durable(
            self.workload, self.store.copy(), copy_world(self.space, clock), clock, self.ids.copy(), self.tree.copy(),
            {name: [dict(one) for one in rounds] for name, rounds in self.quarantine.items()}, bytearray(self.witness),
            dict(self.outputs), {epoch: list(lines) for epoch, lines in self.said.items()},
        )  # fmt: skip

    def mark(self) -> tuple[Hashable, ...]:
        """All of it as a value: states of one session with equal marks are equal. The log and the ledger are only ever appended to, so that
        their ends stand for them; and a run of one session has one history of them."""
        rows = self.store.rows(StreamId(SESSION))
        return (
            len(rows), rows[-1].hash, frozenset(self.store.blobs), len(self.space.records), self.clock.ms, self.ids.copy().new_id(),
            frozenset(self.tree.nodes.items()), frozenset(self.tree.kept), bytes(self.witness), frozenset(self.outputs.items()),
            tuple((name, *(frozenset(one.items()) for one in rounds)) for name, rounds in sorted(self.quarantine.items())),
            tuple((epoch, *lines) for epoch, lines in sorted(self.said.items())),
        )  # fmt: skip

    def now_ns(self) -> int:
        """The time of a change in the workspace."""
        self.clock.ms += 1
        return self.clock.ms * 1_000_000


def open_session(workload: Workload) -> Durable:
    """A session that has been opened on an empty workspace and has had no driver."""
    clock, ids, tree, store = VirtualClock(), CountingIds(), Tree(), MemoryStore()
    image = tree.scan()
    opened = events.SessionOpened(
        at_ms=clock.now_ms(), name=SESSION, workspace=ROOT, mode="transactional", on_interrupted=workload.on_interrupted,
        script=[call_to_json(call) for call in workload.calls], root=root_hash(image, ()).hex(),
        root_identity=events.RootIdentity(f"{2:032x}", 1, 1, "simulated"), ledger_id=SPACE_ID, generation=1, untracked=[], excludes=[],
        track=[], limits=None, checkpoints=None,
    )  # fmt: skip
    store.create(StreamId(SESSION), Record(opened, diff({}, image)), (), ids)
    return Durable(workload, store, MemoryWorld({}, clock, SimHost(), SPACE_ID), clock, ids, tree)


class World:
    """One trial: what is durable, and the processes that work on it."""

    def __init__(self, durable: Durable, director: Director) -> None:
        self.durable = durable
        self.tree = durable.tree
        self.witness = durable.witness
        self.space = durable.space
        self.host = SimHost()
        self.processes = Table(director)
        self.program = make_program(self)
        self.ledgers = Ledgers(durable.space, self.hold)
        self._reader = durable.store.open_reading()
        self.told: dict[int, str] = {}
        self.packs: dict[str, dict[bytes, bytes]] = {}

    def now_ns(self) -> int:
        """The time of a change in the workspace."""
        return self.durable.now_ns()

    def floor(self) -> int:
        """The log's floor."""
        return self._reader.floor(StreamId(SESSION))

    @property
    def me(self) -> Process:
        """The process that runs."""
        return required(self.processes.current, "something of a simulated session runs outside its processes")

    def hold(self, what: str) -> None:
        """The running process has this lock, or ("") none."""
        process = self.processes.current
        if process is not None:
            process.holds = what

    def kill(self, process: Process) -> None:
        """SIGKILL, with all that dies of it: its locks are free."""
        self.processes.kill(process)
        if process.holds == "log":
            self.durable.store.let_go()
        process.holds = ""

    def find(self, identity: ProcessIdentity | None) -> Process | None:
        """The living process of this identity."""
        return next((one for one in self.processes.living if one.identity == identity), None)

    def find_marked(self, mark: str) -> Iterable[Process]:
        """The living processes under a kill mark."""
        return [one for one in self.processes.living if one.mark == mark]

    def find_named(self, name: str) -> Process | None:
        """The living process `ROLE@EPOCH`."""
        return next((one for one in self.processes.living if one.name == name), None)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Hold the running process until the condition holds."""
        self.processes.wait(condition)


class _Current:
    """Which world the engine in this process is in: one at a time."""

    __slots__ = ("world",)

    def __init__(self) -> None:
        self.world: World | None = None


_current = _Current()


def enter(world: World | None) -> None:
    """From now on the engine of this process is in this world."""
    _current.world = world


def here() -> World:
    """The world that the engine of this process is in."""
    return required(_current.world, "the simulated engine runs outside a trial")
