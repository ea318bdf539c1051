"""`recovery release` (S1): a parked session's workspace is freed, a living one's never, and a released one claims it again."""

import json
import os
import signal
from pathlib import Path

import pytest

from eventlog import events
from recovery.session import open_session
from tests.helpers import is_running, kill_process, read_contents, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash

OUTCOME = "driver@1:outcome.commit.before:1"


def records(sandbox: Sandbox) -> list[dict[str, str]]:
    return [json.loads(path.read_text()) for path in sandbox.holders.glob("*.json")]


def park(sandbox: Sandbox) -> None:
    """A session whose driver was killed before its second call's outcome, with nothing of it left alive."""
    step = "driver@1:outcome.commit.before:2"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a"), bash("echo two > b"), bash("cat a b")), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    for helper in sandbox.ledger().helpers.values():
        wait_until(lambda pid=helper.registered.identity.pid: not is_running(pid), "the driver's helpers to end")  # type: ignore[misc]


def test_what_a_program_drives_on_is_not_said_to_be_driven_by_a_command(sandbox: Sandbox) -> None:
    with open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ())) as session:
        session.bash("echo one > a", key="a")
    released = sandbox.run("release", sandbox.state)
    assert released.code == 0 and "recovery drive" not in released.out
    assert "; the program that opened it, started again (`open_session`), claims it again before it goes on" in released.out


def other(sandbox: Sandbox, root: Path) -> Path:
    return sandbox.session(bash("echo other > c"), file="other.toml", name="other", workspace=str(root), state=str(sandbox.base / "state2"))


def test_rule_S1_a_parked_session_is_released_and_another_takes_its_workspace(sandbox: Sandbox) -> None:
    park(sandbox)
    refused = sandbox.run("run", other(sandbox, sandbox.root))
    assert refused.code == 78 and f"free the workspace of it with `recovery release {sandbox.state}`" in refused.sentence()
    released = sandbox.run("release", sandbox.state)
    assert released.code == 0, released.err
    again = f"`recovery drive {sandbox.state}` claims it again before it goes on"
    assert released.out == f"released {sandbox.root} from session nightly; {again}\n"
    assert records(sandbox) == [] and sandbox.labels() == [] and read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}
    assert [event.identity.pid > 0 for event in sandbox.of_kind(events.DriverStarted)] == [True, True], "it was taken over"
    assert sandbox.ledger().floor == 2 and not sandbox.ledger().helpers
    taken = sandbox.run("run", other(sandbox, sandbox.root))
    assert taken.code == 0, taken.err


def test_rule_S1_a_released_session_claims_its_root_again_and_is_refused_while_another_holds_it(sandbox: Sandbox) -> None:
    park(sandbox)
    assert sandbox.run("release", sandbox.state).code == 0
    step = "driver@1:outcome.commit.before:1"
    second = sandbox.start("run", other(sandbox, sandbox.root), epoch=1, wait=(step,))
    sandbox.steps.wait(step, second)
    refused = sandbox.run("drive", sandbox.state)
    assert refused.code == 78 and f"{sandbox.root} is held by session:other" in refused.sentence()
    assert len(sandbox.of_kind(events.DriverStarted)) == 2
    sandbox.steps.release(step)
    assert second.end() == 0, second.err
    driven = sandbox.run("drive", sandbox.state)
    assert driven.code == 0, driven.err
    assert [(call, ended) for call, _, ended, _ in sandbox.settled()] == [(1, "finished"), (2, "finished"), (3, "finished")]
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n", "c": b"other\n"}
    assert records(sandbox) == []


def test_rule_S1_a_session_whose_driver_lives_is_not_released(sandbox: Sandbox) -> None:
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=(OUTCOME,))
    sandbox.steps.wait(OUTCOME, driver)
    before = records(sandbox)
    refused = sandbox.run("release", sandbox.state)
    assert refused.code == 1
    assert f"session nightly in {sandbox.state} is not parked: the driver of epoch 1 (process {driver.pid})" in refused.sentence()
    assert "nothing was changed" in refused.sentence() and f"run `recovery release {sandbox.state}` again" in refused.sentence()
    assert records(sandbox) == before and len(sandbox.of_kind(events.DriverStarted)) == 1
    sandbox.steps.release(OUTCOME)
    assert driver.end() == 0, driver.err


def test_rule_S1_a_session_whose_command_lives_is_not_released(sandbox: Sandbox) -> None:
    """The driver is gone, its command goes on: the shim is named, and everything the attempt's cgroup holds."""
    run = 'echo $$ > "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo one > a'
    driver = sandbox.start("run", sandbox.session(bash(run)), epoch=1)
    command = int(wait_until(sandbox.witnessed, "the command's start")[0])
    driver.kill()
    refused = sandbox.run("release", sandbox.state)
    assert refused.code == 1 and "the shim of " in refused.sentence() and is_running(command)
    assert len(records(sandbox)) == 1
    sandbox.open_gate()
    wait_until(lambda: not is_running(command), "the command's end")
    wait_until(lambda: any(attempt.exit for attempt in sandbox.ledger().attempts.values() if attempt.prepared.call), "its exit record")
    released = wait_until(lambda: (lambda done: done if done.code == 0 else None)(sandbox.run("release", sandbox.state)), "the release")
    assert isinstance(released, Driver) and records(sandbox) == []
    assert sandbox.run("drive", sandbox.state).code == 0
    assert sandbox.settled() == [(1, 1, "finished", "adopt_exit")] and read_contents(sandbox.root) == {"a": b"one\n"}


def test_rule_S1_a_frozen_helper_keeps_the_holder(sandbox: Sandbox) -> None:
    """A file worker that wakes later would write: it is named, whoever started it is dead."""
    session = sandbox.session({"tool": "write", "path": "a", "content": "x"}, bash("cat a"))
    step = "driver@1:outcome.commit.before:1"
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.wait(step, driver)
    worker = next(one.registered.identity.pid for one in sandbox.ledger().helpers.values() if one.registered.role == "worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        driver.kill()
        refused = sandbox.run("release", sandbox.state)
        assert refused.code == 1 and f"the worker of epoch 1 (process {worker})" in refused.sentence()
        assert len(records(sandbox)) == 1
    finally:
        kill_process(worker)


def test_a_release_again_and_one_of_a_finished_session_change_nothing(sandbox: Sandbox) -> None:
    park(sandbox)
    assert sandbox.run("release", sandbox.state).code == 0
    count = len(sandbox.events())
    again = sandbox.run("release", sandbox.state)
    assert again.code == 0 and f"session nightly holds no workspace in the registry {sandbox.holders}; nothing was changed" in again.out
    assert len(sandbox.events()) == count
    assert sandbox.run("drive", sandbox.state).code == 0
    answer = json.loads(sandbox.run("release", sandbox.state, "--json").out)
    assert answer == {"session": "nightly", "state": str(sandbox.state), "released": [], "registry": str(sandbox.holders)}


def test_what_is_no_session_is_refused_with_a_sentence(sandbox: Sandbox) -> None:
    refused = sandbox.run("release", sandbox.base / "nowhere")
    assert refused.code == 78 and "no log is there; name the state directory of a session" in refused.sentence()


def test_rule_S1_a_driver_that_began_while_its_workspace_was_released_holds_it_again(sandbox: Sandbox) -> None:
    """Held between its claim and its identity file, it was not seen by the release; it claims again before it writes anything."""
    park(sandbox)
    step = "driver@5:identity.write.half:1"
    driver = sandbox.start("drive", sandbox.state, epoch=5, wait=(step,))
    sandbox.steps.wait(step, driver)
    assert sandbox.run("release", sandbox.state).code == 0 and records(sandbox) == []
    held = "driver@1:outcome.commit.before:1"
    second = sandbox.start("run", other(sandbox, sandbox.root), epoch=1, wait=(held,))
    sandbox.steps.wait(held, second)
    sandbox.steps.release(step)
    assert driver.end() == 78 and "is held by session:other" in driver.sentence()
    sandbox.steps.release(held)
    assert second.end() == 0, second.err
    assert sandbox.run("drive", sandbox.state, epoch=6).code == 0


@pytest.mark.parametrize("loss", ["missing", "damaged"])
def test_rule_S10_a_session_whose_ledger_is_lost_is_released_when_nothing_of_it_lives(sandbox: Sandbox, loss: str) -> None:
    """Without the ledger what lives is found by its marks; the takeover makes the ledger anew, and the session can be driven on."""
    park(sandbox)
    if loss == "missing":
        sandbox.ledger_path.unlink()
    else:
        data = bytearray(sandbox.ledger_path.read_bytes())
        data[len(data) // 2] ^= 1
        sandbox.ledger_path.write_bytes(data)
    released = sandbox.run("release", sandbox.state)
    assert released.code == 0, released.err
    assert records(sandbox) == [] and sandbox.labels() == ["ledger_lost" if loss == "missing" else "ledger_damaged"]
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}, "no path of the workspace was touched"
    sandbox.drive("--on-interrupted", "reissue")
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"} and records(sandbox) == []


def test_rule_S1_what_runs_while_the_ledger_is_lost_is_named_and_nothing_is_released(sandbox: Sandbox) -> None:
    run = "echo began >> $WITNESS; until test -e $GATE; do sleep 0.05; done"
    driver = sandbox.start("run", sandbox.session(bash(run)), epoch=1)
    wait_until(lambda: bool(sandbox.witnessed()), "the command's beginning")
    attempts = sandbox.ledger().attempts.values()
    shim = next(one.start.identity.pid for one in attempts if one.start is not None and one.prepared.kind == "command")
    driver.kill()
    lost = sandbox.ledger_path.rename(sandbox.base / "ledger.away")
    before = records(sandbox)
    refused = sandbox.run("release", sandbox.state)
    assert refused.code == 1 and f"process {shim} of the space, of epoch 1" in refused.sentence(), refused.err
    assert records(sandbox) == before and is_running(shim)
    lost.rename(sandbox.ledger_path)
    sandbox.open_gate()
    sandbox.drive()
