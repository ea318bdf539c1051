"""The spawner may die at any moment: it takes no shim and no record with it (S7), and each command still runs exactly once."""

import os
from pathlib import Path

import pytest

from eventlog import events
from recovery.space.marks import find_cgroup_base
from tests.helpers import is_running, kill_process, read_contents, wait_until
from tests.recovery.sessions import Sandbox, bash, sandbox_directory, write

MARKS = [pytest.param("cgroup", marks=pytest.mark.skipif(not find_cgroup_base(), reason="no writable cgroup v2 here")), "environment"]
WITNESSED = 'echo "start $CALL_KEY" >> "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo "end $CALL_KEY" >> "$WITNESS"'
CALLS = (write("a", "one"), bash(f"{WITNESSED}; echo two > b"), bash("cat a b > c"))


def steps_of_spawner(mark: str) -> list[str]:
    """Every step that the spawner passes in a session that nobody disturbs."""
    with sandbox_directory() as base:
        sandbox = Sandbox(base)
        try:
            sandbox.open_gate()
            trace = Path(base, "trace")
            driver = sandbox.run("run", sandbox.session(*CALLS), epoch=1, SESSION_KILL_MARK=mark, CRASHWORTHY_STEP_TRACE=str(trace))
            assert driver.code == 0, driver.err
            return [line.split()[0] for line in trace.read_text().splitlines() if line.startswith("spawner@1:")]
        finally:
            sandbox.close()


def check_end(sandbox: Sandbox) -> None:
    assert read_contents(sandbox.root) == {"a": b"one", "b": b"two\n", "c": b"onetwo\n"}
    assert sorted(line.split()[0] for line in sandbox.witnessed()) == ["end", "start"], "the command ran once, whole"
    assert [ended for _, _, ended, _ in sandbox.settled()] == ["finished"] * 3


@pytest.mark.parametrize("mark", MARKS)
def test_rule_S7_a_spawner_killed_at_any_of_its_steps_loses_nothing(mark: str) -> None:
    """A driver that needs it halts with exit 1; the next one goes on from what stands."""
    steps = steps_of_spawner(mark)
    assert len(steps) >= 8 and any(":ledger.register." in step for step in steps) and any(":spawn.after:" in step for step in steps)
    for step in steps:
        with sandbox_directory() as base:
            sandbox = Sandbox(base)
            try:
                sandbox.open_gate()
                driver = sandbox.start("run", sandbox.session(*CALLS), epoch=1, wait=(step,), SESSION_KILL_MARK=mark)
                sandbox.steps.kill(step, driver)
                assert driver.end() in (0, 1), f"{step}: {driver.err}"
                if driver.code == 1:
                    assert "spawner" in driver.err and "drive again" in driver.err, f"{step}: {driver.err}"
                    second = sandbox.run("drive", sandbox.state, epoch=2, SESSION_KILL_MARK=mark)
                    assert second.code == 0, f"{step}: {second.err}"
                check_end(sandbox)
            finally:
                sandbox.close()


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("first", ["spawner", "driver"])
def test_rule_S5_a_command_outlives_its_spawner_and_its_driver_and_is_reattached(sandbox: Sandbox, mark: str, first: str) -> None:
    """Both killed while the command runs, in either order: the shim goes on, and the next driver reattaches to it."""
    driver = sandbox.start("run", sandbox.session(*CALLS), epoch=1, SESSION_KILL_MARK=mark)
    wait_until(sandbox.witnessed, "the command's start")
    spawner = next(one.registered.identity.pid for one in sandbox.ledger().helpers.values() if one.registered.role == "spawner")
    if first == "spawner":
        kill_process(spawner)
        driver.kill()
    else:
        os.kill(driver.pid, 19)  # SIGSTOP: the spawner lives until it is killed
        kill_process(spawner)
        driver.kill()
    second = sandbox.start("drive", sandbox.state, epoch=2, SESSION_KILL_MARK=mark)
    wait_until(lambda: sandbox.labels() == ["reattach"], "the decision to reattach")
    sandbox.open_gate()
    assert second.end() == 0, second.err
    check_end(sandbox)


def test_a_driver_whose_spawner_is_gone_goes_on_while_it_needs_no_process(sandbox: Sandbox) -> None:
    """Its shim is idle after the first command and owns the next one."""
    driver = sandbox.start("run", sandbox.session(bash(WITNESSED), bash("echo on > on")), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    spawner = next(one.registered.identity.pid for one in sandbox.ledger().helpers.values() if one.registered.role == "spawner")
    kill_process(spawner)
    sandbox.open_gate()
    assert driver.end() == 0, driver.err
    assert [event.exit.code for event in sandbox.of_kind(events.CallSettled)] == [0, 0] and not is_running(spawner)
