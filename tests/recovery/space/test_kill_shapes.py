"""Kill completeness (I7, S8, S9): every kill mark against every way of getting out of reach, on real processes.

Whether a writer lives is decided from outside, by /proc and by what becomes of the file it writes: never by what the engine says.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eventlog import events
from recovery.space.marks import KINDS
from recovery.space.marks.choose import explain_mark
from tests.helpers import is_running, kill_process, read_contents, read_tree, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash
from tests.recovery.space.shapes import SHAPES

PROGRAM = Path(__file__).with_name("shapes.py")
NAMES = [shape.__name__ for shape in SHAPES]
MARKS = [pytest.param(kind, marks=pytest.mark.skipif(bool(why), reason=f"{kind}: {why}")) for kind in KINDS for why in [explain_mark(kind)]]
SOAK_SECS = 2.0
ACT_SECS = 0.3  # fifteen times what a writer pauses for


def let_loose(sandbox: Sandbox, shape: str) -> str:
    """A command line that lets this shape loose, and goes on when it has written."""
    late, pids = sandbox.root / "late", sandbox.base / "pids"
    wait = f"until [ -s {pids} -a -s {late} ]; do sleep 0.01; done"
    return f"rm -f {late} {pids}; {sys.executable} -I -S {PROGRAM} {shape} {late} {pids} & {wait}"


def start_shape(sandbox: Sandbox, shape: str, mark: str) -> Driver:
    """A session whose command does so and stays; returns when it has written."""
    late, pids = sandbox.root / "late", sandbox.base / "pids"
    driver = sandbox.start("run", sandbox.session(bash(let_loose(sandbox, shape) + "; sleep 300")), epoch=1, SESSION_KILL_MARK=mark)
    wait_until(lambda: pids.exists() and late.exists() and late.stat().st_size > 0, f"the writers of {shape}")
    return driver


def living(sandbox: Sandbox) -> list[int]:
    """The writers that live, told by what is in their memory of how they were started: the path they write to, and by their pids outside.

    A zombie leader with a living thread counts as living.
    """
    wanted = os.fsencode(str(sandbox.root / "late"))
    last = int(Path("/proc/loadavg").read_text().split()[4])
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    pids.sort(key=lambda pid: (pid > last, -pid))  # the youngest first: they are the first to go
    return [pid for pid in pids if _is_writer(Path("/proc", str(pid)), wanted)]


def _is_writer(process: Path, wanted: bytes) -> bool:
    try:
        return any(
            (task / "stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
            and wanted in (task / "cmdline").read_bytes().split(b"\0")
            for task in (process / "task").iterdir()
        )
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_acting(sandbox: Sandbox) -> bool:
    """Whether the file changes: a line of processes that each live for a moment is seen by what it does, not by looking at processes."""
    late = sandbox.root / "late"

    def size() -> int:
        return late.stat().st_size if late.exists() else -1

    before = size()
    try:
        return wait_until(lambda: size() != before, "a change", ACT_SECS)
    except AssertionError:
        return False


@pytest.fixture
def loose(sandbox: Sandbox) -> Iterator[Sandbox]:
    """A sandbox whose writers are ended afterwards, whatever became of the test."""
    yield sandbox
    for _ in range(50):
        found = living(sandbox)
        for pid in found:
            try:
                kill_process(pid)
            except ProcessLookupError:
                continue
        if not found:
            return


def make_unclaimable(sandbox: Sandbox) -> None:
    """The shim lives and does not answer: its attempt is condemned."""
    for name in (sandbox.state / "space" / "sockets").iterdir():
        name.unlink()


@pytest.mark.parametrize("shape", NAMES)
@pytest.mark.parametrize("mark", MARKS)
def test_case_32_a_takeover_ends_every_shape_before_it_touches_a_path(loose: Sandbox, mark: str, shape: str) -> None:
    driver = start_shape(loose, shape, mark)
    driver.kill()
    make_unclaimable(loose)
    assert is_acting(loose) or living(loose), "a test of nothing"
    second = loose.run("drive", loose.state, SESSION_KILL_MARK=mark)
    assert living(loose) == []
    assert second.code == 78, second.err
    assert not is_acting(loose)
    assert (loose.settled()[0][2], read_contents(loose.root)) == ("interrupted", {})
    assert {event.kill_mark for event in loose.of_kind(events.DriverStarted)} == {mark}


@pytest.mark.parametrize("mark", MARKS)
def test_rule_S11_a_shim_ends_every_shape_before_the_exit_record(loose: Sandbox, mark: str) -> None:
    """One call for each shape; each shim is held before it records, and what lives then is looked at from outside."""
    at = {shape: f"shim.{number}@1:ledger.exit.before:1" for number, shape in enumerate(NAMES, 1)}
    session = loose.session(*(bash(let_loose(loose, shape)) for shape in NAMES))
    driver = loose.start("run", session, epoch=1, wait=tuple(at.values()), SESSION_KILL_MARK=mark)
    for shape, step in at.items():
        loose.steps.wait(step, driver)
        assert (shape, living(loose), is_acting(loose)) == (shape, [], False)
        loose.steps.release(step)
    assert driver.end() == 0, driver.err


@pytest.mark.soak
@pytest.mark.parametrize("shape", NAMES)
@pytest.mark.parametrize("mark", MARKS)
def test_case_32_two_seconds_later_the_workspace_still_equals_the_image(loose: Sandbox, mark: str, shape: str) -> None:
    driver = start_shape(loose, shape, mark)
    driver.kill()
    make_unclaimable(loose)
    assert loose.run("drive", loose.state, SESSION_KILL_MARK=mark).code == 78
    before = read_tree(loose.root)
    with pytest.raises(AssertionError, match="waited 2 s"):
        wait_until(lambda: read_tree(loose.root) != before or living(loose), "a change of the workspace", SOAK_SECS)


@pytest.mark.parametrize("mark", [mark for mark in MARKS if mark.values[0] != "environment"])
def test_case_32_a_fork_bomb_whose_shim_is_dead_is_ended(loose: Sandbox, mark: str) -> None:
    """Processes that each live for a moment, and nobody who inherits them: they are met all the same."""
    driver = start_shape(loose, "fork_bomb", mark)
    kill_process(find_shim(loose))
    assert driver.end() == 1, driver.err
    if mark == "pid-namespace":
        wait_until(lambda: not is_acting(loose), "the end of the namespace, whose first process ends with the shim")
    else:
        assert is_acting(loose)
    second = loose.run("drive", loose.state, SESSION_KILL_MARK=mark)
    assert second.code == 78, second.err
    assert not is_acting(loose)
    assert (loose.settled()[0][2], read_contents(loose.root)) == ("interrupted", {})


@pytest.mark.parametrize("mark", MARKS)
def test_failure_an_orphan_of_an_older_epoch_is_found_by_every_later_advance(loose: Sandbox, mark: str) -> None:
    """Driver and spawner of epoch 1 die, then the driver of epoch 2 after its advance and before its first kill."""
    driver = start_shape(loose, "cleaned", mark)
    spawner = next(helper.registered.identity.pid for helper in loose.ledger().helpers.values() if helper.registered.role == "spawner")
    kill_process(spawner)
    driver.kill()
    make_unclaimable(loose)
    step = "driver@2:kill.before:1"
    second = loose.start("drive", loose.state, epoch=2, wait=(step,), SESSION_KILL_MARK=mark)
    loose.steps.kill(step, second)
    assert living(loose), "a test of nothing"
    third = loose.run("drive", loose.state, SESSION_KILL_MARK=mark)
    assert (third.code, living(loose), is_acting(loose)) == (78, [], False), third.err
    assert read_contents(loose.root) == {}


@pytest.mark.parametrize("mark", MARKS)
def test_failure_what_was_started_without_a_starting_mark_never_acts(sandbox: Sandbox, mark: str) -> None:
    """A shim that stands before its starting mark while two epochs go by: woken, it is refused, and its command never begins."""
    step = "shim.1@1:ledger.start.before:1"
    run = 'echo $$ >> "$WITNESS"; echo one > a'
    driver = sandbox.start("run", sandbox.session(bash(run), on_interrupted="continue"), epoch=1, wait=(step,), SESSION_KILL_MARK=mark)
    pid = sandbox.steps.wait(step, driver)
    driver.kill()
    second = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK=mark)
    assert second.code == 0, second.err
    witnessed = sandbox.witnessed()
    with suppress(BrokenPipeError):  # under some marks it was killed meanwhile
        sandbox.steps.release(step)
    wait_until(lambda: not is_running(pid), "the end of the shim")
    assert sandbox.witnessed() == witnessed and len(witnessed) == 1


@pytest.mark.parametrize("mark", MARKS)
def test_failure_nothing_of_the_old_driver_acts_while_the_new_one_does(loose: Sandbox, mark: str) -> None:
    """The old driver is only stopped. Before the new one looks at the workspace, everything of the old epoch is dead."""
    driver = start_shape(loose, "cleaned", mark)
    os.kill(driver.pid, signal.SIGSTOP)
    make_unclaimable(loose)
    step = "driver@2:gather.before:1"
    second = loose.start("drive", loose.state, epoch=2, wait=(step,), SESSION_KILL_MARK=mark)
    loose.steps.wait(step, second)
    assert (living(loose), is_acting(loose)) == ([], False)
    assert not [helper for helper in loose.ledger().helpers.values() if is_running(helper.registered.identity.pid)]
    loose.steps.release(step)
    assert second.end() == 78, second.err
    os.kill(driver.pid, signal.SIGCONT)
    assert driver.end() == 75, driver.err


def find_shim(sandbox: Sandbox) -> int:
    """The pid of the shim of the one command."""
    return next(attempt.start.identity.pid for attempt in sandbox.ledger().attempts.values() if attempt.prepared.call and attempt.start)


@pytest.mark.parametrize("mark", MARKS)
def test_case_32_with_its_shim_killed_first_a_writer_is_dead_or_nothing_is_touched(loose: Sandbox, mark: str) -> None:
    """The hardest writer, and nobody left who knew it. A pass with a living writer is a failure."""
    driver = start_shape(loose, "cleaned", mark)
    writer = int((loose.base / "pids").read_text().split()[-1]) if mark != "pid-namespace" else 0
    shim = find_shim(loose)
    kill_process(shim)
    assert driver.end() == 1, driver.err
    for pid in living(loose):
        with contextlib.suppress(ProcessLookupError):  # a namespace's, which ends with the shim
            os.kill(pid, signal.SIGSTOP)  # so that every inode, time and byte can be compared; no kill needs it to run
    before = read_tree(loose.root)
    for _ in range(2):
        second = loose.run("drive", loose.state, SESSION_KILL_MARK=mark)
        if not living(loose):
            assert mark != "environment"
            assert second.code == 78, second.err
            assert (loose.settled()[0][2], read_contents(loose.root)) == ("interrupted", {})
            return
        assert (mark, second.code) == ("environment", 1), second.err
        assert second.sentence().startswith(f"recovery: FenceIncomplete: shim {shim} is dead")
        assert "no workspace path was touched" in second.sentence()
        if (Path("/proc", str(writer), "stat").read_text().rpartition(")")[2].split()[1]) == "1":
            assert f"{writer} (" in second.sentence()
        assert read_tree(loose.root) == before
        assert not loose.labels() and not loose.settled()
