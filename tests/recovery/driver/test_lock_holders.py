"""Rule L4 on real processes: who is frozen with the log's or the ledger's lock is killed by its successor, and nobody else ever is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.step import lock_of, parse_step
from eventlog import events
from eventlog.ports import SystemClock
from eventlog.process_identity import read_stat
from recovery.space.ledger import COMPACT_BYTES, Ledger
from recovery.space.records import ScanFailed
from tests.helpers import is_running, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash

SHORT = {"SESSION_LOCK_SECS": "1"}  # not less: on a busy machine one who is at work may have a lock for that long
LOG_HOLDER = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE')"
FILE_HOLDER = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)"


def freeze(sandbox: Sandbox, step: str, driver: Driver) -> int:
    """Stop the process that comes to `step`, and let it be held by the signal alone; its pid."""
    pid = sandbox.steps.wait(step, driver)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: (read_stat(pid) or ["X"])[0] == "T", f"process {pid} to stop at {step}")
    sandbox.steps.release(step)
    return pid


def start_frozen(sandbox: Sandbox, step: str, **environment: str) -> tuple[Driver, int]:
    """A session of two calls under epoch 1, one process of it frozen at `step`."""
    session = sandbox.session(bash("echo one >> a"), bash("echo two >> a"), on_interrupted="reissue")
    driver = sandbox.start("run", session, epoch=1, wait=(step,), **environment)
    return driver, freeze(sandbox, step, driver)


@contextmanager
def holding(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A stranger who holds a lock."""
    code += "; print('held', flush=True); sys.stdin.readline()"
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.communicate("\n")


def test_rule_L4_a_driver_frozen_inside_its_first_transaction_is_killed_and_leaves_nothing(sandbox: Sandbox) -> None:
    """Its floor is not raised yet: the epoch in its identity file says that it is older."""
    old, pid = start_frozen(sandbox, "driver@1:floor.commit.locked:1")
    new = sandbox.run("drive", sandbox.state, **SHORT)
    assert new.code == 0, new.err
    assert old.end() == -signal.SIGKILL
    assert f"ended process {pid} of epoch 1: it held the lock of the log and did not let go" in new.err
    assert [stored.epoch for stored in sandbox.events() if isinstance(stored.event, events.DriverStarted)] == [2]
    assert (sandbox.root / "a").read_text() == "one\ntwo\n"


def test_rule_L4_a_driver_frozen_inside_the_commit_of_an_outcome_is_killed_and_its_outcome_is_not_there(sandbox: Sandbox) -> None:
    old, _ = start_frozen(sandbox, "driver@1:outcome.commit.locked:1")
    assert sandbox.run("drive", sandbox.state, **SHORT).code == 0
    assert old.end() == -signal.SIGKILL
    assert [stored.epoch for stored in sandbox.events() if isinstance(stored.event, events.CallSettled)] == [2, 2]
    assert sandbox.labels() == ["adopt_exit"]
    assert (sandbox.root / "a").read_text() == "one\ntwo\n"


FIRST_EPOCH = (
    "driver@1:ledger.prepare.append.unsynced:1",
    "spawner@1:ledger.register.append.before:1",
    "worker@1:ledger.register.append.unsynced:1",
    "worker@1:ledger.start.append.before:1",
    "worker@1:ledger.exit.append.unsynced:1",
    "shim.1@1:ledger.start.append.before:1",
    "shim.1@1:ledger.exit.append.unsynced:1",
)


@pytest.mark.parametrize("mark", ["auto", "environment"])
@pytest.mark.parametrize("step", FIRST_EPOCH)
def test_rule_L4_whoever_is_frozen_with_the_ledger_s_lock_is_killed(sandbox: Sandbox, step: str, mark: str) -> None:
    """Also a fork of which nothing stands in the ledger yet, and whose driver is gone: it bears the mark of its epoch."""
    old, pid = start_frozen(sandbox, step, SESSION_KILL_MARK=mark)
    if not step.startswith("driver"):
        old.kill()
    new = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark, **SHORT)
    assert new.code == 0, new.err
    assert f"ended process {pid} of epoch 1: it held the lock of the ledger" in new.err
    assert not is_running(pid)
    assert old.end() == -signal.SIGKILL
    assert (sandbox.root / "a").read_text() == "one\ntwo\n"


def kill_first(sandbox: Sandbox, step: str) -> None:
    """A session of two calls, crashed at a step of its first epoch."""
    session = sandbox.session(bash("echo one >> a"), bash("echo two >> a"), on_interrupted="reissue")
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()


def leave_unstarted(sandbox: Sandbox) -> None:
    kill_first(sandbox, "shim.1@1:start:1")


def leave_stopped(sandbox: Sandbox) -> None:
    """A command runs, its driver is dead, and its shim does not answer who would claim it."""
    gated = 'echo "$CALL_KEY" >> "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo one >> a'
    driver = sandbox.start("run", sandbox.session(bash(gated), bash("echo two >> a"), on_interrupted="reissue"), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    (shim,) = [one.start.identity.pid for one in sandbox.ledger().attempts.values() if one.start and one.prepared.kind == "command"]
    driver.kill()
    os.kill(shim, signal.SIGSTOP)
    sandbox.open_gate()  # for the call that is issued again


def leave_torn(sandbox: Sandbox) -> None:
    kill_first(sandbox, "driver@1:outcome.commit.before:1")
    with sandbox.ledger_path.open("ab") as ledger:
        ledger.write(b"0123456789abcdef")


def leave_large(sandbox: Sandbox) -> None:
    """A ledger that the next driver compacts after its call, beside it what a killed compaction left."""
    kill_first(sandbox, "driver@1:intent.commit.before:2")
    ledger = Ledger(str(sandbox.ledger_path), SystemClock())
    with ledger.transaction() as transaction:
        transaction.append(ScanFailed(1, 1, "x" * COMPACT_BYTES))
    ledger.close()
    Path(f"{sandbox.ledger_path}.new-1").touch()


def leave_unreadable(sandbox: Sandbox) -> None:
    """A call whose outcome cannot be scanned: it left a directory that hides from a user without privileges, as whom all drivers run."""
    if os.geteuid() == 0:
        sandbox.user = 65534
        for path in (sandbox.base, sandbox.root):
            os.chown(path, sandbox.user, sandbox.user)
        sandbox.steps.path.chmod(0o777)
    calls = (bash("echo one >> a; mkdir hidden; chmod 000 hidden"), bash("echo two >> a"))
    first = sandbox.run("run", sandbox.session(*calls, on_interrupted="reissue"), epoch=1)
    assert first.code == 1 and "cannot read hidden" in first.err, first.err


CRASHES = {
    "driver@2:ledger.void.append.before:1": leave_unstarted,
    "driver@2:ledger.void.append.unsynced:1": leave_unstarted,
    "driver@2:ledger.condemn.append.before:1": leave_stopped,
    "driver@2:ledger.condemn.append.unsynced:1": leave_stopped,
    "driver@2:ledger.scan_failed.append.before:1": leave_unreadable,
    "driver@2:ledger.scan_failed.append.unsynced:1": leave_unreadable,
    "driver@2:ledger.seal.tail.before:1": leave_torn,
    "driver@2:ledger.seal.tail.after:1": leave_torn,
    "driver@2:ledger.leftover.unlink.before:1": leave_large,
    "driver@2:ledger.leftover.unlink.after:1": leave_large,
    "driver@2:ledger.compact.write.half:1": leave_large,
    "driver@2:ledger.compact.sync.before:1": leave_large,
    "driver@2:ledger.compact.sync.after:1": leave_large,
    "driver@2:ledger.compact.rename.before:1": leave_large,
    "driver@2:ledger.compact.rename.after:1": leave_large,
}
LATER = {step: crash for step, crash in CRASHES.items() if lock_of(parse_step(step)) == "ledger"}
"""Steps with the ledger's lock that no clean run passes, each with the crash after which the next driver passes it."""


SAMPLE = (
    "driver@2:ledger.void.append.before:1",
    "driver@2:ledger.condemn.append.before:1",
    "driver@2:ledger.scan_failed.append.before:1",
    "driver@2:ledger.seal.tail.before:1",
    "driver@2:ledger.leftover.unlink.before:1",
    "driver@2:ledger.compact.rename.before:1",
)


@pytest.mark.parametrize("step", [step if step in SAMPLE else pytest.param(step, marks=pytest.mark.soak) for step in LATER])
def test_rule_L4_a_driver_frozen_with_the_ledger_s_lock_in_its_recovery_is_killed(sandbox: Sandbox, step: str) -> None:
    """The third driver ends it and comes to the end that the second was on its way to."""
    LATER[step](sandbox)
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    pid = freeze(sandbox, step, second)
    if (hidden := sandbox.root / "hidden").exists():
        hidden.chmod(0o755)
    third = sandbox.run("drive", sandbox.state, epoch=3, **SHORT)
    assert third.code == 0, third.err
    assert f"ended process {pid} of epoch 2: it held the lock of the ledger and did not let go" in third.err
    assert second.end() == -signal.SIGKILL
    assert (sandbox.root / "a").read_text() == "one\ntwo\n"


def test_rule_L4_a_shim_without_whom_nothing_is_provable_is_named_and_left_alone(sandbox: Sandbox) -> None:
    """Under the environment mark its death would leave its command's unprovable for ever; let go on, it records the exit."""
    old, pid = start_frozen(sandbox, "shim.1@1:ledger.exit.append.before:1", SESSION_KILL_MARK="environment")
    old.kill()
    new = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK="environment", **SHORT)
    assert new.code == 1
    assert f"LogBusy: held by pid {pid} (" in new.sentence() and new.sentence().endswith("(environment mark); let it go on")
    os.kill(pid, signal.SIGCONT)
    assert sandbox.run("drive", sandbox.state, SESSION_KILL_MARK="environment").code == 0
    assert sandbox.labels() == ["adopt_exit"]


@pytest.mark.parametrize("what", ["log", "ledger"])
def test_rule_L4_a_stranger_is_named_and_never_killed(sandbox: Sandbox, what: str) -> None:
    step = "driver@1:intent.commit.before:2"
    old = sandbox.start("run", sandbox.session(bash("echo one >> a"), bash("echo two >> a")), epoch=1, wait=(step,))
    sandbox.steps.kill(step, old)
    path = sandbox.log if what == "log" else sandbox.state / "space" / "ledger.lock"
    with holding(LOG_HOLDER if what == "log" else FILE_HOLDER, path) as stranger:
        refused = sandbox.run("drive", sandbox.state, **SHORT)
        assert refused.code == 1
        assert f"LogBusy: held by pid {stranger.pid} ({sys.executable} -c import " in refused.sentence()
        assert stranger.poll() is None
    assert stranger.returncode == 0
    sandbox.drive()


def unshare() -> list[str]:
    """A command that runs another in a pid namespace of its own; skips where that cannot be had."""
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    command += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here (unshare --pid)")
    return command


def test_rule_L4_a_holder_in_another_pid_namespace_is_pid_0_and_left_alone(sandbox: Sandbox) -> None:
    """A driver of an older epoch, seen from where its pid means nothing."""
    old, pid = start_frozen(sandbox, "driver@1:outcome.commit.locked:1")
    arguments = [*unshare(), sys.executable, "-m", "recovery", "drive", str(sandbox.state)]
    refused = subprocess.run(arguments, env=sandbox.environment(2, ()) | SHORT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1, refused.stderr
    assert "LogBusy: held by pid 0 (a process that is not visible from here)" in refused.stderr
    assert is_running(pid)
    os.kill(pid, signal.SIGCONT)
    assert old.end() == 0


def test_rule_L9_the_identity_file_of_a_command_does_not_say_that_there_was_a_log(sandbox: Sandbox) -> None:
    """An import that was killed in an empty directory has left its file; a session can begin there all the same, and sweeps it away."""
    directory = sandbox.state / "identity"
    directory.mkdir(parents=True, mode=0o700)
    file = directory / "0a.json"
    file.write_text(
        '{"nonce": "0a", "pid": 1, "start_ticks": 1, "boot_id": "gone", "pid_namespace": 1, "epoch": 0, "purpose": "import"}'
    )
    assert sandbox.run("run", sandbox.session(bash("echo one > a"))).code == 0
    assert not file.exists()
