"""Appends sent twice: by who was not told the end of a commit, and by two who send the same at once (L7). Inputs taken in once."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from eventlog import events, steps
from eventlog.errors import MisuseError, MovedError, StaleEpochError, UncertainCommitError
from eventlog.image import Entry, put_change
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.records import Appended, Record, Redact
from eventlog.values import Epoch, StreamId
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM
from tests.eventlog.test_writer import WatchingVFS, hooked


def event_id(number: int) -> bytes:
    """An id that no counter of this file gives."""
    return (number + (1 << 100)).to_bytes(16, "big")


def named(text: str, number: int, *, at_ms: int = 3, paths: tuple[bytes, ...] = ()) -> Record:
    """A note with an id of its own, and directories that come with it."""
    changes = tuple(put_change(path, Entry("d", 0o755)) for path in paths)
    return Record(events.Noted(at_ms, text), changes, event_id(number))


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = support.create_small(tmp_path)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    return path


@pytest.fixture
def writer(log: str) -> Iterator[Writer]:
    made = support.open_writer(log, first_id=5_000_000)
    yield made
    made.close()


def send(writer: Writer, *records: Record, epoch: int = 1) -> list[Appended]:
    return writer.append(STREAM, Epoch(epoch), records, (), "note")


def is_sound(path: str) -> bool:
    reader = Reader.open(path)
    try:
        return not verify(reader).findings
    finally:
        reader.close()


def test_an_append_with_ids_is_answered_with_where_it_stands(writer: Writer, log: str) -> None:
    records = (named("one", 1), named("two", 2))
    first = send(writer, *records)
    send(writer, named("three", 3))
    assert send(writer, *records) == first and [one.seq for one in first] == [3, 4]
    assert support.texts(log) == ["one", "two", "three"] and is_sound(log)


def test_one_without_an_id_is_an_event_of_its_own_each_time(writer: Writer, log: str) -> None:
    for _ in range(2):
        send(writer, support.note("same"))
    assert support.texts(log) == ["same", "same"]


@pytest.mark.parametrize("stands", [True, False])
def test_rule_L7_an_append_whose_commit_was_uncertain_is_sent_again_after_a_reopen(log: str, stands: bool) -> None:
    """The sync fails after the WAL has the commit (another handle reads it: it stands), or the write of the WAL fails (it does not)."""
    watch = WatchingVFS()
    writer = support.open_writer(log, first_id=5_000_000, vfs=watch.name)
    writer._handle.pragma("synchronous", "full")
    records = (named("one", 1), named("two", 2))
    watch.fails = lambda done, file: done == ("sync" if stands else "write") and file.endswith("-wal")
    with pytest.raises(UncertainCommitError) as caught:
        send(writer, *records)
    watch.fails = lambda done, file: False
    assert caught.value.event_ids == tuple(record.id for record in records)
    writer.close()
    again = support.open_writer(log, first_id=6_000_000)
    before = [again.reader.find(one) for one in caught.value.event_ids]
    answer = send(again, *records)
    assert [one.seq for one in answer] == [3, 4] == [again.reader.find(one) for one in caught.value.event_ids]
    assert before in ([None, None], [3, 4])
    again.close()
    assert support.texts(log) == ["one", "two"] and is_sound(log)


def test_rule_L7_an_answer_that_was_lost_after_the_commit_is_given_again(log: str) -> None:
    """Killed when the commit stood and nobody knew: the next process sends the same append, and it is there once."""
    records = (named("one", 1, paths=(b"made",)), named("two", 2))

    def send_first(first_id: int, *records: Record) -> None:
        steps.enter("driver", 0)
        send(support.open_writer(log, first_id=first_id), *records)

    support.kill_at("driver@0:note.commit.after:1", lambda: send_first(5_000_000, *records))
    again = support.open_writer(log, first_id=6_000_000)
    assert [one.seq for one in send(again, *records)] == [3, 4]
    again.close()
    support.kill_at("driver@0:note.commit.locked:1", lambda: send_first(7_000_000, named("three", 3)))
    again = support.open_writer(log, first_id=8_000_000)
    assert send(again, named("three", 3))[0].seq == 5
    again.close()
    assert support.texts(log) == ["one", "two", "three"] and is_sound(log)


def test_an_append_sent_again_after_a_takeover_is_answered_though_its_epoch_is_stale(writer: Writer, log: str) -> None:
    first = send(writer, named("one", 1))
    writer.raise_floor(STREAM, Epoch(2), support.started("n2"))
    assert send(writer, named("one", 1), epoch=1) == first
    with pytest.raises(StaleEpochError):
        send(writer, named("two", 2), epoch=1)


OTHERS: dict[str, Record] = {
    "another text": named("other", 1),
    "another time": named("one", 1, at_ms=4),
    "other changes": named("one", 1, paths=(b"other",)),
    "no changes": named("one", 1),
    "another kind": Record(events.SessionFailed(3, "0" * 64, "one"), (), event_id(1)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_another_event_under_the_same_id_is_refused_and_writes_nothing(writer: Writer, log: str, other: Record) -> None:
    send(writer, named("one", 1, paths=(b"made",)))
    with pytest.raises(MisuseError, match=r"01 stands for another event; an id belongs to one event for ever"):
        send(writer, other)
    with pytest.raises(MisuseError, match="stands for another event"):
        send(writer, named("new", 7), other)
    assert support.head(log) == (3, 1) and is_sound(log)


def test_the_same_event_under_the_same_id_in_another_stream_is_refused(writer: Writer) -> None:
    send(writer, named("one", 1))
    other = StreamId("other")
    writer.open_stream(other, support.opened("other", image={b"": support.IMAGE[b""]}), "open")
    with pytest.raises(MisuseError, match="stands for another event"):
        writer.append_unfenced(other, [named("one", 1)], "note")


PARTS: dict[str, tuple[Record, ...]] = {
    "its end and more": (named("two", 2), named("three", 3), named("four", 4)),
    "more and its beginning": (named("zero", 9), named("one", 1)),
    "with a hole": (named("one", 1), named("three", 3)),
    "with one between": (named("one", 1), named("between", 9), named("two", 2)),
    "in another order": (named("two", 2), named("one", 1)),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_part_of_a_batch_is_refused_and_writes_nothing(writer: Writer, log: str, part: tuple[Record, ...]) -> None:
    send(writer, named("one", 1), named("two", 2), named("three", 3))
    with pytest.raises(MisuseError, match="only a part of this append is in the log"):
        send(writer, *part)
    assert support.texts(log) == ["one", "two", "three"]


ILL_NAMED: dict[str, tuple[Record, ...]] = {
    "one twice": (named("one", 1), named("two", 1)),
    "one without": (named("one", 1), support.note("two")),
    "first without": (support.note("one"), named("two", 2)),
    "short": (Record(events.Noted(1, "x"), (), b"short"),),
    "empty": (Record(events.Noted(1, "x"), (), b""),),
}


@pytest.mark.parametrize("records", ILL_NAMED.values(), ids=ILL_NAMED)
def test_ids_that_could_not_be_found_again_are_refused_at_once(writer: Writer, log: str, records: tuple[Record, ...]) -> None:
    with pytest.raises(MisuseError, match="an id of 16 bytes each, all different, or none has one"):
        send(writer, *records)
    assert support.head(log) == (2, 1)


def in_processes(works: list[Callable[[], Any]]) -> list[Any]:
    """Run each in a forked process of its own, all begun at once; what they return, in order. An error is returned as its name."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(works))
    answers: list[Any] = []

    def run(work: Callable[[], Any], end: Any) -> None:
        barrier.wait()
        try:
            end.send(work())
        except BaseException as error:  # noqa: BLE001 - it is the answer
            end.send(f"{type(error).__name__}: {error}")

    pipes = [context.Pipe(duplex=False) for _ in works]
    processes = [context.Process(target=run, args=(work, pipe[1])) for work, pipe in zip(works, pipes, strict=True)]
    for process in processes:
        process.start()
    for process, (mine, _) in zip(processes, pipes, strict=True):
        answers.append(mine.recv())
        process.join()
    return answers


RACES = 60


def send_all(path: str) -> list[list[Appended]]:
    """The same appends as everybody: a single one and a batch by turns."""
    writer = Writer.open(path, RandomIds())
    batches = [(named(f"{n}a", 10 * n + 1), named(f"{n}b", 10 * n + 2))[: n % 2 + 1] for n in range(1, RACES + 1)]
    found = [send(writer, *batch) for batch in batches]
    writer.close()
    return found


def test_rule_L7_of_two_processes_that_send_the_same_appends_the_loser_is_given_what_the_winner_recorded(log: str) -> None:
    first, second = in_processes([lambda: send_all(log)] * 2)
    assert first == second and len(first) == RACES, (first, second)
    reader = Reader.open(log)
    stored = {one.seq: (one.id, one.hash) for one in reader.events(STREAM)}
    reader.close()
    places = [one for answer in first for one in answer]
    assert all(stored[one.seq] == (one.id, one.hash) for one in places)
    assert len({one.seq for one in places}) == len(places) == len(support.texts(log))
    assert is_sound(log)


def admit_all(path: str, who: int) -> list[tuple[int, bytes, bool]]:
    writer = Writer.open(path, RandomIds())
    found = [writer.admit(STREAM, f"request {number}", {"number": number}, at_ms=1000 * who + number) for number in range(RACES)]
    writer.close()
    return [(one.appended.seq, one.appended.hash, one.is_new) for one in found]


def test_an_input_that_two_processes_admit_at_once_stands_once_and_is_new_to_one_of_them(log: str) -> None:
    first, second = in_processes([lambda: admit_all(log, 1), lambda: admit_all(log, 2)])
    assert [one[:2] for one in first] == [one[:2] for one in second]
    assert [mine[2] + theirs[2] for mine, theirs in zip(first, second, strict=True)] == [1] * RACES
    assert admitted(log) == [{"number": number} for number in range(RACES)]
    assert is_sound(log)


def admitted(path: str) -> list[dict[str, Any]]:
    reader = Reader.open(path)
    try:
        return [one.event.input for one in reader.events(STREAM) if isinstance(one.event, events.InputAdmitted)]
    finally:
        reader.close()


def test_two_processes_that_admit_different_inputs_under_one_id_get_one_of_them_and_a_refusal(log: str) -> None:
    def admit(given: dict[str, Any]) -> int:
        writer = Writer.open(log, RandomIds())
        return writer.admit(STREAM, "same", given, 1).appended.seq

    answers = in_processes([lambda: admit({"say": "one"}), lambda: admit({"say": "two"})])
    assert sorted(type(answer).__name__ for answer in answers) == ["int", "str"]
    refusal = next(answer for answer in answers if isinstance(answer, str))
    assert "request same was admitted with another input at seq 3; use a new request id" in refusal
    assert len(admitted(log)) == 1


def test_an_input_sent_again_is_the_same_whatever_its_time_and_the_order_of_its_keys(writer: Writer, log: str) -> None:
    first = writer.admit(STREAM, "r", {"a": 1, "b": [1.5, None, True, "caf\u00e9"]}, 1)
    again = writer.admit(STREAM, "r", {"b": (1.5, None, True, "caf\u00e9"), "a": 1}, 2)
    assert first.is_new and not again.is_new and first.appended == again.appended
    other = writer.admit(STREAM, "s", {"a": 1, "b": [1.5, None, True, "caf\u00e9"]}, 1)
    assert other.is_new and other.appended.seq == 4


@pytest.mark.parametrize("other", [{}, {"a": 2}, {"a": True}, {"a": 1.0}, {"a": "1"}, {"a": 1, "b": None}, {"a": [1]}], ids=repr)
def test_another_input_under_an_admitted_id_is_refused(writer: Writer, log: str, other: dict[str, Any]) -> None:
    writer.admit(STREAM, "r\x1b", {"a": 1}, 1)
    with pytest.raises(MisuseError, match=r"request r\\x1b was admitted with another input at seq 3"):
        writer.admit(STREAM, "r\x1b", other, 1)
    assert admitted(log) == [{"a": 1}]


def test_requests_of_two_sessions_are_not_the_same(writer: Writer, log: str) -> None:
    other = StreamId("other")
    writer.open_stream(other, support.opened("other", image={b"": support.IMAGE[b""]}), "open")
    assert writer.admit(STREAM, "r", {"a": 1}, 1).is_new
    assert writer.admit(other, "r", {"a": 2}, 1).is_new


def test_an_admitted_request_sent_by_append_is_refused_by_name(writer: Writer, log: str) -> None:
    writer.admit(STREAM, "r", {}, 1)
    record = Record(events.InputAdmitted(1, "r", {}))
    for refused in (
        lambda: writer.append_unfenced(STREAM, [support.note("x"), record], "note"),
        lambda: send(writer, support.note("x"), record),
    ):
        with pytest.raises(MisuseError, match="request r was admitted at seq 3; `admit` answers where it stands"):
            refused()
    twice = Record(events.InputAdmitted(1, "s", {}))
    with pytest.raises(MisuseError, match="one append admits one request twice"):
        send(writer, twice, twice)
    assert support.head(log) == (3, 1)


def test_an_input_with_an_id_sent_again_is_answered_with_where_it_stands(writer: Writer, log: str) -> None:
    record = Record(events.InputAdmitted(1, "r", {}), (), bytes(15) + b"\1")
    assert send(writer, record) == send(writer, record)
    assert len(admitted(log)) == 1


def test_rule_L2_any_process_admits_and_notes_under_the_floor_that_stands_and_nothing_else(writer: Writer, log: str) -> None:
    other = support.open_writer(log, first_id=6_000_000)

    def overtake() -> None:
        other.raise_floor(STREAM, Epoch(5), support.started("n5"))

    with hooked(support.Calling("admit.commit.before", overtake)):
        writer.admit(STREAM, "r", {}, 1)
    stored = list(other.reader.events(STREAM))
    assert [(one.event.kind, one.epoch) for one in stored][-2:] == [("driver_started", 5), ("input_admitted", 5)]
    for kind in events.EVENT_TYPES:
        if kind.kind not in ("noted", "input_admitted", "pause_requested", "approval_answered"):
            assert kind.kind not in events.UNFENCED_KINDS
    with pytest.raises(MisuseError, match="synced is written by a session's driver only"):
        writer.append_unfenced(STREAM, [Record(events.Synced(1, "0" * 64, "boot"))], "note")
    other.close()


def test_rule_L7_a_busy_log_admits_nothing_and_the_whole_is_sent_again(writer: Writer, log: str) -> None:
    other = support.open_writer(log, first_id=6_000_000)
    other._handle.execute("BEGIN IMMEDIATE").fetchall()
    with pytest.raises(Exception, match=f"LogBusy: held by pid {os.getpid()}"):
        writer.admit(STREAM, "r", {}, 1)
    other._handle.execute("ROLLBACK").fetchall()
    assert writer.admit(STREAM, "r", {}, 1).is_new
    other.close()


def test_nothing_is_admitted_to_a_session_that_moved_away(writer: Writer) -> None:
    send(writer, Record(events.SessionMoved(1, "0" * 64)))
    with pytest.raises(MovedError, match="drive it where it was imported"):
        writer.admit(STREAM, "r", {}, 1)


def test_the_index_holds_one_input_for_a_request_also_against_other_programs(log: str) -> None:
    writer = support.open_writer(log, first_id=5_000_000)
    writer.admit(STREAM, "r", {}, 1)
    with pytest.raises(apsw.ConstraintError, match="UNIQUE"):
        writer._handle.execute(
            "INSERT INTO event SELECT stream, seq + 1, randomblob(16), epoch, kind, version, payload, hash, randomblob(32) FROM event"
            " WHERE kind = 'input_admitted'"
        ).fetchall()
    writer.close()


def test_steps_of_an_admission_have_its_name(log: str) -> None:
    def admit() -> None:
        writer = support.open_writer(log, first_id=5_000_000)
        writer.admit(STREAM, "r", {}, 1)
        writer.admit(STREAM, "r", {}, 1)

    found = [step.split(":")[1] for step in support.record_steps(admit)]
    assert found == ["admit.commit.before", "admit.commit.locked", "admit.commit.after", "admit.commit.before"]


def hide(event: events.Event) -> events.Event:
    return events.InputAdmitted(event.at_ms, event.request_id, {"say": "hidden"}) if isinstance(event, events.InputAdmitted) else event


def test_admission_compares_inputs_as_they_are_redacted(log: str) -> None:
    redact: Redact = hide
    writer = Writer(support.open_writer(log)._handle, log, RandomIds(), redact)
    first = writer.admit(STREAM, "r", {"say": "secret 1"}, 1)
    assert not writer.admit(STREAM, "r", {"say": "secret 2"}, 2).is_new
    assert writer.reader.find(first.appended.id) == 3 and admitted(log) == [{"say": "hidden"}]
    plain = support.open_writer(log, first_id=7_000_000)
    with pytest.raises(MisuseError, match="another input"):
        plain.admit(STREAM, "r", {"say": "secret 1"}, 1)
    plain.close()
    writer.close()
