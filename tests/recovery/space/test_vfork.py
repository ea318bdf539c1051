"""A start without a fork: the same end, the same process, as one with it; and what the child's list of calls does."""

import ctypes
import os
import re
import signal

import pytest

from eventlog.events import Exit
from recovery.space import vfork
from recovery.space.marks.choose import explain_mark
from tests.recovery.space.spaces import open_space

pytestmark = pytest.mark.skipif(not vfork.is_available(), reason="this machine starts programs by a fork: no list of calls for it")

LOOK = r"""
grep -E '^(Sig(Ign|Blk|Cgt)|Threads|Seccomp|NoNewPrivs)' /proc/self/status
ls /proc/$$/fd
grep -o 'crashworthy.*c1-a1' /proc/$$/cgroup | head -1
read -r _ _ _ _ group session _ < /proc/$$/stat
[ "$group" = $$ ] && [ "$session" = $$ ] && echo leads its session
env | grep -v '^_=' | grep -v ^SHLVL | sort
pwd
"""


@pytest.fixture(params=["cgroup", "environment"])
def mark(request: pytest.FixtureRequest) -> str:
    reason = explain_mark(request.param)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    return str(request.param)


def look(mark: str) -> str:
    """What a command sees of itself, without what differs between any two."""
    with open_space(mark) as space:
        exited = space.run(LOOK)
        assert exited.exit == Exit("exited", code=0)
        return re.sub(r"test[0-9a-z_]+", "ID", space.output(exited)[0].decode().replace(str(space.base), "BASE"))


def test_a_command_finds_itself_the_same_however_it_was_started(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = look(mark)
    assert "leads its session" in found
    monkeypatch.setattr(vfork, "is_available", lambda: False)
    assert look(mark) == found


def test_a_call_with_a_result_out_of_bounds_ends_the_child_and_the_later_ones_are_not_made() -> None:
    missing = vfork.Call(vfork.CHDIR, (b"/no/such/place",))
    pid, results = vfork.start_calls([vfork.Call(vfork.SETSID), missing, vfork.Call(vfork.SETSID), vfork.END])
    assert os.waitpid(pid, 0)[1] == 127 << 8
    assert results == [pid, -2, None, None]


def test_a_child_whose_parent_is_another_one_executes_nothing() -> None:
    """What tells that the shim was gone before its child asked for its death with it."""
    vector = vfork.make_vector([b"true"])
    address = ctypes.addressof(vector)
    other = os.getpid() + 1
    calls = [vfork.Call(vfork.GETPPID, lowest=other, highest=other), vfork.execute(b"/bin/true", address, address), vfork.END]
    pid, results = vfork.start_calls(calls)
    assert os.waitpid(pid, 0)[1] == 127 << 8
    assert results == [os.getpid(), None, None]


def test_a_program_that_is_not_there_is_passed_over_and_the_next_is_executed() -> None:
    vector = vfork.make_vector([b"sh", b"-c", b"exit 5"])
    nothing = vfork.make_vector([])
    arguments, environment = ctypes.addressof(vector), ctypes.addressof(nothing)
    programs = [vfork.execute(path, arguments, environment) for path in (b"/no/such/sh", b"/bin/sh", b"/bin/true")]
    pid, results = vfork.start_calls([*programs, vfork.END])
    assert os.waitpid(pid, 0)[1] == 5 << 8
    assert results == [-2, None, None, None]


def test_no_handler_of_the_parent_runs_in_the_child() -> None:
    """A child that gets a signal before it executes anything ends of it; nothing of this process is run there."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        tell = vfork.Call(vfork.KILL, (0, signal.SIGTERM))  # the group that it leads by then
        pid, results = vfork.start_calls([vfork.Call(vfork.SETSID), tell, vfork.END])
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
        assert results[0] == pid
        assert seen == []
    finally:
        signal.signal(signal.SIGTERM, before)
