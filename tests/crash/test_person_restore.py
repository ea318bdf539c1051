"""`recovery restore`, killed at its steps: the next driver of any kind completes it, and each call after the target is undone once."""

import pytest

from eventlog import events
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, bash

CALLS = (bash("echo one > a"), bash("echo two > a; echo new > b"), bash("exit 1"))
STEPS = ("decision.commit.after", "restored.commit.before", "restored.commit.after")


def begun(sandbox: Sandbox) -> int:
    """Three finished calls, stopped before the end; the seq of the first one's outcome."""
    driver = sandbox.start("run", sandbox.session(*CALLS), epoch=1, wait=("driver@1:finish.commit.before:1",))
    sandbox.steps.kill("driver@1:finish.commit.before:1", driver)
    driver.end()
    return next(stored.seq for stored in sandbox.events() if isinstance(stored.event, events.CallSettled))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("choice", ["reissue", "continue", "stop"])
def test_a_restore_killed_at_a_step_is_completed_by_the_next_driver(sandbox: Sandbox, step: str, choice: str) -> None:
    seq = begun(sandbox)
    name = f"driver@2:{step}:1"
    arguments = ("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root)
    driver = sandbox.start(*arguments, epoch=2, wait=(name,))
    sandbox.steps.kill(name, driver)
    driver.end()
    again = sandbox.run("drive", sandbox.state, "--on-interrupted", choice)
    assert again.code == (78 if choice == "stop" else 0), again.err
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [2, 3]
    assert "restore_by_person" in sandbox.labels()
    reissued = {"a": b"two\n", "b": b"new\n"}
    assert read_contents(sandbox.root) == (reissued if choice == "reissue" else {"a": b"one\n"})


@pytest.mark.parametrize("at", ["0", "99"])
def test_an_event_that_is_not_there_is_one_sentence_and_changes_nothing(sandbox: Sandbox, at: str) -> None:
    begun(sandbox)
    before = sandbox.log.read_bytes()
    refused = sandbox.run("restore", sandbox.state, "--at", at, "--workspace", sandbox.root)
    assert refused.code == 78 and f"--at {at}" in refused.sentence()
    assert sandbox.log.read_bytes() == before


def test_another_workspace_is_refused_naming_both(sandbox: Sandbox) -> None:
    seq = begun(sandbox)
    refused = sandbox.run("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.base)
    assert refused.code == 78 and str(sandbox.root) in refused.sentence() and str(sandbox.base) in refused.sentence()


def test_a_dry_run_takes_nothing_over_and_exits_2(sandbox: Sandbox) -> None:
    seq = begun(sandbox)
    before = len(sandbox.events())
    assert sandbox.run("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root, "--dry-run").code == 2
    assert len(sandbox.events()) == before
