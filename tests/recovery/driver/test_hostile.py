"""Found by an attack from outside: each was a traceback, a hang, a wrong forecast or a command that could run twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.driver.entry import advise
from recovery.driver.order import Act, Order
from tests.helpers import read_contents, wait_until
from tests.recovery.sessions import Sandbox, bash, edit, write


def command(sandbox: Sandbox, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "recovery", *arguments]


def cut_call(sandbox: Sandbox) -> None:
    """A second call that ran and was cut with its shim; driven again it would end well, so that a second run shows."""
    run = 'echo two >> log; [ -e "$GATE" ] || kill -9 $PPID; read -r -t 0.05 <> <(:) || :'
    assert sandbox.run("run", sandbox.session(bash("echo one >> log"), bash(run))).code == 1
    sandbox.open_gate()


@pytest.mark.parametrize("lines", [1, 3, 8])
def test_invariant_I4_a_ledger_that_lost_its_end_never_lets_a_command_run_twice(sandbox: Sandbox, lines: int) -> None:
    cut_call(sandbox)
    whole = sandbox.ledger_path.read_bytes()
    sandbox.ledger_path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-lines]))
    assert sandbox.run("plan", sandbox.state).out.splitlines()[1].startswith("call 2: ledger_damaged")
    assert read_contents(sandbox.root) == {"log": b"one\ntwo\n"}
    sandbox.drive("--on-interrupted", "continue")
    assert read_contents(sandbox.root) == {"log": b"one\n"} and sandbox.labels() == ["ledger_damaged", "restore_and_interrupt"]


def test_rule_S5_a_stopped_shim_is_killed_and_treated_as_gone(sandbox: Sandbox) -> None:
    """Its command's time limit lives in the shim: stopped, nobody would ever end it."""
    driver = sandbox.run("run", sandbox.session(bash("kill -STOP $PPID; echo b >> f; read -r -t 100 <> <(:)", timeout_secs=4)))
    assert driver.code == 1
    assert "ended without an exit record" in driver.sentence()
    sandbox.drive("--on-interrupted", "continue")
    assert read_contents(sandbox.root) == {}


def test_four_drivers_that_begin_one_session_at_once_give_one_session(sandbox: Sandbox) -> None:
    session = sandbox.session(bash('echo start >> "$WITNESS"; echo one >> log'))
    drivers = [sandbox.start("run", session) for _ in range(4)]
    codes = sorted(driver.end() for driver in drivers)
    assert set(codes) <= {0, 1, 75}, [driver.err for driver in drivers]
    if 0 not in codes:
        sandbox.drive()
    assert (read_contents(sandbox.root), sandbox.witnessed()) == ({"log": b"one\n"}, ["start"])
    assert list(sandbox.state.glob("log.sqlite.new-*")) == []


def test_plan_does_not_take_the_last_drivers_restore_for_its_own(sandbox: Sandbox) -> None:
    """What an earlier epoch restored says nothing of what is there now."""
    cut_call(sandbox)
    sandbox.drive(expect=78)  # restored, interrupted, and a person is asked
    (sandbox.root / "new").write_text("by a person")
    told = sandbox.run("plan", sandbox.state)
    assert (told.code, told.out.splitlines()[1].partition(":")[0]) == (2, "record_outside")


def test_a_plan_that_needs_a_person_does_not_promise_to_go_on(sandbox: Sandbox) -> None:
    cut_call(sandbox)
    sandbox.root.rename(sandbox.base / "moved")
    sandbox.root.mkdir()
    (sandbox.root / "another").touch()
    told = sandbox.run("plan", sandbox.state)
    assert told.code == 2 and "root_replaced" in told.out and told.out.splitlines()[0].endswith("then a person is needed")


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)], ids=["stdout", "all"])
def test_closed_standard_handles_stop_no_session(sandbox: Sandbox, closed: tuple[int, ...]) -> None:
    session = sandbox.session(bash("echo one > a"))
    closing = "".join(f" {number}>&-" for number in closed)
    line = " ".join(command(sandbox, "run", str(session))) + closing
    assert subprocess.run(["bash", "-c", line], env=sandbox.environment(None, ()), check=False).returncode == 0
    assert read_contents(sandbox.root) == {"a": b"one\n"}


def test_a_full_device_behind_stdout_and_stderr_stops_no_session(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one > a"))
    with open("/dev/full", "wb") as full:
        environment = sandbox.environment(None, ())
        done = subprocess.run(command(sandbox, "run", str(session)), env=environment, stdout=full, stderr=full, check=False)
    assert done.returncode == 0
    assert read_contents(sandbox.root) == {"a": b"one\n"}


@pytest.mark.parametrize("key", ["workspace", "state"])
def test_a_nul_in_a_directory_is_one_sentence(sandbox: Sandbox, key: str) -> None:
    session = sandbox.session(bash("true"))
    lines = [f'{key} = "a\\u0000"' if line.startswith(key) else line for line in session.read_text().splitlines()]
    session.write_text("\n".join(lines))
    refused = sandbox.run("run", session)
    assert refused.code == 78 and f"{key} holds a NUL character" in refused.sentence()


@pytest.mark.parametrize("body", [b"", b"junk", b"[]", b'{"epoch": "x"}', json.dumps({"epoch": 1 << 63}).encode(), b"[" * 5000])
def test_rule_L1_a_damaged_identity_file_is_an_error_that_names_it_never_an_epoch_of_nothing(sandbox: Sandbox, body: bytes) -> None:
    cut_call(sandbox)
    path = sandbox.state / "identity" / "damaged.json"
    path.write_bytes(body)
    refused = sandbox.drive(expect=78)
    assert "damaged.json: not an identity file" in refused.sentence() and "SESSION_EPOCH" in refused.sentence()
    path.unlink()
    sandbox.drive("--on-interrupted", "continue")


def test_case_05_a_pipe_in_the_place_of_the_ledger_is_set_aside_and_not_waited_for(sandbox: Sandbox) -> None:
    cut_call(sandbox)
    sandbox.ledger_path.unlink()
    os.mkfifo(sandbox.ledger_path)
    assert sandbox.run("plan", sandbox.state).out.splitlines()[1].startswith("call 2: ledger_damaged")
    sandbox.drive("--on-interrupted", "continue")
    assert sandbox.labels() == ["ledger_damaged", "restore_and_interrupt"]
    [kept] = (path for path in sandbox.ledger_path.parent.glob("ledger.aside-*") if not path.name.endswith(".end"))
    assert kept.is_fifo(), "what stood in its place is kept as it was"


def test_a_file_tool_that_refuses_says_why(sandbox: Sandbox) -> None:
    told = sandbox.run("run", sandbox.session(write("a", "one"), edit("a", "two", "three")))
    assert told.code == 0
    line = next(line for line in told.err.splitlines() if line.startswith("call 2 edit"))
    assert line.startswith("call 2 edit: exit 1 (") and "0 paths changed" in line


def test_advice_names_the_state_directory_it_is_about(sandbox: Sandbox) -> None:
    many = bash("for i in {1..80}; do echo $i > f$i; done")
    driver = sandbox.start("run", sandbox.session(many), epoch=1, wait=("driver@1:finish.syncfs.before:1",))
    sandbox.steps.kill("driver@1:finish.syncfs.before:1", driver)
    wait_until(lambda: driver.code is not None, "the driver's end")
    for path in sandbox.root.iterdir():
        path.unlink()
    assert f"recovery drive {Path(sandbox.state)} --accept-outside" in sandbox.drive(expect=78).sentence()


@pytest.mark.parametrize(
    ("option", "accepts", "expected"),
    [
        ("--accept-outside", True, "`recovery act S --accept-outside 1`"),
        ("--accept-outside", False, "`recovery drive S --accept-outside 1`"),
        ("--accept-lost", True, "`recovery drive S --accept-lost 1`"),
    ],
)
def test_advice_names_a_command_that_has_the_option(option: str, accepts: bool, expected: str) -> None:
    act = Act(lambda context: 0, "recovery act S", accepts_outside=accepts)
    assert advise(Order("S", None, act=act), f"`recovery drive STATE_DIR {option} 1`") == expected


def test_a_relative_state_directory_that_is_not_there_yet_is_made(sandbox: Sandbox) -> None:
    told = sandbox.run("run", sandbox.session(bash("echo one > a")), SESSION_STATE_DIR="state-of-mine", SESSION_WORKSPACE="work")
    assert told.code == 0, told.err
    assert (sandbox.base / "state-of-mine" / "log.sqlite").is_file() and read_contents(sandbox.root) == {"a": b"one\n"}


def test_rule_L9_a_state_directory_that_is_taken_away_is_never_begun_anew(sandbox: Sandbox) -> None:
    """The registry of holders remembers that the session had begun: a new log would run its finished calls again."""
    cut_call(sandbox)
    sandbox.state.rename(sandbox.base / "gone")
    refused = sandbox.run("run", sandbox.base / "session.toml")
    assert refused.code == 78 and "the log is missing, though its session has run" in refused.sentence()
    (sandbox.base / "gone").rename(sandbox.state)
    sandbox.drive("--on-interrupted", "continue")
    assert read_contents(sandbox.root) == {"log": b"one\n"}


def test_a_restore_says_where_it_keeps_what_it_moved_away(sandbox: Sandbox) -> None:
    cut_call(sandbox)
    told = sandbox.drive("--on-interrupted", "continue")
    kept = next(line for line in told.err.splitlines() if "what was moved away is in" in line).rpartition(" is in ")[2]
    assert (Path(kept) / "1" / "log").read_bytes() == b"one\ntwo\n"


def test_rule_S1_another_root_put_in_place_between_two_calls_is_never_taken_for_the_workspace(sandbox: Sandbox) -> None:
    """D3 holds before a call as well: the next command must not run in somebody else's tree."""
    step = "driver@1:intent.commit.before:2"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a"), bash("echo two > b")), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == -9
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=("driver@2:decided:1",))
    sandbox.steps.wait("driver@2:decided:1", second)
    sandbox.root.rename(sandbox.base / "moved")
    sandbox.root.mkdir()
    sandbox.steps.release("driver@2:decided:1")
    assert second.end() in (1, 78)
    assert read_contents(sandbox.root) == {}


def test_rule_S1_a_root_exchanged_after_recovery_is_met_by_the_scan_before_the_call(sandbox: Sandbox) -> None:
    """D3: recovery has looked and the side directory is ready; the command must still not run in the other tree."""
    held = "worker@1:ledger.exit.append.after:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a")), epoch=1, wait=(held,))
    sandbox.steps.wait(held, driver)
    sandbox.root.rename(sandbox.base / "moved")
    sandbox.root.mkdir()
    (sandbox.root / "theirs").write_bytes(b"of another tree")
    sandbox.steps.release(held)
    assert driver.end() == 78 and "root_replaced" in driver.sentence()
    assert read_contents(sandbox.root) == {"theirs": b"of another tree"}
