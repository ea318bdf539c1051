"""Modes auto and transactional with limits (rule C8, the mode-switch half of case 6)."""

import os
import shutil
from pathlib import Path

import pytest

from eventlog import events
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, bash, write

LARGE = 4 << 30
"""Of a sparse file: more than anybody would read in a test."""
GROWS = (bash("echo one > a"), bash("head -c 100000 /dev/zero > large"), bash("echo three > c"))
LIMITS = {"file_bytes": 50_000}
OUTCOME_STEPS = (
    "checkpoint.content.sync.before:1", "checkpoint.content.rename.after:1", "checkpoint.manifest.rename.before:1",
    "checkpoint.manifest.rename.after:1", "dropped.commit.after:1", "outcome.commit.before:2", "outcome.commit.locked:2",
    "outcome.commit.after:2",
)  # fmt: skip


def switches(sandbox: Sandbox) -> list[tuple[str, str]]:
    """The kind of the event before each switch, and its reason; a checkpoint that it names follows in the same commit."""
    stored = [one.event for one in sandbox.events()]
    found = []
    for at, event in enumerate(stored):
        if isinstance(event, events.ModeSwitched):
            taken = stored[at + 1]
            assert isinstance(taken, events.CheckpointTaken) and taken.manifest == event.manifest
            found.append((stored[at - 1].kind, event.reason))
    return found


def test_case_06_mode_switch_stands_in_the_outcome_s_commit_that_crosses_the_limit(sandbox: Sandbox) -> None:
    driver = sandbox.run("run", sandbox.session(*GROWS, mode="auto", limits=LIMITS))
    assert driver.code == 0, driver.err
    assert switches(sandbox) == [("call_settled", "large has 100000 bytes, above the limit of 50000 for a file")]
    kinds = [one.event.kind for one in sandbox.events()]
    assert kinds.index("mode_switched") < kinds.index("checkpoint_taken") and kinds.count("checkpoint_taken") == 2
    assert "mode checkpoint from here on" in driver.err


@pytest.mark.parametrize("step", OUTCOME_STEPS)
def test_case_06_mode_switch_killed_at_any_step_is_one_switch(sandbox: Sandbox, step: str) -> None:
    session = sandbox.session(*GROWS, mode="auto", limits=LIMITS)
    driver = sandbox.start("run", session, epoch=1, wait=(f"driver@1:{step}",))
    sandbox.steps.kill(f"driver@1:{step}", driver)
    driver.end()
    sandbox.drive()
    assert len(switches(sandbox)) == 1 and [ended for _, _, ended, _ in sandbox.settled()] == ["finished"] * 3
    assert not sandbox.of_kind(events.WorkspaceObserved)


def test_case_06_mode_switch_stands_in_the_intent_s_commit_when_others_crossed_the_limit(sandbox: Sandbox) -> None:
    step = "driver@1:intent.commit.before:2"
    driver = sandbox.start("run", sandbox.session(*GROWS[::2], mode="auto", limits=LIMITS), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    (sandbox.root / "others").write_bytes(b"x" * 60_000)
    sandbox.drive()
    assert switches(sandbox) == [("workspace_observed", "others has 60000 bytes, above the limit of 50000 for a file")]


def test_case_06_a_session_that_begins_above_a_limit_begins_with_a_checkpoint(sandbox: Sandbox) -> None:
    (sandbox.root / "there").write_bytes(b"x" * 60_000)
    driver = sandbox.run("run", sandbox.session(*GROWS[::2], mode="auto", limits=LIMITS))
    assert driver.code == 0, driver.err
    assert sandbox.of_kind(events.SessionOpened)[0].checkpoints.manifest
    assert [before for before, _ in switches(sandbox)] == ["driver_started"], "the first intent's commit"


def test_case_06_after_the_switch_a_lost_workspace_is_rebuilt_from_log_and_checkpoint(sandbox: Sandbox) -> None:
    step = "driver@1:finish.commit.before:1"
    driver = sandbox.start("run", sandbox.session(*GROWS, mode="auto", limits=LIMITS), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    shutil.rmtree(sandbox.root)
    sandbox.drive()
    assert read_contents(sandbox.root) == {"a": b"one\n", "large": bytes(100_000), "c": b"three\n"}
    modes = [event.mode for event in sandbox.of_kind(events.RecoveryDecided)]
    assert modes and set(modes) == {"checkpoint"}


def test_case_06_a_call_before_the_switch_is_decided_in_mode_auto_and_restored_from_the_log(sandbox: Sandbox) -> None:
    session = sandbox.session(*GROWS, mode="auto", limits=LIMITS, on_interrupted="reissue")
    driver = sandbox.start("run", session, epoch=1, wait=("shim.2@1:ended:1",))
    sandbox.steps.kill("shim.2@1:ended:1", driver)
    driver.end()
    sandbox.drive()
    assert [event.mode for event in sandbox.of_kind(events.RecoveryDecided)][0] == "auto"
    assert len(switches(sandbox)) == 1 and read_contents(sandbox.root)["large"] == bytes(100_000)


def test_case_06_transactional_refuses_before_the_call_and_reads_nothing(sandbox: Sandbox) -> None:
    """A sparse file of 4 GiB appears between two calls: no intent, no image of it."""
    step = "driver@1:intent.commit.before:2"
    session = sandbox.session(write("a", "one"), write("b", "two"), limits={"bytes": 1 << 20})
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.wait(step, driver)
    with open(sandbox.root / "huge", "wb") as file:
        file.truncate(LARGE)
    driver.kill()
    refused = sandbox.drive(expect=78)
    assert f"the workspace has {LARGE + 3} bytes, above the limit of {1 << 20}" in refused.sentence()
    assert len(sandbox.of_kind(events.AttemptStarted)) == 1 and not sandbox.of_kind(events.WorkspaceObserved)
    os.unlink(sandbox.root / "huge")
    sandbox.drive()
    assert read_contents(sandbox.root) == {"a": b"one", "b": b"two"}


def test_case_06_transactional_marks_the_image_stale_in_the_outcome_and_never_restores_to_it(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one > a"), bash("echo x > b; truncate -s 4G huge"), bash("echo c > c"), limits=LIMITS)
    driver = sandbox.run("run", session)
    assert driver.code == 78 and "above the limit" in driver.err and "is stale" in driver.err
    outcome = sandbox.of_kind(events.CallSettled)[1]
    assert outcome.untracked == [events.Untracked("", "over limit")] and len(sandbox.settled()) == 2
    assert outcome.root == sandbox.of_kind(events.CallSettled)[0].root, "nothing was read: it is the image before"
    refused = sandbox.run("restore", sandbox.log, "--at", str(sandbox.events()[-1].seq), "--workspace", sandbox.root)
    assert refused.code == 78 and "stale" in refused.err
    os.unlink(sandbox.root / "huge")
    sandbox.drive()
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"x\n", "c": b"c\n"}
    assert sandbox.of_kind(events.CallSettled)[-1].untracked == []


def test_case_06_a_session_does_not_begin_above_its_limit(sandbox: Sandbox) -> None:
    with open(sandbox.root / "huge", "wb") as file:
        file.truncate(LARGE)
    driver = sandbox.run("run", sandbox.session(write("a", "one"), limits=LIMITS))
    assert driver.code == 78 and 'use mode = "auto"' in driver.sentence() and not sandbox.log.exists()
    assert list(Path(sandbox.holders).iterdir()) == [] or sandbox.run("run", sandbox.base / "session.toml").code == 78
