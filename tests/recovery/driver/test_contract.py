"""The driver contract: a superseded driver says and writes nothing, and no failure of the machinery is a result."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from eventlog import events
from eventlog.ports import CountingIds, FakeClock
from eventlog.reader import Reader
from eventlog.writer import Writer
from recovery.driver.heartbeat import Heartbeat, watch_floor
from tests.eventlog import support
from tests.helpers import read_contents, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash, write


def freeze_at(sandbox: Sandbox, step: str) -> Driver:
    """The driver of epoch 5, stopped by SIGSTOP at a step; it goes on from there when it is woken."""
    first = sandbox.start("run", sandbox.session(bash("echo one >> a"), bash("echo two >> a")), epoch=1, wait=("driver@1:floor.raised:1",))
    sandbox.steps.kill("driver@1:floor.raised:1", first)
    first.end()
    old = sandbox.start("drive", sandbox.state, epoch=5, wait=(step,), SESSION_HEARTBEAT_SECS="0.02")
    sandbox.steps.wait(step, old)
    os.kill(old.pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(old.pid), "the driver's stop")
    sandbox.steps.release(step)
    return old


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("step", ["driver@5:outcome.commit.before:1", "driver@5:intent.commit.before:2", "driver@5:outcome.commit.after:1"])
def test_case_23_a_driver_that_wakes_after_its_successor_finished_writes_and_says_nothing(sandbox: Sandbox, step: str) -> None:
    """Same host, same worker, an older attempt: heartbeat, outcome and image are refused by the epoch, in the transaction that writes."""
    old = freeze_at(sandbox, step)
    sandbox.drive(epoch=6)
    stood, said, tree = sandbox.events(), old.out, read_contents(sandbox.root)
    holder = list(sandbox.holders.glob("*.json"))
    os.kill(old.pid, signal.SIGCONT)
    assert old.end() == 75, old.err
    assert sandbox.events() == stood and read_contents(sandbox.root) == tree == {"a": b"one\ntwo\n"}
    late = old.out.removeprefix(said).splitlines()
    acks = [line for line in late if line.startswith("ACK")]
    assert len(acks) == (step == "driver@5:outcome.commit.after:1") and len(late) - len(acks) <= 1, late
    assert list(sandbox.holders.glob("*.json")) == holder, "nothing was released in its successor's place"
    assert [end[2] for end in sandbox.settled()] == ["finished", "finished"]


def test_a_heartbeat_from_below_the_floor_is_not_sent() -> None:
    """One more may be on its way when the driver is stopped; none begins after the floor rose."""
    said: list[str] = []
    looks: list[int] = []

    def is_superseded() -> bool:
        looks.append(len(said))
        return len(looks) > 2

    with Heartbeat(1, 0.001, FakeClock(), said.append, lambda: 0, is_superseded):
        wait_until(lambda: len(looks) == 3, "the third look")
    assert (looks, len(said)) == ([0, 1, 2], 2)


def test_a_heartbeat_looks_at_the_ledgers_floor(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("kill -9 $PPID"), on_interrupted="continue"))
    floor = sandbox.ledger().floor
    path = str(sandbox.ledger_path)
    assert (watch_floor(path, floor)(), watch_floor(path, floor - 1)()) == (False, True)
    assert not watch_floor(f"{path}.missing", floor)(), "what cannot be read says nothing"


FAILURES = {
    "the shim is lost": (bash("echo x > a"), "shim.1@1:ended:1", 1),
    "the spawner is lost": (bash("echo x > a"), "spawner@1:start:1", 1),
    "the file worker is lost": (write("a", "x"), "worker@1:start:1", 1),
}


@pytest.mark.parametrize("name", FAILURES)
def test_no_failure_of_the_machinery_is_recorded_as_a_result(sandbox: Sandbox, name: str) -> None:
    """The halt path: the driver ends, the call is open, and what the log says of it later is `interrupted` or a real outcome."""
    call, step, code = FAILURES[name]
    driver = sandbox.start("run", sandbox.session(call, on_interrupted="reissue"), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == code, driver.err
    assert not sandbox.of_kind(events.CallSettled)
    sandbox.drive()
    ends = sandbox.of_kind(events.CallSettled)
    assert all((end.ended == "finished") == (end.exit == events.Exit("exited", code=0)) for end in ends) and ends[-1].ended == "finished"


def test_case_27_events_of_one_millisecond_and_of_a_clock_that_was_set_back_keep_their_order(tmp_path: Path) -> None:
    """Order is the sequence number alone: a hundred events with one timestamp, then an hour earlier, then ten years later."""
    path = support.make_log(tmp_path)
    texts = []
    with contextlib.closing(Writer.open(path, CountingIds(9_000_000))) as writer:
        for number, at in enumerate([5] * 100 + [5 - 3_600_000] + [5 + 10 * 365 * 86_400_000] + [5] * 3):
            texts.append(f"note {number}")
            noted = support.note(texts[-1])
            record = type(noted)(events.Noted(at, texts[-1]))
            writer.append_unfenced(support.STREAM, [record], "note")
    reader = Reader.open(path)
    found = [stored.event.text for stored in reader.events(support.STREAM) if isinstance(stored.event, events.Noted)]
    reader.close()
    assert found[-len(texts) :] == texts
