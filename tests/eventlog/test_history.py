"""Points, images at them, what became of calls, and what differs between two images."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog import events
from eventlog.call_history import CallHistory, annotate, find_undone, iterate_calls
from eventlog.differences import Difference, describe_difference, difference_json, find_differences
from eventlog.errors import CorruptError, MisuseError
from eventlog.history import AtCall, AtHead, AtSeq, Point, find_point, parse_point, read_image, read_upto
from eventlog.image import Entry, diff, fold_changes
from eventlog.reader import Reader, StoredEvent
from eventlog.records import Record
from eventlog.streams import choose_stream
from eventlog.text_diff import TEXT_BYTES, TEXT_LINES, NotText, diff_text, read_text
from eventlog.values import CallNumber, Epoch, Seq, StreamId
from tests.eventlog import support
from tests.eventlog.support import IMAGE, LATER, STREAM
from tests.eventlog.tree_logs import file_of


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader.open(support.make_golden(tmp_path))
    yield reader
    reader.close()


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("12", AtSeq(Seq(12))),
        ("head", AtHead()),
        ("call:3", AtCall(CallNumber(3), "after")),
        ("call:3:after", AtCall(CallNumber(3), "after")),
        ("call:3:before", AtCall(CallNumber(3), "before")),
    ],
)
def test_a_point_is_read_as_it_is_written(text: str, point: Point) -> None:
    assert parse_point(text) == point


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5", "HEAD", "call:", "call:x", "call:3:middle", "call:3:before:", "9" * 19, "\u0663", "12\n", "\x1b[2J"]
)
def test_what_is_no_point_is_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(MisuseError, match="write a seq such as 12, or head, call:3 or call:3:before") as refused:
        parse_point(text)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("stream", "point", "seq"),
    [
        ("nightly", "head", 9),
        ("nightly", "1", 1),
        ("nightly", "9", 9),
        ("nightly", "call:1:before", 3),
        ("nightly", "call:1", 4),
        ("fork", "call:2:before", 4),
        ("fork", "call:2", 8),
    ],
)
def test_a_point_is_found(golden: Reader, stream: str, point: str, seq: int) -> None:
    assert find_point(golden, choose_stream(golden, stream), parse_point(point)) == seq


@pytest.mark.parametrize(
    ("stream", "point", "words"),
    [
        ("nightly", "0", "its events are 1 to 9"),
        ("nightly", "10", "its events are 1 to 9"),
        ("nightly", "call:2", "its newest call is 1"),
        ("fork", "call:1", "settled before the fork; look for it in session nightly"),
        ("fork", "call:7", "its newest call is 2"),
    ],
)
def test_a_point_that_is_not_there_is_refused_with_what_is(golden: Reader, stream: str, point: str, words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        find_point(golden, choose_stream(golden, stream), parse_point(point))


def test_a_call_that_is_open_has_a_before_and_no_after(tmp_path: Path) -> None:
    path = support.make_log(tmp_path)
    writer = support.open_writer(path, first_id=2_000_000)
    writer.append(STREAM, Epoch(4), [support.attempt(2)], (), "intent")
    again = Record(events.AttemptStarted(9, 2, 2, 1, "bash", {}, "after-restore", "k", "d" * 64, redacted=False, request_id=""))
    writer.append(STREAM, Epoch(4), [again], (), "intent")
    row = choose_stream(writer.reader, None)
    assert find_point(writer.reader, row, parse_point("call:2:before")) == 11
    with pytest.raises(MisuseError, match="call 2 is not settled; use call:2:before or head"):
        find_point(writer.reader, row, parse_point("call:2"))
    writer.close()


def test_a_session_is_named_where_there_are_several(golden: Reader) -> None:
    with pytest.raises(MisuseError, match="2 sessions in this log; name one with --session: fork, nightly"):
        choose_stream(golden, None)
    with pytest.raises(MisuseError, match="no session nightl in this log; there are: fork, nightly"):
        choose_stream(golden, "nightl")
    assert choose_stream(golden, "fork").id == "fork"


def test_the_image_at_every_event_is_the_fold_up_to_it(golden: Reader) -> None:
    for stream in ("nightly", "fork"):
        image: dict[bytes, Entry] = {}
        for stored in golden.events(StreamId(stream)):
            image = fold_changes(image, stored.changes)
            assert read_image(golden, StreamId(stream), stored.seq) == image
            assert [one.seq for one in read_upto(golden, StreamId(stream), stored.seq)] == list(range(1, stored.seq + 1))
    assert read_image(golden, STREAM, Seq(3)) == IMAGE and read_image(golden, STREAM, Seq(4)) == LATER


def test_invariant_I9_an_image_of_changed_rows_is_not_given(tmp_path: Path) -> None:
    path = support.make_log(tmp_path)
    support.checkpoint(path)
    support.tamper(path, "UPDATE image_change SET mode = 511 WHERE path = x'61'")
    reader = Reader.open(path)
    with pytest.raises(CorruptError, match="seq 1"):
        read_image(reader, STREAM, Seq(1))
    reader.close()


def store(events_at: Sequence[tuple[events.Event, int]]) -> list[StoredEvent]:
    """Events as stored, each with a file of so many bytes put by it (none for 0)."""
    return [
        StoredEvent(Seq(at), bytes(16), Epoch(1), bytes(32), event, diff({}, {b"f%d" % at: file_of(bytes(size))}) if size else ())
        for at, (event, size) in enumerate(events_at, start=1)
    ]


def attempt(call: int, attempt: int, at_ms: int) -> events.AttemptStarted:
    return events.AttemptStarted(at_ms, call, attempt, None, "bash", {}, "after-restore", "k", "d" * 64, redacted=False, request_id="")


def settled(call: int, attempt: int, at_ms: int, ended: events.Ended = "finished", label: str = "live") -> events.CallSettled:
    return events.CallSettled(at_ms, call, attempt, ended, label, "", None, None, "r", [])


CALLS = store(
    [
        (attempt(1, 1, 100), 0),
        (settled(1, 1, 130), 7),
        (attempt(2, 1, 200), 0),
        (events.RecoveryDecided(250, "restore_and_rerun", 2, 1, True, 1, "r", "transactional", {}), 0),
        (events.RestoreFinished(260, 4, "r", 0, 0, 1, 0, 0, accepted=False), 0),
        (attempt(2, 2, 300), 0),
        (settled(2, 2, 350, "interrupted", "restore_and_interrupt"), 0),
        (events.CallUndone(360, 1, "lost", 4), 0),
        (attempt(3, 1, 400), 0),
    ]
)


def test_each_call_is_told_with_tool_attempts_decision_end_size_and_duration() -> None:
    first, second, third = list(iterate_calls(CALLS, find_undone(CALLS)))
    assert first == CallHistory(CallNumber(1), "bash", 1, "live", "finished", 7, 30, Seq(1), Seq(2), is_undone=True)
    assert second == CallHistory(CallNumber(2), "bash", 2, "restore_and_interrupt", "interrupted", 0, 50, Seq(6), Seq(7))
    assert third == CallHistory(CallNumber(3), "bash", 1, None, None, 0, None, Seq(9), None)


def test_each_event_is_told_with_the_call_it_belongs_to() -> None:
    found = [(one.stored.seq, one.call, one.tool, one.decision, one.size, one.duration_ms) for one in annotate(CALLS)]
    assert found == [
        (1, 1, "bash", None, None, None),
        (2, 1, "bash", "live", 7, 30),
        (3, 2, "bash", None, None, None),
        (4, 2, "bash", "restore_and_rerun", None, None),
        (5, None, None, None, None, None),
        (6, 2, "bash", None, None, None),
        (7, 2, "bash", "restore_and_interrupt", 0, 50),
        (8, 1, None, None, None, None),
        (9, 3, "bash", None, None, None),
    ]


ENTRIES = [
    file_of(b""),
    file_of(b"1"),
    file_of(b"1", 0o755),
    file_of(b"1", mtime_ns=1),
    file_of(b"1", link=b"a"),
    file_of(b"1", xattrs=b"\0\0\0\6user.a\0\0\0\1v"),
    Entry("d", 0o755),
    Entry("l", 0o777, target=b"\xff\n"),
    Entry("l", 0o777, target=b"t"),
    Entry("p", 0o600),
]
IMAGES = st.dictionaries(st.sampled_from([b"a", b"b", b"\xff\n", b"d/e"]), st.sampled_from(ENTRIES))


@given(IMAGES, IMAGES)
def test_the_differences_are_those_of_the_changes_between_two_images(before: dict[bytes, Entry], after: dict[bytes, Entry]) -> None:
    found = list(find_differences(before, after))
    changes = diff(before, after)
    assert [one.path for one in found] == [change.path for change in changes]
    for one, change in zip(found, changes, strict=True):
        assert (one.before, one.after) == (before.get(one.path), after.get(one.path))
        assert (change.op == "del") == (one.what == "removed") and (change.op == "times") == (one.aspects == ("times",))
        assert bool(one.aspects) == (one.what == "changed")
        assert describe_difference(one).isprintable() and difference_json(one)["what"] == one.what


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (None, file_of(b"12", 0o4755), "added   a\\x0a: file, 2 bytes, mode 4755"),
        (Entry("d", 0o700), None, "removed a\\x0a: directory, mode 0700"),
        (file_of(b"1"), file_of(b"12", 0o600), "changed a\\x0a: content 1 -> 2 bytes, mode 0644 -> 0600"),
        (file_of(b"1"), Entry("l", 0o777, target=b"\xff"), "changed a\\x0a: file -> symlink, content 1 -> 0 bytes, mode 0644 -> 0777, "
         "target none -> \\xff"),
        (file_of(b"1"), ENTRIES[5], "changed a\\x0a: attributes none -> user.a"),
        (file_of(b"1"), ENTRIES[4], "changed a\\x0a: hard link none -> a"),
        (file_of(b"1"), ENTRIES[3], "changed a\\x0a: times"),
    ],
)  # fmt: skip
def test_case_04_a_difference_is_one_line_with_its_names_escaped(before: Entry | None, after: Entry | None, line: str) -> None:
    assert describe_difference(Difference(b"a\n", before, after)) == line


def test_text_is_utf_8_without_nul_within_the_bounds() -> None:
    assert read_text([b"caf\xc3", b"\xa9\n"]) == "caf\u00e9\n"
    assert read_text([b"caf\xe9"]) == NotText("binary") and read_text([b"a\0b"]) == NotText("binary")
    assert read_text([b"x" * TEXT_BYTES]) == "x" * TEXT_BYTES
    assert read_text([b"x" * TEXT_BYTES, b"x"]) == NotText("long")
    assert read_text([b"\n" * TEXT_LINES]) == "\n" * TEXT_LINES and read_text([b"\n" * (TEXT_LINES + 1)]) == NotText("long")


def test_a_long_content_is_not_read_to_its_end() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x" * TEXT_BYTES
        yield b"x"
        raise AssertionError("read on beyond the bound")

    assert read_text(pieces()) == NotText("long")


def test_text_differs_line_by_line_and_every_line_is_safe_to_show() -> None:
    before, after = "one\ntwo\n\x1b[31m\r\n", "one\n2\ttabs\n\x1b[31m\r\nlast"
    assert list(diff_text(before, after)) == [
        "@@ -1,3 +1,4 @@", " one", "-two", "+2\ttabs", " \\x1b[31m\\x0d", "+last", "\\ no newline at the end",
    ]  # fmt: skip
    assert list(diff_text("", "a\n")) == ["@@ -0,0 +1 @@", "+a"]
    assert list(diff_text("a", "a\n")) == ["@@ -1 +1 @@", "-a", "\\ no newline at the end", "+a"]


@given(st.text(alphabet="ab\n\r\x0b\u2028", max_size=30), st.text(alphabet="ab\n\r\x0b\u2028", max_size=30))
def test_a_text_difference_turns_one_text_into_the_other(before: str, after: str) -> None:
    """With all lines as context the second text is what is not removed, and the first what is not added."""
    lines = list(diff_text(before, after))
    assert bool(lines) == (before != after)
    if len(before.split("\n")) <= 4 and len(after.split("\n")) <= 4 and lines:
        for sign, text in (("-", before), ("+", after)):
            kept = [line[1:] for line in lines if line[:1] in (" ", sign)]
            shown = [part.replace("\r", "\\x0d").replace("\x0b", "\\x0b").replace("\u2028", "\\xe2\\x80\\xa8") for part in text.split("\n")]
            assert kept == (shown[:-1] if text.endswith("\n") or not text else shown)
