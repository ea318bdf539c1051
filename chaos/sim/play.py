"""A plan carried out in a simulated world, and the session driven to its end.

What must hold, as with real processes: every action of the plan leaves one Fault, and one that cannot be carried out ends the plan and did
not fire. A process is killed where it waits, and never goes on. The next driver begins when none is at work and the session is not over.

Who runs next is decided by a schedule: without one each goes on until it waits; with one its seed says at each step whether another goes
on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from chaos.results import Action, Alive, Fault, OracleVerdict, Verdict
from chaos.sim.process import Process
from chaos.sim.world import STATE, Durable, World
from recovery.driver.entry import drive
from recovery.driver.order import Order, Ports
from recovery.settings import Settings, read_settings

MOST_DRIVERS = 8
MOST_CHOICES = 100_000
"""More switches than any trial has: one that reaches it goes round in circles."""
STALE = 75
AGAIN = 1
_LOCKED = ".commit.locked:"


@dataclass(slots=True)
class Schedule:
    """Which process goes on, drawn from one seed: at a step another with the probability `share`."""

    random: Random
    share: float = 0.15

    def leaves(self) -> bool:
        """Whether the process that passes a step is left for another."""
        return self.random.random() < self.share


OnStep = Callable[["Play", Process, str], None]


class Play:
    """One trial being played. `ends` are (epoch, exit code, or -9) in the order of their ends; `heads` the head of the log when each driver
    had raised its floor. `on_step` is told of every step passed, before anything is done there. With `killed_at` the play begins where the
    first driver was killed at that step, which the plan's first action asks for: its state is `durable`."""

    def __init__(
        self, durable: Durable, plan: Sequence[Action] = (), schedule: Schedule | None = None, on_step: OnStep | None = None,
        killed_at: str = "",
    ) -> None:  # fmt: skip
        self.world = World(durable, self)
        self.faults: list[Fault] = []
        self.findings: list[OracleVerdict] = []
        self.ends: list[tuple[int, int]] = []
        self.labels: list[str] = []
        self._plan = list(plan)
        self._place = 0
        self._armed = {action.at for action in plan if action.at}
        self._schedule = schedule
        self._on_step = on_step
        self._waiting: dict[str, Process] = {}
        self._frozen: set[str] = set()
        self._drivers: dict[int, Process] = {}
        self._started = 0
        self._choices = 0
        self._is_over = False
        self._is_stuck = False
        self.is_open = False
        """More actions may come by `arm`: what is frozen stays so until then, or until nothing can run any more."""
        self._known: set[int] = set()
        if killed_at:
            self._begin_killed(killed_at)

    def _begin_killed(self, step: str) -> None:
        """The first driver has come to this step and was killed there."""
        world = self.world
        driver = self._drivers[1] = world.processes.spawn("driver", 1, "simulated:driver-1", _end_at_once)
        driver.is_floor_raised = world.floor() == 1
        world.kill(driver)
        self._started = 1
        self._fired(Fault(step, "kill", True, True, driver.identity.pid, 9))

    def arm(self, action: Action) -> None:
        """One more action of the plan, decided on the way: by who is told of steps, at the step that it is aimed at."""
        self._plan.append(action)
        if action.at:
            self._armed.add(action.at)

    @property
    def plan(self) -> tuple[Action, ...]:
        """All actions, those armed on the way too."""
        return tuple(self._plan)

    def run(self) -> None:
        """Play to the end. Nothing of the world runs any more afterwards."""
        table = self.world.processes
        try:
            table.run()
            self._judge_end()
        finally:
            table.bury()

    # The director's part

    def pass_step(self, process: Process, step: str) -> bool:
        """Called at every step of every process: whether it is left for another there."""
        if _LOCKED in step:
            process.holds = "log"
        elif process.holds == "log":
            process.holds = ""
            process.is_floor_raised = process.is_floor_raised or ":floor.commit.after:" in step
        if self._on_step is not None:
            self._on_step(self, process, step)
        if step in self._armed and self._place < len(self._plan):
            self._waiting[step] = process
            process.waits = _for_ever
            return True
        schedule = self._schedule
        return schedule is not None and not process.holds and schedule.leaves()

    def choose(self) -> Process | None:
        """Who runs next; None when the trial is over."""
        self._choices += 1
        if self._choices > MOST_CHOICES:
            self._is_stuck = True
            return None
        self._note_ends()
        while self._place < len(self._plan) and self._try_next():
            pass
        able = [one for one in self.world.processes.living if one.can_run]
        if self._may_start():
            self._start()
            able = [one for one in self.world.processes.living if one.can_run]
        if not able:
            return self.choose() if self._go_on() else None
        if len(able) == 1:
            return able[0]
        if self._schedule is not None:
            return able[self._schedule.random.randrange(len(able))]
        return able[-1]

    def _go_on(self) -> bool:
        """With nobody who could run: whether something of the plan can still be done, or given up."""
        if self._place < len(self._plan):
            return self._give_up(self._plan[self._place], "the step was not reached")
        if not self.is_open:
            return False
        self.is_open = False
        frozen = [one.name for one in self.world.processes.living if one.is_frozen]
        self._plan += [Action("", "end", f"driver@{max(self._drivers, default=1)}"), *(Action("", "wake", name) for name in frozen)]
        return True

    # Drivers

    def _has_driver(self) -> bool:
        """Whether a driver is at work; one that is frozen or held is not."""
        return any(one.role == "driver" and not one.is_frozen and one not in self._waiting.values() for one in self.world.processes.living)

    def _may_start(self) -> bool:
        return not self._is_over and not self._has_driver() and not self._waiting and self._started < MOST_DRIVERS

    def _start(self) -> None:
        self._started += 1
        world, durable = self.world, self.world.durable
        ports = Ports(durable.clock, durable.ids, world.host)
        order = Order(STATE, None)
        epoch = max([world.floor(), *self._drivers]) + 1
        settings = _settings(epoch)
        self._drivers[epoch] = world.processes.spawn("driver", epoch, f"simulated:driver-{epoch}", lambda: drive(order, settings, ports))

    def _note_ends(self) -> None:
        for epoch, driver in self._drivers.items():
            if epoch not in self._known and not driver.is_alive:
                self._known.add(epoch)
                code = -9 if driver.code is None else driver.code
                self.ends.append((epoch, code))
                self._is_over = self._is_over or code not in (AGAIN, STALE, -9)
                if code not in (0, AGAIN, STALE, -9):
                    self._fail("liveness", f"driver {epoch} ended with {code}: {self.world.told.get(epoch, '')}")
                elif code in (0, AGAIN) and driver.is_floor_raised and self._is_superseded(epoch):
                    self._fail("fencing-exit", f"driver {epoch} was superseded and ended with {code}, not 75")

    def _is_superseded(self, epoch: int) -> bool:
        return any(other > epoch and one.is_floor_raised for other, one in self._drivers.items())

    def _judge_end(self) -> None:
        """What is wrong with how it came to an end."""
        if self._is_stuck:
            self._fail("liveness", f"after {MOST_CHOICES} switches the session has not come to its end")
        elif not any(code == 0 for _, code in self.ends):
            last = self.ends[-1] if self.ends else (0, 0)
            self._fail("liveness", f"{len(self.ends)} drivers ended, the last one with {last[1]}: {self.world.told.get(last[0], '')}")
        left = [one.name for one in self.world.processes.living if one.role != "worker"]
        if left and not self._is_stuck:
            self._fail("processes", f"{', '.join(left)} outlived the session")

    def _fail(self, oracle: str, detail: str) -> None:
        self.findings.append(OracleVerdict(oracle, Verdict.FAIL, detail))

    # The plan

    def _try_next(self) -> bool:
        """Carry out the plan's next action if that can be done now; whether it was, or was given up."""
        action = self._plan[self._place]
        if action.at and action.at not in self._waiting:
            return self._is_out_of_reach(action)
        process = self._waiting[action.at] if action.at else self.world.find_named(action.who)
        match action.do:
            case "start":
                self._start()
                return self._fired(Fault("", "start", True, True))
            case "end":
                return self._await_end(action, process)
            case "wake" if process is None and action.who in self._frozen:
                return self._fired(Fault("", "wake", True, True, note="its successor had killed it", who=action.who))
            case _ if process is None:
                return self._give_up(action, "there is no such process")
            case "kill":
                return self._kill(action, process)
            case "wait":
                return self._fired(Fault(action.at, "wait", True, True, process.identity.pid))
            case "freeze" if not process.holds:
                process.is_frozen = True
                self._frozen.add(process.name)
                self._forget(process)
            case "wake" if process.is_frozen:
                process.is_frozen = False
            case "release" if process in self._waiting.values():
                self._forget(process)
            case _:
                return self._give_up(action, "it is not in a state in which that can be done in a simulation")
        return self._fired(Fault(action.at, action.do, True, True, process.identity.pid, who=action.who))

    def _await_end(self, action: Action, process: Process | None) -> bool:
        if process is not None:
            return False if self._someone_runs() else self._give_up(action, "it does not end")
        role, _, epoch = action.who.partition("@")
        was_there = role != "driver" or int(epoch) in self._drivers
        return self._fired(Fault("", "end", True, was_there, who=action.who))

    def _is_out_of_reach(self, action: Action) -> bool:
        """Whether the action is given up, as no process comes to its step any more: its driver has ended."""
        role, _, epoch = action.at.partition(":")[0].partition("@")
        if role == "driver" and int(epoch) in self._drivers and not self._drivers[int(epoch)].is_alive:
            return self._give_up(action, "the step was not reached")
        return False

    def _someone_runs(self) -> bool:
        return any(one.can_run for one in self.world.processes.living)

    def _kill(self, action: Action, process: Process) -> bool:
        alive = tuple(Alive(one.identity.pid, "command", "bash") for one in self.world.processes.living if one.has_command)
        self.world.kill(process)
        self._forget(process)
        if process.is_alive:
            return self._give_up(action, "it was not killed")
        return self._fired(Fault(action.at, "kill", True, True, process.identity.pid, 9, alive, who=action.who))

    def _forget(self, process: Process) -> None:
        """The process does not wait at a step any more."""
        for step, one in list(self._waiting.items()):
            if one is process:
                del self._waiting[step]
        process.waits = None

    def _fired(self, fault: Fault) -> bool:
        self.faults.append(fault)
        self._place += 1
        if self._place == len(self._plan) and not self.is_open:
            self._release()
        return True

    def _give_up(self, action: Action, note: str) -> bool:
        """An action that cannot be carried out ends the plan."""
        self.faults.append(Fault(action.at, action.do, action.at in self._waiting, False, note=note, who=action.who))
        self._place = len(self._plan)
        self._release()
        return True

    def _release(self) -> None:
        """The plan is through: what is held or frozen goes on."""
        for process in list(self._waiting.values()):
            self._forget(process)
        for process in self.world.processes.living:
            process.is_frozen = False


@lru_cache(maxsize=64)
def _settings(epoch: int) -> Settings:
    """What a driver's environment says: its epoch."""
    return read_settings({"SESSION_EPOCH": str(epoch)})


def _end_at_once() -> int:
    return 0


def _for_ever() -> bool:
    return False
