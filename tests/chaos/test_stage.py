"""The stage of a trial: what it waits for it names, and nothing is timed. A real driver, stopped at a real step."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import stage as module
from chaos.drivers import Place
from chaos.processes import holds_write_lock, kill_child
from chaos.stage import Ended, Reached, Stage, find_process, read_roles, read_steps, trace_size, wait_until, wants_live_command
from chaos.step import holds_lock, parse_step
from recovery.script import BashCall, WriteCall
from tests.chaos.fakes import make_scenario

INTENT = "driver@1:intent.commit.before:1"
RUNNING = "shim.1@1:running:1"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The directories of one trial, as the runner makes them."""
    place = Place(tmp_path)
    place.work.mkdir()
    place.outside.mkdir()
    return place


@pytest.fixture
def stage(place: Place) -> Iterator[Stage]:
    with Stage(make_scenario(calls=(BashCall(b"echo one > one.txt"),), gate="gate", ready="ready"), place, frozenset({INTENT})) as stage:
        yield stage


def look_until(stage: Stage, happened: Callable[[], object], what: str) -> None:
    """Look until it happened; TimeoutError names `what`."""
    deadline = time.monotonic() + module.DRIVER_SECS
    while not happened():
        stage.look(what, deadline)


def let_go(reached: Reached) -> None:
    """Let a process that waits at a step go on."""
    reached.connection.sendall(b"\0")
    reached.connection.close()


def test_a_condition_that_never_comes_says_what_was_waited_for() -> None:
    with pytest.raises(TimeoutError, match=r"^waited 0.01 s for the moon to fall$"):
        wait_until(lambda: False, 0.01, "the moon to fall")


def test_a_condition_that_is_there_is_not_waited_for() -> None:
    wait_until(lambda: True, 0.0, "nothing")


def test_a_driver_is_held_at_its_step_killed_there_and_its_death_read(stage: Stage, place: Place) -> None:
    pid = stage.start(1, "exec")
    look_until(stage, lambda: stage.waiting, "driver 1 to reach its step")
    assert stage.running() == {1: pid}
    reached = stage.deal_with(INTENT)
    assert (reached.step, reached.pid) == (INTENT, pid)
    assert (stage.waiting, stage.armed) == ({}, set())
    assert not list(place.work.iterdir())
    kill_child(pid)
    assert stage.wait_end(1, "its death") == Ended(1, -signal.SIGKILL)
    assert stage.ends == [Ended(1, -signal.SIGKILL)]
    assert stage.running() == {}
    assert INTENT in read_steps(place)
    assert read_roles(place)[pid] == "driver"
    assert find_process(place, "driver@1") == pid
    assert find_process(place, "driver@2") == 0
    reached.connection.close()


def test_a_released_driver_runs_to_its_end(stage: Stage, place: Place) -> None:
    stage.start(1, "exec")
    look_until(stage, lambda: stage.waiting, "driver 1 to reach its step")
    size = trace_size(place)
    let_go(stage.deal_with(INTENT))
    assert stage.wait_end(1, "driver 1 to end") == Ended(1, 0)
    assert (place.work / "one.txt").read_text() == "one\n"
    steps = read_steps(place)
    later = read_steps(place, size)
    assert steps.index(INTENT) == steps.index(later[0]) - 1
    assert steps[-len(later) :] == later


def test_the_end_of_a_driver_that_a_newer_one_overtook_says_so(stage: Stage) -> None:
    old = stage.start(1, "exec")
    look_until(stage, lambda: stage.waiting, "driver 1 to reach its step")
    new = stage.start(2, "exec")
    assert stage.running() == {1: old, 2: new}
    assert stage.newest == 2
    assert stage.wait_end(2, "driver 2 to end") == Ended(2, 0)
    let_go(stage.deal_with(INTENT))
    assert stage.wait_end(1, "driver 1 to end") == Ended(1, 75, superseded=True)


def test_several_processes_wait_at_their_steps_at_a_time(place: Place) -> None:
    armed = frozenset({RUNNING, "driver@1:command.wait:1"})
    with Stage(make_scenario(), place, armed) as stage:
        driver = stage.start(1, "exec")
        look_until(stage, lambda: len(stage.waiting) == 2, "both to reach their steps")
        assert {step: reached.pid == driver for step, reached in stage.waiting.items()} == {
            RUNNING: False,
            "driver@1:command.wait:1": True,
        }


def test_a_look_that_waits_for_nothing_in_particular_comes_back(stage: Stage) -> None:
    stage.look("nothing", time.monotonic() + 30, until=time.monotonic())
    with pytest.raises(TimeoutError, match=r"^waited 60 s for the moon to fall$"):
        stage.look("the moon to fall", time.monotonic(), until=time.monotonic() + 30)


def test_a_driver_that_neither_ends_nor_comes_to_its_step_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.start(1, "exec")
    look_until(stage, lambda: stage.waiting, "driver 1 to reach its step")
    monkeypatch.setattr(module, "DRIVER_SECS", 0.05)
    with pytest.raises(TimeoutError, match=r"^waited 0.05 s for the end of driver 1$"):
        stage.wait_end(1, "the end of driver 1")
    assert stage.ends == []


def test_leaving_the_stage_ends_its_drivers(place: Place) -> None:
    with Stage(make_scenario(), place, frozenset({INTENT})) as stage:
        pid = stage.start(1, "exec")
        look_until(stage, lambda: stage.waiting, "driver 1 to reach its step")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_is_waited_for_until_it_says_that_it_is_ready(stage: Stage, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_SECS", 0.01)
    with pytest.raises(TimeoutError, match=r"^waited 0.01 s for the command to make ready$"):
        stage.wait_ready(lambda: False)
    (place.outside / "ready").touch()
    stage.wait_ready(lambda: False)


def test_the_gate_opens_once_and_stays_open(stage: Stage, place: Place) -> None:
    assert not stage.is_gate_open()
    stage.open_gate()
    stage.open_gate()
    assert stage.is_gate_open() and (place.outside / "gate").exists()


def test_where_a_lock_is_held_is_what_the_kernel_says_at_every_step(tmp_path: Path) -> None:
    """A session twice: once to learn its steps, once held at each of them."""
    scenario = make_scenario(calls=(WriteCall(b"a.txt", b"a"), BashCall(b"echo b > b.txt")))
    places = [Place(tmp_path / name) for name in ("once", "held")]
    for place in places:
        for path in (place.directory, place.work, place.outside):
            path.mkdir()
    with Stage(scenario, places[0], frozenset()) as stage:
        stage.start(1, "exec")
        assert stage.wait_end(1, "driver 1 to end") == Ended(1, 0)
    claimed: dict[str, bool] = {}
    found: dict[str, bool] = {}
    with Stage(scenario, places[1], frozenset(read_steps(places[0]))) as stage:
        stage.start(1, "exec")
        while stage.running():
            look_until(stage, lambda: stage.waiting or not stage.running(), "a step or the end of driver 1")
            for step, reached in list(stage.waiting.items()):
                claimed[step], found[step] = holds_lock(parse_step(step)), holds_write_lock(reached.pid)
                let_go(stage.deal_with(step))
        assert stage.ends == [Ended(1, 0)]
    assert found == claimed
    assert len(found) > 100 and 10 < sum(found.values()) < len(found)


def announce(place: Place, step: str) -> socket.socket:
    """A process comes to a step: this one."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(place.socket))
    connection.sendall(f"{step} {os.getpid()}\n".encode())
    return connection


@pytest.mark.parametrize(("armed", "is_open"), [("shim.1@1:ended:1", True), ("driver@2:decided:1", True), ("shim.1@1:running:1", False)])
def test_the_gate_stays_shut_while_a_fault_still_wants_a_live_command(armed: str, is_open: bool, place: Place) -> None:
    with Stage(make_scenario(gate="gate", ready="ready"), place, frozenset({armed, INTENT})) as stage:
        with announce(place, "driver@1:command.wait:1"), announce(place, INTENT):
            look_until(stage, lambda: stage.waiting, "the second announcement")
        assert stage.is_gate_open() is is_open


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
