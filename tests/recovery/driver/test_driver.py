"""The driver as a process: the example session, its lines and exit codes, the fence while it waits, and `plan`."""

import json
import os
import re

import pytest

from eventlog import events
from tests.helpers import read_contents, read_tree, wait_until
from tests.recovery.sessions import Sandbox, bash, edit, write

WAIT_FOR_GATE = 'echo "$CALL_KEY start" >> "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo done | tee -a made.txt'


def test_the_example_session_runs_and_is_told_call_by_call(sandbox: Sandbox) -> None:
    """DESIGN section 10's example: exit 0, one ACK per call that names the outcome's event, its image as hash."""
    driver = sandbox.run("run", sandbox.session(bash("echo one >> log.txt"), write("notes/a.txt", "hello"), mode="transactional"))
    assert driver.code == 0, driver.err
    assert read_contents(sandbox.root) == {"log.txt": b"one\n", "notes": None, "notes/a.txt": b"hello"}
    settled = [(stored.seq, stored.event) for stored in sandbox.events() if isinstance(stored.event, events.CallSettled)]
    assert driver.lines == [f"ACK {event.call} {seq} {event.root}" for seq, event in settled]
    assert driver.err.splitlines() == [
        "call 1 bash: exit 0, 2 paths changed",
        "call 2 write: exit 0, 3 paths changed",
        f"session nightly finished: image {settled[-1][1].root}",
    ]


def test_the_log_of_a_session_tells_all_of_it_in_order(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("echo one > a"), edit("a", "one", "two")))
    assert [stored.event.kind for stored in sandbox.events()] == [
        "session_opened",
        "driver_started",
        "attempt_started",
        "call_settled",
        "attempt_started",
        "call_settled",
        "synced",
        "session_finished",
    ]
    assert [(stored.epoch, stored.seq) for stored in sandbox.events()] == [(0, 1), *((1, seq) for seq in range(2, 9))]


def test_a_command_that_fails_is_a_finished_call(sandbox: Sandbox) -> None:
    """Exit 3 of a command is its result, not the driver's."""
    assert sandbox.run("run", sandbox.session(bash("exit 3"), bash("echo on > on"))).code == 0
    settled = sandbox.of_kind(events.CallSettled)
    assert [(event.ended, event.exit.code) for event in settled] == [("finished", 3), ("finished", 0)]


def test_a_file_tool_that_refuses_is_a_finished_call(sandbox: Sandbox) -> None:
    assert sandbox.run("run", sandbox.session(edit("missing", "a", "b"))).code == 0
    assert sandbox.of_kind(events.CallSettled)[0].exit == events.Exit("exited", code=1)
    assert b"there is no such file" in sandbox.output(1)


def test_a_finished_session_is_left_alone(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one >> log.txt"))
    sandbox.run("run", session)
    before = read_contents(sandbox.root), len(sandbox.events())
    for arguments in (("run", session), ("drive", sandbox.state)):
        again = sandbox.run(*arguments)
        assert again.code == 0
        assert "session nightly has finished" in again.sentence()
    assert (read_contents(sandbox.root), len(sandbox.events())) == before
    assert not list(sandbox.holders.glob("*.json")), "a finished session holds no workspace"


def test_heartbeats_come_from_the_start_while_a_command_runs(sandbox: Sandbox) -> None:
    driver = sandbox.start("run", sandbox.session(bash(WAIT_FOR_GATE)), epoch=3, SESSION_HEARTBEAT_SECS="0.05", wait=())
    assert driver.end() == 78, "a first epoch above 1 says that there was a log (L9)"
    driver = sandbox.start("run", sandbox.session(bash(WAIT_FOR_GATE)), epoch=1, SESSION_HEARTBEAT_SECS="0.05")
    wait_until(lambda: driver.out.count("HEARTBEAT") >= 3, "three heartbeats")
    sandbox.open_gate()
    assert driver.end() == 0
    beats = [line for line in driver.out.splitlines() if line.startswith("HEARTBEAT")]
    assert all(re.fullmatch(r"HEARTBEAT 1 \d{13} [01]", line) for line in beats), beats


def test_a_reader_of_stdout_that_is_gone_stops_no_session(sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")))
    os.close(writer)
    assert driver.end() == 0


def test_a_fenced_driver_that_waits_for_a_command_exits_75(sandbox: Sandbox) -> None:
    """I6, driver contract: a newer epoch takes the running command over; the old driver says nothing more and ends with 75."""
    old = sandbox.start("run", sandbox.session(bash(WAIT_FOR_GATE)), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    new = sandbox.start("drive", sandbox.state, epoch=2)
    assert old.end() == 75, old.err
    assert "epoch 1 is below the floor 2" in old.sentence()
    assert not old.lines
    wait_until(lambda: sandbox.labels() == ["reattach"], "the decision to reattach")
    sandbox.open_gate()
    assert new.end() == 0, new.err
    assert len(sandbox.witnessed()) == 1


def test_a_fenced_driver_whose_command_was_condemned_exits_75(sandbox: Sandbox) -> None:
    """I6: the shim's death by the newer epoch's kill is no lost shim (exit 1): a strictly newer epoch exists."""
    step = "shim.1@1:ledger.start.before:1"
    old = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=(step,))
    sandbox.steps.wait(step, old)
    new = sandbox.start("drive", sandbox.state, epoch=2)
    assert old.end() == 75, old.err
    assert new.end() == 0, new.err
    assert sandbox.labels() == ["void_and_run"]


def test_rule_L1_an_equal_epoch_is_refused_with_exit_1(sandbox: Sandbox) -> None:
    """Two drivers given one epoch: the second is told to start under the next one; 75 would say that a newer epoch exists."""
    old = sandbox.start("run", sandbox.session(bash(WAIT_FOR_GATE)), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    before = len(sandbox.events())
    second = sandbox.run("drive", sandbox.state, epoch=1)
    assert second.code == 1
    assert "epoch 1 is held by another driver; start again under epoch 2" in second.sentence()
    assert len(sandbox.events()) == before
    sandbox.open_gate()
    assert old.end() == 0


def test_rule_L1_an_epoch_below_the_floor_is_refused_with_exit_75(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("true"), bash("kill -9 $PPID")))
    sandbox.drive(epoch=7, expect=78)
    before = len(sandbox.events())
    assert sandbox.run("drive", sandbox.state, epoch=6).code == 75
    assert len(sandbox.events()) == before


def test_rule_L1_the_next_epoch_is_above_everything_ever_intended(sandbox: Sandbox) -> None:
    """A driver killed before it could raise any floor has left its epoch in its identity file."""
    step = "driver@9:floor.commit.before:1"
    session = sandbox.session(bash("true"))
    first = sandbox.start("run", session, epoch=1, wait=("driver@1:outcome.commit.before:1",))
    sandbox.steps.kill("driver@1:outcome.commit.before:1", first)
    second = sandbox.start("drive", sandbox.state, epoch=9, wait=(step,))
    sandbox.steps.kill(step, second)
    sandbox.drive()
    assert [stored.epoch for stored in sandbox.events() if isinstance(stored.event, events.DriverStarted)] == [1, 10]


@pytest.mark.parametrize("what", ["identity file", "ledger", "epoch above 1"])
def test_rule_L9_a_log_that_should_exist_is_never_made_anew(sandbox: Sandbox, what: str) -> None:
    """An identity file, a ledger or a given epoch above 1 says that there was a log."""
    sandbox.state.mkdir(mode=0o700)
    (sandbox.state / "identity").mkdir()
    (sandbox.state / "space").mkdir()
    if what == "identity file":
        (sandbox.state / "identity" / "0a.json").write_text("{}")
    if what == "ledger":
        sandbox.ledger_path.touch()
    session = sandbox.session(bash("echo one > a"))
    before = read_tree(sandbox.state), read_tree(sandbox.root)
    for arguments in (("run", session), ("drive", sandbox.state)) if what != "epoch above 1" else (("run", session),):
        refused = sandbox.run(*arguments, epoch=2 if what == "epoch above 1" else None)
        assert refused.code == 78
        assert "log.sqlite: the log is missing, though its session has run; put it back" in refused.sentence()
    assert (read_tree(sandbox.state), read_tree(sandbox.root)) == before
    assert not list(sandbox.holders.glob("*.json"))


def test_rule_L9_a_log_deleted_after_a_crash_is_never_made_anew(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("true"))
    driver = sandbox.start("run", session, epoch=1, wait=("driver@1:outcome.commit.before:1",))
    sandbox.steps.kill("driver@1:outcome.commit.before:1", driver)
    for name in ("log.sqlite", "log.sqlite-wal", "log.sqlite-shm"):
        (sandbox.state / name).unlink()
    for arguments in (("run", session), ("drive", sandbox.state), ("plan", sandbox.state)):
        assert sandbox.run(*arguments).code == 78
    assert not sandbox.log.exists()


def test_plan_tells_what_a_driver_would_do_and_changes_nothing(sandbox: Sandbox) -> None:
    """Exit 2: something to recover; the state directory and the workspace are untouched."""
    step = "driver@1:outcome.commit.before:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    sandbox.run("plan", sandbox.state)  # the first reader of a killed log makes SQLite's index file anew
    before = read_tree(sandbox.root), {name: node[3] for name, node in read_tree(sandbox.state).items() if not name.endswith("-shm")}
    planned = sandbox.run("plan", sandbox.state)
    assert planned.code == 2
    assert "call 1: adopt_exit: the command ended by itself" in planned.out
    assert planned.out.splitlines()[-1] == "provisional: a driver takes over first, and decides from what it finds then"
    as_json = json.loads(sandbox.run("plan", sandbox.state, "--json").out)
    assert (as_json["label"], as_json["call"], as_json["facts"]["attempt"]) == ("adopt_exit", 1, "exit_clean")
    after = read_tree(sandbox.root), {name: node[3] for name, node in read_tree(sandbox.state).items() if not name.endswith("-shm")}
    assert after == before


def test_plan_says_exit_0_when_there_is_nothing_to_recover(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("true")))
    planned = sandbox.run("plan", sandbox.state)
    assert (planned.code, planned.out) == (0, "session nightly, epoch 1: the session has finished\n")


def test_plan_foretells_a_reattach(sandbox: Sandbox) -> None:
    driver = sandbox.start("run", sandbox.session(bash(WAIT_FOR_GATE)), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    driver.kill()
    planned = sandbox.run("plan", sandbox.state)
    assert planned.code == 2
    assert "call 1: reattach: the command still runs under its shim" in planned.out
    sandbox.open_gate()
    sandbox.drive()


def test_environment_beats_the_session_file(sandbox: Sandbox) -> None:
    other = sandbox.base / "other"
    other.mkdir()
    driver = sandbox.run("run", sandbox.session(bash("echo one > a")), SESSION_WORKSPACE=str(other), SESSION_NAME="renamed")
    assert driver.code == 0, driver.err
    assert read_contents(other) == {"a": b"one\n"} and not read_contents(sandbox.root)
    assert sandbox.of_kind(events.SessionOpened)[0].name == "renamed"


def test_an_existing_session_must_be_the_same_one(sandbox: Sandbox) -> None:
    """A session file whose calls changed is refused, and told how the old session ends."""
    sandbox.run("run", sandbox.session(bash("kill -9 $PPID")))
    other = sandbox.session(bash("echo other > other"), file="other.toml")
    before = read_tree(sandbox.root), len(sandbox.events())
    refused = sandbox.run("run", other)
    assert refused.code == 78
    assert "began with other calls than its file has now; finish it as it began with `recovery drive" in refused.sentence()
    assert (read_tree(sandbox.root), len(sandbox.events())) == before


def test_a_lost_shim_halts_the_driver_with_exit_1(sandbox: Sandbox) -> None:
    """S7: no recovery in place under the same epoch."""
    driver = sandbox.run("run", sandbox.session(bash("kill -9 $PPID; sleep 60")))
    assert driver.code == 1
    assert "ended without an exit record; drive again" in driver.sentence()
    assert [stored.event.kind for stored in sandbox.events()][-1] == "attempt_started"


def test_rule_I2_contents_too_large_for_the_outcomes_commit_go_ahead_in_few_commits(sandbox: Sandbox) -> None:
    """Forty files of 400 KB: what the outcome's own commit does not hold shares one, and the images hold all of it."""
    trace = sandbox.base / "trace"
    many = "for i in {1..40}; do head -c 400000 /dev/urandom > file-$i; done"
    driver = sandbox.run("run", sandbox.session(bash(many), bash("rm file-*")), epoch=1, CRASHWORTHY_STEP_TRACE=str(trace))
    assert driver.code == 0, driver.err
    steps = trace.read_text().split()
    assert [step for step in steps if ":blobs.commit.after:" in step] == ["driver@1:blobs.commit.after:1"]
    assert steps.index("driver@1:blobs.commit.after:1") < steps.index("driver@1:outcome.commit.before:1")


def test_a_tree_of_many_small_files_is_opened_with_one_commit_of_contents(sandbox: Sandbox) -> None:
    trace = sandbox.base / "trace"
    for number in range(200):
        (sandbox.root / f"file-{number}").write_text(f"{number}\n")
    assert sandbox.run("run", sandbox.session(bash("true")), epoch=1, CRASHWORTHY_STEP_TRACE=str(trace)).code == 0
    steps = trace.read_text().split()
    assert [step for step in steps if ":blobs.commit.after:" in step] == ["driver@1:blobs.commit.after:1"]
