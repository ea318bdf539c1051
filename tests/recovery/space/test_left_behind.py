"""Rule S11: what a command leaves running is killed, kept or held against it, as the session or the environment says."""

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from eventlog import events
from eventlog.errors import MisuseError
from eventlog.ports import FakeHost
from recovery.facts import BootFact
from recovery.gather import _boot_fact
from recovery.left_behind import is_stale
from recovery.opening import read_log
from recovery.settings import read_settings
from tests.helpers import is_running, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash
from tests.recovery.space.test_kill_shapes import MARKS

STRONG = [mark for mark in MARKS if mark.values[0] != "environment"]


def leaving(sandbox: Sandbox) -> str:
    """A command that leaves a sleeper of its own session behind, its pid (as seen outside) to be found by its argument."""
    return f"(setsid sleep 300.{id(sandbox)} < /dev/null > /dev/null 2>&1 &); echo done"


def sleepers(sandbox: Sandbox) -> list[int]:
    wanted = f"300.{id(sandbox)}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                if (place / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", wanted] and is_running(int(place.name)):
                    found.append(int(place.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def records(sandbox: Sandbox, op: str) -> list[dict[str, object]]:
    lines = (line.partition(" ")[2] for line in sandbox.ledger_path.read_text().splitlines())
    return [record for record in map(json.loads, lines) if record["op"] == op]


def hold_second_call(sandbox: Sandbox, mark: str, **session: str) -> Driver:
    """The first call left a sleeper behind and is settled; the driver is held before the second."""
    step = "driver@1:intent.commit.before:2"
    calls = (bash(leaving(sandbox)), bash("echo two > a"))
    driver = sandbox.start("run", sandbox.session(*calls, **session), epoch=1, wait=(step,), SESSION_KILL_MARK=mark)
    sandbox.steps.wait(step, driver)
    return driver


@pytest.mark.parametrize("mark", STRONG)
def test_rule_S11_what_is_kept_lives_on_and_ends_before_the_session_does(sandbox: Sandbox, mark: str) -> None:
    driver = hold_second_call(sandbox, mark, left_behind="keep")
    wait_until(lambda: len(sleepers(sandbox)) == 1, "what was left behind: it may still be on its way to be a sleeper")
    assert [event.reason for event in sandbox.of_kind(events.CallSettled)] == ["1 processes that it left running were kept"]
    sandbox.steps.release("driver@1:intent.commit.before:2")
    assert driver.end() == 0, driver.err
    assert sleepers(sandbox) == []
    assert "what 1 commands had left running was ended: the session ends" in driver.err
    assert [record["left"] for record in records(sandbox, "exit") if "/d2/" not in str(record["key"])] == [1, 0]


@pytest.mark.parametrize("mark", STRONG)
def test_rule_T2_what_a_settled_call_kept_is_condemned_by_the_next_driver(sandbox: Sandbox, mark: str) -> None:
    """Its exit stays clean: it was recorded before."""
    driver = hold_second_call(sandbox, mark, left_behind="keep")
    wait_until(lambda: len(sleepers(sandbox)) == 1, "what was left behind: it may still be on its way to be a sleeper")
    driver.kill()
    held = sandbox.start("drive", sandbox.state, epoch=2, wait=("driver@2:takeover.killed:1",), SESSION_KILL_MARK=mark)
    sandbox.steps.wait("driver@2:takeover.killed:1", held)
    assert sleepers(sandbox) == []
    sandbox.steps.release("driver@2:takeover.killed:1")
    assert held.end() == 0, held.err
    assert [(call, ended) for call, _, ended, _ in sandbox.settled()] == [(1, "finished"), (2, "finished")]


def test_rule_S11_what_is_kept_of_an_open_call_is_condemned_and_its_exit_adopted(sandbox: Sandbox) -> None:
    step = "driver@1:outcome.commit.before:1"
    mark = next((mark.values[0] for mark in STRONG if not mark.marks[0].args[0]), "")
    if not mark:
        pytest.skip("only the environment mark is to be had here")
    session = sandbox.session(bash(leaving(sandbox)), left_behind="keep")
    driver = sandbox.start("run", session, epoch=1, wait=(step,), SESSION_KILL_MARK=mark)
    sandbox.steps.kill(step, driver)
    wait_until(lambda: len(sleepers(sandbox)) == 1, "what was left behind: it may still be on its way to be a sleeper")
    assert sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark).code == 0
    assert (sleepers(sandbox), sandbox.labels()) == ([], ["adopt_exit"])


def test_rule_S11_nothing_can_be_kept_under_the_environment_mark(sandbox: Sandbox) -> None:
    """Refused before anything is made, whether file or environment ask for it; what the environment says comes first."""
    session = sandbox.session(bash("true"), left_behind="keep")
    refused = sandbox.run("run", session, SESSION_KILL_MARK="environment")
    assert refused.code == 78
    assert "left_behind = keep needs a stronger kill mark than environment" in refused.sentence()
    assert not sandbox.state.exists()
    assert sandbox.run("run", session, SESSION_KILL_MARK="environment", SESSION_LEFT_BEHIND="kill").code == 0


@pytest.mark.parametrize("mark", MARKS)
def test_rule_S11_what_is_held_against_a_call_stands_in_its_outcome_and_stops_the_drive(sandbox: Sandbox, mark: str) -> None:
    session = sandbox.session(bash(leaving(sandbox)), bash("echo two > a"), left_behind="fail")
    driver = sandbox.run("run", session, SESSION_KILL_MARK=mark)
    assert driver.code == 78
    told = re.search(r"call 1 left 1 processes running, which were ended \(left_behind = fail\): (.*); its outcome is recorded", driver.err)
    assert told is not None, driver.err
    assert re.fullmatch(r"ended before they could be named|[0-9]+ \((bash|setsid|sleep)\)", told[1])
    assert told[1] != "ended before they could be named" or mark == "pid-namespace"  # whose end takes all else with it
    assert sleepers(sandbox) == []
    assert [(event.exit.code, event.reason) for event in sandbox.of_kind(events.CallSettled)] == [
        (0, "left 1 processes running, which were ended")
    ]
    second = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark)
    assert (second.code, (sandbox.root / "a").read_text()) == (0, "two\n")


def test_what_is_said_of_what_is_left_behind_must_be_known(sandbox: Sandbox) -> None:
    with pytest.raises(MisuseError, match="SESSION_LEFT_BEHIND='maybe' is none of kill, keep, fail"):
        read_settings({"SESSION_LEFT_BEHIND": "maybe"})
    refused = sandbox.run("run", sandbox.session(bash("true"), left_behind="maybe"))
    assert (refused.code, "unknown left_behind 'maybe'; use kill, keep, fail" in refused.sentence()) == (78, True)


def test_a_call_says_more_than_its_session(sandbox: Sandbox) -> None:
    session = sandbox.session(bash(leaving(sandbox), left_behind="kill"), left_behind="fail")
    assert sandbox.run("run", session).code == 0
    assert sleepers(sandbox) == []


def test_rule_S5_a_shim_that_is_silent_is_treated_as_gone(sandbox: Sandbox) -> None:
    """Held, not stopped: it runs and does not answer. The driver ends it and halts (S7)."""
    step, waiting = "shim.1@1:sweep.before:1", "driver@1:command.wait:1"
    session = sandbox.session(bash("echo one > a"))
    driver = sandbox.start("run", session, epoch=1, wait=(step, waiting), SESSION_SILENT_SECS="0.5")
    sandbox.steps.wait(waiting, driver)
    pid = sandbox.steps.wait(step, driver)
    sandbox.steps.release(waiting)  # only now is the shim asked: one that is slow on its way there is not taken for silent
    assert driver.end() == 1
    assert f"the shim {pid} has not answered for 0.5 s and is ended" in driver.err
    wait_until(lambda: not is_running(pid), "the end of the shim")


def writing(sandbox: Sandbox, name: str) -> str:
    """`leaving`, with `name` of the workspace open for writing."""
    script = f"exec 3>>{name}; echo up >&3; exec sleep 300.{id(sandbox)}"
    return f"(setsid bash -c '{script}' < /dev/null > /dev/null 2>&1 &); until [ -s {name} ]; do sleep 0.01; done"


@pytest.mark.parametrize("mark", STRONG)
def test_rule_C8_what_a_kept_process_writes_makes_the_image_stale_and_stops_the_next_call(sandbox: Sandbox, mark: str) -> None:
    calls = (bash("echo before > a"), bash(writing(sandbox, "log")), bash("echo two > a"))
    driver = sandbox.run("run", sandbox.session(*calls, left_behind="keep"), SESSION_KILL_MARK=mark)
    assert driver.code == 78, driver.err
    wait_until(lambda: len(sleepers(sandbox)) == 1, "what was left behind: it may still be on its way to be a sleeper")
    assert "call 3 cannot begin: 1 files of the image are unstable" in driver.err and "the image after call 2 is stale" in driver.err
    assert [event.untracked for event in sandbox.of_kind(events.CallSettled)] == [[], [events.Untracked("log", "unstable")]]
    assert len(sandbox.of_kind(events.AttemptStarted)) == 2
    kinds = (events.CallSettled, events.AttemptStarted)
    stale, sure = (max(one.seq for one in sandbox.events() if isinstance(one.event, kind)) for kind in kinds)
    aim = ("--workspace", sandbox.root, "--dry-run")
    refused = sandbox.run("restore", sandbox.state, "--at", str(stale), *aim)
    assert refused.code == 78 and f"--at {stale}: the image there is stale" in refused.sentence()
    assert sandbox.run("restore", sandbox.state, "--at", str(sure), *aim).code == 2
    assert sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark).code == 0
    assert (sleepers(sandbox), (sandbox.root / "a").read_text(), (sandbox.root / "log").read_text()) == ([], "two\n", "up\n")
    assert [(event.call, event.untracked) for event in sandbox.of_kind(events.CallSettled)][2:] == [(3, [])]
    assert [event.untracked for event in sandbox.of_kind(events.WorkspaceObserved)] == [[]]


def test_rule_C8_a_lost_workspace_is_not_rebuilt_to_a_stale_image_unasked(sandbox: Sandbox) -> None:
    mark = next((mark.values[0] for mark in STRONG if not mark.marks[0].args[0]), "")
    if not mark:
        pytest.skip("only the environment mark is to be had here")
    session = sandbox.session(bash(writing(sandbox, "log")), bash("true"), left_behind="keep")
    assert sandbox.run("run", session, SESSION_KILL_MARK=mark).code == 78
    shutil.rmtree(sandbox.root)
    plan = sandbox.run("plan", sandbox.state)
    assert "then a person is needed" in plan.out and f"`recovery settle {sandbox.state} --rebuild`" in plan.out
    assert "recovery apply" not in plan.out and "recovery drive" not in plan.out, "what it would refuse is not promised"
    refused = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark)
    last = refused.err.splitlines()[-1]
    assert refused.code == 78 and "its newest image is stale" in last and f"recovery settle {sandbox.state} --rebuild" in last
    assert not sandbox.root.exists() and not sandbox.labels()
    assert sandbox.run("settle", sandbox.state, "--rebuild", SESSION_KILL_MARK=mark).code == 0
    assert (sandbox.root / "log").read_text() == "up\n" and sandbox.labels() == ["rebuild_by_person"]


def test_rule_C8_a_stale_image_is_not_restored_after_a_restart_of_the_machine(sandbox: Sandbox) -> None:
    mark = next((mark.values[0] for mark in STRONG if not mark.marks[0].args[0]), "")
    if not mark:
        pytest.skip("only the environment mark is to be had here")
    session = sandbox.session(bash(writing(sandbox, "log")), bash("true"), left_behind="keep")
    assert sandbox.run("run", session, SESSION_KILL_MARK=mark).code == 78
    state = read_log(str(sandbox.state))
    assert is_stale(state.untracked)
    assert _boot_fact(state, None, None, FakeHost(boot="another")) is BootFact.SYNCED
    assert _boot_fact(msgspec.structs.replace(state, untracked=()), None, None, FakeHost(boot="another")) is BootFact.OTHER
    assert sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark).code == 0
