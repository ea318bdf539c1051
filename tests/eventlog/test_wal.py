"""Case 18: a reader pins the write-ahead log. It grows while it is pinned, the reader is named, and it shrinks to the stated bound."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from eventlog import codec, connection, wal
from eventlog.errors import BusyError, ReplacedError
from eventlog.ports import CountingIds, FakeClock, RandomIds
from eventlog.reader import Reader
from eventlog.values import Epoch
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM
from tests.helpers import kill_process, wait_until

KIB, MIB = 1 << 10, 1 << 20
COMMIT_BYTES = 40 * connection.PAGE_BYTES
"""More than one append of these tests writes to the WAL."""

SLOW_READER = """
import apsw, sys
c = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
c.execute("BEGIN").fetchall()
rows = c.execute("SELECT value FROM meta UNION ALL SELECT value FROM meta")
print(next(rows), flush=True)
for line in sys.stdin:
    print(next(rows, "end"), flush=True)
"""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On tmpfs where there is one: these tests sync thousands of times, and no test here is about power."""
    with tempfile.TemporaryDirectory(prefix="eventlog-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        yield Path(directory)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A driver at epoch 1, over an empty workspace."""
    made = support.open_writer(support.create_small(tmp_path), busy_ms=1000)
    made.raise_floor(STREAM, Epoch(1), support.started())
    yield made
    made.close()


@contextmanager
def slow_reader(path: str) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of a read transaction; it reads one row more for each line it gets."""
    process = subprocess.Popen([sys.executable, "-c", SLOW_READER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline()
        yield process
    finally:
        kill_process(process.pid)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def read_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline()


def commit(writer: Writer, count: int) -> None:
    """`count` commits of 32 KiB that do not compress."""
    for _ in range(count):
        writer.append(STREAM, Epoch(1), [support.note("x")], [codec.encode_blob(os.urandom(32 * KIB))], "note")


def test_case_18_a_slow_reader_pins_the_wal_is_named_and_when_it_leaves_the_wal_shrinks(writer: Writer) -> None:
    told: list[wal.Pinned] = []
    writer.on_pinned_wal = told.append
    with slow_reader(writer.path) as process:
        for _ in range(4):
            commit(writer, 500)
            read_on(process)
        pinned_bytes = wal.wal_bytes(writer.path)
        assert pinned_bytes > 2000 * 32 * KIB
        sizes = [wal.WARN_BYTES, *(pinned.wal_bytes for pinned in told)]
        assert len(told) >= 2 and sizes[1] > sizes[0] and all(after > 2 * before for before, after in pairwise(sizes[1:]))
        assert [holder.pid for holder in told[0].holders] == [process.pid] and "apsw" in told[0].holders[0].command
        assert f"pinned by pid {process.pid} (" in str(told[0])
    commit(writer, 2)  # the first brings everything over, the second begins the WAL anew
    assert wal.wal_bytes(writer.path) <= connection.WAL_BYTES + COMMIT_BYTES
    left = wal.wal_bytes(writer.path)
    assert writer.tidy(FakeClock()) == wal.Tidied(left)
    assert wal.wal_bytes(writer.path) == 0 and not verify(writer.reader).findings


def test_case_18_a_stopped_reader_is_named_too(writer: Writer) -> None:
    with slow_reader(writer.path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        commit(writer, 300)
        clock = FakeClock()
        pinned = writer.tidy(clock, wait_secs=1.0)
        assert isinstance(pinned, wal.Pinned) and [holder.pid for holder in pinned.holders] == [process.pid]
        assert pinned.wal_bytes > 300 * 32 * KIB and clock.pauses == 20  # it waited the second it was given
        commit(writer, 1)  # and nobody is kept from writing
    assert isinstance(writer.tidy(FakeClock()), wal.Tidied) and wal.wal_bytes(writer.path) == 0


def test_case_18_a_reader_of_ours_does_not_pin_the_wal(writer: Writer) -> None:
    reader = Reader.open(writer.path)
    seen, most = 0, 0
    events = reader.events(STREAM)  # a report in the middle of its reading
    next(events)
    for _ in range(8):
        commit(writer, 250)
        seen += sum(1 for _ in reader.events(STREAM))
        most = max(most, wal.wal_bytes(writer.path))
    assert seen > 8_000 and most <= connection.WAL_BYTES + 2 * COMMIT_BYTES
    assert isinstance(writer.tidy(FakeClock()), wal.Tidied)
    assert len(list(events)) == 1  # up to the head there was when it began
    reader.close()


def test_case_18_a_reader_open_during_10_000_appends_leaves_the_wal_bounded_and_then_it_shrinks(writer: Writer) -> None:
    reader = Reader.open(writer.path)
    events = reader.events(STREAM)
    next(events)  # a report in the middle of its reading
    most = 0
    for _ in range(100):
        for _ in range(100):
            support.add(writer, 1, "one of ten thousand")
        position = reader.stream(STREAM)
        assert position is not None and reader.changes(STREAM, position.head_seq) == ()
        most = max(most, wal.wal_bytes(writer.path))
    assert MIB < most <= connection.WAL_BYTES + COMMIT_BYTES
    assert isinstance(writer.tidy(FakeClock()), wal.Tidied) and wal.wal_bytes(writer.path) == 0
    assert len(list(events)) == 1 and len(support.texts(writer.path)) == 10_000
    reader.close()


def test_a_wait_ends_as_soon_as_the_reader_has_left(writer: Writer) -> None:
    with slow_reader(writer.path) as process:
        commit(writer, 5)

        class Leaving(FakeClock):
            def pause(self, seconds: float) -> None:
                super().pause(seconds)
                if self.pauses == 3:
                    kill_process(process.pid)

        clock = Leaving()
        assert isinstance(writer.tidy(clock, wait_secs=60.0), wal.Tidied)
        assert 3 <= clock.pauses < 100


def test_between_its_tries_tidying_holds_nobody_up(writer: Writer) -> None:
    other = support.open_writer(writer.path, first_id=5_000_000)  # it does not wait for locks

    class Appending(FakeClock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            support.add(other, 1, "in between")

    support.add(writer, 1, "what the reader sees")
    with slow_reader(writer.path):
        assert isinstance(writer.tidy(Appending(), wait_secs=0.2), wal.Pinned)
    other.close()
    assert support.texts(writer.path) == ["what the reader sees", *["in between"] * 4]


def test_an_append_after_tidying_waits_for_the_lock_as_long_as_before(tmp_path: Path) -> None:
    path, clock = support.create_small(tmp_path), FakeClock()
    waiting = Writer.open(path, CountingIds(7_000_000), clock=clock, busy_ms=3000)
    waiting.raise_floor(STREAM, Epoch(1), support.started())
    assert isinstance(waiting.tidy(FakeClock()), wal.Tidied)
    holder = apsw.Connection(path)
    holder.execute("BEGIN IMMEDIATE")
    begun = clock.monotonic()
    with pytest.raises(BusyError):
        support.add(waiting, 1, "too early")
    assert clock.monotonic() - begun >= 3.0
    holder.execute("ROLLBACK")
    holder.close()
    waiting.close()


def test_rule_L5_a_wal_that_is_not_the_databases_own_is_not_brought_into_it(writer: Writer) -> None:
    commit(writer, 3)
    before = Path(writer.path).read_bytes()
    os.rename(writer.path + "-wal", writer.path + "-away")
    with pytest.raises(ReplacedError):
        writer.tidy(FakeClock())
    assert Path(writer.path).read_bytes() == before


def test_settings_are_set_and_read_back(writer: Writer) -> None:
    assert writer.reader.rows("PRAGMA wal_autocheckpoint") == [(connection.WAL_PAGES,)]
    assert writer.reader.rows("PRAGMA journal_size_limit") == [(connection.WAL_BYTES,)]


def test_a_large_commit_leaves_a_large_wal_only_until_it_is_begun_anew(writer: Writer) -> None:
    writer.insert_blobs([codec.encode_blob(os.urandom(MIB)) for _ in range(24)])
    assert wal.wal_bytes(writer.path) > 24 * MIB
    commit(writer, 2)
    assert wal.wal_bytes(writer.path) <= connection.WAL_BYTES


def test_case_18_a_log_with_a_large_wal_opens_after_a_kill(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)

    def grow_and_die() -> None:
        doomed = support.open_writer(path)
        doomed._handle.pragma("wal_autocheckpoint", 0)
        doomed.raise_floor(STREAM, Epoch(1), support.started())
        for number in range(25):
            doomed.insert_blobs([codec.encode_blob(os.urandom(MIB)) for _ in range(8)])
            support.add(doomed, 1, f"{number}")
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WTERMSIG(support.run_in_child(grow_and_die)) == signal.SIGKILL
    assert wal.wal_bytes(path) > 200 * MIB
    assert support.texts(path) == [f"{number}" for number in range(25)]
    successor = Writer.open(path, RandomIds())
    successor.raise_floor(STREAM, Epoch(2), support.started("n2"))
    assert isinstance(successor.tidy(FakeClock()), wal.Tidied) and wal.wal_bytes(path) == 0
    assert not verify(successor.reader).findings
    successor.close()


def test_nobody_is_named_where_there_is_no_index(tmp_path: Path) -> None:
    assert wal.find_pins(str(tmp_path / "log.sqlite")) == ()


def test_where_the_kernel_cannot_be_asked_somebody_may_have_the_log_open(tmp_path: Path) -> None:
    path = str(tmp_path / "log.sqlite")
    Path(path + "-shm").mkdir()
    assert (wal.find_openers(path), wal.find_pins(path)) == ((wal.Holder(0, ""),), ())


def test_who_has_a_log_open_is_found_before_it_is_opened_here(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    assert wal.find_openers(path) == ()
    with slow_reader(path) as process:
        assert [holder.pid for holder in wal.find_openers(path)] == [process.pid]
    wait_until(lambda: not wal.find_openers(path), "nobody with the log open")


def test_a_warning_comes_once_for_each_doubling_and_again_after_a_recovery(tmp_path: Path) -> None:
    path, told = str(tmp_path / "log.sqlite"), []
    watch = wal.Watch(threshold=100)
    for size in (100, 101, 200, 203, 500, 10, 101):
        Path(path + "-wal").write_bytes(bytes(size))
        watch.look(path, lambda pinned: told.append(pinned.wal_bytes))
    assert told == [101, 203, 500, 101]


def test_a_process_that_cannot_be_seen_is_said_to_be_one() -> None:
    holders = (wal.Holder(0, ""), wal.Holder(7, "cat \x1b[31m"), wal.Holder(8, ""))
    expected = "pinned by a process that cannot be seen from here, pid 7 (cat \\x1b[31m), pid 8"
    assert str(wal.Pinned(9, holders)) == f"the WAL has 9 bytes and is {expected}"
