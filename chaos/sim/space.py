"""The driver's face of the space, in memory: what `recovery.space.local.LocalSpace` is to the engine, over simulated shims and workers.

Commands are the programs of the space in memory, under its records; who owns them is a process of its own, which outlives its driver.
"""

from collections.abc import Callable
from typing import Any

from chaos.sim.process import Process
from chaos.sim.shim import run_shim
from chaos.sim.worker import Worker
from chaos.sim.world import SPACE_ID, here
from eventlog import steps
from eventlog.errors import LostProcessError, StaleEpochError
from eventlog.process_identity import ProcessIdentity
from recovery.space.protocol import Done, Failed, Stale, WorkerRequest
from recovery.space.records import Exited
from recovery.space.request import CommandRequest


class SimSpace:
    """One epoch's hold on the space. Takes what the engine gives to LocalSpace; of that the epoch and the look at the fence matter here."""

    def __init__(
        self, spawner: Any, paths: Any, ledger: Any, setting: Any, epoch: int, clock: Any, host: Any, check_fence: Callable[[], None],
        name: str = "", bubblewrap: Any = None,
    ) -> None:  # fmt: skip
        self._world = here()
        self._epoch = epoch
        self._check_fence = check_fence
        self._commands = 0
        self._worker: Worker | None = None
        self.side: str | None = None
        self.tell: Callable[[str], None] = lambda line: None
        self.silent_secs = 0.0
        self.space_id = SPACE_ID
        self.has_leaves = False
        self.can_confine = False

    def mark(self, leaf: str) -> str:
        """The kill mark with this leaf name."""
        return f"simulated:{leaf}"

    @property
    def has_worker(self) -> bool:
        return self._worker is not None

    def start_worker(self, root: str, *, is_synced: bool = False) -> None:
        """A file worker of this epoch; it registers itself before it serves."""
        mark = self.mark(f"e{self._epoch}-worker")
        worker = self._worker = Worker(self._world, self._world.me, self._epoch, mark)
        worker.process = self._world.processes.spawn("worker", self._epoch, mark, worker.serve)
        self._await(lambda: worker.is_ready, worker.process)
        self._check_told(worker.process, worker.refusal, "the spawner could not start a file worker; drive again")

    def start_command(self, request: CommandRequest, mark: str) -> ProcessIdentity:
        """A shim that owns a prepared command."""
        self._commands += 1
        world, epoch, driver = self._world, self._epoch, self._world.me
        role = f"shim.{self._commands}"
        process = world.processes.spawn(role, epoch, mark, lambda: run_shim(world, driver, request, role, epoch))
        return process.identity

    def wait_command(self, key: str, shim: ProcessIdentity) -> Exited:
        """Wait for the exit record. Raises LostProcessError when the shim ends without one, StaleEpochError when superseded."""
        steps.reach("command.wait")
        world = self._world
        owner = world.find(shim)
        self._await(lambda: _find_exit(world.space.state.find(key)) is not None, owner)
        exited = _find_exit(world.space.state.find(key))
        if exited is None:
            self._check_fence()
            raise LostProcessError(f"the shim of {key} ended without an exit record; drive again: recovery decides what its command did")
        return exited

    def change_files(self, request: WorkerRequest) -> Done:
        """Have the file worker carry out one prepared request. Raises StaleEpochError, LostProcessError."""
        worker = self._worker
        if worker is None:
            raise LostProcessError("there is no file worker; drive again")
        worker.ask(request)
        self._await(lambda: worker.answer is not None, worker.process)
        answer, worker.answer = worker.answer, None
        match answer:
            case Done():
                return answer
            case Stale(message=message):
                raise StaleEpochError(message)
            case Failed(message=message):
                raise OSError(message)
            case _:
                self._check_fence()
                raise LostProcessError(f"the file worker ended during {request.key} without an answer; drive again")

    def _await(self, condition: Callable[[], bool], who: Process | None) -> None:
        """Wait for the condition, the death of who is waited for, or a newer epoch, which StaleEpochError tells."""
        world, epoch = self._world, self._epoch
        if condition():
            return
        world.wait(lambda: condition() or who is None or not who.is_alive or world.floor() > epoch)
        if not condition():
            self._check_fence()

    def _check_told(self, process: Process, refusal: str, lost: str) -> None:
        if refusal:
            raise StaleEpochError(refusal)
        if not process.is_alive:
            self._check_fence()
            raise LostProcessError(lost)

    def list_processes(self) -> frozenset[int]:
        """Nothing maps a file."""
        return frozenset()

    def own_processes(self) -> frozenset[int]:
        return frozenset()

    def read_output(self, mark: str, exited: Exited) -> tuple[bytes, bytes]:
        """What the command wrote."""
        return self._world.durable.outputs.get(exited.key, b""), b""

    def forget_attempt(self, mark: str) -> None:
        """Nothing is held by a mark."""

    def drop(self) -> None:
        """Nothing is held."""

    def close(self, spare: Any = ()) -> None:
        """Let the file worker end."""
        if self._worker is not None:
            self._worker.is_let_go = True


def _find_exit(attempt: Any) -> Exited | None:
    return None if attempt is None else attempt.exit
