"""Making and opening: L9, and handles that are closed or belong to another process."""

from collections.abc import Callable

import pytest

from eventlog.codec import encode_blob
from eventlog.conformance.fixtures import require
from eventlog.conformance.processes import run_forked
from eventlog.conformance.samples import BLOBS, STREAM, add, begin, drive, forked, head, note, opened, read, read_texts, started
from eventlog.errors import InternalError, LogMissingError
from eventlog.ports import RandomIds
from eventlog.store import ReadingHandle, Store, WritingHandle
from eventlog.values import Epoch, Seq


def test_rule_L9_a_log_that_is_not_there_is_missing_and_is_never_made_by_opening(store: Store) -> None:
    opening: list[Callable[[], object]] = [lambda: store.open_writing(RandomIds()), store.open_reading]
    for _ in range(2):
        for opens in opening:
            with pytest.raises(LogMissingError):
                opens()
    begin(store)
    assert head(store.open_reading()) == (1, 0)


def test_rule_L9_a_log_is_not_made_over_one_that_is_there(store: Store) -> None:
    begin(store)
    add(drive(store), 1, "kept")
    before = store.open_reading()
    with pytest.raises(FileExistsError):
        store.create(STREAM, opened("another"), BLOBS, RandomIds())
    reader = store.open_reading()
    assert (reader.log_id, read(reader)) == (before.log_id, read(before))


def test_a_new_log_has_its_first_event_and_its_blobs_at_once(store: Store) -> None:
    blob = encode_blob(b"first")
    begin(store, blobs=(*BLOBS, blob))
    reader = store.open_reading()
    assert [one.event for one in read(reader)] == [opened().event]
    assert reader.has_blob(blob.content)
    assert [(row.id, row.floor, row.head_seq, row.origin) for row in reader.streams()] == [(STREAM, 0, 1, None)]
    assert len(reader.log_id) == 32 and set(reader.log_id) <= set("0123456789abcdef")


def test_what_was_acknowledged_stands_after_every_handle_is_gone(store: Store) -> None:
    begin(store)
    handle = drive(store)
    answers = add(handle, 1, "one", "two")
    handle.close()
    del handle
    reader = store.open_reading()
    assert [(one.seq, one.id, one.hash) for one in read(reader)[2:]] == [(one.seq, one.id, one.hash) for one in answers]
    again = store.open_writing(RandomIds())
    assert again.append(STREAM, Epoch(1), [note("three")], (), "note")[0].seq == 5


def writing_acts(handle: WritingHandle) -> list[Callable[[], object]]:
    """Each thing that a writing handle does, as it would be done to a stream at floor 1."""
    first = read(handle.reader)[0]
    fork = forked(STREAM, first, handle.log_id)
    return [
        lambda: handle.raise_floor(STREAM, Epoch(2), started()),
        lambda: add(handle, 1, "x"),
        lambda: handle.append_unfenced(STREAM, [note("x")], "note"),
        lambda: handle.admit(STREAM, "r", {}, 1),
        lambda: handle.open_stream(STREAM, fork, "fork"),
        lambda: handle.insert_blobs([encode_blob(b"x")]),
        lambda: handle.check_fence(STREAM, Epoch(1)),
        *reading_acts(handle.reader),
    ]


def reading_acts(handle: ReadingHandle) -> list[Callable[[], object]]:
    """Each thing that a reading handle does."""
    content = encode_blob(b"x").content
    return [
        handle.streams,
        lambda: handle.stream(STREAM),
        lambda: handle.floor(STREAM),
        lambda: handle.find(bytes(16)),
        lambda: list(handle.events(STREAM)),
        lambda: handle.changes(STREAM, Seq(1)),
        lambda: handle.image(STREAM, Seq(1)),
        lambda: handle.has_blob(content),
        lambda: list(handle.content(content)),
    ]


def check_refuses(acts: list[Callable[[], object]]) -> None:
    """Fail unless each of them raises InternalError."""
    for act in acts:
        with pytest.raises(InternalError):
            act()


def test_a_closed_handle_refuses_and_does_nothing(store: Store) -> None:
    begin(store)
    handle, reader = drive(store), store.open_reading()
    acts = [*writing_acts(handle), *reading_acts(reader)]
    handle.close()
    reader.close()
    check_refuses(acts)
    handle.close()
    reader.close()
    assert head(store.open_reading()) == (2, 1)


def test_case_21_a_handle_refuses_in_a_forked_process(store: Store) -> None:
    require(store, "processes")
    begin(store)
    handle, reader = drive(store), store.open_reading()
    acts = [*writing_acts(handle), *reading_acts(reader)]
    assert run_forked(lambda: check_refuses(acts)) == 0
    add(handle, 1, "here it goes on")
    assert read_texts(reader) == ["here it goes on"]
