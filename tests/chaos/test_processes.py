"""Kills from outside: how a process died is read, never believed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import processes
from chaos.processes import (
    end_everything,
    holds_write_lock,
    is_stopped,
    kill_child,
    kill_other,
    list_alive,
    list_descendants,
    read_stat,
    stop_process,
    wait_all_ended,
    wait_readable,
)
from tests.helpers import is_running, kill_process, wait_until

PARENT = """
import os, sys
pid = os.fork()
if pid == 0:
    {child}
print(pid, flush=True)
sys.stdin.read()
"""
WAITS = "import signal; signal.pause()"
COMMAND = f"os.execve(sys.executable, [sys.executable, '-c', {WAITS!r}], {{'CALL_KEY': 'a/key'}})"
Start = Callable[[str], tuple[subprocess.Popen[bytes], int]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a parent whose child does what it is told; gives the parent and the child's pid. The parent never reaps."""
    parents: list[subprocess.Popen[bytes]] = []

    def begin(child: str) -> tuple[subprocess.Popen[bytes], int]:
        code = PARENT.format(child=child)
        parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        parents.append(parent)
        assert parent.stdout is not None
        return parent, int(parent.stdout.readline())

    yield begin
    for parent in parents:
        for pid in list_descendants(parent.pid):
            os.kill(pid, signal.SIGKILL)
        parent.kill()
        parent.communicate()


def test_the_kill_of_another_s_child_reads_signal_9_and_lets_the_parent_go_on(start: Start) -> None:
    parent, child = start(WAITS)
    assert kill_other(child) == signal.SIGKILL
    assert not is_running(child)
    wait_until(lambda: read_stat(parent.pid)[:1] == ["S"], "the parent to run again")


@pytest.mark.parametrize(
    ("child", "signal_found"),
    [("os._exit(3)", 0), ("os._exit(137)", 0), ("os.abort()", signal.SIGABRT), ("os.kill(os.getpid(), 15)", signal.SIGTERM)],
)
def test_a_process_that_died_otherwise_is_told(child: str, signal_found: int, start: Start) -> None:
    _, pid = start(child)
    wait_until(lambda: read_stat(pid)[:1] == ["Z"], "the child to end by itself")
    assert kill_other(pid) == signal_found


def test_a_kill_of_what_was_reaped_already_is_trouble(start: Start) -> None:
    parent, child = start("os._exit(0)")
    parent.communicate()
    wait_until(lambda: read_stat(child) == [], "the child to be reaped")
    with pytest.raises(ProcessLookupError):
        kill_other(child)


def test_a_killed_child_s_status_is_the_caller_s_to_read() -> None:
    child = subprocess.Popen([sys.executable, "-c", WAITS])
    kill_child(child.pid)
    assert child.wait() == -signal.SIGKILL


def test_descendants_are_listed_without_zombies_and_without_one_tree(start: Start) -> None:
    parent, child = start(WAITS)
    assert list_descendants(parent.pid) == [child]
    assert list_descendants(parent.pid, without=child) == []
    kill_other(child)
    assert read_stat(child)[:1] == ["Z"]
    assert list_descendants(parent.pid) == []


def test_what_lives_has_its_role_and_what_never_passed_a_step_is_a_fork(start: Start) -> None:
    parent, child = start(WAITS)
    (named,) = list_alive(parent.pid, 0, {child: "shim.1"})
    (fork,) = list_alive(parent.pid, 0, {})
    assert (named.pid, named.role, fork.role) == (child, "shim.1", "fork")
    assert named.name.startswith("python")


def test_what_was_executed_for_a_call_is_a_command_whatever_its_pid_was_before(start: Start) -> None:
    parent, child = start(COMMAND)
    wait_until(lambda: list_alive(parent.pid, 0, {child: "shim.1"})[0].role == "command", "the command to be executed")


def test_everything_left_is_ended_and_named(start: Start) -> None:
    parent, child = start(f"import subprocess; subprocess.run([sys.executable, '-c', {WAITS!r}])")
    found = wait_until(lambda: list_descendants(parent.pid) if len(list_descendants(parent.pid)) == 2 else [], "two descendants")
    assert set(end_everything(parent.pid, 0)) == set(found) >= {child}
    assert list_descendants(parent.pid) == []


def test_a_stopped_process_is_seen_stopped_until_it_is_woken(start: Start) -> None:
    _, child = start(WAITS)
    assert not is_stopped(child)
    assert stop_process(child, 30)
    assert is_stopped(child)
    os.kill(child, signal.SIGCONT)
    wait_until(lambda: not is_stopped(child), "the child to go on")
    assert is_running(child)


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_what_has_ended_is_never_taken_for_stopped(end: str, start: Start) -> None:
    _, child = start(end)
    wait_until(lambda: read_stat(child)[:1] == ["Z"], "the child to end by itself")
    assert not stop_process(child, 30)
    assert not is_stopped(child)


def test_a_process_that_does_not_stop_is_trouble(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    _, child = start(WAITS)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    with pytest.raises(TimeoutError, match=rf"^waited 0.01 s for process {child} to stop$"):
        stop_process(child, 0.01)


LOCKS = "import fcntl; file = open({file!r}, 'r+'); fcntl.lockf(file, fcntl.{kind}); open({file!r} + '.locked', 'x'); {waits}"


@pytest.mark.parametrize(("kind", "held"), [("LOCK_EX", True), ("LOCK_SH", False)])
def test_a_write_lock_is_seen_by_who_holds_it(kind: str, held: bool, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    parent, child = start(LOCKS.format(file=str(file), kind=kind, waits=WAITS))
    wait_until((tmp_path / "file.locked").exists, "the child to have its lock")
    assert holds_write_lock(child) is holds_write_lock(child, file) is held
    assert not holds_write_lock(child, tmp_path / "file.locked") and not holds_write_lock(child, tmp_path / "none")
    assert not holds_write_lock(parent.pid)
    kill_other(child)
    assert not holds_write_lock(child)


def test_the_ends_of_several_are_waited_for(start: Start) -> None:
    _, child = start(WAITS)
    _, ended = start("os._exit(0)")
    assert not wait_all_ended([ended, child], 0.01)
    kill_process(child)
    assert wait_all_ended([ended, child], 30)
    assert wait_all_ended([], 0)


def test_a_wait_that_ends_says_what_it_waited_for() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(TimeoutError, match=r"^waited 0.01 s for the end of the world$"):
            wait_readable(reader, 0.01, "the end of the world")
        os.write(writer, b"x")
        wait_readable(reader, 0.01, "a byte that is there")
    finally:
        os.close(reader)
        os.close(writer)


def test_a_name_with_blanks_and_brackets_does_not_confuse_the_status(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to(sys.executable)
    child = subprocess.Popen([str(odd), "-c", f"print(flush=True); {WAITS}"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert int(processes.read_stat(child.pid)[1]) == os.getpid()
    child.kill()
    child.communicate()
