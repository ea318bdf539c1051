"""A person's word on the open call and on a restore that does not end (rules D4, R5): --ran, --not-run, --undo, --accept-workspace."""

import os
from pathlib import Path

import pytest

from eventlog import events
from recovery.opening import read_log
from tests.crash.person import begun
from tests.helpers import read_contents, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash, write

EFFECT = 'echo "$CALL_KEY" >> "$WITNESS"; echo two > b; echo more >> a'
BEFORE = {"a": b"one\n"}
AFTER = {"a": b"one\nmore\n", "b": b"two\n"}


def cut(sandbox: Sandbox, step: str = "shim.2@1:ended:1", policy: str = "ask", **settings: str) -> None:
    """The second call's shim is killed after its command ended, before it recorded how."""
    session = sandbox.session(bash("echo one > a"), bash(EFFECT, policy=policy), bash("echo three > c"), **settings)
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()


def settle(sandbox: Sandbox, *options: str, expect: int = 0) -> Driver:
    done = sandbox.run("settle", sandbox.state, *options)
    assert done.code == expect and "Traceback" not in done.err, done.out + done.err
    return done


def unchanged(sandbox: Sandbox) -> tuple[list[bytes], dict[str, bytes | None]]:
    """What a refusal leaves as it is: the events but takeovers, and the workspace."""
    told = [stored.hash for stored in sandbox.events() if not isinstance(stored.event, events.DriverStarted)]
    return [stored.event.kind.encode() for stored in sandbox.events() if not isinstance(stored.event, events.DriverStarted)][: len(told)], (
        read_contents(sandbox.root)
    )


def test_decision_ask_names_the_three_ways_out(sandbox: Sandbox) -> None:
    cut(sandbox)
    asked = sandbox.drive(expect=78).sentence()
    assert "ask: what call 2 did is not known" in asked
    for option in ("--ran", "--not-run", "--undo"):
        assert option in asked
    assert f"recovery settle {sandbox.state} --ran" in asked
    assert sandbox.drive(expect=78).sentence() == asked, "it waits"
    assert read_contents(sandbox.root) == AFTER and sandbox.labels() == []


def test_invariant_I8_ran_takes_what_is_there_and_makes_up_no_exit(sandbox: Sandbox) -> None:
    cut(sandbox)
    settle(sandbox, "--ran")
    settled = sandbox.of_kind(events.CallSettled)[-1]
    assert (settled.call, settled.attempt, settled.ended, settled.label) == (2, 1, "finished", "ran_by_person")
    assert settled.exit is None and settled.output is None and "a person says that it ran" in settled.reason
    assert sandbox.labels() == ["ran_by_person"]
    sandbox.drive()
    assert read_contents(sandbox.root) == {**AFTER, "c": b"three\n"} and len(sandbox.witnessed()) == 1
    assert not sandbox.of_kind(events.WorkspaceObserved)


def test_not_run_restores_the_image_before_the_call_and_the_next_drive_runs_it(sandbox: Sandbox) -> None:
    cut(sandbox)
    settle(sandbox, "--not-run")
    assert read_contents(sandbox.root) == BEFORE and len(sandbox.witnessed()) == 1
    sandbox.drive()
    assert sandbox.labels() == ["not_run_by_person", "run_voided"]
    assert sandbox.settled()[1] == (2, 2, "finished", "live")
    assert read_contents(sandbox.root) == {**AFTER, "c": b"three\n"}


@pytest.mark.parametrize("policy", ["ask", "never", "after-restore"])
def test_undo_restores_the_image_before_the_call_whatever_its_policy(sandbox: Sandbox, policy: str) -> None:
    cut(sandbox, policy=policy, on_interrupted="continue")
    settle(sandbox, "--undo")
    assert sandbox.labels() == ["undo_by_person"] and read_contents(sandbox.root) == BEFORE
    assert sandbox.settled()[-1] == (2, 1, "interrupted", "undo_by_person")
    sandbox.drive()
    assert read_contents(sandbox.root) == {**BEFORE, "c": b"three\n"} and len(sandbox.witnessed()) == 1


def test_undo_ends_a_command_that_runs_and_the_others_let_it_go_on(sandbox: Sandbox) -> None:
    script = 'echo "$CALL_KEY" >> "$WITNESS"; echo half > b; until [ -e "$GATE" ]; do sleep 0.01; done; echo late > late'
    driver = sandbox.start("run", sandbox.session(bash(script, policy="ask"), on_interrupted="continue"), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    driver.kill()
    for option in ("--ran", "--not-run"):
        refused = settle(sandbox, option, expect=78)
        assert "reattach: the command still runs" in refused.sentence() and "`recovery drive" in refused.sentence()
    assert sandbox.labels() == [] and read_contents(sandbox.root) == {"b": b"half\n"}
    settle(sandbox, "--undo")
    sandbox.open_gate()
    assert read_contents(sandbox.root) == {} and sandbox.settled() == [(1, 1, "interrupted", "undo_by_person")]


@pytest.mark.parametrize(
    ("step", "label"), [("driver@1:outcome.commit.before:2", "adopt_exit"), ("driver@1:intent.commit.after:2", "void_and_run")]
)
@pytest.mark.parametrize("option", ["--ran", "--not-run"])
def test_no_persons_word_is_taken_where_something_is_proved(sandbox: Sandbox, step: str, label: str, option: str) -> None:
    cut(sandbox, step)
    before = unchanged(sandbox)
    refused = settle(sandbox, option, expect=78)
    assert f"{option}: call 2: {label}: " in refused.sentence() and "no person's word is needed" in refused.sentence()
    assert unchanged(sandbox) == before
    sandbox.drive()
    assert sandbox.labels() == [label]


@pytest.mark.parametrize("option", [("--ran",), ("--not-run",), ("--undo",), ("--accept-workspace", "0" * 64)], ids=lambda one: one[0])
def test_where_nothing_is_open_a_settlement_is_refused_before_the_takeover(sandbox: Sandbox, option: tuple[str, ...]) -> None:
    begun(sandbox)
    before = [stored.hash for stored in sandbox.events()]
    refused = settle(sandbox, *option, expect=78)
    assert "is open in" in refused.sentence() and "recovery drive" in refused.sentence()
    assert [stored.hash for stored in sandbox.events()] == before


def test_one_thing_is_settled_at_a_time(sandbox: Sandbox) -> None:
    cut(sandbox)
    refused = settle(sandbox, "--ran", "--undo", expect=78)
    assert "one thing of: --processes-dead" in refused.sentence()


def in_a_restore(sandbox: Sandbox, policy: str = "never") -> int:
    """A restore that was killed after it had displaced one path; the seq of its decision."""
    cut(sandbox, policy=policy, on_interrupted="continue")
    step = "worker@2:restore.displace.move.after:1"
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    return next(stored.seq for stored in sandbox.events() if isinstance(stored.event, events.RecoveryDecided))


@pytest.mark.parametrize("option", ["--ran", "--not-run"])
def test_rule_R5_while_a_restore_is_open_nothing_is_said_of_its_call(sandbox: Sandbox, option: str) -> None:
    seq = in_a_restore(sandbox)
    before = unchanged(sandbox)
    refused = settle(sandbox, option, expect=78)
    assert f"{option}: the restore decided at seq {seq} is open" in refused.sentence() and "--accept-workspace HASH" in refused.sentence()
    assert unchanged(sandbox) == before


@pytest.mark.parametrize(("policy", "labels"), [
    ("never", ["restore_and_interrupt", "complete_restore"]),
    ("after-restore", ["restore_and_rerun", "complete_restore", "undo_by_person"]),
])  # fmt: skip
def test_rule_R5_undo_tries_an_open_restore_again(sandbox: Sandbox, policy: str, labels: list[str]) -> None:
    in_a_restore(sandbox, policy)
    settle(sandbox, "--undo")
    assert sandbox.labels() == labels and read_contents(sandbox.root) == BEFORE
    assert sandbox.settled()[-1][:3] == (2, 1, "interrupted") and len(sandbox.witnessed()) == 1


def test_rule_R5_an_open_restore_is_ended_with_the_workspace_that_a_person_accepts(sandbox: Sandbox) -> None:
    in_a_restore(sandbox)
    (sandbox.root / "kept by hand").write_text("mine")
    found = read_contents(sandbox.root)
    refused = settle(sandbox, "--accept-workspace", "0" * 64, expect=78)
    assert sandbox.labels() == ["restore_and_interrupt"] and read_contents(sandbox.root) == found
    root = refused.sentence().partition("has the root hash ")[2].split()[0]
    assert f"recovery settle {sandbox.state} --accept-workspace {root}" in refused.sentence()
    settle(sandbox, "--accept-workspace", root)
    assert read_contents(sandbox.root) == found, "nothing is moved"
    assert sandbox.labels() == ["restore_and_interrupt", "accept_by_person"]
    [finished], [quarantined] = sandbox.of_kind(events.RestoreFinished), sandbox.of_kind(events.Quarantined)
    assert finished.accepted and finished.root == root and (finished.reverted, finished.reimaged) == (0, 0)
    assert len(quarantined.paths) == 1 and finished.displaced == 1
    settled = sandbox.of_kind(events.CallSettled)[-1]
    assert (settled.ended, settled.label, settled.root) == ("interrupted", "accept_by_person", root)
    sandbox.drive()
    assert read_contents(sandbox.root) == {**found, "c": b"three\n"} and not sandbox.of_kind(events.WorkspaceObserved)


def test_rule_R5_a_restore_that_does_not_reach_its_image_names_paths_and_ways_out(sandbox: Sandbox) -> None:
    """Something outside the session keeps writing: K rounds, then exit 1 with the path, the hash found and the command."""
    cut(sandbox, policy="never", on_interrupted="continue")
    step = "driver@2:restored.syncfs.before:1"
    holders = [f"worker@2:ledger.exit.before:{number}" for number in (2, 3, 4)]
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(*holders, step))
    for number, held in enumerate(holders):
        sandbox.steps.wait(held, driver)
        (sandbox.root / f"noise-{number}").write_text("still there")
        sandbox.steps.release(held)
    assert driver.end() == 1, driver.err
    said = driver.err.splitlines()[-1]
    assert "these paths still differ: noise-2" in said and f"`recovery settle {sandbox.state} --accept-workspace " in said
    root = said.partition("--accept-workspace ")[2].partition("`")[0]
    settle(sandbox, "--accept-workspace", root)
    assert read_contents(sandbox.root) == {**BEFORE, "noise-2": b"still there"}


@pytest.mark.parametrize(
    ("option", "step"),
    [
        ("--ran", "driver@2:decision.commit.after:1"),
        ("--ran", "driver@2:outcome.commit.before:1"),
        ("--not-run", "driver@2:decision.commit.after:1"),
        ("--not-run", "worker@2:restore.displace.move.after:1"),
        ("--not-run", "driver@2:restored.commit.before:1"),
        ("--not-run", "driver@2:restored.commit.after:1"),
        ("--undo", "driver@2:decision.commit.after:1"),
        ("--undo", "driver@2:restored.commit.before:1"),
        ("--undo", "driver@2:restored.commit.after:1"),
    ],
)
def test_invariant_I12_a_settlement_killed_on_its_way_binds_as_far_as_it_was_committed(sandbox: Sandbox, option: str, step: str) -> None:
    cut(sandbox, on_interrupted="continue")
    driver = sandbox.start("settle", sandbox.state, option, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    if option == "--ran":
        assert "ask: " in sandbox.drive(expect=78).sentence(), "nothing was settled: the person is asked again"
        settle(sandbox, option)
    sandbox.drive()
    ended = {"--ran": (1, "finished"), "--not-run": (2, "finished"), "--undo": (1, "interrupted")}[option]
    assert sandbox.settled()[1][1:3] == ended
    assert read_contents(sandbox.root) == {**(BEFORE if option == "--undo" else AFTER), "c": b"three\n"}


def test_a_word_on_a_call_whose_workspace_was_lost_meanwhile(sandbox: Sandbox) -> None:
    """After the rebuild nothing of the call is there: it cannot have run; it runs, or ends interrupted."""
    cut(sandbox)
    for name in os.listdir(sandbox.root):
        Path(sandbox.root, name).unlink()
    sandbox.root.rmdir()
    assert "ask: " in sandbox.drive(expect=78).err.splitlines()[-1]
    assert read_contents(sandbox.root) == BEFORE
    assert "the workspace was restored to the image before it" in settle(sandbox, "--ran", expect=78).sentence()
    settle(sandbox, "--not-run")
    sandbox.drive()
    assert sandbox.settled()[1] == (2, 2, "finished", "live") and len(sandbox.witnessed()) == 2


def test_a_file_call_may_be_settled_too(sandbox: Sandbox) -> None:
    step = "worker@1:file.rename.after:1"
    driver = sandbox.start("run", sandbox.session(write("a", "new", policy="ask")), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    assert "ask: " in sandbox.drive(expect=78).sentence()
    settle(sandbox, "--ran")
    sandbox.drive()
    assert sandbox.settled() == [(1, 1, "finished", "ran_by_person")] and read_contents(sandbox.root) == {"a": b"new"}
    assert read_log(str(sandbox.state)).is_finished
