"""When a record is on disk: before anybody is told and before anything follows from it, and never with others waiting for the lock.

The note beside the ledger tells of no line that was not synced; a disk that is slow is played by a process held at its sync.
"""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import durable
from eventlog.ports import SystemClock
from recovery.space.keys import Replay, announce, prepare
from recovery.space.ledger import Ledger, append_fenced, read_end
from recovery.space.lock import PAUSE_SHARE, SHORTEST_PAUSE_SECS, FileLock
from recovery.space.records import Record, ScanFailed
from tests.recovery.space.ledgers import EXITED, PREPARED, STARTED, make_ledger, open_ledger

WAIT_SECS = 60


class Syncs:
    """The syncs of records in this process: of each whether it was left out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[bool] = []
        real = durable.sync_appended

        def sync(descriptor: int, names: list[str], *, is_synced: bool = False) -> None:
            self.seen.append(is_synced)
            real(descriptor, names, is_synced=is_synced)

        monkeypatch.setattr(durable, "sync_appended", sync)

    def take(self) -> list[bool]:
        seen, self.seen = self.seen, []
        return seen


@contextlib.contextmanager
def held_at_its_sync(path: str, record: Record, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another process that has appended a record and whose disk does not take it; killed at the end."""
    reader, writer = os.pipe()

    def hang(*_: object, **__: object) -> None:
        os.write(writer, b".")
        signal.pause()

    if (pid := os.fork()) == 0:
        try:
            monkeypatch.setattr(durable, "sync_appended", hang)
            append_fenced(Ledger(path, SystemClock()), 1, record)
        finally:
            os._exit(1)
    os.close(writer)
    try:
        assert select.select([reader], [], [], WAIT_SECS)[0], f"waited {WAIT_SECS} s for the other one's append"
        yield
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_who_is_at_his_sync_holds_nobody_up_and_is_in_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_ledger(tmp_path, PREPARED)
    assert read_end(made.path) == 3
    with held_at_its_sync(made.path, STARTED, monkeypatch):
        assert read_end(made.path) == 3, "what is not synced is not noted"
        made.refresh()
        assert made.find_holder() is None
        append_fenced(made, 1, ScanFailed(1, 1, "after"))
        assert read_end(made.path) == 5, "the later one's sync covers the earlier record"
    assert made.state.attempts["k"].start == STARTED and made.state.scan_failures == {1: 1}


def test_an_exit_that_another_has_not_synced_is_synced_before_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_ledger(tmp_path, PREPARED, STARTED)
    syncs = Syncs(monkeypatch)
    with held_at_its_sync(made.path, EXITED, monkeypatch):
        assert isinstance(prepare(made, PREPARED), Replay)
        assert (syncs.take(), read_end(made.path)) == ([False], 5)
        assert isinstance(prepare(made, PREPARED), Replay)
        assert syncs.take() == [True], "and only once"


def test_a_sync_that_another_one_has_made_needless_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one overtook another between its lock and its sync."""
    made = make_ledger(tmp_path, PREPARED)
    other = open_ledger(made.path)
    syncs = Syncs(monkeypatch)
    with made.transaction() as transaction:
        transaction.append_shared(STARTED)
        os.pwrite(other._end, b"4\n", 0)  # the other one's note, after a sync that began after the record was written
    assert syncs.take() == [True]


def test_who_was_overtaken_at_his_sync_leaves_the_later_note_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_ledger(tmp_path, PREPARED)
    later = open_ledger(made.path)
    real = durable.sync_appended

    def sync(descriptor: int, names: list[str], *, is_synced: bool = False) -> None:
        monkeypatch.setattr(durable, "sync_appended", real)
        append_fenced(later, 1, ScanFailed(1, 1, "later"))
        real(descriptor, names, is_synced=is_synced)

    monkeypatch.setattr(durable, "sync_appended", sync)
    append_fenced(made, 1, STARTED)
    assert later.state.attempts["k"].start == STARTED
    assert read_end(made.path) == 5


def test_an_announced_attempt_is_synced_with_its_starting_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing follows from it but that, and nobody is told of it."""
    made = make_ledger(tmp_path)
    shim = open_ledger(made.path)
    syncs = Syncs(monkeypatch)
    announce(made, PREPARED)
    assert (syncs.take(), read_end(made.path)) == ([True], 2)
    append_fenced(shim, 1, STARTED)
    assert (syncs.take(), read_end(made.path)) == ([False], 4)


def test_who_tells_of_an_attempt_has_synced_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_ledger(tmp_path)
    syncs = Syncs(monkeypatch)
    prepare(made, PREPARED)
    assert (syncs.take(), read_end(made.path)) == ([False], 3)


class _LettingGo:
    """A clock that passes only by pauses, and has the lock let go once it has passed for so long."""

    def __init__(self, held_secs: float, holder: int) -> None:
        self.now = 0.0
        self._held_secs = held_secs
        self._holder = holder

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self._holder and self.now >= self._held_secs:
            os.kill(self._holder, signal.SIGKILL)
            os.waitpid(self._holder, 0)
            self._holder = 0


@pytest.mark.parametrize("held_secs", [0.00005, 0.001, 0.02, 0.1])
def test_a_lock_that_was_let_go_is_taken_within_a_share_of_the_time_it_was_waited_for(tmp_path: Path, held_secs: float) -> None:
    """No nap is long against what it waits for, so that a lock which many take in turns is not free while all of them sleep."""
    path = str(tmp_path / "lock")
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            with FileLock(path, SystemClock(), "lock").held():
                os.write(writer, b".")
                signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert select.select([reader], [], [], WAIT_SECS)[0], f"waited {WAIT_SECS} s for the lock's holder"
    os.close(reader)
    clock = _LettingGo(held_secs, pid)
    lock = FileLock(path, clock, "lock")
    with lock.held():
        assert held_secs <= clock.now <= (1 + PAUSE_SHARE) * held_secs + SHORTEST_PAUSE_SECS
    lock.close()
