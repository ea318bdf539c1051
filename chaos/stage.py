"""One trial's stage: the step socket on which its processes announce themselves, the gate that a waiting command needs, and the drivers.

Everything is waited for with a deadline that says what it waited for; nothing is timed.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from chaos.drivers import Place, driver_environment, start_driver
from chaos.plan import Step, parse_step
from chaos.processes import list_descendants, wait_readable
from chaos.scenario import Scenario

DRIVER_SECS = 60.0
READY_SECS = 20.0
GATE_STEP = "command.wait"
MOST_WAITS = 6


@dataclass(frozen=True, slots=True)
class Reached:
    """A process waits at an armed step."""

    step: str
    pid: int
    connection: socket.socket


@dataclass(frozen=True, slots=True)
class Ended:
    """A driver ended: its exit code, or minus the signal."""

    epoch: int
    code: int


Happening = Reached | Ended


class Stage:
    """Starts drivers of one trial and tells what happens. A context manager: leaves nothing open."""

    def __init__(self, scenario: Scenario, place: Place) -> None:
        self._scenario = scenario
        self._place = place
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(place.socket))
        self._listener.listen(64)
        self._drivers: dict[int, tuple[int, int]] = {}
        self._armed: frozenset[str] = frozenset()
        self.ends: list[Ended] = []
        # While a fault still wants a live command, its gate stays shut.
        self.holds_gate = False

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()
        for pid, descriptor in self._drivers.values():
            os.close(descriptor)
            os.kill(pid, 9)
            os.waitpid(pid, 0)

    def start(self, epoch: int, entry: str, wait: frozenset[str]) -> int:
        """Start the driver of `epoch`, whose processes wait at the steps `wait`; its pid."""
        tell = (
            frozenset(f"driver@{epoch}:{GATE_STEP}:{count}" for count in range(1, MOST_WAITS + 1)) if self._scenario.gate else frozenset()
        )
        pid = start_driver(self._scenario, self._place, epoch, entry, driver_environment(self._place, epoch, wait, tell - wait))
        self._armed |= wait
        self._drivers[epoch] = (pid, os.pidfd_open(pid))
        return pid

    def next(self, what: str, epoch: int) -> Happening:
        """The next armed step reached, or the end of the driver of `epoch`. TimeoutError names `what` was waited for."""
        deadline = time.monotonic() + DRIVER_SECS
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            pid, descriptor = self._drivers[epoch]
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError(f"waited {DRIVER_SECS:g} s for {what}")
                # Announcements first: a process may be at its step while its driver ends.
                for key, _ in sorted(ready, key=lambda one: one[0].fileobj == descriptor):
                    if key.fileobj != descriptor:
                        if (reached := self._accept()) is not None:
                            return reached
                    else:
                        return self._take_end(epoch, pid, descriptor)

    def wait_end(self, what: str, epoch: int) -> Ended:
        """Wait for the end of the driver of `epoch`. TimeoutError names `what` was waited for."""
        pid, descriptor = self._drivers[epoch]
        wait_readable(descriptor, DRIVER_SECS, what)
        return self._take_end(epoch, pid, descriptor)

    def _accept(self) -> Reached | None:
        connection, _ = self._listener.accept()
        step, _, pid = connection.recv(4096).decode().strip().rpartition(" ")
        if step in self._armed:
            return Reached(step, int(pid), connection)
        connection.close()
        if not self.holds_gate:
            self.open_gate()
        return None

    def _take_end(self, epoch: int, pid: int, descriptor: int) -> Ended:
        status = os.waitpid(pid, 0)[1]
        os.close(descriptor)
        del self._drivers[epoch]
        ended = Ended(epoch, -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
        self.ends.append(ended)
        return ended

    def open_gate(self) -> None:
        """Let a waiting command go on."""
        if self._scenario.gate:
            (self._place.outside / self._scenario.gate).touch()

    def is_gate_open(self) -> bool:
        """True when no command waits for the gate any more."""
        return not self._scenario.gate or (self._place.outside / self._scenario.gate).exists()

    def is_ready(self) -> bool:
        """True when a command has said that it waits."""
        return bool(self._scenario.ready) and (self._place.outside / self._scenario.ready).exists()

    def wait_ready(self) -> None:
        """Wait until the command says that it waits."""
        wait_until(self.is_ready, READY_SECS, f"the command to make {self._scenario.ready}")


def wants_live_command(step: Step) -> bool:
    """Whether a kill at this step is meant to meet the waiting command: the shim up to its wait, and the driver's own wait."""
    if step.role == "shim.1":
        return step.name in ("start", "spawn.before", "spawn.after", "running") or step.name.startswith("ledger.start")
    return step.role == "driver" and step.name == GATE_STEP and step.count == 1


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll a condition; TimeoutError says what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        os.sched_yield()


def read_roles(place: Place) -> dict[int, str]:
    """Which pid has which role, from the trace of steps."""
    roles: dict[int, str] = {}
    if place.trace.exists():
        for line in place.trace.read_text("utf-8").splitlines():
            step, _, pid = line.rpartition(" ")
            roles[int(pid)] = step.partition("@")[0]
    return roles


def read_steps(place: Place) -> tuple[str, ...]:
    """Every step passed, in order; steps before the epoch was known are left out."""
    lines = place.trace.read_text("utf-8").splitlines() if place.trace.exists() else []
    return tuple(step for step, _, _ in (line.rpartition(" ") for line in lines) if parse_step(step).epoch > 0)


def left_behind(without: int) -> list[int]:
    """Processes of the trial that still live."""
    return list_descendants(os.getpid(), without)
