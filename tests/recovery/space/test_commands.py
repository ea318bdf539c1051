"""Commands as real processes under spawner and shim: how they end, what they may leave behind, where their output goes."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from eventlog import events
from eventlog.events import Exit
from recovery.space.marks import find_cgroup_base
from tests.helpers import is_running, kill_process, read_contents, read_tree, wait_until
from tests.recovery.sessions import Sandbox, bash, find_marked

MARKS = [pytest.param("cgroup", marks=pytest.mark.skipif(not find_cgroup_base(), reason="no writable cgroup v2 here")), "environment"]
OUTPUT_LIMIT = 1 << 20

# Forks twice, makes its own session, closes its handles, clears its environment, ignores TERM, and appends to a file for ever.
DAEMON = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1] + '.new', 'w') as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + '.new', sys.argv[1])
        os.closerange(0, 64)
        os.execve('/bin/bash', ['bash', '-c', 'trap "" TERM; while :; do echo x >> late; sleep 0.01; done'], {})
    os._exit(0)
"""


def daemon(sandbox: Sandbox) -> str:
    """A command line that leaves such a daemon; its pid is in the file `daemon`."""
    (sandbox.base / "daemon.py").write_text(DAEMON)
    place = sandbox.base / "daemon"
    return f"python3 -I -S {sandbox.base}/daemon.py {place}; until [ -e {place} ]; do sleep 0.01; done; "


def exits(sandbox: Sandbox, *runs: str, timeout: float | None = None, **environment: Any) -> list[Exit]:
    """How each of these commands ended, in one session."""
    limit = {} if timeout is None else {"timeout_secs": timeout}
    driver = sandbox.start("run", sandbox.session(*(bash(run, **limit) for run in runs)), **environment)
    assert driver.end() == 0, driver.err
    return [event.exit for event in sandbox.of_kind(events.CallSettled)]


def test_case_33_code_and_signal_are_kept_apart(sandbox: Sandbox) -> None:
    """No code is invented: 137 is not signal 9, and neither is success (I8)."""
    assert exits(sandbox, "exit 0", "exit 3", "kill -9 $$", "exit 137", "kill -SEGV $$", "kill -TERM $$", "no-such-command") == [
        Exit("exited", code=0),
        Exit("exited", code=3),
        Exit("signaled", signal=signal.SIGKILL),
        Exit("exited", code=137),
        Exit("signaled", signal=signal.SIGSEGV),
        Exit("signaled", signal=signal.SIGTERM),
        Exit("exited", code=127),
    ]


def test_case_33_a_command_that_cannot_be_executed_has_no_code(sandbox: Sandbox) -> None:
    """Neither 126 nor 127 is made up for what never ran."""
    assert exits(sandbox, "true", PATH="/nowhere") == [Exit("start_failed", error="ENOENT: No such file or directory: bash")]


def test_case_33_a_command_line_that_is_too_long_has_no_code(sandbox: Sandbox) -> None:
    assert exits(sandbox, ": " + "x" * (200 << 10)) == [Exit("start_failed", error="E2BIG: Argument list too long: bash")]


def test_rule_S5_a_time_limit_says_that_it_was_one(sandbox: Sandbox) -> None:
    """TERM first, and a command that then ends with a code keeps it; KILL for one that ignores it."""
    waits = "while :; do sleep 0.05; done"
    assert exits(sandbox, waits, f"trap 'exit 4' TERM; {waits}", f"trap '' TERM; {waits}", "echo in time", timeout=0.4) == [
        Exit("timed_out", signal=signal.SIGTERM),
        Exit("timed_out", code=4),
        Exit("timed_out", signal=signal.SIGKILL),
        Exit("exited", code=0),
    ]


@pytest.mark.parametrize("mark", MARKS)
def test_case_31_a_grandchild_holding_the_pipe_does_not_hold_the_call(sandbox: Sandbox, mark: str) -> None:
    """The end of the process decides, then a bounded drain; the same under a time limit; what is left behind is ended."""
    run = 'sleep 300 & echo $! >> "$WITNESS"; echo word'
    assert exits(sandbox, run, f"{run}; sleep 300", timeout=1.0, SESSION_KILL_MARK=mark) == [
        Exit("exited", code=0), Exit("timed_out", signal=signal.SIGTERM),
    ]  # fmt: skip
    assert (sandbox.output(1), sandbox.output(2)) == (b"word\n", b"word\n")
    assert not any(is_running(int(pid)) for pid in sandbox.witnessed())


@pytest.mark.parametrize("mark", MARKS)
def test_rule_S11_survivors_are_ended_before_the_exit_record(sandbox: Sandbox, mark: str) -> None:
    """Held at the step before its record, the shim has left nothing alive, however far it went: session, double fork, environment."""
    step = "shim.1@1:ledger.exit.before:1"
    driver = sandbox.start("run", sandbox.session(bash(daemon(sandbox) + "echo ready")), epoch=1, wait=(step,), SESSION_KILL_MARK=mark)
    sandbox.steps.wait(step, driver)
    assert not is_running(int((sandbox.base / "daemon").read_text()))
    late = (sandbox.root / "late").read_bytes()
    sandbox.steps.release(step)
    assert driver.end() == 0, driver.err
    assert read_contents(sandbox.root) == {"late": late}
    assert b'"survivors":0' not in [line for line in sandbox.ledger_path.read_bytes().splitlines() if b'"op":"exit"' in line][-1]


def test_case_34_a_command_outlives_its_driver_and_all_its_output_is_kept(sandbox: Sandbox) -> None:
    """The driver is killed before the first print: the command ends by itself, writes its file, and the next driver has every byte."""
    run = 'echo $$ > "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo one; echo two; echo made > file'
    driver = sandbox.start("run", sandbox.session(bash(run)), epoch=1)
    command = int(wait_until(sandbox.witnessed, "the command's start")[0])
    driver.kill()
    sandbox.open_gate()
    wait_until(lambda: not is_running(command), "the command's own end")
    wait_until(lambda: [attempt for attempt in sandbox.ledger().attempts.values() if attempt.prepared.call and attempt.exit], "its record")
    sandbox.drive()
    assert sandbox.settled() == [(1, 1, "finished", "adopt_exit")]
    assert (sandbox.output(1), read_contents(sandbox.root)) == (b"one\ntwo\n", {"file": b"made\n"})


def test_case_34_a_stopped_driver_stops_no_command(sandbox: Sandbox) -> None:
    """10 MiB of output while the driver is frozen: the shim takes them all."""
    run = 'echo $$ > "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; head -c 10485760 /dev/zero; echo end > file'
    driver = sandbox.start("run", sandbox.session(bash(run)), epoch=1)
    command = int(wait_until(sandbox.witnessed, "the command's start")[0])
    os.kill(driver.pid, signal.SIGSTOP)
    sandbox.open_gate()
    wait_until(lambda: not is_running(command), "the command's end though its driver is stopped")
    os.kill(driver.pid, signal.SIGCONT)
    assert driver.end() == 0
    output = sandbox.of_kind(events.CallSettled)[0].output
    assert (output.total, output.cut) == (10 << 20, True)


def test_case_35_bytes_are_kept_as_they_are(sandbox: Sandbox) -> None:
    """Random bytes, NULs, terminal codes, a lone lead byte at the end; characters across pieces."""
    data = b"\0\x1b[2J\xff" + os.urandom(500_000) + "\u20ac".encode() * 100_000 + b"\xe2"
    (sandbox.base / "data").write_bytes(data)
    assert exits(sandbox, f"cat {sandbox.base}/data") == [Exit("exited", code=0)]
    assert sandbox.output(1) == data


def test_case_35_a_replay_from_the_ledger_gives_the_same_bytes_as_the_live_run(sandbox: Sandbox) -> None:
    data = os.urandom(300_000)
    (sandbox.base / "data").write_bytes(data)
    step = "driver@1:outcome.commit.before:1"
    driver = sandbox.start("run", sandbox.session(bash(f"cat {sandbox.base}/data")), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    sandbox.drive()
    assert sandbox.output(1) == data


def test_case_35_a_long_output_is_cut_in_the_middle_and_says_so(sandbox: Sandbox) -> None:
    exits(sandbox, "head -c 524288 /dev/zero | tr '\\0' a; head -c 1000 /dev/zero | tr '\\0' b; head -c 524288 /dev/zero | tr '\\0' c")
    output = sandbox.of_kind(events.CallSettled)[0].output
    kept = sandbox.output(1)
    assert (output.total, output.cut, output.kept) == (OUTPUT_LIMIT + 1000, True, len(kept))
    assert kept == b"a" * 524288 + b"\n[1000 bytes not kept]\n" + b"c" * 524288


def run_under_terminal(sandbox: Sandbox, session: Path, inherited: int) -> None:
    """Run a session as a person does: from a terminal, with a descriptor open that anything executed inherits."""
    terminal, end = os.openpty()
    command = ["setsid", "-c", "-w", sys.executable, "-m", "recovery", "run", str(session)]
    done = subprocess.run(
        command, env=sandbox.environment(None, ()), stdin=end, pass_fds=[inherited], capture_output=True, timeout=60, check=False
    )
    os.close(terminal)
    os.close(end)
    assert done.returncode == 0, done.stderr


def test_case_36_stdin_at_end_no_terminal(sandbox: Sandbox) -> None:
    """From a driver started in a terminal: a reader without arguments, a question, the terminal device: each ends at once. Of what the
    driver and its starter have open, nothing is open in a command."""
    runs = ("cat", "read answer", "exec 3<>/dev/tty", "[ -t 0 ] || [ -t 1 ] || [ -t 2 ]", "ls -l /proc/$$/fd")
    reader, writer = os.pipe()
    run_under_terminal(sandbox, sandbox.session(*(bash(run, timeout_secs=20) for run in runs)), writer)
    found = [event.exit for event in sandbox.of_kind(events.CallSettled)]
    assert [(one.kind, one.code) for one in found] == [("exited", 0), *[("exited", 1)] * 3, ("exited", 0)]
    for name in (os.readlink(f"/proc/self/fd/{writer}"), str(sandbox.state), "/dev/pts", "socket:"):
        assert name.encode() not in sandbox.output(5)
    os.close(reader)
    os.close(writer)


def test_a_call_is_given_its_input_and_keeps_its_streams_apart(sandbox: Sandbox) -> None:
    """`stdin` and `stderr` of a session file, bytes as they are; the log has one content, stderr's bytes last, and what is which."""
    run = "cat; echo problem >&2; echo done"
    calls = (bash(run, stdin={"b64": "AP9h"}, stderr="separate"), bash(run, stdin="text\n"), bash("echo plain"))
    step = "driver@1:outcome.commit.before:1"
    driver = sandbox.start("run", sandbox.session(*calls), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    sandbox.drive()
    apart, merged, plain = (event.output for event in sandbox.of_kind(events.CallSettled))
    assert sandbox.output(1) == b"\0\xffadone\nproblem\n"
    assert (apart.total, apart.kept, apart.digest) == (16, 16, blake3(b"\0\xffadone\n").hexdigest())
    assert apart.stderr == events.Stderr(8, 8, False, blake3(b"problem\n").hexdigest())
    assert (sandbox.output(2), merged.stderr) == (b"text\nproblem\ndone\n", None)
    script = sandbox.of_kind(events.SessionOpened)[0].script
    assert script[2] == {"tool": "bash", "run": "echo plain", "timeout_secs": None, "policy": "never"}, "a call that asks for nothing new"
    assert plain.missing == "" and not plain.held


def test_a_command_gets_the_environment_and_its_key(sandbox: Sandbox) -> None:
    exits(sandbox, 'echo "$COLOR $CALL_KEY"; env | grep ^SESSION_', COLOR="green")
    colour, key = sandbox.output(1).decode().split()
    assert (colour, key.split("/")[1:]) == ("green", ["nightly", "1", "1", "1"])


@pytest.mark.parametrize("mark", MARKS)
def test_rule_S8_a_takeover_ends_everything_of_a_condemned_attempt(sandbox: Sandbox, mark: str) -> None:
    """The shim lives and does not answer: double fork, own session and a cleaned environment hide nothing from the kill (I7, case 32)."""
    driver = sandbox.start("run", sandbox.session(bash(daemon(sandbox) + "sleep 300")), epoch=1, SESSION_KILL_MARK=mark)
    place = sandbox.base / "daemon"
    pid = int(wait_until(lambda: place.exists() and place.read_text(), "the daemon"))
    wait_until((sandbox.root / "late").exists, "the daemon's first line")
    driver.kill()
    for name in (sandbox.state / "space" / "sockets").iterdir():
        name.unlink()
    second = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark)
    assert second.code == 78, second.err
    assert not is_running(pid) and not find_marked(f"{mark}:{sandbox.of_kind(events.SessionOpened)[0].ledger_id}")
    assert (sandbox.settled()[0][2], read_contents(sandbox.root)) == ("interrupted", {})
    assert sandbox.of_kind(events.DriverStarted)[0].kill_mark == mark


@pytest.mark.parametrize("mark", MARKS)
def test_rule_S8_a_claimed_shim_outlives_the_kill_of_its_spawner(sandbox: Sandbox, mark: str) -> None:
    """Kills are aimed at condemned marks only: spawner and worker of the old epoch die, the claimed command goes on."""
    run = 'echo $$ > "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo one > a'
    driver = sandbox.start("run", sandbox.session(bash(run)), epoch=1, SESSION_KILL_MARK=mark)
    command = int(wait_until(sandbox.witnessed, "the command's start")[0])
    os.kill(driver.pid, signal.SIGSTOP)  # its spawner and file worker are alive when the takeover comes
    helpers = [helper.registered.identity.pid for helper in sandbox.ledger().helpers.values()]
    second = sandbox.start("drive", sandbox.state, epoch=2, SESSION_KILL_MARK=mark)
    wait_until(lambda: sandbox.labels() == ["reattach"], "the decision to reattach")
    assert is_running(command) and len(helpers) == 2 and not any(map(is_running, helpers))
    os.kill(driver.pid, signal.SIGCONT)
    assert driver.end() == 75, driver.err
    sandbox.open_gate()
    assert second.end() == 0, second.err


def test_rule_S8_a_dead_shim_under_the_environment_mark_is_no_proof(sandbox: Sandbox) -> None:
    """FenceIncompleteError: exit 1 with the pid and the reason, no workspace path touched, nothing decided, every time again."""
    driver = sandbox.start("run", sandbox.session(bash(daemon(sandbox) + "sleep 300")), epoch=1, SESSION_KILL_MARK="environment")
    place = sandbox.base / "daemon"
    late = int(wait_until(lambda: place.exists() and place.read_text(), "the daemon"))
    wait_until((sandbox.root / "late").exists, "the daemon's first line")
    shim = next(attempt.start.identity.pid for attempt in sandbox.ledger().attempts.values() if attempt.prepared.call and attempt.start)
    kill_process(shim)
    assert driver.end() == 1
    os.kill(late, signal.SIGSTOP)
    try:
        before = read_tree(sandbox.root)
        for _ in range(2):
            refused = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK="environment")
            assert refused.code == 1
            assert f"shim {shim} is dead and only the environment mark is in force" in refused.sentence()
            assert "no workspace path was touched" in refused.sentence()
            assert is_running(late), "what cannot be found is not said to be dead"
        assert read_tree(sandbox.root) == before
        assert not sandbox.labels() and not sandbox.settled()
    finally:
        kill_process(late)


def test_rule_S6_a_file_worker_below_the_floor_changes_nothing(sandbox: Sandbox) -> None:
    """Held before its starting mark while a newer epoch takes over, it is killed; held again and again no path is changed by it."""
    step = "worker@1:ledger.start.before:2"
    session = sandbox.session({"tool": "write", "path": "a", "content": "x"}, bash("cat a"))
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    worker = sandbox.steps.wait(step, driver)
    second = sandbox.start("drive", sandbox.state, epoch=2)
    assert (second.end(), driver.end()) == (0, 75)
    assert not is_running(worker)
    assert (sandbox.settled(), hashlib.sha256(Path(sandbox.root, "a").read_bytes()).hexdigest()[:8]) == (
        [(1, 2, "finished", "live"), (2, 1, "finished", "live")], hashlib.sha256(b"x").hexdigest()[:8],
    )  # fmt: skip
