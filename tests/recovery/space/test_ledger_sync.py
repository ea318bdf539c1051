"""When a record is on disk: before anybody is told and before anything follows from it, and never with others waiting for the lock.

The note beside the ledger tells of no line that was not synced; a disk that is slow is played by a process held at its sync.
"""

import contextlib
import errno
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog import durable
from eventlog.errors import CorruptError
from eventlog.ports import LinuxHost, SystemClock
from recovery.space import ledger_lines
from recovery.space.attach import FIRST_LOOK_SECS, LOOK_SECS, attach
from recovery.space.keys import Replay, announce, prepare
from recovery.space.ledger import END_SUFFIX, TURN, TURN_SECS, Ledger, LedgerView, append_fenced, read_end
from recovery.space.lock import PAUSE_SHARE, SHORTEST_PAUSE_SECS, FileLock, try_lock
from recovery.space.records import Advance, LedgerState, Record, ScanFailed
from tests.recovery.space.ledgers import EXITED, PREPARED, STARTED, make_ledger, open_ledger, prepare_key

WAIT_SECS = 60
PREPARED_LATER = prepare_key("later")


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


def kill_child(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


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
        kill_child(pid)


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


class _Calling:
    """A clock that passes only by pauses, and calls `act` once it has passed for so long."""

    def __init__(self, seconds: float, act: Callable[[], object]) -> None:
        self.now = 0.0
        self._seconds = seconds
        self._act: Callable[[], object] | None = act

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self._act is not None and self.now >= self._seconds:
            act, self._act = self._act, None
            act()


@contextlib.contextmanager
def holder_of(path: str, byte: int | None = None) -> Iterator[Callable[[], None]]:
    """Another process that has the lock on a file, or on a byte of it, and keeps it, until it is killed by what is given, or at the end."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            assert try_lock(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), byte)
            os.write(writer, b".")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    living = [pid]

    def kill() -> None:
        if living:
            kill_child(living.pop())

    try:
        assert select.select([reader], [], [], WAIT_SECS)[0], f"waited {WAIT_SECS} s for the lock's holder"
        yield kill
    finally:
        os.close(reader)
        kill()


@pytest.mark.parametrize("held_secs", [0.00005, 0.001, 0.02, 0.1])
def test_a_lock_that_was_let_go_is_taken_within_a_share_of_the_time_it_was_waited_for(tmp_path: Path, held_secs: float) -> None:
    """No nap is long against what it waits for, so that a lock which many take in turns is not free while all of them sleep."""
    path = str(tmp_path / "lock")
    with holder_of(path) as kill:
        clock = _Calling(held_secs, kill)
        lock = FileLock(path, clock, "lock")
        with lock.held():
            assert held_secs <= clock.now <= (1 + PAUSE_SHARE) * held_secs + SHORTEST_PAUSE_SECS
        lock.close()


@pytest.mark.parametrize("noted_secs", [0.0, 0.001, 0.02])
def test_who_waits_for_another_one_s_sync_finds_his_line_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted_secs: float) -> None:
    """One sync for all who wait, and no more: they would else queue for the disk."""
    made = make_ledger(tmp_path, PREPARED)
    clock = _Calling(noted_secs, lambda: Path(made.path + END_SUFFIX).write_bytes(b"4\n"))
    mine = Ledger(made.path, clock)
    syncs = Syncs(monkeypatch)
    with holder_of(made.path + END_SUFFIX, TURN):
        append_fenced(mine, 1, STARTED)
    assert (syncs.take(), clock.now <= 2 * noted_secs + 0.001) == ([True], True)
    mine.close()


def test_who_waits_for_one_frozen_in_his_sync_syncs_for_himself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_ledger(tmp_path, PREPARED)
    clock = _Calling(2 * TURN_SECS, lambda: pytest.fail("it waits for longer than TURN_SECS"))
    mine = Ledger(made.path, clock)
    syncs = Syncs(monkeypatch)
    with holder_of(made.path + END_SUFFIX, TURN):
        append_fenced(mine, 1, STARTED)
    assert (syncs.take(), read_end(made.path), clock.now >= TURN_SECS) == ([False], 4, True)
    mine.close()


def test_who_syncs_does_it_for_all_who_have_written_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_ledger(tmp_path, PREPARED)
    other = open_ledger(made.path)
    syncs = Syncs(monkeypatch)
    with made.transaction() as transaction:
        transaction.append_shared(STARTED)
        with other.transaction() as later:  # a lock of this process is no lock to it
            later.announce(PREPARED_LATER)
        del syncs.seen[:]
    assert (syncs.take(), read_end(made.path)) == ([False], 5)
    other.sync()
    assert syncs.take() == [True]


def test_who_follows_a_ledger_folds_no_key_that_it_does_not_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shim wants to know is the floor; eight of them would else fold each other's records eightfold."""
    made = make_ledger(tmp_path)
    folded: list[str] = []
    real = ledger_lines.fold_record

    def fold(state: LedgerState, record: Record, where: str) -> None:
        folded.append(str(record.__struct_config__.tag))
        real(state, record, where)

    follower = open_ledger(made.path)
    monkeypatch.setattr(ledger_lines, "fold_record", fold)
    for record in (PREPARED, STARTED, EXITED):
        append_fenced(follower, 1, record)
    assert (follower.floor, folded) == (1, [])
    with made.transaction() as transaction:
        transaction.append(Advance(2, "log", 1, "hash", {}, []))
    del folded[:]
    follower.refresh()
    assert (follower.floor, folded) == (2, ["prepare", "start", "exit", "advance"]), "in their order, before what may be of them"
    assert follower.state == made.state


def test_a_record_that_no_sound_ledger_holds_is_told_whenever_the_state_is_asked_for(tmp_path: Path) -> None:
    made = make_ledger(tmp_path)
    with pytest.raises(CorruptError, match=r"line 3: key k was never prepared"):
        append_fenced(made, 1, STARTED)
        made.state  # noqa: B018
    for _ in range(2):
        with pytest.raises(CorruptError, match=r"line 3: key k was never prepared"):
            made.state  # noqa: B018
    with pytest.raises(CorruptError, match=r"line 3: key k was never prepared"):
        LedgerView(made.path)


@pytest.mark.parametrize("late_secs", [0.0005, 0.01, 1.0])
def test_an_end_is_told_within_as_long_again_as_it_was_waited_for(tmp_path: Path, late_secs: float) -> None:
    """Who is attached to what has not begun looks at the ledger: soon at first, and never later than LOOK_SECS after."""
    made = make_ledger(tmp_path, PREPARED)
    clock = _Calling(late_secs, lambda: [append_fenced(made, 1, record) for record in (STARTED, EXITED)])
    view = LedgerView(made.path)
    assert attach(str(tmp_path), view, "k", 1, clock, LinuxHost(), lambda *_: None) == EXITED
    assert late_secs <= clock.now <= min(2 * late_secs, late_secs + LOOK_SECS) + FIRST_LOOK_SECS
    view.close()


def test_after_a_sync_that_failed_no_later_one_of_the_handle_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of an error once: the next sync would succeed without what was dropped. A lack of room is tried again."""
    made, real = make_ledger(tmp_path, PREPARED), os.fdatasync

    def fail(number: int) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            raise OSError(number, os.strerror(number))

        return sync

    monkeypatch.setattr(os, "fdatasync", fail(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        append_fenced(made, 1, ScanFailed(1, 1, "one"))
    monkeypatch.setattr(os, "fdatasync", real)
    append_fenced(made, 1, ScanFailed(1, 1, "two"))
    assert read_end(made.path) == 5
    monkeypatch.setattr(os, "fdatasync", fail(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        append_fenced(made, 1, ScanFailed(1, 1, "three"))
    monkeypatch.setattr(os, "fdatasync", real)
    with pytest.raises(OSError, match="failed before"):
        append_fenced(made, 1, ScanFailed(1, 1, "four"))
    assert read_end(made.path) == 5, "what may not be on disk is in no note"


def test_a_forked_process_has_an_open_file_of_its_own(tmp_path: Path) -> None:
    """What a write error is told to: seen by the place in the file, which a shared one would share."""
    made = make_ledger(tmp_path, PREPARED)
    shared = os.dup(made._descriptor)
    made.reopen()
    os.lseek(made._descriptor, 7, os.SEEK_SET)
    assert os.lseek(shared, 0, os.SEEK_CUR) != 7
    os.close(shared)
    append_fenced(made, 1, ScanFailed(1, 1, "goes on"))
    assert open_ledger(made.path).state.scan_failures == {1: 1}
