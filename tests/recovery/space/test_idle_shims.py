"""A shim between two commands stands in no attempt: the takeover after its driver's death ends it all the same (S8, T3)."""

import os
import signal

import pytest

from recovery.space.marks import KINDS, allows_reuse, find_cgroup_base
from recovery.space.records import REUSED_UNDER
from tests.helpers import is_running, wait_until
from tests.recovery.sessions import Sandbox, bash
from tests.recovery.space.test_kill_shapes import MARKS
from tests.recovery.space.test_left_behind import records


def shim_of(sandbox: Sandbox, call: int) -> int:
    started = [record for record in records(sandbox, "start") if f"/{call}/1/1" in str(record["key"])]
    identity = started[-1]["identity"]
    assert isinstance(identity, dict)
    return int(identity["pid"])


@pytest.mark.parametrize("mark", MARKS)
def test_a_stopped_idle_shim_is_ended_by_the_next_takeover(sandbox: Sandbox, mark: str) -> None:
    """Stopped, it does not see that its driver is gone, and its spawner, below which it was, has ended with that."""
    step = "driver@1:intent.commit.before:2"
    calls = (bash("echo one > a"), bash("echo two > a"))
    driver = sandbox.start("run", sandbox.session(*calls), epoch=1, wait=(step,), SESSION_KILL_MARK=mark)
    sandbox.steps.wait(step, driver)
    shim = shim_of(sandbox, 1)
    if mark in ("cgroup", "environment"):
        os.kill(shim, signal.SIGSTOP)
    sandbox.steps.kill(step, driver)
    helpers = [record["identity"] for record in records(sandbox, "register")]
    wait_until(lambda: not any(is_running(one["pid"]) for one in helpers if isinstance(one, dict)), "the spawner's end")
    assert is_running(shim) or mark not in ("cgroup", "environment")
    second = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark)
    assert second.code == 0, second.err
    assert not is_running(shim)
    assert (sandbox.root / "a").read_text() == "two\n"


@pytest.mark.skipif(not find_cgroup_base(), reason="no writable cgroup v2 here: such a shim is known by its leaf")
def test_a_shim_that_is_stopped_before_its_first_starting_mark_is_ended_by_the_next_takeover(sandbox: Sandbox) -> None:
    """No record names it, and stopped it does not see that its driver is gone."""
    step = "shim.1@1:ledger.start.before:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=(step,), SESSION_KILL_MARK="cgroup")
    shim = sandbox.steps.wait(step, driver)
    os.kill(shim, signal.SIGSTOP)
    driver.kill()
    second = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK="cgroup")
    assert (second.code, sandbox.labels()) == (0, ["void_and_run"]), second.err
    assert not is_running(shim)
    assert (sandbox.root / "a").read_text() == "one\n"


def test_shims_that_are_used_again_are_those_whose_marks_allow_it() -> None:
    assert [kind for kind in KINDS if allows_reuse(f"{kind}:x")] == [kind for kind in KINDS if f"{kind}:".startswith(REUSED_UNDER)]
