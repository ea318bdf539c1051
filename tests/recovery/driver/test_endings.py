"""What is left when drivers end: nobody's output held open, no second end, no leftovers, a head known synced after a restart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import events
from eventlog.image import root_hash
from eventlog.ports import FakeHost
from eventlog.reader import Reader
from eventlog.values import StreamId
from recovery.decision import decide
from recovery.facts import BootFact, DifferenceFact, LedgerFact, RootFact
from recovery.gather import gather, observe_root
from recovery.journal import read_state
from recovery.labels import Label
from recovery.workspace.scan import Scanner
from tests.helpers import DEADLINE_SECS, wait_until
from tests.recovery.sessions import Sandbox, bash

GATED = 'echo start >> "$WITNESS"; until [ -e "$GATE" ]; do read -r -t 0.01 <> <(:) || :; done; '


def test_whoever_reads_a_killed_drivers_output_does_not_wait_for_its_command(sandbox: Sandbox) -> None:
    """A pipe from the driver is at its end when the driver is dead, although shim and command go on (case 31, the driver's half)."""
    session = sandbox.session(bash(GATED + "echo done > a"))
    command = [sys.executable, "-m", "recovery", "run", str(session)]
    driver = subprocess.Popen(command, env=sandbox.environment(1, ()), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(sandbox.witnessed, "the command's start")
    driver.kill()
    driver.communicate(timeout=DEADLINE_SECS)  # the deadline says: both pipes end although the gate is shut
    sandbox.open_gate()
    sandbox.drive()
    assert (sandbox.root / "a").read_text() == "done\n"


def test_nothing_follows_the_end_of_a_session_that_another_driver_finishes_meanwhile(sandbox: Sandbox) -> None:
    """A second driver that read the log before the end was written finds the head moved, reads again and adds nothing."""
    first = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=("driver@1:finish.commit.before:1",))
    sandbox.steps.wait("driver@1:finish.commit.before:1", first)
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=("driver@2:floor.commit.before:1",))
    sandbox.steps.wait("driver@2:floor.commit.before:1", second)
    sandbox.steps.release("driver@1:finish.commit.before:1")
    assert first.end() == 0, first.err
    sandbox.steps.release("driver@2:floor.commit.before:1")
    assert second.end() == 0, second.err
    assert "has finished" in second.err
    assert [type(stored.event) for stored in sandbox.events()][-1] is events.SessionFinished
    assert len(sandbox.of_kind(events.DriverStarted)) == 1
    assert os.listdir(sandbox.state / "identity") == []


@pytest.mark.parametrize("step", ["log.create.link.after:1", "log.create.unlink.before:1"])
def test_the_second_name_of_a_log_goes_with_the_next_driver(sandbox: Sandbox, step: str) -> None:
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=(f"driver@1:{step}",))
    sandbox.steps.kill(f"driver@1:{step}", driver)
    assert driver.end() == -9
    assert len(list(sandbox.state.glob("log.sqlite.new-*"))) == 1
    assert sandbox.run("run", sandbox.base / "session.toml").code == 0
    assert list(sandbox.state.glob("log.sqlite.new-*")) == []


def test_rule_L4_identity_files_of_dead_drivers_go_once_the_floor_is_above_them(sandbox: Sandbox) -> None:
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=("driver@1:outcome.commit.before:1",))
    sandbox.steps.kill("driver@1:outcome.commit.before:1", driver)
    assert driver.end() == -9
    assert len(os.listdir(sandbox.state / "identity")) == 1
    sandbox.drive()
    assert os.listdir(sandbox.state / "identity") == []


def test_plan_takes_a_torn_end_of_the_ledger_into_account(sandbox: Sandbox) -> None:
    """Case 22: what was torn may have been a starting mark, so the attempt is not said to have never started."""
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=("driver@1:ledger.prepare.append.after:2",))
    sandbox.steps.kill("driver@1:ledger.prepare.append.after:2", driver)
    assert driver.end() == -9
    assert sandbox.run("plan", sandbox.state).out.splitlines()[1].startswith("call 1: void_and_run")
    with sandbox.ledger_path.open("ab") as ledger:
        ledger.write(b'0123 {"op":"start"')
    before = sandbox.ledger_path.read_bytes()
    assert sandbox.run("plan", sandbox.state).out.splitlines()[1].startswith("call 1: restore_and_interrupt")
    assert sandbox.ledger_path.read_bytes() == before
    sandbox.drive("--on-interrupted", "reissue")
    assert sandbox.labels() == ["restore_and_interrupt"]


def facts_under(sandbox: Sandbox, boot: str) -> tuple[BootFact, DifferenceFact, Label]:
    """What a driver under another boot would gather and decide."""
    reader = Reader.open(str(sandbox.log))
    try:
        state, hashes = read_state(reader, StreamId("nightly"))
    finally:
        reader.close()
    assert observe_root(str(sandbox.root), state) is RootFact.PRESENT
    evidence = gather(state, hashes, sandbox.ledger(), LedgerFact.SOUND, str(sandbox.root), FakeHost(boot), "")
    return evidence.facts.boot, evidence.facts.difference, decide(evidence.facts)


def crash_between_calls(sandbox: Sandbox) -> Path:
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=("driver@1:finish.syncfs.before:1",))
    sandbox.steps.kill("driver@1:finish.syncfs.before:1", driver)
    assert driver.end() == -9
    return sandbox.root / "a"


def test_decision_restore_unsynced_head_after_a_restart_of_the_machine(sandbox: Sandbox) -> None:
    """D5: the outcome was never known to be on disk, so a difference under another boot is a lost write, not a person's edit."""
    crash_between_calls(sandbox).write_text("lost")
    assert facts_under(sandbox, "another boot") == (BootFact.OTHER, DifferenceFact.DIFFERENT, Label.RESTORE_UNSYNCED_HEAD)


def test_a_head_known_synced_makes_a_later_difference_an_outside_change(sandbox: Sandbox) -> None:
    path = crash_between_calls(sandbox)
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=("driver@2:finish.commit.after:1",))
    sandbox.steps.wait("driver@2:finish.commit.after:1", driver)
    assert [event.root for event in sandbox.of_kind(events.Synced)] == [root_hash(Scanner(str(sandbox.root)).scan().image).hex()]
    path.write_text("edited by a person")
    assert facts_under(sandbox, "another boot") == (BootFact.SYNCED, DifferenceFact.DIFFERENT, Label.RECORD_OUTSIDE)
    sandbox.steps.release("driver@2:finish.commit.after:1")
    assert driver.end() == 0


def test_what_was_known_synced_is_not_any_more_once_another_attempt_ran(sandbox: Sandbox) -> None:
    """D5: the attempt ends in the very image that a restore had synced; its own writes of those bytes were never known to be on disk."""
    cut = bash('echo x > b; [ -e "$GATE" ] || kill -9 $PPID; rm -f b')
    assert sandbox.run("run", sandbox.session(bash("echo one > a"), cut)).code == 1
    sandbox.open_gate()
    step = "driver@2:finish.syncfs.before:1"
    driver = sandbox.start("drive", sandbox.state, "--on-interrupted", "reissue", epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == -9
    (synced,) = sandbox.of_kind(events.Synced)
    assert sandbox.of_kind(events.CallSettled)[-1].root == synced.root
    assert facts_under(sandbox, "another boot")[0] is BootFact.OTHER
