"""`recovery restore`, killed at its steps: the next driver of any kind completes it, and each call after the target is undone once."""

import os

import pytest

from eventlog import events
from tests.crash.person import begun
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox

STEPS = ("decision.commit.after", "restored.commit.before", "restored.commit.after")


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


def test_rule_R3_attributes_of_a_file_are_displaced_with_it_and_not_overwritten(sandbox: Sandbox) -> None:
    (sandbox.root / "f").write_bytes(b"c\n")
    assert sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new").code == 0
    os.setxattr(sandbox.root / "f", "user.precious", b"P" * 2000)
    restored = sandbox.run("restore", sandbox.state, "--at", "1", "--workspace", sandbox.root)
    assert restored.code == 0 and os.listxattr(sandbox.root / "f") == []
    (kept,) = sandbox.base.glob(".crashworthy-*/quarantine/*/1/f")
    assert os.getxattr(kept, "user.precious") == b"P" * 2000


def test_an_image_says_what_it_does_not_hold_though_nothing_else_changed(sandbox: Sandbox) -> None:
    (sandbox.root / "f").write_bytes(b"c\n")
    assert sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new").code == 0
    os.link(sandbox.root / "f", sandbox.base / "outside")
    assert "untracked outside link: f" in sandbox.run("image", sandbox.state, "--workspace", sandbox.root).out
    os.unlink(sandbox.base / "outside")
    assert "untracked outside link" not in sandbox.run("image", sandbox.state, "--workspace", sandbox.root).out


def test_an_act_that_failed_names_itself_as_what_to_run_again(sandbox: Sandbox) -> None:
    (sandbox.root / "f").write_bytes(b"c\n")
    assert sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new").code == 0
    worker = "worker@1:restore.place.move.before:1"
    (sandbox.root / "f").write_bytes(b"changed\n")
    driver = sandbox.start("restore", sandbox.state, "--at", "1", "--workspace", sandbox.root, wait=(worker,))
    sandbox.steps.kill(worker, driver)
    assert driver.end() == 1
    assert "recovery restore" in driver.sentence() and "drive again" not in driver.sentence()
