"""Following a log: every event once and in order, at most one poll in 100 ms, no lock held, and never silence when the log is gone."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from eventlog import events
from eventlog.creation import create_log
from eventlog.errors import CorruptError, InternalError, LogMissingError, MisuseError, ReplacedError
from eventlog.follow import END_KINDS, POLL_SECS, Followed, Follower
from eventlog.image import root_hash
from eventlog.ports import FakeClock, RandomIds, SystemClock
from eventlog.records import Record
from eventlog.values import Epoch, Seq, StreamId
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM, add
from tests.eventlog.test_busy import quick_directory

__all__ = ["quick_directory"]
ROOT_HASH = root_hash({b"": support.IMAGE[b""]}).hex()
ENDS: list[events.Event] = [
    events.SessionFinished(1, ROOT_HASH),
    events.SessionFailed(1, ROOT_HASH, "no room"),
    events.SessionMoved(1, "0"),
]
SOON = FakeClock().monotonic() + 60
"""By a fake clock; a test that fails must not go on for ever."""


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = support.create_small(tmp_path)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    add(writer, 1, "first")
    writer.close()
    return path


@pytest.fixture
def writer(log: str) -> Iterator[Writer]:
    made = support.open_writer(log, first_id=5_000_000)
    yield made
    made.close()


class Script(FakeClock):
    """A clock by which things happen: one act each time that somebody waits, in order."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        super().__init__()
        self._acts = list(acts)

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        if self._acts:
            self._acts.pop(0)()

    def is_done(self) -> bool:
        return not self._acts


def places(found: list[Followed]) -> list[tuple[str, int]]:
    return [(one.stream, one.stored.seq) for one in found]


def take(follower: Follower, clock: Script) -> list[Followed]:
    """All that is followed until every act of the clock was done."""
    found = list(follower.follow(clock.is_done))
    follower.close()
    return found


def test_what_stands_and_what_comes_is_seen_once_and_in_order(log: str, writer: Writer) -> None:
    clock = Script(lambda: add(writer, 1, "a", "b"), lambda: None, lambda: add(writer, 1, "c"))
    found = take(Follower(log, clock, STREAM), clock)
    assert places(found) == [(STREAM, seq) for seq in range(1, 7)]
    assert [one.is_new for one in found] == [False] * 3 + [True] * 3
    assert [one.stored.event.text for one in found if isinstance(one.stored.event, events.Noted)] == ["first", "a", "b", "c"]


def test_all_streams_are_followed_also_one_that_begins_meanwhile(log: str, writer: Writer) -> None:
    second = StreamId("second")

    def begin() -> None:
        writer.open_stream(second, support.opened("second", image={b"": support.IMAGE[b""]}), "open")

    def append_to_both() -> None:
        add(writer, 1, "x")
        writer.append_unfenced(second, [support.note("y")], "note")

    clock = Script(begin, append_to_both)
    assert places(take(Follower(log, clock), clock)) == [(STREAM, 1), (STREAM, 2), (STREAM, 3), (second, 1), (STREAM, 4), (second, 2)]


@pytest.mark.parametrize(("after", "seen"), [(0, [1, 2, 3, 4]), (2, [3, 4]), (3, [4])])
def test_following_begins_after_a_seq(log: str, writer: Writer, after: int, seen: list[int]) -> None:
    clock = Script(lambda: add(writer, 1, "x"))
    follower = Follower(log, clock, STREAM)
    follower.begin_after(Seq(after))
    assert [seq for _, seq in places(take(follower, clock))] == seen


def test_following_begins_at_the_heads(log: str, writer: Writer) -> None:
    clock = Script(lambda: None, lambda: add(writer, 1, "x"))
    follower = Follower(log, clock)
    follower.begin_at_heads()
    assert places(take(follower, clock)) == [(STREAM, 4)]


def test_there_is_at_most_one_poll_in_100_ms_and_a_log_at_rest_is_not_read(log: str) -> None:
    clock = FakeClock()
    follower = Follower(log, clock, STREAM)
    asked: list[str] = []
    follower._reader._handle.exec_trace = lambda cursor, sql, bindings: not asked.append(sql)
    begun = clock.monotonic()
    found = list(follower.follow(deadline=begun + 60))
    assert len(found) == 3
    elapsed = clock.monotonic() - begun
    assert elapsed >= 60 and 500 < follower.polls <= elapsed / POLL_SECS + 1
    assert clock.pauses == follower.polls - 1, "one wait between two polls"
    assert asked.count("PRAGMA data_version") == follower.polls
    reads = [sql for sql in asked if sql != "PRAGMA data_version"]
    assert len(reads) < 12, "the log was read only once"
    follower.close()


def test_a_busy_log_and_a_quick_consumer_do_not_make_polls_come_faster(log: str, writer: Writer) -> None:
    clock = Script(*[lambda: add(writer, 1, "x")] * 50)
    begun = clock.monotonic()
    follower = Follower(log, clock, STREAM)
    assert len(take(follower, clock)) == 53
    assert follower.polls <= (clock.monotonic() - begun) / POLL_SECS + 1


def test_a_slow_consumer_is_not_made_to_wait_as_well(log: str, writer: Writer) -> None:
    clock = FakeClock()
    add(writer, 1, *("x" * 4))
    follower = Follower(log, clock, STREAM)
    seen = 0
    for _ in follower.follow(deadline=clock.monotonic() + 6.5):
        clock.advance(1)
        seen += 1
    assert (seen, clock.pauses) == (7, 0)
    follower.close()


def test_what_was_committed_before_the_stop_is_still_seen(log: str, writer: Writer) -> None:
    """The stop comes true and the last event is committed in the same wait."""
    clock = Script(lambda: add(writer, 1, "last"))
    assert places(take(Follower(log, clock, STREAM), clock))[-1] == (STREAM, 4)
    clock = Script()
    assert len(take(Follower(log, clock, STREAM), clock)) == 4


@pytest.mark.parametrize("end", ENDS, ids=lambda event: event.kind)
def test_following_until_the_end_stops_when_the_session_has_ended(log: str, writer: Writer, end: events.Event) -> None:
    clock = Script(
        lambda: add(writer, 1, "x"), lambda: writer.append(STREAM, Epoch(1), [Record(end)], (), "end"), lambda: pytest.fail("goes on")
    )
    follower = Follower(log, clock, STREAM)
    found = list(follower.follow(deadline=SOON, until_end=True))
    assert found[-1].stored.event.kind == end.kind and end.kind in END_KINDS and len(found) == 5
    follower.close()


def test_an_end_that_stood_before_is_an_end_though_notes_came_after_it(log: str, writer: Writer) -> None:
    writer.append(STREAM, Epoch(1), [Record(ENDS[0])], (), "end")
    writer.append_unfenced(STREAM, [support.note("after")], "note")
    begins: list[tuple[Callable[[Follower], None], list[int]]] = [
        (lambda follower: None, [1, 2, 3, 4, 5]),
        (lambda follower: follower.begin_after(Seq(3)), [4, 5]),
        (lambda follower: follower.begin_after(Seq(4)), [5]),
        (lambda follower: follower.begin_at_heads(), []),
    ]
    for begin, seen in begins:
        follower = Follower(log, FakeClock(), STREAM)
        begin(follower)
        assert [one.stored.seq for one in follower.follow(deadline=SOON, until_end=True)] == seen
        follower.close()


def test_all_sessions_have_ended_when_the_last_one_has(log: str, writer: Writer) -> None:
    second = StreamId("second")
    writer.open_stream(second, support.opened("second", image={b"": support.IMAGE[b""]}), "open")
    clock = Script(
        lambda: writer.append(STREAM, Epoch(1), [Record(ENDS[0])], (), "end"),
        lambda: None,
        lambda: writer.append(second, Epoch(0), [Record(ENDS[1])], (), "end"),
        lambda: pytest.fail("on"),
    )
    follower = Follower(log, clock)
    assert places(list(follower.follow(deadline=SOON, until_end=True)))[-2:] == [(STREAM, 4), (second, 2)]
    follower.close()


def test_who_breaks_off_and_follows_again_misses_nothing(log: str, writer: Writer) -> None:
    add(writer, 1, "a", "b")
    follower = Follower(log, FakeClock(), STREAM)
    seen = []
    for _ in range(5):
        for one in follower.follow(deadline=SOON):
            seen.append(one.stored.seq)
            break
    assert seen == [1, 2, 3, 4, 5]
    follower.close()


def test_rule_L6_a_follower_holds_no_lock_and_pins_no_wal_between_two_events(log: str, writer: Writer) -> None:
    follower = Follower(log, FakeClock(), STREAM)
    following = follower.follow()
    next(following)
    add(writer, 1, "beside")
    assert writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
    assert os.path.getsize(log + "-wal") == 0
    assert [next(following).stored.seq for _ in range(3)] == [2, 3, 4]
    following.close()
    follower.close()


def test_checkpoints_of_the_writer_hide_and_repeat_nothing(log: str, writer: Writer) -> None:
    def checkpoint() -> None:
        assert writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)

    acts: list[Callable[[], object]] = [checkpoint, lambda: add(writer, 1, "x"), checkpoint, lambda: None, lambda: add(writer, 1, "y")]
    clock = Script(*acts)
    assert [seq for _, seq in places(take(Follower(log, clock, STREAM), clock))] == [1, 2, 3, 4, 5]


def swap_by_rename(log: str) -> None:
    """What compaction does that makes a new file: the same events in another file under the same name, its side files emptied."""
    handle = apsw.Connection(log)
    handle.execute("VACUUM INTO ?", (log + ".new",)).fetchall()
    handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    handle.close()
    os.rename(log + ".new", log)
    for suffix in ("-wal", "-shm"):
        Path(log + suffix).unlink(missing_ok=True)


def append_anew(log: str, text: str) -> None:
    """By a writer that opens the log now."""
    writer = support.open_writer(log, first_id=int.from_bytes(os.urandom(6), "big") + 10_000_000)
    add(writer, 1, text)
    writer.close()


def test_compaction_into_a_new_file_is_followed_on(log: str) -> None:
    clock = Script(lambda: append_anew(log, "x"), lambda: swap_by_rename(log), lambda: append_anew(log, "y"), lambda: append_anew(log, "z"))
    assert [seq for _, seq in places(take(Follower(log, clock, STREAM), clock))] == [1, 2, 3, 4, 5, 6]


def test_compaction_in_place_is_followed_on(log: str, writer: Writer) -> None:
    def vacuum() -> None:
        writer._handle.execute("VACUUM").fetchall()
        writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    clock = Script(lambda: add(writer, 1, "x"), vacuum, lambda: add(writer, 1, "y"))
    assert [seq for _, seq in places(take(Follower(log, clock, STREAM), clock))] == [1, 2, 3, 4, 5]


def test_case_19_a_log_that_vanishes_ends_the_following_by_name(log: str) -> None:
    clock = Script(lambda: None, lambda: os.rename(log, log + ".away"))
    follower = Follower(log, clock, STREAM)
    with pytest.raises(LogMissingError, match=r"log\.sqlite: the log is gone from its path"):
        list(follower.follow(deadline=SOON))
    follower.close()


def lose_side_files(log: str) -> None:
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)


def exchange_for_another(log: str) -> None:
    other = log + ".other"
    create_log(other, STREAM, support.opened(image={b"": support.IMAGE[b""]}), (), RandomIds())
    writer = Writer.open(other, RandomIds())
    add(writer, 0, "x", "y", "z", "more")
    writer.close()
    support.checkpoint(other)
    lose_side_files(log)  # else the old WAL would be played into the new file
    os.rename(other, log)


def exchange_for_an_older_one(log: str) -> None:
    for suffix in ("", "-wal"):
        os.rename(log + suffix + ".old", log + suffix)
    os.unlink(log + "-shm")


@pytest.mark.parametrize("exchange", [exchange_for_another, exchange_for_an_older_one, lose_side_files])
def test_case_19_a_log_that_was_exchanged_for_another_history_ends_the_following_by_name(
    log: str, exchange: Callable[[str], None]
) -> None:
    for suffix in ("", "-wal"):
        shutil.copy(log + suffix, log + suffix + ".old")
    clock = Script(lambda: append_anew(log, "seen"), lambda: None, lambda: exchange(log))
    follower = Follower(log, clock, STREAM)
    seen = []
    with pytest.raises(ReplacedError, match=r"log\.sqlite: another log is at this path now"):
        for one in follower.follow(deadline=SOON):
            seen.append(one.stored.seq)
    assert seen == [1, 2, 3, 4]
    follower.close()


def test_invariant_I9_a_damaged_event_is_not_yielded(log: str) -> None:
    support.tamper(log, "UPDATE event SET payload = replace(payload, 'first', 'worst') WHERE seq = 3")
    follower = Follower(log, FakeClock(), STREAM)
    seen = []
    with pytest.raises(CorruptError, match="seq 3: its hash does not fit"):
        for one in follower.follow(deadline=SOON):
            seen.append(one.stored.seq)
    assert seen == [1, 2]
    follower.close()


def test_mistakes_are_said_at_once(log: str, tmp_path: Path) -> None:
    with pytest.raises(LogMissingError, match="there is no log here"):
        Follower(str(tmp_path / "nothing"), FakeClock())
    with pytest.raises(MisuseError, match=r"there is no session other\\x1b in this log; it holds nightly"):
        Follower(log, FakeClock(), StreamId("other\x1b"))
    one, every = Follower(log, FakeClock(), STREAM), Follower(log, FakeClock())
    with pytest.raises(MisuseError, match="has no event 4 yet; its head is 3"):
        one.begin_after(Seq(4))
    with pytest.raises(MisuseError, match="name the session"):
        every.begin_after(Seq(1))
    one.close()
    every.close()


def test_case_21_a_follower_refuses_a_forked_process(log: str) -> None:
    follower = Follower(log, FakeClock(), STREAM)
    following = follower.follow()
    next(following)

    def use() -> None:
        for refused in (lambda: next(following), lambda: list(follower.follow()), follower.begin_at_heads, follower.close):
            with pytest.raises(InternalError, match="belongs to process"):
                refused()

    assert support.run_in_child(use) == 0
    assert next(following).stored.seq == 2
    following.close()
    follower.close()


APPEND_FAST = """
import sys
import apsw
from eventlog.values import Epoch
from tests.eventlog import support
path, count = sys.argv[1], int(sys.argv[2])
writer = support.open_writer(path, first_id=10_000_000, busy_ms=30_000)
for number in range(count):
    writer.append(support.STREAM, Epoch(1), [support.note(str(number))], (), "note")
    if number % 1000 == 999:
        writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE if number % 2000 == 999 else apsw.SQLITE_CHECKPOINT_RESTART)
"""


def test_ten_thousand_appends_of_another_process_are_each_seen_once(quick_directory: Path) -> None:
    path = support.create_small(quick_directory)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    follower = Follower(path, SystemClock(), STREAM)
    appending = subprocess.Popen([sys.executable, "-c", APPEND_FAST, path, "10000"], cwd=support.ROOT)
    found = list(follower.follow(lambda: appending.poll() is not None))
    follower.close()
    assert appending.returncode == 0
    assert [one.stored.seq for one in found] == list(range(1, 10_003))
    texts = [one.stored.event.text for one in found if isinstance(one.stored.event, events.Noted)]
    assert texts == [str(number) for number in range(10_000)]
    assert follower.polls > 3 and sum(one.is_new for one in found) > 1000, "it did not follow while they came"
