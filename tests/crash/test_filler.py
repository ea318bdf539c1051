"""A restore large enough for two processes, in a real session: whoever comes next ends the second one before it touches the workspace."""

import shutil
from pathlib import Path

import pytest

from eventlog import events
from tests.crash.person import begun
from tests.helpers import is_running, kill_process, wait_until
from tests.recovery.sessions import Sandbox, bash

FILES = 300
CALL = bash(f"mkdir -p d/e; for i in $(seq {FILES}); do echo $i > d/e/$i; done")
STEP = "filler@2:restore.place.attributes.before:20"


def begin_rebuild(sandbox: Sandbox) -> None:
    """A session of one finished call, whose workspace is lost."""
    begun(sandbox, (CALL,))
    started = sandbox.of_kind(events.DriverStarted)[0]
    if started.kill_mark not in ("cgroup", "cgroup1"):
        pytest.skip(f"under the kill mark {started.kill_mark} a file worker works alone: it is in no leaf")
    shutil.rmtree(sandbox.root)


def check_whole(sandbox: Sandbox) -> None:
    assert {path.name: path.read_text() for path in Path(sandbox.root, "d/e").iterdir()} == {str(i): f"{i}\n" for i in range(1, FILES + 1)}
    assert len(sandbox.of_kind(events.RestoreFinished)) == 1


@pytest.mark.parametrize("killed", ["filler", "worker", "driver", "driver and worker"])
def test_rule_I7_a_rebuild_by_two_processes_that_is_killed_is_completed(sandbox: Sandbox, killed: str) -> None:
    begin_rebuild(sandbox)
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(STEP,))
    filler = sandbox.steps.wait(STEP, driver)
    worker = int(Path(f"/proc/{filler}/stat").read_text().rpartition(")")[2].split()[1])
    if killed == "filler":
        kill_process(filler)
    if "worker" in killed:
        kill_process(worker)
        wait_until(lambda: not is_running(filler), "the end of the filler whose worker was killed")
    if "driver" in killed:
        driver.kill()
    else:
        assert driver.end() == 1, driver.err
    if killed == "driver":
        assert is_running(filler) and is_running(worker), "both stand where they were: who comes next must end them"
    assert not (sandbox.root / "d").exists(), "nothing has its name before both are done"
    sandbox.drive(epoch=3)
    assert not is_running(filler) and not is_running(worker)
    check_whole(sandbox)


def test_a_worker_in_no_leaf_works_alone(sandbox: Sandbox) -> None:
    """Nobody could prove the death of what it forks (I7)."""
    trace = sandbox.base / "trace"
    step = "driver@1:finish.commit.before:1"
    first = sandbox.start("run", sandbox.session(CALL), epoch=1, wait=(step,), SESSION_KILL_MARK="environment")
    sandbox.steps.kill(step, first)
    first.end()
    shutil.rmtree(sandbox.root)
    driver = sandbox.run("drive", sandbox.state, epoch=2, SESSION_KILL_MARK="environment", CRASHWORTHY_STEP_TRACE=str(trace))
    assert driver.code == 0, driver.err
    roles = {line.partition("@")[0] for line in trace.read_text().splitlines()}
    assert "worker" in roles and "filler" not in roles
    check_whole(sandbox)
