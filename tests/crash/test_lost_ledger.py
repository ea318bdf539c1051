"""A ledger that is missing, damaged, or not the one in force (D2, S10, I5): made anew in a takeover, what it knew taken for unknown."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog import events
from recovery.facts import LedgerFact
from recovery.gather import open_ledger_fact
from recovery.opening import read_log
from recovery.space.ledger import LedgerView
from tests.crash.person import begun
from tests.helpers import is_running, kill_process, read_contents, wait_until
from tests.recovery.sessions import Sandbox, bash, write

GATED = 'echo "$CALL_KEY $$" >> "$WITNESS"; echo half > half; until [ -e "$GATE" ]; do sleep 0.01; done; echo late > late'
RENEWALS = ("ledger_lost", "ledger_damaged", "ledger_exchanged", "complete_without_ledger")


def take_away(sandbox: Sandbox) -> None:
    sandbox.ledger_path.unlink()


def damage(sandbox: Sandbox) -> None:
    data = sandbox.ledger_path.read_bytes()
    sandbox.ledger_path.write_bytes(data.replace(b'"generation":1', b'"generation":2'))


def cut_off(sandbox: Sandbox) -> None:
    lines = sandbox.ledger_path.read_bytes().splitlines(keepends=True)
    sandbox.ledger_path.write_bytes(b"".join(lines[:-2]))


def exchange(sandbox: Sandbox) -> None:
    other = sandbox.base / "other"
    other.mkdir()
    session = sandbox.session(bash("true"), file="o.toml", name="other", workspace=str(other), state=str(sandbox.base / "state-2"))
    assert sandbox.run("run", session).code == 0
    shutil.copy(sandbox.base / "state-2" / "space" / "ledger", sandbox.ledger_path)
    (sandbox.state / "space" / "ledger.end").unlink()
    shutil.copy(sandbox.base / "state-2" / "space" / "ledger.end", sandbox.state / "space" / "ledger.end")


LOSSES: dict[str, Callable[[Sandbox], None]] = {
    "ledger_lost": take_away, "ledger_damaged": damage, "ledger_exchanged": exchange,
}  # fmt: skip


def cut_call(sandbox: Sandbox, *, policy: str = "never", **settings: str) -> None:
    """A second call that ran to its end, whose exit is in the ledger and not in the log: with its ledger it would be adopted."""
    session = sandbox.session(bash("echo one > a"), bash('echo "$CALL_KEY" >> "$WITNESS"; echo two > b', policy=policy), **settings)
    step = "driver@1:outcome.commit.before:2"
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()


def kept_aside(sandbox: Sandbox) -> list[Path]:
    return sorted(path for path in (sandbox.state / "space").glob("ledger.aside-*") if not path.name.endswith(".end"))


@pytest.mark.parametrize("label", LOSSES)
def test_rule_D2_a_ledger_that_is_not_sound_is_made_anew_and_the_open_call_is_unknown(sandbox: Sandbox, label: str) -> None:
    cut_call(sandbox, on_interrupted="continue")
    LOSSES[label](sandbox)
    bytes_before = sandbox.ledger_path.read_bytes() if sandbox.ledger_path.exists() else None
    planned = sandbox.run("plan", sandbox.state)
    assert planned.code == 2 and f"call 2: {label}: " in planned.out, planned.out + planned.err
    assert (sandbox.ledger_path.read_bytes() if sandbox.ledger_path.exists() else None) == bytes_before, "plan makes nothing"
    driver = sandbox.drive()
    assert f"the ledger was {sandbox.of_kind(events.RecoveryDecided)[0].facts['ledger']}" in driver.err
    assert sandbox.labels() == [label, "restore_and_interrupt"]
    assert sandbox.settled() == [(1, 1, "finished", "live"), (2, 1, "interrupted", "restore_and_interrupt")]
    assert read_contents(sandbox.root) == {"a": b"one\n"} and len(sandbox.witnessed()) == 1
    header = sandbox.ledger().header
    opened = sandbox.of_kind(events.SessionOpened)[0]
    assert header is not None and (header.ledger_id, header.generation) == (opened.ledger_id, 2)
    assert [path.read_bytes() for path in kept_aside(sandbox)] == ([] if bytes_before is None else [bytes_before])


def test_rule_D2_what_a_new_ledger_knows_nothing_of_runs_again_only_after_a_restore(sandbox: Sandbox) -> None:
    cut_call(sandbox, policy="after-restore")
    take_away(sandbox)
    sandbox.drive()
    assert sandbox.labels() == ["ledger_lost", "restore_and_rerun", "rerun_restored"]
    assert sandbox.settled()[1:] == [(2, 2, "finished", "live")] and len(sandbox.witnessed()) == 2
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}


def test_rule_D2_an_attempt_that_a_lost_ledger_might_have_known_is_never_voided(sandbox: Sandbox) -> None:
    """Killed before the starting mark: with its ledger the attempt never started, without it nobody knows."""
    step = "driver@1:intent.commit.after:2"
    session = sandbox.session(bash("echo one > a"), bash("echo two > b"), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    take_away(sandbox)
    sandbox.drive()
    assert sandbox.labels() == ["ledger_lost", "restore_and_interrupt"]


def test_rule_D2_calls_that_have_their_end_stand_and_the_session_goes_on(sandbox: Sandbox) -> None:
    begun(sandbox)
    take_away(sandbox)
    sandbox.drive()
    assert sandbox.labels() == ["ledger_lost"] and {ended for _, _, ended, _ in sandbox.settled()} == {"finished"}
    assert len(sandbox.of_kind(events.SessionFinished)) == 1


@pytest.mark.parametrize("label", ["ledger_lost", "ledger_damaged"])
def test_decision_complete_without_ledger_when_it_is_lost_in_a_restore(sandbox: Sandbox, label: str) -> None:
    """D1: the obligation binds; the new ledger is made first, then the restore carried out, once."""
    (sandbox.root / "kept").write_text("kept")
    step = "shim.1@1:ended:1"
    session = sandbox.session(bash("echo one > a; echo more >> kept"), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    step = "worker@2:restore.displace.move.after:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    LOSSES[label](sandbox)
    assert "complete_without_ledger" in sandbox.run("plan", sandbox.state).out
    sandbox.drive()
    assert sandbox.labels() == ["restore_and_interrupt", "complete_without_ledger", "complete_restore"]
    assert len(sandbox.of_kind(events.RestoreFinished)) == 1 and read_contents(sandbox.root) == {"kept": b"kept"}
    [quarantined] = sandbox.of_kind(events.Quarantined)
    assert {str(path).partition("/")[2] for path in quarantined.paths} == {"a", "kept"}, "what both rounds displaced"


@pytest.mark.parametrize(
    "step",
    [
        "driver@2:renew.kill.before:1",
        "driver@2:decision.commit.before:1",
        "driver@2:decision.commit.after:1",
        "driver@2:ledger.aside.move.after:1",
        "driver@2:ledger.aside.move.after:2",
        "driver@2:ledger.create.sync.before:1",
        "driver@2:ledger.create.link.after:1",
        "driver@2:ledger.create.unlink.after:1",
        "driver@2:takeover.killed:1",
    ],
)
def test_rule_S10_a_driver_killed_while_it_makes_a_ledger_is_followed_by_one_that_ends_the_same(sandbox: Sandbox, step: str) -> None:
    cut_call(sandbox, on_interrupted="continue")
    cut_off(sandbox)
    damaged = sandbox.ledger_path.read_bytes()
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    sandbox.drive(epoch=3)
    labels = sandbox.labels()
    assert labels[-1] == "restore_and_interrupt" and 1 <= sum(label in RENEWALS for label in labels) <= 2, labels
    assert read_contents(sandbox.root) == {"a": b"one\n"} and len(sandbox.witnessed()) == 1
    assert damaged in [path.read_bytes() for path in kept_aside(sandbox)], "never unlinked, never overwritten"
    assert sandbox.ledger().floor == 3 == read_log(str(sandbox.state)).floor
    view = LedgerView(str(sandbox.ledger_path))
    view.close()
    assert open_ledger_fact(view, read_log(str(sandbox.state))) is LedgerFact.SOUND


def test_rule_S10_what_carries_the_marks_of_a_lost_ledger_is_dead_before_there_is_a_new_one(sandbox: Sandbox) -> None:
    """The command of a driver that was killed runs on; nothing lists it any more."""
    driver = sandbox.start("run", sandbox.session(bash(GATED), on_interrupted="continue"), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    command = int(sandbox.witnessed()[0].split()[1])
    started = sandbox.of_kind(events.DriverStarted)[0]
    if started.kill_mark != "cgroup":
        pytest.skip(f"under the kill mark {started.kill_mark} its death cannot be proved: the next test has that")
    kill_process(driver.pid)
    take_away(sandbox)
    step = "driver@2:decision.commit.before:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.wait(step, second)
    assert not is_running(command) and not sandbox.ledger_path.exists()
    sandbox.steps.release(step)
    assert second.end() == 0, second.err
    sandbox.open_gate()
    assert read_contents(sandbox.root) == {} and sandbox.labels() == ["ledger_lost", "restore_and_interrupt"]


def test_rule_S10_what_cannot_be_proved_dead_without_the_ledger_waits_for_a_persons_word(sandbox: Sandbox) -> None:
    session = sandbox.session(bash(GATED), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1, SESSION_KILL_MARK="environment")
    wait_until(sandbox.witnessed, "the command's start")
    driver.kill()
    command = int(sandbox.witnessed()[0].split()[1])
    take_away(sandbox)
    refused = sandbox.drive(expect=1)
    assert "FenceIncomplete" in refused.err and f"`recovery settle {sandbox.state} --processes-dead`" in refused.err
    assert sandbox.labels() == [] and not sandbox.ledger_path.exists() and (sandbox.root / "half").exists()
    wait_until(lambda: not is_running(command), "the end of the command, which was seen alive")
    assert sandbox.run("settle", sandbox.state, "--processes-dead").code == 0
    assert sandbox.labels() == ["ledger_lost"] and b'"by":"person"' in sandbox.ledger_path.read_bytes()
    sandbox.drive()
    assert sandbox.labels() == ["ledger_lost", "restore_and_interrupt"] and read_contents(sandbox.root) == {}


def test_invariant_I5_a_damaged_ledger_still_says_how_high_the_floor_was(sandbox: Sandbox) -> None:
    """An old log is put back and the ledger is damaged behind the newest takeover: the next epoch is above all that was used."""
    cut_call(sandbox, on_interrupted="continue")
    old = {name: (sandbox.state / name).read_bytes() for name in ("log.sqlite", "log.sqlite-wal")}
    step = "driver@7:outcome.commit.before:1"
    driver = sandbox.start("drive", sandbox.state, epoch=7, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    for path in (sandbox.state / "identity").iterdir():
        path.unlink()
    for name, data in old.items():
        (sandbox.state / name).write_bytes(data)
    (sandbox.state / "log.sqlite-shm").unlink()
    with sandbox.ledger_path.open("ab") as file:
        file.write(b"f" * 32 + b" {}\n")
    sandbox.drive()
    assert read_log(str(sandbox.state)).floor == 8 == sandbox.ledger().floor
    assert "ledger_damaged" in sandbox.labels()


def test_invariant_I5_an_epoch_that_a_damaged_ledger_has_seen_is_not_given_again(sandbox: Sandbox) -> None:
    cut_call(sandbox)
    old = {name: (sandbox.state / name).read_bytes() for name in ("log.sqlite", "log.sqlite-wal")}
    assert sandbox.run("drive", sandbox.state, "--on-interrupted", "continue", epoch=7).code == 0
    for name, data in old.items():
        (sandbox.state / name).write_bytes(data)
    (sandbox.state / "log.sqlite-shm").unlink(missing_ok=True)
    with sandbox.ledger_path.open("ab") as file:
        file.write(b"f" * 32 + b" {}\n")
    refused = sandbox.run("drive", sandbox.state, epoch=5)
    assert refused.code == 75 and sandbox.labels() == [], refused.err


def test_rule_S10_a_driver_that_was_superseded_while_it_made_a_ledger_leaves_the_newer_one(sandbox: Sandbox) -> None:
    """It stands before the ledger's lock; the next driver makes its own; woken, it is fenced and moves nothing."""
    cut_call(sandbox, on_interrupted="continue")
    take_away(sandbox)
    step = "driver@2:decision.commit.after:1"
    slow = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.wait(step, slow)
    sandbox.drive(epoch=3)
    whole = sandbox.ledger_path.read_bytes()
    sandbox.steps.release(step)
    assert slow.end() == 75, slow.err
    assert sandbox.ledger_path.read_bytes() == whole and kept_aside(sandbox) == []


def test_a_lost_ledger_does_not_keep_a_file_call_from_running_again(sandbox: Sandbox) -> None:
    step = "worker@1:file.rename.after:1"
    driver = sandbox.start("run", sandbox.session(write("a", "new")), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    take_away(sandbox)
    os.unlink(sandbox.state / "space" / "ledger.end")
    sandbox.drive()
    assert sandbox.settled() == [(1, 2, "finished", "live")] and read_contents(sandbox.root) == {"a": b"new"}
