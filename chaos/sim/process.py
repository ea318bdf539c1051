"""Simulated processes: greenlets that are switched where the engine passes a step, and killed by never going on.

What must hold. One runs at a time; another may run only where a step is passed, a command has acted, or somebody waits. A process that was
killed never goes on: its stack is kept until the trial is over, so that no `finally` of it acts while others live. A process that holds
the lock of the log or the ledger is not left for another, as none could do more than wait for it; killed there, its lock is free and what
it had begun never stood.
"""

import contextlib
from collections.abc import Callable
from typing import Protocol

from greenlet import getcurrent, greenlet

from eventlog import steps
from eventlog.process_identity import ProcessIdentity

BOOT = "simulated-boot"
NAMESPACE = 1


class Process:
    """One of them. `mark` is its kill mark; `waits` the condition it waits for (None: none); `code` how it ended (None: it has not, or was
    killed). `has_command`: a command of it runs; `is_floor_raised`: it is a driver that has its epoch;
    `is_idle`: it waits to be asked for something and ends with its driver; `turns` how often it has gone on: while that stands still, so
    does its stack."""

    __slots__ = (
        "code", "epoch", "glet", "has_command", "holds", "identity", "is_alive", "is_floor_raised", "is_frozen", "is_idle", "mark", "name",
        "role", "steps", "turns", "waits",
    )  # fmt: skip

    def __init__(self, role: str, epoch: int, pid: int, mark: str, hook: steps.Hook | None) -> None:
        self.role = role
        self.epoch = epoch
        self.name = f"{role}@{epoch}"
        self.identity = ProcessIdentity(pid, pid, BOOT, NAMESPACE)
        self.mark = mark
        self.is_alive = True
        self.is_frozen = False
        self.has_command = False
        self.is_floor_raised = False
        self.is_idle = False
        self.turns = 0
        self.holds = ""
        self.waits: Callable[[], bool] | None = None
        self.code: int | None = None
        self.glet: greenlet
        self.steps = steps.Process()
        self.steps.hook = hook

    @property
    def can_run(self) -> bool:
        """Whether it would do something if it were switched to."""
        return not self.is_frozen and (self.waits is None or self.waits())


class Director(Protocol):
    """Who decides what happens at a step and who runs next."""

    def pass_step(self, process: Process, step: str) -> bool:
        """Whether the process is to be left for another at this step."""

    def choose(self) -> Process | None:
        """Who runs next; None when the trial is over."""


class Table:
    """All processes of a trial."""

    def __init__(self, director: Director) -> None:
        self._director = director
        self._hub = getcurrent()
        self._next_pid = 100
        self.living: list[Process] = []
        self.buried: list[Process] = []
        self.current: Process | None = None
        self.is_over = False

    def spawn(self, role: str, epoch: int, mark: str, work: Callable[[], int]) -> Process:
        """A new process that does `work`; it runs when it is chosen."""
        self._next_pid += 1
        process = Process(role, epoch, self._next_pid, mark, _Passing(self))

        def live() -> None:
            process.code = work()
            process.is_alive = False
            self.living.remove(process)
            self.buried.append(process)

        process.glet = greenlet(live, self._hub)
        self.living.append(process)
        return process

    def run(self) -> None:
        """Let processes run as the director chooses, until it chooses none."""
        while (process := self._director.choose()) is not None:
            process.waits = None
            self.current = process
            process.turns += 1
            steps.become(process.steps)
            process.glet.switch()

    def leave(self) -> None:
        """Let the hub choose who goes on."""
        if not self.is_over:
            self._hub.switch()

    def pass_step(self, step: str) -> None:
        """Called by the engine's steps."""
        process = self.current
        if process is not None and not self.is_over and self._director.pass_step(process, step):
            self._hub.switch()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Hold the current process until the condition holds."""
        process = self.current
        if process is not None and not self.is_over and not condition():
            process.waits = condition
            self._hub.switch()

    def kill(self, process: Process) -> None:
        """SIGKILL: it never goes on. The caller is not it, or leaves at once."""
        if process.is_alive:
            process.is_alive = False
            self.living.remove(process)
            self.buried.append(process)

    def bury(self) -> None:
        """The trial is over: nothing acts any more, whatever the stacks that are given up still do. They are unwound here, as a suspended
        stack that refers to itself is never collected."""
        self.is_over = True
        self.current = None
        steps.become(steps.Process())
        for process in (*self.living, *self.buried):
            with contextlib.suppress(Exception):  # what the cleaning up of a dead process meets is nobody's
                process.glet.throw()
        self.living.clear()
        self.buried.clear()


class _Passing:
    """The hook of every process of a table."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

    def pass_step(self, step: str) -> None:
        self._table.pass_step(step)
