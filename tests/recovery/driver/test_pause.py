"""A planned pause: asked for by anybody, made by the driver at a call boundary, ended days and boots later."""

import json

import pytest

from eventlog import events
from tests.helpers import read_contents, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash

GATED = 'echo "$CALL_KEY start" >> "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo one > a'


def begin_gated(sandbox: Sandbox, *wait: str) -> Driver:
    """A session of two calls, the first of which waits for the gate."""
    driver = sandbox.start("run", sandbox.session(bash(GATED), bash("echo two > b")), epoch=1, wait=wait)
    wait_until(sandbox.witnessed, "the first command")
    return driver


def pause(sandbox: Sandbox) -> Driver:
    """A session paused between its two calls; the driver that did it."""
    driver = begin_gated(sandbox)
    asked = sandbox.run("pause", sandbox.state, "--reason", "the machine is needed")
    assert asked.code == 0 and "the driver of epoch 1 pauses when the call that runs has ended" in asked.out, asked.err
    sandbox.open_gate()
    assert driver.end() == 78, driver.err
    return driver


def kinds(sandbox: Sandbox) -> list[str]:
    return [stored.event.kind for stored in sandbox.events()]


def test_a_driver_pauses_at_the_next_call_boundary(sandbox: Sandbox) -> None:
    driver = pause(sandbox)
    assert driver.err.splitlines()[-1].startswith("recovery: session nightly is paused (the machine is needed): image ")
    assert f"`recovery drive {sandbox.state}` goes on with it" in driver.err
    assert kinds(sandbox)[-4:] == ["pause_requested", "call_settled", "synced", "session_paused"]
    synced, paused = (sandbox.events()[-2].event, sandbox.events()[-1].event)
    assert isinstance(synced, events.Synced) and isinstance(paused, events.SessionPaused)
    assert (synced.root, paused.reason) == (paused.root, "the machine is needed")
    assert read_contents(sandbox.root) == {"a": b"one\n"}
    other = sandbox.session(bash("true"), file="other.toml", name="other", state=str(sandbox.base / "state-2"))
    assert "is held by session:nightly" in sandbox.run("run", other).sentence()


def test_a_paused_session_goes_on_when_it_is_driven(sandbox: Sandbox) -> None:
    pause(sandbox)
    sandbox.drive()
    assert kinds(sandbox)[-6:] == ["driver_started", "session_resumed", "attempt_started", "call_settled", "synced", "session_finished"]
    assert sandbox.labels() == [] and read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}


def test_rule_D5_edits_made_during_a_pause_survive_a_restart_of_the_machine(sandbox: Sandbox) -> None:
    """The image was on disk and known to be: what differs two boots later was meant by somebody."""
    pause(sandbox)
    sandbox.boot = "the boot after"
    (sandbox.root / "a").write_text("edited by a person")
    (sandbox.root / "c").write_text("added by a person")
    sandbox.drive()
    assert sandbox.labels() == ["record_outside"]
    assert len(sandbox.of_kind(events.WorkspaceObserved)) == 1
    assert read_contents(sandbox.root) == {"a": b"edited by a person", "b": b"two\n", "c": b"added by a person"}


def test_a_pause_is_asked_for_once_and_not_of_a_paused_or_finished_session(sandbox: Sandbox) -> None:
    driver = begin_gated(sandbox)
    assert json.loads(sandbox.run("pause", sandbox.state, "--json").out) == {
        "session": "nightly", "asked": True, "paused": False, "driver_epoch": 1,
    }  # fmt: skip
    assert "a pause was asked for before" in sandbox.run("pause", sandbox.state).out
    sandbox.open_gate()
    assert driver.end() == 78
    assert f"it is paused already; `recovery drive {sandbox.state}` goes on" in sandbox.run("pause", sandbox.state).out
    assert kinds(sandbox).count("pause_requested") == 1
    sandbox.drive()
    refused = sandbox.run("pause", sandbox.state)
    assert refused.code == 78 and "has finished" in refused.sentence()


def test_a_pause_asked_for_between_two_calls_is_made_before_the_second(sandbox: Sandbox) -> None:
    """The driver looks before each call, not only when it appends."""
    step = "driver@1:ledger.collect.append.after:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a"), bash("echo two > b")), epoch=1, wait=(step,))
    sandbox.steps.wait(step, driver)
    assert sandbox.run("pause", sandbox.state).code == 0
    sandbox.steps.release(step)
    assert driver.end() == 78, driver.err
    assert kinds(sandbox)[-3:] == ["pause_requested", "synced", "session_paused"] and read_contents(sandbox.root) == {"a": b"one\n"}


def test_a_pause_asked_for_while_nobody_drives_is_made_by_the_next_driver(sandbox: Sandbox) -> None:
    driver = begin_gated(sandbox)
    driver.kill()
    asked = sandbox.run("pause", sandbox.state)
    assert "no driver is at work: the next `recovery drive" in asked.out, asked.out + asked.err
    sandbox.open_gate()
    sandbox.drive(expect=78)
    assert kinds(sandbox)[-3:] == ["call_settled", "synced", "session_paused"] and read_contents(sandbox.root) == {"a": b"one\n"}


@pytest.mark.parametrize("step", ["pause.syncfs.before", "pause.syncfs.after", "pause.commit.before", "pause.commit.after"])
def test_a_pause_killed_at_any_step_is_made_once(sandbox: Sandbox, step: str) -> None:
    driver = begin_gated(sandbox, f"driver@1:{step}:1")
    assert sandbox.run("pause", sandbox.state).code == 0
    sandbox.open_gate()
    sandbox.steps.kill(f"driver@1:{step}:1", driver)
    driver.end()
    is_paused = step == "pause.commit.after"
    sandbox.drive(expect=0 if is_paused else 78)
    if not is_paused:
        sandbox.drive()
    assert (kinds(sandbox).count("session_paused"), kinds(sandbox).count("session_resumed")) == (1, 1)
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}


@pytest.mark.parametrize("step", ["resume.commit.before", "resume.commit.after"])
def test_a_resume_killed_at_any_step_is_made_once(sandbox: Sandbox, step: str) -> None:
    pause(sandbox)
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(f"driver@2:{step}:1",))
    sandbox.steps.kill(f"driver@2:{step}:1", second)
    second.end()
    sandbox.drive()
    assert kinds(sandbox).count("session_resumed") == 1
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}


def test_a_workspace_of_a_paused_session_can_be_released_and_is_claimed_again(sandbox: Sandbox) -> None:
    pause(sandbox)
    # The driver's helpers end when they see that it has, and until then the release is refused.
    wait_until(lambda: sandbox.run("release", sandbox.state).code == 0, "the release")
    assert kinds(sandbox).count("session_resumed") == 0, "a release does not go on"
    sandbox.drive()
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}
