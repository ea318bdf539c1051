"""Ending a lock's holder: only the very process, only while it holds the lock (rule L4)."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog import steps
from eventlog.errors import BusyError
from eventlog.holder import Holder, look_up_holder
from eventlog.identity_files import Writing, leave_identity
from eventlog.ports import LinuxHost, SystemClock
from eventlog.process_identity import ProcessIdentity, identify
from recovery import unlock as module
from recovery.unlock import MOST_TRIES, Unlock
from tests.helpers import is_running

HOST = LinuxHost()


@pytest.fixture
def sleeper() -> Iterator[ProcessIdentity]:
    """A process that has left an identity file nowhere yet."""
    process = subprocess.Popen(["sleep", "300"])
    found = identify(process.pid, HOST)
    assert found is not None
    yield found
    process.kill()
    process.wait()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def free(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[Holder | None, Holder | None], bool]:
    """`free_log` of a driver of epoch 2, to whom the lock's holder is shown twice: as the wait ended, and before the kill."""

    def ask(first: Holder | None, again: Holder | None) -> bool:
        monkeypatch.setattr(module, "find_holder", lambda path: again)
        return Unlock(str(tmp_path), 2, SystemClock(), HOST, said.append).free_log(BusyError("busy", first))

    return ask


def leave(directory: Path, identity: ProcessIdentity, epoch: int = 1) -> None:
    leave_identity(str(directory), Writing(f"{epoch:02x}", identity, epoch, "drive"))


Free = Callable[[Holder | None, Holder | None], bool]


def test_rule_L4_an_older_driver_that_still_holds_the_lock_is_killed(
    tmp_path: Path, sleeper: ProcessIdentity, free: Free, said: list[str]
) -> None:
    leave(tmp_path, sleeper)
    holder = look_up_holder(sleeper.pid)
    assert free(holder, holder)
    assert not is_running(sleeper.pid)
    assert said == [f"recovery: ended process {sleeper.pid} of epoch 1: it held the lock of the log and did not let go"]


def test_rule_L4_a_pid_that_is_another_process_by_now_is_not_killed(tmp_path: Path, sleeper: ProcessIdentity, free: Free) -> None:
    """Reused between finding and killing: the pidfd is of the new process, its start time another."""
    dead = ProcessIdentity(sleeper.pid, sleeper.start_ticks - 7, sleeper.boot_id, sleeper.pid_namespace)
    leave(tmp_path, dead)
    found = Holder(dead.pid, dead.start_ticks, "driver")
    assert free(found, found)
    assert is_running(sleeper.pid)


@pytest.mark.parametrize("again", ["nobody", "another", "reused"])
def test_rule_L4_who_has_let_go_meanwhile_is_not_killed(
    tmp_path: Path, sleeper: ProcessIdentity, free: Free, again: str, said: list[str]
) -> None:
    leave(tmp_path, sleeper)
    holders = {"nobody": None, "another": look_up_holder(os.getpid()), "reused": Holder(sleeper.pid, sleeper.start_ticks + 1, "x")}
    assert free(look_up_holder(sleeper.pid), holders[again])
    assert is_running(sleeper.pid) and said == []


@pytest.mark.parametrize("epoch", [2, 3])
def test_rule_L4_a_driver_that_is_not_older_is_not_killed(tmp_path: Path, sleeper: ProcessIdentity, free: Free, epoch: int) -> None:
    leave(tmp_path, sleeper, epoch)
    with pytest.raises(BusyError, match=f"busy; it belongs to epoch {epoch}, which is not older than 2"):
        free(look_up_holder(sleeper.pid), look_up_holder(sleeper.pid))
    assert is_running(sleeper.pid)


def test_rule_L4_a_stranger_is_not_killed(sleeper: ProcessIdentity, free: Free) -> None:
    assert not free(look_up_holder(sleeper.pid), look_up_holder(sleeper.pid))
    assert is_running(sleeper.pid)


def test_rule_L4_the_pidfd_is_opened_before_the_lock_is_asked_for_again(
    tmp_path: Path, sleeper: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    opened = os.pidfd_open
    leave(tmp_path, sleeper)
    monkeypatch.setattr(os, "pidfd_open", lambda pid: order.append("pidfd") or opened(pid))
    monkeypatch.setattr(module, "find_holder", lambda path: order.append("lock"))
    order.clear()
    assert Unlock(str(tmp_path), 2, SystemClock(), HOST, print).free_log(BusyError("busy", look_up_holder(sleeper.pid)))
    assert order == ["pidfd", "lock"]


def test_a_lock_that_always_has_somebody_else_is_given_up(tmp_path: Path) -> None:
    unlock = Unlock(str(tmp_path), 2, SystemClock(), HOST, print)
    assert [unlock.free_log(BusyError("busy")) for _ in range(MOST_TRIES + 1)] == [True] * MOST_TRIES + [False]


def test_the_kill_passes_its_two_steps(tmp_path: Path, sleeper: ProcessIdentity, free: Free) -> None:
    class Hook:
        passed: list[str] = []

        def pass_step(self, step: str) -> None:
            self.passed.append(step.split(":")[1])

    leave(tmp_path, sleeper)
    steps.install(Hook())
    try:
        assert free(look_up_holder(sleeper.pid), None)
        assert Hook.passed == []
        assert free(look_up_holder(sleeper.pid), look_up_holder(sleeper.pid))
    finally:
        steps.install(None)
    assert Hook.passed == ["unlock.kill.before", "unlock.kill.after"]
