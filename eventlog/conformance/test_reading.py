"""Reading: what a handle sees and when, continuing from a position, images, contents."""

import os

import pytest

from eventlog.blobs import encode_content
from eventlog.codec import Blob, content_id, encode_blob
from eventlog.conformance.samples import EMPTY, FIRST, HELLO, OTHER, SECOND, STREAM, add, begin, drive, head, note, read, read_texts
from eventlog.errors import CorruptError
from eventlog.image import diff, times_change
from eventlog.reader import BEGINNING, Position, StoredEvent
from eventlog.store import Store
from eventlog.values import CHUNK_BYTES, Epoch, Seq


def position(stored: StoredEvent) -> Position:
    """Where an event stands."""
    return Position(stored.seq, stored.hash, stored.epoch)


def test_a_reader_that_was_open_before_sees_later_commits(store: Store) -> None:
    begin(store)
    reader = store.open_reading()
    assert head(reader) == (1, 0)
    handle = drive(store)
    assert head(reader) == (2, 1)
    add(handle, 1, "one")
    assert read_texts(reader) == ["one"] == read_texts(handle.reader)
    assert reader.log_id == handle.log_id


def test_a_reader_of_a_log_that_grows_meanwhile_ends_at_the_head_of_its_beginning(store: Store) -> None:
    begin(store)
    handle = drive(store)
    add(handle, 1, *(f"{number}" for number in range(20)))
    seen = []
    for stored in store.open_reading().events(STREAM):
        seen.append(stored.seq)
        if stored.seq <= 10:
            add(handle, 1, "meanwhile")
    assert seen == list(range(1, 23))
    assert head(handle.reader) == (32, 1)


def test_events_after_a_position_continue_there(store: Store) -> None:
    begin(store)
    handle = drive(store)
    add(handle, 1, "one", "two", "three")
    whole = read(handle.reader)
    for one in whole:
        assert list(handle.reader.events(STREAM, position(one))) == whole[one.seq :]
    assert list(handle.reader.events(STREAM, BEGINNING)) == whole
    end = position(whole[-1])
    add(handle, 1, "four")
    assert [stored.seq for stored in handle.reader.events(STREAM, end)] == [6]


def test_rule_I9_events_do_not_continue_after_an_event_that_is_another_one(store: Store) -> None:
    begin(store)
    handle = drive(store)
    add(handle, 1, "one")
    newest = position(read(handle.reader)[-1])
    for other in (
        Position(newest.seq, bytes(32), newest.epoch),
        Position(newest.seq, newest.hash, Epoch(9)),
        Position(Seq(newest.seq + 1), newest.hash, newest.epoch),
        Position(Seq(newest.seq - 1), newest.hash, newest.epoch),
    ):
        with pytest.raises(CorruptError):
            list(handle.reader.events(STREAM, other))


def test_reading_a_stream_that_is_not_there_is_refused(store: Store) -> None:
    begin(store)
    reader = store.open_reading()
    with pytest.raises(CorruptError):
        list(reader.events(OTHER))
    assert reader.stream(OTHER) is None


def test_an_image_is_the_fold_of_the_changes_up_to_an_event(store: Store) -> None:
    begin(store)
    handle = drive(store)
    later = {path: entry for path, entry in SECOND.items() if path != b"z"}
    for changes in (diff(FIRST, SECOND), (times_change(b"a", 99),), diff(SECOND, later), diff(later, EMPTY)):
        handle.append(STREAM, Epoch(1), [note("changes", changes=changes), note("none")], (), "outcome")
    image = {number: handle.reader.image(STREAM, Seq(number)) for number in range(11)}
    assert image[0] == {}
    assert image[1] == image[2] == FIRST
    assert image[3] == image[4] == SECOND
    assert image[5][b"a"].mtime_ns == 99 and {**image[5], b"a": SECOND[b"a"]} == SECOND
    assert set(image[7]) == set(later)
    assert image[9] == image[10] == EMPTY
    assert handle.reader.changes(STREAM, Seq(3)) == diff(FIRST, SECOND) == read(handle.reader)[2].changes
    assert handle.reader.changes(STREAM, Seq(4)) == ()


SIZES = [0, 1, 300, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pattern", ["random", "same"])
def test_rule_I9_a_content_comes_back_whole_by_its_name(store: Store, size: int, pattern: str) -> None:
    data = os.urandom(size) if pattern == "random" else b"\0" * size
    begin(store)
    handle = drive(store)
    handle.insert_blobs(encode_content([data]))
    handle.insert_blobs(encode_content([data]))
    pieces = list(store.open_reading().content(content_id(data)))
    assert b"".join(pieces) == data
    assert all(len(piece) <= CHUNK_BYTES for piece in pieces)


def test_contents_are_addressed_by_what_they_are_and_the_first_blob_stays(store: Store) -> None:
    blob = encode_blob(HELLO)
    begin(store)
    handle = drive(store)
    assert blob.codec == "zstd" and handle.reader.has_blob(blob.content)
    spoiled = Blob(blob.content, "raw", len(HELLO), HELLO[::-1])
    handle.append(STREAM, Epoch(1), [note("x")], [spoiled], "note")
    handle.insert_blobs([spoiled])
    assert b"".join(handle.reader.content(blob.content)) == HELLO


def test_rule_I9_a_content_that_does_not_hash_to_its_name_or_is_missing_is_refused(store: Store) -> None:
    begin(store, EMPTY, blobs=())
    handle = drive(store)
    name = content_id(HELLO)
    assert not handle.reader.has_blob(name)
    with pytest.raises(CorruptError, match="missing"):
        list(handle.reader.content(name))
    handle.insert_blobs([Blob(name, "raw", len(HELLO), HELLO[::-1])])
    with pytest.raises(CorruptError):
        list(handle.reader.content(name))
