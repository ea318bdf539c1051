"""`recovery plan` does not promise what the next drive refuses: checkpoints, limits, the redriver's record, a script that asks."""

import json
import os
import shutil
from typing import Any

from eventlog import events
from recovery.redrive.record import record_path
from recovery.script import TOOL_RUN
from tests.crash.test_checkpoint_mode import CALLS, begun, spoil_manifest
from tests.crash.test_lost_ledger import cut_call, exchange
from tests.recovery.sessions import Sandbox, bash


def plan(sandbox: Sandbox, expect: int, **environment: Any) -> dict[str, Any]:
    done = sandbox.run("plan", sandbox.state, "--json", **environment)
    assert done.code == expect, done.out + done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def refused(sandbox: Sandbox) -> str:
    """What the next drive says, which is refused."""
    return sandbox.drive(expect=78).err.splitlines()[-1].removeprefix("recovery: ")


def cut(sandbox: Sandbox, **settings: Any) -> None:
    session = sandbox.session(bash("echo one > a"), bash("echo two > b"), bash("echo three > c"), **settings)
    driver = sandbox.start("run", session, epoch=1, wait=("shim.2@1:ended:1",))
    sandbox.steps.kill("shim.2@1:ended:1", driver)
    driver.end()


def test_a_missing_store_is_named_and_one_that_was_moved_is_looked_at(sandbox: Sandbox) -> None:
    cut(sandbox, mode="checkpoint")
    moved = sandbox.base / "moved"
    (sandbox.state / "checkpoints").rename(moved)
    found = plan(sandbox, 2)
    assert (found["label"], found["then"], found["commands"]) == ("restore_and_interrupt", "the drive stops before anything is done", [])
    assert found["stops"] == [refused(sandbox)] and "SESSION_CHECKPOINTS" in found["stops"][0]
    assert plan(sandbox, 2, SESSION_CHECKPOINTS=str(moved))["stops"] == []


def test_a_damaged_record_of_the_redriver_is_named(sandbox: Sandbox) -> None:
    assert sandbox.run("run", sandbox.session(bash("true"), bash("true", approve=True))).code == 78
    assert plan(sandbox, 0)["stops"] == []
    with open(record_path(str(sandbox.state)), "wb") as file:
        file.write(b"x")
    assert plan(sandbox, 2)["stops"] == [refused(sandbox)]


def test_a_workspace_above_a_limit_is_named_and_not_read(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("true"), bash("true", approve=True), limits={"paths": 5}))
    for number in range(6):
        (sandbox.root / f"by hand {number}").touch()
    found = plan(sandbox, 2)
    assert (found["label"], found["stops"]) == (None, [refused(sandbox)]) and "above the limit of 5" in found["stops"][0]


def test_where_the_script_asks_the_plan_says_that_the_drive_stops_and_how_it_goes_on(sandbox: Sandbox) -> None:
    cut(sandbox)
    found = plan(sandbox, 2)
    assert found["then"] == "then a person is asked about interrupted call 2, and the drive stops with exit 78"
    assert f"`recovery drive {sandbox.state} --on-interrupted reissue` runs it again" in found["commands"]
    assert "was interrupted" in refused(sandbox)
    assert plan(sandbox, 0)["then"] == found["then"]
    said = sandbox.run("plan", sandbox.state).out
    assert "goes on\n" not in said and "STATE_DIR" not in said


def test_a_call_that_will_be_adopted_is_followed_by_the_question_about_the_next(sandbox: Sandbox) -> None:
    step = "driver@1:outcome.commit.before:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a"), bash("true", approve=True)), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    found = plan(sandbox, 2)
    assert found["then"] == "then a person is asked whether call 2 of 2 of the script may run, and the drive stops with exit 78"
    assert f"`recovery answer {sandbox.state} --approve`" in refused(sandbox).replace("STATE_DIR", str(sandbox.state))
    assert f"`recovery answer {sandbox.state}`" in plan(sandbox, 0)["then"]


def test_what_another_space_s_ledger_says_is_no_reason(sandbox: Sandbox) -> None:
    """Its log is another one, of which this log has nothing: the decision is made without it, and so is what is said."""
    cut_call(sandbox)
    exchange(sandbox)
    found = plan(sandbox, 2)
    assert (found["label"], found["facts"]["log"]) == ("ledger_exchanged", "abreast"), found["why"]
    assert not [clause for clause in found["why"] if "has seen" in clause and "the log has all" not in clause]


def test_a_workspace_that_cannot_be_read_is_exit_1_and_an_object_all_the_same(sandbox: Sandbox) -> None:
    if os.geteuid() == 0:
        sandbox.user = 65534
        for path in (sandbox.base, sandbox.root):
            os.chown(path, sandbox.user, sandbox.user)
    run = "mkdir d; echo x > d/x"
    assert sandbox.run("run", sandbox.session(bash(run), bash("true", approve=True))).code == 78
    (sandbox.root / "d").chmod(0)
    found = plan(sandbox, 1)
    assert found["label"] is None and len(found["stops"]) == 1 and "d" in found["stops"][0]
    assert sandbox.run("drive", sandbox.state).code == 1


def test_an_older_checkpoint_that_will_stand_in_is_named_with_the_calls_that_it_gives_up(sandbox: Sandbox) -> None:
    begun(sandbox, *CALLS, lost_work_bound=3)
    shutil.rmtree(sandbox.root)
    spoil_manifest(sandbox, -1)
    found = plan(sandbox, 2)
    assert found["label"] == "root_lost" and found["then"].startswith("then a person is asked about undone call 3")
    [step] = [step for step in found["steps"] if "stands in for the newest" in step]
    refused(sandbox)
    undone = [event.call for event in sandbox.of_kind(events.CallUndone)]  # how many had no checkpoint depends on what one costs
    assert 3 in undone and ("is damaged" in step or "no checkpoint was taken" in step)
    assert step.endswith(f"the finished calls {', '.join(map(str, undone))} are given up, and undone")


def test_a_cut_call_that_only_its_program_can_run_again_is_named(sandbox: Sandbox) -> None:
    """The restore is done, and then the drive stops: so says the plan, and so it is."""
    tool = {"TOOL_PYTHON": "/bin/true", "TOOL_RUNNER": "runner"}
    session = sandbox.session(bash(TOOL_RUN + "module:function", policy="after-restore"))
    driver = sandbox.start("run", session, epoch=1, wait=("shim.1@1:ended:1",), **tool)
    sandbox.steps.kill("shim.1@1:ended:1", driver)
    driver.end()
    why = "call 1 is a Python tool of the program that opened this session; start that program again, and it goes on from here"
    found = plan(sandbox, 2)
    assert found["label"] == "restore_and_rerun" and found["then"] == f"then the drive stops with exit 78: {why}"
    assert why not in plan(sandbox, 2, **tool)["then"]
    assert refused(sandbox) == why and sandbox.labels() == ["restore_and_rerun", "rerun_restored"]


def test_a_shell_that_is_not_there_is_named(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one > a", policy="after-restore"))
    driver = sandbox.start("run", session, epoch=1, wait=("shim.1@1:ended:1",))
    sandbox.steps.kill("shim.1@1:ended:1", driver)
    driver.end()
    line = "call 1: there is no `bash` in PATH: it cannot be started, and its exit will say so"
    assert line in plan(sandbox, 2, PATH=str(sandbox.base))["steps"] and line not in plan(sandbox, 2)["steps"]
    ended = sandbox.run("drive", sandbox.state, PATH=str(sandbox.base))
    assert ended.code == 0 and [(one.ended, one.exit.kind) for one in sandbox.of_kind(events.CallSettled)] == [("finished", "start_failed")]


def test_a_space_that_is_not_to_be_had_is_named(sandbox: Sandbox) -> None:
    begun(sandbox, *CALLS, until="driver@1:intent.commit.before:2")
    for said in ({}, {"SESSION_SPACE": "namespaced"}):
        found = plan(sandbox, 2 if said else 0, PATH=str(sandbox.base), **said)
        assert ["needs bubblewrap, and there is no `bwrap` in PATH" in stop for stop in found["stops"]] == [True] * len(said)
    refusal = sandbox.run("drive", sandbox.state, PATH=str(sandbox.base), SESSION_SPACE="namespaced")
    assert refusal.code == 78 and "needs bubblewrap" in refusal.err
