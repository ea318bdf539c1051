"""Case 24: who will write takes the write lock first, waits for it within a bound, and begins anew; nobody starves, busy is no outcome."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from eventlog import connection
from eventlog.busy import NAPS_MS, BusyWait
from eventlog.errors import BusyError
from eventlog.ports import FakeClock, RandomIds
from eventlog.reader import Reader
from eventlog.values import Epoch, StreamId
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM, add
from tests.eventlog.test_held_files import hold_lock
from tests.eventlog.test_two_writers import run_at_once

APPENDS = 1000


@pytest.fixture
def quick_directory() -> Iterator[Path]:
    """A directory in memory where there is one: thousands of synced commits."""
    place = tempfile.mkdtemp(prefix="eventlog-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield Path(place)
    shutil.rmtree(place)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.create_small(tmp_path)


def test_case_24_waiting_is_bounded_and_names_the_holder(log: str) -> None:
    holder = hold_lock(log)
    clock = FakeClock()
    begun = clock.monotonic()
    writer = Writer.open(log, RandomIds(), clock=clock)
    for _ in range(2):
        before = clock.monotonic()
        with pytest.raises(BusyError, match=rf"LogBusy: held by pid {holder.pid} \(.+\); try again, or end that process"):
            add(writer, 0, "x")
        waited = clock.monotonic() - before
        assert connection.BUSY_MS / 1000 <= waited <= connection.BUSY_MS / 1000 + 0.01, "each append has the whole bound"
    assert clock.monotonic() > begun
    holder.communicate("\n")
    assert add(writer, 0, "x")[0].seq == 2
    writer.close()


def test_naps_stay_short_and_end_at_the_bound() -> None:
    clock = FakeClock()
    wait = BusyWait(clock, 100)
    naps = []
    for looks in range(1000):
        before = clock.monotonic()
        if not wait(looks):
            break
        naps.append(clock.monotonic() - before)
    else:
        pytest.fail("it never gave up")
    assert max(naps) <= max(NAPS_MS) / 1000 + 1e-9 and 0.1 <= sum(naps) <= 0.1 + 0.001
    assert wait(0), "a new wait has a new bound"


def test_case_24_a_deferred_transaction_would_fail_at_once_and_ours_reads_again(log: str) -> None:
    """What the case is about: a snapshot read before the lock is stale for ever, however long one waits."""
    naive = apsw.Connection(log)
    naive.set_busy_timeout(60_000)
    naive.execute("BEGIN").fetchall()
    naive.execute("SELECT head_seq FROM stream").fetchall()
    writer = support.open_writer(log)
    add(writer, 0, "came between")
    with pytest.raises(apsw.BusyError):
        naive.execute("UPDATE stream SET head_seq = head_seq + 1").fetchall()
    naive.execute("ROLLBACK").fetchall()
    naive.close()
    other = support.open_writer(log, first_id=5_000_000)
    other.reader.floor(STREAM)  # what ours has read before does not count either
    add(writer, 0, "again")
    assert add(other, 0, "after both")[0].seq == 4
    other.close()
    writer.close()


def read_then_append(path: str, who: int, go: int, rounds: int) -> None:
    """The pattern of case 24 through the library: read the head, then append what depends on it."""
    writer = Writer.open(path, RandomIds(), busy_ms=300_000)  # twelve on a loaded machine: five seconds may not do
    os.read(go, 1)
    for number in range(rounds):
        row = writer.reader.stream(STREAM)
        assert row is not None
        add(writer, row.floor, f"{who}:{number} saw {row.head_seq}")
    writer.close()


def test_case_24_twelve_processes_that_read_then_append_lose_nothing_and_never_hear_busy(log: str) -> None:
    go_read, go_write = os.pipe()
    os.write(go_write, b"g" * 12)
    statuses = run_at_once([lambda who=who: read_then_append(log, who, go_read, 25) for who in range(12)])  # type: ignore[misc]
    os.close(go_read)
    os.close(go_write)
    assert statuses == [0] * 12
    found = sorted(text.split()[0] for text in support.texts(log))
    assert found == sorted(f"{who}:{number}" for who in range(12) for number in range(25))
    reader = Reader.open(log)
    assert not verify(reader).findings
    reader.close()


APPEND_ALL = """
import sys, time
from eventlog.ports import RandomIds
from eventlog.values import Epoch, StreamId
from eventlog.writer import Writer
from tests.eventlog import support
path, stream, other, count = sys.argv[1], StreamId(sys.argv[2]), sys.argv[3], int(sys.argv[4])
writer = Writer.open(path, RandomIds(), busy_ms=300_000)
print("ready", flush=True)
sys.stdin.readline()
longest, begun = 0.0, time.monotonic()
def has_other_begun():
    row = writer.reader.stream(StreamId(other))
    assert row is not None
    return row.head_seq > 2

number = 0
while number < count or not has_other_begun():  # whatever the machine gives the time to: they write at the same time
    assert time.monotonic() < begun + 300, "waited 300 s for the other process to append"
    before = time.monotonic()
    writer.append(stream, Epoch(1), [support.note(f"{stream} {number}")], (), "note")
    longest = max(longest, time.monotonic() - before)
    number += 1
print(f"{longest * 1000:.1f} {number} {begun} {time.monotonic()}", flush=True)
"""


def test_case_24_two_processes_on_two_streams_of_one_log_both_make_progress(quick_directory: Path) -> None:
    """What the longest append waited is printed and not asserted."""
    path = support.create_small(quick_directory)
    writer = support.open_writer(path)
    streams = [STREAM, StreamId("second")]
    writer.open_stream(streams[1], support.opened("second", image={b"": support.IMAGE[b""]}), "open")
    for stream in streams:
        writer.raise_floor(stream, Epoch(1), support.started())
    writer.close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", APPEND_ALL, path, stream, other, str(APPENDS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=support.ROOT,
        )  # fmt: skip
        for stream, other in (streams, streams[::-1])
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    spans, counts = [], {}
    for stream, process in zip(streams, processes, strict=True):
        out, error = process.communicate()
        assert process.returncode == 0, error
        longest, count, begun, ended = out.split()
        counts[stream] = int(count)
        spans.append((float(begun), float(ended)))
        print(f"{stream}: longest append {longest} ms of {APPENDS}")
    assert max(begun for begun, _ in spans) < min(ended for _, ended in spans), "they did not write at the same time"
    reader = Reader.open(path)
    for stream in streams:
        notes = [one.event.text for one in reader.events(stream) if isinstance(one.event, support.events.Noted)]
        assert notes == [f"{stream} {number}" for number in range(counts[stream])] and len(notes) >= APPENDS
    assert not verify(reader).findings
    reader.close()


WAIT_FOR_EVER = """
import signal, sys
from eventlog.ports import RandomIds, SystemClock
from eventlog.writer import Writer
from tests.eventlog import support

class TellingClock(SystemClock):
    told = False

    def pause(self, seconds):
        if not self.told:
            self.told = True
            print("waiting", flush=True)
        super().pause(seconds)

signal.signal(signal.SIGINT, signal.default_int_handler)
writer = Writer.open(sys.argv[1], RandomIds(), clock=TellingClock(), busy_ms=86_400_000)
support.add(writer, 0, "x")
"""


def test_case_24_a_wait_is_ended_by_an_interrupt(log: str) -> None:
    """SQLite's own wait would keep a person for five seconds. The wait would last longer than any test runs; that it has begun is told by
    its first nap; a shell that starts a job in the background has it ignore the interrupt, which is taken back here."""
    holder = hold_lock(log)
    waiting = subprocess.Popen(
        [sys.executable, "-c", WAIT_FOR_EVER, log], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=support.ROOT
    )
    assert waiting.stdout is not None and waiting.stdout.readline() == "waiting\n"
    waiting.send_signal(signal.SIGINT)
    _, error = waiting.communicate()
    assert "KeyboardInterrupt" in error and "BusyError" not in error and waiting.returncode != 0, error
    holder.communicate("\n")
    assert support.texts(log) == []
