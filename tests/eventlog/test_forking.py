"""Forks in a log: the image is exactly that of the point, contents are shared, each stream has a floor of its own."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog import codec, events
from eventlog.creation import create_log
from eventlog.errors import CompactedError, CorruptError, MisuseError, ReplacedError, StaleEpochError
from eventlog.fork import newest_forkable
from eventlog.forking import Forked, fork_session
from eventlog.history import parse_point, read_image
from eventlog.image import Entry, diff, root_hash
from eventlog.ports import CountingIds, FakeClock
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import Epoch, Seq, StreamId
from eventlog.verify import verify
from tests.eventlog import support
from tests.eventlog.support import IMAGE, LATER, STREAM, kill_at, record_steps
from tests.eventlog.tree_logs import file_of, import_stream, root_of


def fork(path: str, at: str, name: str, session: str | None = None, first_id: int = 7_000_000) -> Forked:
    return fork_session(path, session, parse_point(at), name, clock=FakeClock(5), ids=CountingIds(first_id))


def first_event(path: str, stream: str) -> events.SessionForked:
    reader = Reader.open(path)
    try:
        event = next(iter(reader.events(StreamId(stream)))).event
        assert isinstance(event, events.SessionForked)
        return event
    finally:
        reader.close()


def assert_sound(path: str) -> int:
    """The log is sound; how many blobs it has."""
    reader = Reader.open(path)
    try:
        found = verify(reader)
        assert found.findings == ()
        return found.blobs
    finally:
        reader.close()


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.make_log(tmp_path)


def test_rule_C9_a_fork_is_exactly_the_image_of_its_point_and_shares_its_contents(log: str) -> None:
    blobs = assert_sound(log)
    assert fork(log, "call:1", "after") == Forked(StreamId("after"), STREAM, Seq(4), root_of(LATER), 1)
    assert fork(log, "2", "before", "nightly", 8_000_000) == Forked(StreamId("before"), STREAM, Seq(2), root_of(IMAGE), 0)
    reader = Reader.open(log)
    assert read_image(reader, StreamId("after"), Seq(1)) == LATER and read_image(reader, StreamId("before"), Seq(1)) == IMAGE
    parent = list(reader.events(STREAM))[3]
    row = reader.stream(StreamId("after"))
    reader.close()
    event = first_event(log, "after")
    assert row is not None and (row.parent, row.forked_at, row.floor, row.origin) == (STREAM, 4, 0, None)
    assert (event.parent, event.parent_seq, event.parent_hash, event.at_ms) == (STREAM, 4, parent.hash.hex(), 5)
    assert assert_sound(log) == blobs


def test_rule_C9_a_point_inside_a_call_is_refused_and_nothing_is_written(log: str) -> None:
    before = support.head(log)
    with pytest.raises(MisuseError, match="call 1 is open there; the nearest point before it that can be forked is 2"):
        fork(log, "call:1:before", "x")
    reader = Reader.open(log)
    assert [row.id for row in reader.streams()] == [STREAM]
    reader.close()
    assert support.head(log) == before


def test_floors_of_a_fork_and_its_parent_are_independent(log: str) -> None:
    fork(log, "head", "fork")
    one, other = support.open_writer(log, first_id=3_000_000), support.open_writer(log, first_id=4_000_000)
    copy = StreamId("fork")
    other.raise_floor(copy, Epoch(2), support.started("n2"))
    one.append(STREAM, Epoch(4), [support.note("the parent goes on under its own floor")], (), "note")
    one.raise_floor(STREAM, Epoch(9), support.started("n9"))
    other.append(copy, Epoch(2), [support.note("the fork goes on below the parent's floor")], (), "note")
    with pytest.raises(StaleEpochError):
        one.append(STREAM, Epoch(2), [support.note("no")], (), "note")
    with pytest.raises(StaleEpochError):
        other.append(copy, Epoch(1), [support.note("no")], (), "note")
    one.close()
    other.close()
    assert_sound(log)


def test_a_fork_of_a_fork_goes_on(log: str) -> None:
    fork(log, "call:1", "fork")
    writer = support.open_writer(log, first_id=3_000_000)
    copy = StreamId("fork")
    writer.raise_floor(copy, Epoch(1), support.started())
    writer.append(copy, Epoch(1), [support.attempt(2)], (), "intent")
    writer.append(copy, Epoch(1), [support.settled(2, IMAGE, diff(LATER, IMAGE))], (), "outcome")
    writer.close()
    assert fork(log, "call:2", "second", "fork", 9_000_000) == Forked(StreamId("second"), copy, Seq(4), root_of(IMAGE), 2)
    assert [call.call for call in first_event(log, "second").calls] == [1, 2]
    assert_sound(log)


def test_an_imported_stream_is_forked_in_the_names_of_its_origin(log: str, tmp_path: Path) -> None:
    support.checkpoint(log)
    path = str(tmp_path / "other.sqlite")
    create_log(path, StreamId("own"), support.opened("own", {b"": IMAGE[b""]}), (), CountingIds(5_000_000))
    import_stream(log, path, "imported@other")
    assert_sound(path)
    made = fork(path, "call:1", "mine", "imported@other")
    assert (made.parent, made.parent_seq, made.root) == ("imported@other", 4, root_of(LATER))
    reader, origin = Reader.open(path), Reader.open(log)
    event, row = first_event(path, "mine"), reader.stream(StreamId("mine"))
    assert (event.parent_log, event.parent) == (origin.log_id, STREAM) and reader.log_id != origin.log_id
    assert event.parent_hash == list(origin.events(STREAM))[3].hash.hex()
    assert row is not None and (row.parent, row.forked_at) == ("imported@other", 4)
    reader.close()
    origin.close()
    assert_sound(path)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "n" * 65, "\x1b", "caf\u00e9", "a\n"])
def test_a_name_that_is_none_is_refused(log: str, name: str) -> None:
    with pytest.raises(MisuseError, match="is no name of a session") as refused:
        fork(log, "head", name)
    assert str(refused.value).isprintable()


def test_a_name_that_is_taken_is_refused(log: str) -> None:
    with pytest.raises(MisuseError, match="there is a session nightly already"):
        fork(log, "head", "nightly")


@pytest.mark.parametrize(("reason", "error"), [("compacted", CompactedError), ("lost", CorruptError)])
def test_a_point_whose_contents_were_given_up_is_not_forked(log: str, reason: str, error: type[Exception]) -> None:
    support.checkpoint(log)
    content = IMAGE[b"a"].content
    assert content is not None
    name = f"x'{content.hex()}'"
    support.tamper(log, f"INSERT INTO dropped VALUES ({name}, 1, '{reason}', 1)", f"DELETE FROM blob WHERE hash = {name}")
    with pytest.raises(error, match="a is not whole at this point"):
        fork(log, "2", "x")


def test_rule_L5_a_log_that_came_to_the_path_meanwhile_is_not_forked(log: str, tmp_path: Path) -> None:
    """Between reading the parent and opening the log for writing another log takes the path."""
    (tmp_path / "elsewhere").mkdir()
    other = str(tmp_path / "elsewhere" / "log.sqlite")
    create_log(other, STREAM, support.opened(), support.blobs(), CountingIds(5_000_000))
    support.checkpoint(other)
    support.checkpoint(log)

    class Swapping(FakeClock):
        """Asked for the time once, when the parent is read."""

        def now_ms(self) -> int:
            os.replace(other, log)
            return super().now_ms()

    with pytest.raises(ReplacedError, match="another log came to this path"):
        fork_session(log, None, parse_point("1"), "x", clock=Swapping(), ids=CountingIds(7_000_000))


def test_a_fork_killed_at_every_step_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def begin(at: int) -> str:
        directory = tmp_path / str(at)
        directory.mkdir()
        return support.make_log(directory)

    def work(path: str) -> None:
        fork(path, "call:1", "fork")

    passed = record_steps(partial(work, begin(0)))
    assert [step.split(":")[1] for step in passed] == ["fork.commit.before", "fork.commit.locked", "fork.commit.after"]
    for at, step in enumerate(passed, start=1):
        path = begin(at)
        kill_at(step, partial(work, path))
        assert_sound(path)
        reader = Reader.open(path)
        names = [row.id for row in reader.streams()]
        reader.close()
        assert names == (["fork", STREAM] if step is passed[-1] else [STREAM])
        if step is not passed[-1]:
            fork(path, "call:1", "fork")
            assert_sound(path)


Action = str | list[tuple[bytes, bytes]]
WORK = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"", b"1", b"2"])), max_size=4)
ACTIONS = st.lists(st.one_of(st.just("note"), st.just("open"), st.just("owe"), WORK), max_size=6)


def grow(path: str, actions: Sequence[Action]) -> list[int]:
    """Append what the actions say; the seqs after which nothing is open. A list is a whole call that writes these files."""
    writer = support.open_writer(path, first_id=1_000_000)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    image: dict[bytes, Entry] = {b"": IMAGE[b""]}
    call, forkable, seq = 0, [1, 2], 2

    def add(record: Record) -> None:
        nonlocal seq
        seq = writer.append(STREAM, Epoch(1), [record], (), "grow")[0].seq

    for action in actions:
        match action:
            case "note":
                add(support.note("x"))
                forkable.append(seq)
            case "open":
                add(support.attempt(call := call + 1))
                add(support.note("while the call is open"))
                add(support.settled(call, image, ()))
                forkable.append(seq)
            case "owe":
                add(Record(events.RecoveryDecided(1, "restore_unsynced_head", None, None, True, seq, root_of(image), "transactional", {})))
                decided = seq
                add(support.note("while the restore is owed"))
                add(Record(events.RestoreFinished(1, decided, root_of(image), 0, 0, 1, 0, 0, accepted=False)))
                forkable.append(seq)
            case list(files):
                later = {**image, **{name: file_of(data) for name, data in files}}
                add(support.attempt(call := call + 1))
                add(support.settled(call, later, diff(image, later)))
                image = later
                forkable.append(seq)
            case _:
                raise AssertionError(action)
    writer.close()
    return forkable


@settings(max_examples=15, deadline=None)
@given(ACTIONS)
def test_rule_C9_exactly_the_quiet_points_of_any_history_are_forked_each_with_its_image(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Action]
) -> None:
    path = str(tmp_path_factory.mktemp("fork") / "log.sqlite")
    create_log(path, STREAM, support.opened(image={b"": IMAGE[b""]}), support.blobs() + blobs_of(b"1", b"2"), CountingIds())
    forkable = grow(path, actions)
    reader = Reader.open(path)
    head = len(list(reader.events(STREAM)))
    assert newest_forkable(reader.events(STREAM)) == forkable[-1]
    images = {seq: read_image(reader, STREAM, Seq(seq)) for seq in range(1, head + 1)}
    reader.close()
    for seq in range(1, head + 1):
        if seq not in forkable:
            with pytest.raises(MisuseError, match="cannot be forked"):
                fork(path, str(seq), f"f{seq}", STREAM, 7_000_000 + seq)
            continue
        made = fork(path, str(seq), f"f{seq}", STREAM, 7_000_000 + seq)
        assert made.root == root_hash(images[seq]).hex()
        reader = Reader.open(path)
        assert read_image(reader, made.stream, Seq(1)) == images[seq]
        reader.close()
    assert_sound(path)


def blobs_of(*contents: bytes) -> list[codec.Blob]:
    return [codec.encode_blob(data) for data in contents]
