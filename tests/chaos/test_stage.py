"""The stage of a trial: what it waits for it names, and nothing is timed. A real driver, stopped at a real step."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import stage as module
from chaos.drivers import Place
from chaos.plan import parse_step
from chaos.processes import kill_child
from chaos.stage import Ended, Reached, Stage, read_roles, read_steps, wait_until, wants_live_command
from recovery.script import BashCall
from tests.chaos.fakes import make_scenario

INTENT = "driver@1:intent.commit.before:1"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The directories of one trial, as the runner makes them."""
    place = Place(tmp_path)
    place.work.mkdir()
    place.outside.mkdir()
    return place


@pytest.fixture
def stage(place: Place) -> Iterator[Stage]:
    with Stage(make_scenario(calls=(BashCall(b"echo one > one.txt"),), gate="gate", ready="ready"), place) as stage:
        yield stage


def test_a_condition_that_never_comes_says_what_was_waited_for() -> None:
    with pytest.raises(TimeoutError, match=r"^waited 0.01 s for the moon to fall$"):
        wait_until(lambda: False, 0.01, "the moon to fall")


def test_a_condition_that_is_there_is_not_waited_for() -> None:
    wait_until(lambda: True, 0.0, "nothing")


def test_a_driver_is_held_at_its_step_killed_there_and_its_death_read(stage: Stage, place: Place) -> None:
    pid = stage.start(1, "exec", frozenset({INTENT}))
    reached = stage.next("driver 1 to reach its step", 1)
    assert isinstance(reached, Reached)
    assert (reached.step, reached.pid) == (INTENT, pid)
    assert not list(place.work.iterdir())
    kill_child(pid)
    assert stage.wait_end("its death", 1) == Ended(1, -signal.SIGKILL)
    assert stage.ends == [Ended(1, -signal.SIGKILL)]
    assert INTENT in read_steps(place)
    assert read_roles(place)[pid] == "driver"


def test_a_released_driver_runs_to_its_end(stage: Stage, place: Place) -> None:
    stage.start(1, "exec", frozenset({INTENT}))
    reached = stage.next("driver 1 to reach its step", 1)
    assert isinstance(reached, Reached)
    reached.connection.sendall(b"\0")
    reached.connection.close()
    assert stage.next("driver 1 to end", 1) == Ended(1, 0)
    assert (place.work / "one.txt").read_text() == "one\n"
    assert INTENT in read_steps(place)


def test_a_driver_that_neither_ends_nor_comes_to_its_step_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.start(1, "exec", frozenset({INTENT}))
    assert isinstance(stage.next("driver 1 to reach its step", 1), Reached)
    monkeypatch.setattr(module, "DRIVER_SECS", 0.05)
    with pytest.raises(TimeoutError, match=r"^waited 0.05 s for driver 1 to end$"):
        stage.next("driver 1 to end", 1)
    with pytest.raises(TimeoutError, match=r"^waited 0.05 s for the end of driver 1$"):
        stage.wait_end("the end of driver 1", 1)


def test_leaving_the_stage_ends_its_drivers(place: Place) -> None:
    with Stage(make_scenario(), place) as stage:
        pid = stage.start(1, "exec", frozenset({INTENT}))
        assert isinstance(stage.next("driver 1 to reach its step", 1), Reached)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_is_waited_for_until_it_says_that_it_is_ready(stage: Stage, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_SECS", 0.01)
    with pytest.raises(TimeoutError, match=r"^waited 0.01 s for the command to make ready$"):
        stage.wait_ready()
    (place.outside / "ready").touch()
    stage.wait_ready()


def test_the_gate_opens_once_and_stays_open(stage: Stage, place: Place) -> None:
    assert not stage.is_gate_open()
    stage.open_gate()
    stage.open_gate()
    assert stage.is_gate_open() and (place.outside / "gate").exists()


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        ("shim.1@1:running:1", True),
        ("shim.1@1:ledger.start.append.after:1", True),
        ("shim.1@1:ended:1", False),
        ("shim.2@1:running:1", False),
        ("driver@1:command.wait:1", True),
        ("driver@1:command.wait:2", False),
        ("driver@1:intent.commit.before:1", False),
    ],
)
def test_kills_meant_for_a_live_command_are_known(step: str, wanted: bool) -> None:
    assert wants_live_command(parse_step(step)) is wanted
