"""Who a process is: pid, start time, boot id, pid namespace; a signal goes to exactly that process or to nobody."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec
import pytest

from eventlog.errors import FenceIncompleteError
from eventlog.ports import FakeHost, LinuxHost, SystemClock
from eventlog.process_identity import ProcessIdentity, identify, identify_self, is_alive, is_dead, open_process, read_start_ticks
from recovery.space.identity import kill_and_wait
from recovery.space.marks import kill_cgroup, kill_mark, list_descendants
from tests.helpers import is_running, wait_until

HOST = LinuxHost()
CLOCK = SystemClock()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """An unrelated process."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = identify(process.pid, HOST)
    assert found is not None
    return found


def changed(identity: ProcessIdentity, **values: object) -> ProcessIdentity:
    return msgspec.structs.replace(identity, **values)


def test_case_30_a_pid_that_is_now_the_id_of_a_thread_means_that_the_process_is_dead() -> None:
    """Pids and thread ids are one sequence: on a busy machine a dead process's number is a thread's after minutes, and stays it as long as
    that thread lives. The kernel refuses such a number with an error of its own, which is no trouble of the session."""
    known, end = queue.SimpleQueue[int](), threading.Event()
    thread = threading.Thread(target=lambda: (known.put(threading.get_native_id()), end.wait()))
    thread.start()
    try:
        dead = changed(identify_self(HOST), pid=known.get(timeout=60))
        with open_process(dead, HOST) as descriptor:
            assert descriptor is None
        assert not is_alive(dead, HOST)
        assert kill_and_wait(dead, HOST, CLOCK, 60)
        assert thread.is_alive()
    finally:
        end.set()
        thread.join()


def test_case_29_identity_holds_from_the_first_moment_and_through_exec() -> None:
    """A hundred starts, read at once: the start time is the same before and after exec, whatever the name says by then."""
    for _ in range(100):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(writer)
                os.read(reader, 1)
                os.execv("/bin/sh", ["sh", "-c", "read x < /dev/null; exec sleep 300"])
            finally:
                os._exit(127)
        os.close(reader)
        first = identify(pid, HOST)
        os.close(writer)
        wait_until(lambda pid=pid: b"sleep" in open(f"/proc/{pid}/cmdline", "rb").read(), "the command after two execs")  # type: ignore[misc]
        assert first is not None and identify(pid, HOST) == first and is_alive(first, HOST)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert not is_alive(first, HOST)


def test_a_name_with_blanks_and_parentheses_changes_nothing(tmp_path: object) -> None:
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a) R 1 (b', 0, 0, 0); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        before = read_start_ticks(process.pid)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert read_start_ticks(process.pid) == before is not None


WRONG = {
    "another start time": lambda identity: changed(identity, start_ticks=identity.start_ticks + 1),
    "another boot": lambda identity: changed(identity, boot_id="another"),
}


@pytest.mark.parametrize("how", WRONG)
def test_case_30_a_pid_that_is_somebody_elses_is_never_signalled(stranger: subprocess.Popen[bytes], how: str) -> None:
    """On a mismatch nothing is signalled, and the process of the record counts as dead."""
    wrong = WRONG[how](identity_of(stranger))
    assert kill_and_wait(wrong, HOST, CLOCK, 1) and not is_alive(wrong, HOST)
    kill_mark("environment:x/c1-a1", wrong, HOST, CLOCK, has_command=False)
    assert stranger.poll() is None and is_running(stranger.pid)


def test_case_30_this_very_process_under_a_strangers_record_is_never_signalled() -> None:
    mine = identify_self(HOST)
    assert kill_and_wait(changed(mine, start_ticks=1), HOST, CLOCK, 1)


def test_case_30_a_record_of_another_namespace_is_not_proved_dead(stranger: subprocess.Popen[bytes]) -> None:
    """S9: FenceIncomplete under the environment mark, and under a cgroup that cannot be seen from here: absent is not empty."""
    foreign = changed(identity_of(stranger), pid_namespace=1)
    with pytest.raises(FenceIncompleteError, match=f"process {stranger.pid} was seen in another pid namespace"):
        kill_mark("environment:x/c1-a1", foreign, HOST, CLOCK, has_command=True)
    with pytest.raises(FenceIncompleteError, match="cannot be seen from here"):
        kill_mark("cgroup:/nowhere/crashworthy.x/c1-a1", foreign, HOST, CLOCK, has_command=True)
    assert stranger.poll() is None


def test_case_30_a_record_of_before_a_reboot_is_dead_and_nobody_is_signalled(stranger: subprocess.Popen[bytes]) -> None:
    """Nothing is asked or signalled then, not even under the environment mark with a dead shim."""
    old = identity_of(stranger)
    host = FakeHost("boot-2", old.pid_namespace)
    kill_mark("environment:x/c1-a1", old, host, CLOCK, has_command=True)
    assert stranger.poll() is None


def test_the_right_process_is_killed_and_waited_for(stranger: subprocess.Popen[bytes]) -> None:
    identity = identity_of(stranger)
    assert is_alive(identity, HOST)
    assert kill_and_wait(identity, HOST, CLOCK, 10)
    assert stranger.wait() == -signal.SIGKILL
    assert not is_alive(identity, HOST)
    assert kill_and_wait(identity, HOST, CLOCK, 1), "dead already"


def test_a_zombie_is_dead(stranger: subprocess.Popen[bytes]) -> None:
    identity = identity_of(stranger)
    with open_process(identity, HOST) as descriptor:
        assert descriptor is not None and not is_dead(descriptor)
        os.kill(stranger.pid, signal.SIGKILL)
        wait_until(lambda: descriptor is not None and is_dead(descriptor), "the death of the process")
    assert not is_alive(identity, HOST)


def test_descendants_are_found_without_the_trees_that_are_spared() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 300 & (sleep 300 & wait) & wait"]) as parent:
        found = wait_until(lambda: [pids for pids in [list_descendants(parent.pid)] if len(pids) == 3], "three descendants")[0]
        middle = next(pid for pid in found if list_descendants(pid))
        assert set(list_descendants(parent.pid, frozenset({middle}))) == set(found) - {middle, *list_descendants(middle)}
        for pid in [*found, parent.pid]:
            os.kill(pid, signal.SIGKILL)


def test_a_leaf_that_is_not_there_is_empty() -> None:
    assert kill_cgroup("/nowhere/leaf", CLOCK)


def test_identities_of_equal_pids_differ() -> None:
    one = ProcessIdentity(1, 1, "boot", 1)
    assert len({one, changed(one, start_ticks=2), changed(one, boot_id="b"), changed(one, pid_namespace=2)}) == 4
