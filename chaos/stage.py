"""One trial's stage: its drivers, the step socket on which their processes announce themselves, and the gate that a waiting command needs.

Everything is waited for with a deadline that says what it waited for; nothing is timed.
"""

import math
import os
import select
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from chaos.drivers import PERSON, Place, driver_environment, start_driver
from chaos.processes import list_descendants
from chaos.scenario import Scenario
from chaos.step import Step, parse_step

DRIVER_SECS = 60.0
READY_SECS = 20.0
LOOK_SECS = 0.05
POLL_SECS = 0.002
HELD_LOCK_SECS = 0.25  # a driver's bound for a lock where a frozen process is known to hold it: what is waited for never comes
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
    """A driver ended: its exit code, or minus the signal. `superseded` tells that a newer driver had been started before, `command` what a
    person had it do, "" where it drove."""

    epoch: int
    code: int
    superseded: bool = False
    command: str = ""


class Stage:
    """Starts drivers of one trial and takes note of what happens. A context manager: leaves nothing open.

    `armed` are the steps at which processes wait that have not been dealt with; `waiting` are the processes that wait there now.
    `is_lock_held` is set while a frozen process holds a lock that the drivers started now will want.
    """

    def __init__(self, scenario: Scenario, place: Place, armed: frozenset[str]) -> None:
        self._scenario = scenario
        self._place = place
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(place.socket))
        self._listener.listen(64)
        self._drivers: dict[int, tuple[int, int]] = {}
        self._commands: dict[int, str] = {}
        self.armed = set(armed)
        self.waiting: dict[str, Reached] = {}
        self.ends: list[Ended] = []
        self.newest = 0
        self.is_lock_held = False
        self._gate_wanted_by = 0

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()
        for reached in self.waiting.values():
            reached.connection.close()
        for pid, descriptor in self._drivers.values():
            os.close(descriptor)
            os.kill(pid, 9)
            os.waitpid(pid, 0)

    def start(self, epoch: int, entry: str) -> int:
        """Start the driver of `epoch`, whose processes wait at the armed steps; its pid."""
        tell = (
            frozenset(f"driver@{epoch}:{GATE_STEP}:{count}" for count in range(1, MOST_WAITS + 1)) if self._scenario.gate else frozenset()
        )
        wait = frozenset(self.armed)
        lock_secs = HELD_LOCK_SECS if self.is_lock_held else 0.0
        environment = driver_environment(self._place, epoch, wait, tell - wait, lock_secs)
        pid = start_driver(self._scenario, self._place, epoch, entry, environment)
        self._drivers[epoch] = (pid, os.pidfd_open(pid))
        self._commands[epoch] = entry.removeprefix(PERSON) if entry.startswith(PERSON) else ""
        self.newest = max(self.newest, epoch)
        return pid

    def running(self) -> dict[int, int]:
        """The pids of the drivers that have not ended, by epoch."""
        return {epoch: pid for epoch, (pid, _) in self._drivers.items()}

    def deal_with(self, step: str) -> Reached:
        """Take the process that waits at a step: what becomes of it is the caller's to do."""
        self.armed.discard(step)
        return self.waiting.pop(step)

    def let_go(self, step: str) -> bool:
        """Let the process that waits at a step go on, and a command that waits for the gate if nothing wants it alive any more; False when
        that process is dead."""
        is_alive = release(self.deal_with(step))
        self.open_wanted_gate()
        return is_alive

    def open_wanted_gate(self) -> None:
        """Open the gate if a driver waits for a command and no fault still to come in its epoch wants that alive."""
        steps = [step for step in map(parse_step, self.armed) if step.epoch == self._gate_wanted_by]
        if self._gate_wanted_by and not any(map(wants_live_command, steps)):
            self.open_gate()

    def look(self, what: str, deadline: float, until: float | None = None) -> None:
        """Take note of what happened; waits for something, or until the moment `until`. TimeoutError after `deadline` names `what`."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        epochs = {descriptor: epoch for epoch, (_, descriptor) in self._drivers.items()}
        for descriptor in epochs:
            poll.register(descriptor, select.POLLIN)
        end = deadline if until is None else min(until, deadline)
        ready = {descriptor for descriptor, _ in poll.poll(math.ceil(max(0.0, end - time.monotonic()) * 1000))}
        # Announcements first: a process may be at its step while its driver ends.
        if self._listener.fileno() in ready:
            self._accept()
        for descriptor, epoch in epochs.items():
            if descriptor in ready:
                self._take_end(epoch)
        if not ready and time.monotonic() >= deadline:
            raise TimeoutError(f"waited {DRIVER_SECS:g} s for {what}")

    def wait_end(self, epoch: int, what: str) -> Ended:
        """Wait for the end of the driver of `epoch`; TimeoutError names `what`."""
        deadline = time.monotonic() + DRIVER_SECS
        while epoch in self._drivers:
            self.look(what, deadline)
        return next(ended for ended in self.ends if ended.epoch == epoch)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        step, _, pid = connection.recv(4096).decode().strip().rpartition(" ")
        if step in self.armed:
            self.waiting[step] = Reached(step, int(pid), connection)
            return
        connection.close()
        # While a fault still wants a live command, its gate stays shut.
        self._gate_wanted_by = parse_step(step).epoch
        self.open_wanted_gate()

    def _take_end(self, epoch: int) -> None:
        pid, descriptor = self._drivers.pop(epoch)
        status = os.waitpid(pid, 0)[1]
        os.close(descriptor)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.ends.append(Ended(epoch, code, epoch < self.newest, self._commands[epoch]))

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

    def wait_ready(self, has_ended: Callable[[], bool]) -> None:
        """Wait until the command says that it waits, or has ended without a word: not every call of a scenario waits."""
        wait_until(lambda: self.is_ready() or has_ended(), READY_SECS, f"the command to make {self._scenario.ready}")


def release(reached: Reached) -> bool:
    """Let a process go on from its step; False when it is dead by now (a takeover killed it where it was held)."""
    try:
        reached.connection.sendall(b"\0")
    except (BrokenPipeError, ConnectionResetError):
        return False
    finally:
        reached.connection.close()
    return True


def wants_live_command(step: Step) -> bool:
    """Whether a fault at this step is meant to meet the waiting command: the shim up to its wait, and the driver's own wait."""
    if step.role == "shim.1":
        return step.name in ("start", "spawn.before", "spawn.after", "running") or step.name.startswith("ledger.start")
    return step.role == "driver" and step.name == GATE_STEP and step.count == 1


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll a condition; TimeoutError says what was waited for."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as nothing:
        while not condition():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"waited {seconds:g} s for {what}")
            nothing.select(POLL_SECS)  # spinning would take the time from those that are waited for


class Traced(NamedTuple):
    """One line of the trace: a step and the process that passed it."""

    step: str
    pid: int


def read_trace(place: Place, start: int = 0) -> list[Traced]:
    """The steps passed since the trace had `start` bytes, in order."""
    try:
        file = open(place.trace, "rb")
    except FileNotFoundError:
        return []
    with file:
        file.seek(start)
        lines = file.read().decode("utf-8").splitlines()
    return [Traced(step, int(pid)) for step, _, pid in (line.rpartition(" ") for line in lines)]


def trace_size(place: Place) -> int:
    """How many bytes the trace has."""
    return place.trace.stat().st_size if place.trace.exists() else 0


def read_roles(place: Place) -> dict[int, str]:
    """Which pid has which role, from the trace of steps."""
    newest = {traced.pid: traced.step for traced in read_trace(place)}
    return {pid: step.partition("@")[0] for pid, step in newest.items()}


def find_process(place: Place, who: str) -> int:
    """The pid of the newest process that passed a step as `who` (`ROLE@EPOCH`); 0 when none did."""
    return next((traced.pid for traced in reversed(read_trace(place)) if traced.step.startswith(f"{who}:")), 0)


def read_steps(place: Place, start: int = 0) -> tuple[str, ...]:
    """Every step passed since the trace had `start` bytes, in order; steps before the epoch was known are left out."""
    return tuple(traced.step for traced in read_trace(place, start) if "@0:" not in traced.step or traced.step.startswith("redriver@"))


def left_behind(without: int) -> list[int]:
    """Processes of the trial that still live."""
    return list_descendants(os.getpid(), without)
