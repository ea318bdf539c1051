"""Rule S11 beyond the kill mark: what left its cgroup, what was given to somebody else, and who must never be ended."""

import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog.ports import LinuxHost
from eventlog.process_identity import identify_self
from recovery.left_behind import LONG_MS, choose_newest
from recovery.space import users
from recovery.space.marks.cgroup import explain_cgroup_base
from recovery.space.records import Start
from recovery.space.users import find_users, list_begun_since
from tests.helpers import is_running, kill_process, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash
from tests.recovery.space.test_left_behind import records, sleepers

NO_CGROUP = explain_cgroup_base()[1] or ("" if os.geteuid() == 0 else "only root moves a process between cgroups")


@pytest.mark.skipif(bool(NO_CGROUP), reason=NO_CGROUP)
@pytest.mark.parametrize("policy", ("kill", "keep", "fail"))
def test_rule_S11_what_moved_itself_out_of_its_cgroup_is_ended_by_its_descent(sandbox: Sandbox, policy: str) -> None:
    base, moved = explain_cgroup_base()[0], sandbox.root / "moved"
    escape = f"echo $BASHPID > {base}/cgroup.procs && touch {moved} && exec sleep 300.{id(sandbox)}"
    calls = (bash(f"(setsid bash -c '{escape}' > /dev/null 2>&1 &); until [ -e {moved} ]; do sleep 0.01; done"), bash("true"))
    driver = sandbox.run("run", sandbox.session(*calls, left_behind=policy), SESSION_KILL_MARK="cgroup")
    assert driver.code == (78 if policy == "fail" else 0), driver.err
    assert sleepers(sandbox) == []
    assert [(record["survivors"], record["left"]) for record in records(sandbox, "exit") if "/d" not in str(record["key"])][0] == (1, 0)


class Held:
    """A driver whose only command says its key and waits to be let go on."""

    def __init__(self, sandbox: Sandbox, **session: str) -> None:
        self.sandbox = sandbox
        self.said, self.gate = sandbox.base / "said", sandbox.base / "gate"
        script = f"echo $CALL_KEY > {self.said}.new; mv {self.said}.new {self.said}; until [ -e {self.gate} ]; do sleep 0.01; done"
        self.driver: Driver = sandbox.start("run", sandbox.session(bash(script), **session), epoch=1)
        wait_until(self.said.exists, "the command's start")
        self.key = self.said.read_text().strip()

    def let_go(self) -> Driver:
        self.gate.touch()
        self.driver.end()
        return self.driver


@contextmanager
def begun(start: Callable[[], int]) -> Iterator[int]:
    pid = start()
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def daemon_starts(environment: dict[str, str], directory: Path) -> Callable[[], int]:
    """A sleeper that is no child of any command, as an outside daemon would start one."""
    return lambda: subprocess.Popen(["sleep", "1000"], env={"PATH": os.defpath, **environment}, cwd=directory, start_new_session=True).pid


def at_a_terminal(environment: dict[str, str], directory: Path) -> Callable[[], int]:
    def start() -> int:
        pid, _ = pty.fork()
        if pid == 0:
            os.chdir(directory)
            os.execvpe("sleep", ["sleep", "1000"], {"PATH": os.defpath, **environment})
        wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the sleeper at the terminal")
        return pid

    return start


def test_rule_S11_what_a_daemon_runs_for_the_call_is_ended_before_its_outcome(sandbox: Sandbox) -> None:
    held = Held(sandbox)
    with begun(daemon_starts({"CALL_KEY": held.key}, Path("/"))) as pid:
        assert held.let_go().code == 0, held.driver.err
        assert not is_running(pid)


def test_rule_I7_what_a_cut_call_handed_on_is_dead_before_a_path_is_restored(sandbox: Sandbox) -> None:
    """Its shim and driver are killed; what a daemon runs for it is in no mark and would write on while the workspace is restored."""
    held = Held(sandbox, on_interrupted="continue")
    shim = next(record["identity"]["pid"] for record in records(sandbox, "start") if record["key"] == held.key)
    with begun(daemon_starts({"CALL_KEY": held.key}, Path("/"))) as pid:
        kill_process(held.driver.pid)
        kill_process(shim)
        step = "driver@2:restored.syncfs.before:1"
        second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
        sandbox.steps.wait(step, second)
        assert not is_running(pid), "before the restore is said to have ended, and before its first move"
        sandbox.steps.release(step)
        assert second.end() == 0, second.err
    assert sandbox.labels() == ["restore_and_interrupt"]


def test_rule_I7_what_a_cut_call_handed_on_is_dead_before_anything_is_discarded(sandbox: Sandbox) -> None:
    held = Held(sandbox, on_interrupted="continue")
    shim = next(record["identity"]["pid"] for record in records(sandbox, "start") if record["key"] == held.key)
    with begun(daemon_starts({"CALL_KEY": held.key}, Path("/"))) as pid:
        kill_process(held.driver.pid)
        kill_process(shim)
        step = "driver@2:decision.commit.before:2"
        second = sandbox.start("settle", sandbox.state, "--discard", "1", epoch=2, wait=(step,))
        sandbox.steps.wait(step, second)
        assert not is_running(pid), "before what is to go is looked for"
        sandbox.steps.release(step)
        assert second.end() == 0, second.err


def test_rule_S11_and_counts_where_nothing_may_be_left(sandbox: Sandbox) -> None:
    held = Held(sandbox, left_behind="fail")
    with begun(daemon_starts({"CALL_KEY": held.key}, Path("/"))) as pid:
        driver = held.let_go()
        assert (driver.code, is_running(pid)) == (78, False)
        assert f"call 1 left 1 processes running, which were ended (left_behind = fail): {pid} (sleep); its outcome" in driver.err


def test_rule_S11_a_person_s_process_in_the_workspace_is_named_and_lives(sandbox: Sandbox) -> None:
    held = Held(sandbox)
    with begun(daemon_starts({"CALL_KEY": held.key + "0"}, sandbox.root)) as pid:
        assert held.let_go().code == 0, held.driver.err
        assert is_running(pid)
        assert f"process {pid} (sleep) has as its directory {sandbox.root}; it is not the call's to end" in held.driver.err


def test_rule_S11_what_has_a_terminal_lives_although_it_carries_the_key(sandbox: Sandbox) -> None:
    held = Held(sandbox)
    with begun(at_a_terminal({"CALL_KEY": held.key}, sandbox.root)) as pid:
        assert held.let_go().code == 0, held.driver.err
        assert is_running(pid) and f"process {pid} (sleep) has as its directory" in held.driver.err


def test_users_are_known_by_directory_open_files_and_shared_mappings(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "f").write_bytes(b"x" * 4096)
    script = "import mmap, sys; f = open(sys.argv[1], sys.argv[2]); m = mmap.mmap(f.fileno(), 0, access=eval('mmap.' + sys.argv[3])); " + (
        "f.close() if sys.argv[4] else None; print(flush=True); input()"
    )
    expected = {
        ("r+b", "ACCESS_READ", ""): True,  # open for writing
        ("r+b", "ACCESS_WRITE", "closed"): True,  # mapped shared
        ("rb", "ACCESS_COPY", ""): False,  # only read
    }
    for (mode, access, closed), is_user in expected.items():
        words = ["python3", "-c", script, str(root / "f"), mode, access, closed]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as child:
            assert child.stdout is not None and child.stdout.readline() == b"\n"
            found = find_users([child.pid], str(root), "", LinuxHost())
            child.communicate(b"\n")
        assert [user.writes for user in found] == ([(str(root / "f"),)] if is_user else []), (mode, access, closed)


def test_the_begun_are_told_by_number_also_when_numbers_began_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users.os, "listdir", lambda path: ["1", "7", "8", "9", "self"])
    for before, now, expected in ((7, 8, [8]), (8, 8, []), (8, 1, [1, 9]), (0, 9, [1, 7, 8, 9])):
        monkeypatch.setattr(users, "read_newest", lambda now=now: now)
        assert list_begun_since(before) == expected


def test_rule_S11_an_exit_adopted_long_after_the_start_is_followed_by_a_look_at_everything() -> None:
    """A driver that comes back after hours: numbers may have gone round since, however short the command was."""
    start = Start("k", identify_self(LinuxHost()), "", at_ms=5000, newest=77)
    assert [choose_newest(start, now) for now in (5000, 4999 + LONG_MS)] == [77, 77]
    assert [choose_newest(start, now) for now in (5000 + LONG_MS, 4999)] == [0, 0]
