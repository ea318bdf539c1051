"""Simulated processes: who runs, who is killed, and that a killed one never goes on."""

from collections.abc import Callable, Iterator

import pytest

from chaos.sim.process import DIED, Process, Table
from eventlog import steps
from eventlog.errors import CorruptError


class Director:
    """Runs the first that can; leaves a process at each step that `leaves` names."""

    def __init__(self, leaves: frozenset[str] = frozenset()) -> None:
        self.table: Table
        self.leaves = leaves
        self.passed: list[str] = []
        self.then: Callable[[], None] = lambda: None

    def pass_step(self, process: Process, step: str) -> bool:
        self.passed.append(step)
        return step in self.leaves

    def choose(self) -> Process | None:
        self.then()
        return next((one for one in self.table.living if one.can_run), None)


@pytest.fixture
def director() -> Iterator[Director]:
    director = Director()
    director.table = Table(director)
    yield director
    director.table.bury()


def test_each_process_counts_its_own_steps_in_its_own_role(director: Director) -> None:
    def live(role: str, epoch: int) -> int:
        steps.enter(role, epoch)
        director.table.leave()
        steps.reach("here")
        return 0

    director.table.spawn("driver", 1, "", lambda: live("driver", 1))
    director.table.spawn("shim.1", 2, "", lambda: live("shim.1", 2))
    director.table.run()
    assert director.passed == ["driver@1:start:1", "driver@1:here:1", "shim.1@2:start:1", "shim.1@2:here:1"]


def test_a_killed_process_never_goes_on_not_even_into_its_finally(director: Director) -> None:
    did: list[str] = []

    def live() -> int:
        try:
            director.table.leave()
            did.append("went on")
        finally:
            did.append("finally")
        return 0

    def kill() -> None:
        if process.is_alive and did == []:
            did.append("killed")
            director.table.kill(process)

    process = director.table.spawn("driver", 1, "", live)
    director.table.spawn("shim.1", 1, "", lambda: 0)
    director.table.run()
    assert did == ["went on", "finally"]
    did.clear()
    process = director.table.spawn("driver", 2, "", live)
    director.then = lambda: kill() if process.glet else None
    director.table.run()
    assert did == ["killed"] and process.code is None
    director.table.bury()  # what its stack still does is done when nothing listens any more
    assert "went on" not in did


def test_a_process_that_waits_runs_when_its_condition_holds(director: Director) -> None:
    did: list[str] = []

    def wait() -> int:
        director.table.wait(lambda: bool(did))
        did.append("second")
        return 0

    def act() -> int:
        did.append("first")
        return 0

    director.table.spawn("driver", 1, "", wait)
    director.table.spawn("shim.1", 1, "", act)
    director.table.run()
    assert did == ["first", "second"]


def test_a_frozen_process_does_not_run(director: Director) -> None:
    did: list[str] = []
    process = director.table.spawn("driver", 1, "", lambda: did.append("ran") or 0)
    process.is_frozen = True
    director.table.run()
    assert did == [] and process.is_alive
    process.is_frozen = False
    director.table.run()
    assert did == ["ran"] and not process.is_alive


def test_a_process_dies_of_an_error_of_the_project_and_the_others_go_on(director: Director) -> None:
    """A bug of the engine may have a worker meet one: what it leaves is judged. Anything else is the harness's own trouble."""

    def meet(error: Exception) -> int:
        raise error

    dead = director.table.spawn("worker", 1, "", lambda: meet(CorruptError("found so")))
    other = director.table.spawn("driver", 2, "", lambda: 0)
    director.table.run()
    assert (dead.code, dead.is_alive, other.code, director.table.living) == (DIED, False, 0, [])
    director.table.spawn("worker", 2, "", lambda: meet(ValueError("of nobody")))
    with pytest.raises(ValueError, match="of nobody"):
        director.table.run()
