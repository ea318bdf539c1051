"""Appends and the fence: rules L1, L2 and L3 as far as a handle shows them, invariants I2 and I5."""

from collections.abc import Callable

import pytest

from eventlog import events
from eventlog.codec import content_id, encode_blob
from eventlog.conformance.formula import check_chain
from eventlog.conformance.samples import (
    FIRST,
    OTHER,
    SECOND,
    STREAM,
    add,
    begin,
    drive,
    forked,
    head,
    note,
    opened,
    read,
    read_texts,
    started,
)
from eventlog.errors import ContentGoneError, EpochTakenError, HeadMovedError, InternalError, MisuseError, MovedError, StaleEpochError
from eventlog.image import Entry, diff, put_change
from eventlog.ports import RandomIds
from eventlog.records import Record
from eventlog.store import Store
from eventlog.values import Epoch, Seq


def test_appends_stand_in_order_without_a_gap_and_where_their_answers_say(store: Store) -> None:
    begin(store)
    handle = drive(store)
    answers = [*add(handle, 1, "one", "two"), *add(handle, 1), *add(handle, 1, "three")]
    assert [answer.seq for answer in answers] == [3, 4, 5]
    stored = read(handle.reader)
    assert [(one.seq, one.id, one.hash) for one in stored[2:]] == [(answer.seq, answer.id, answer.hash) for answer in answers]
    assert [handle.reader.find(answer.id) for answer in answers] == [3, 4, 5]
    assert read_texts(handle.reader) == ["one", "two", "three"]
    assert handle.reader.find(bytes(16)) is None


def test_rule_L1_an_equal_epoch_is_taken_and_a_lower_one_is_stale(store: Store) -> None:
    begin(store)
    first, second = drive(store, 4), store.open_writing(RandomIds())
    with pytest.raises(EpochTakenError) as taken:
        second.raise_floor(STREAM, Epoch(4), started("other"))
    assert taken.value.exit_code not in (0, 75)
    with pytest.raises(StaleEpochError) as stale:
        second.raise_floor(STREAM, Epoch(3), started("other"))
    assert stale.value.exit_code == 75
    assert head(first.reader) == (2, 4), "a refused driver wrote something"
    second.raise_floor(STREAM, Epoch(9), started("other"))
    assert head(first.reader) == (3, 9)


def test_rule_L2_a_driver_that_expects_another_head_raises_nothing(store: Store) -> None:
    begin(store)
    handle = store.open_writing(RandomIds())
    with pytest.raises(HeadMovedError):
        handle.raise_floor(STREAM, Epoch(1), started(), after=Seq(2))
    assert head(handle.reader) == (1, 0)
    assert handle.raise_floor(STREAM, Epoch(1), started(), after=Seq(1)).seq == 2


def test_rule_L2_raising_the_floor_is_one_driver_started(store: Store) -> None:
    begin(store)
    first, second = read(drive(store, 3).reader)
    assert (first.event.kind, first.epoch) == ("session_opened", 0)
    assert (second.event, second.epoch) == (started("n3"), 3)


def test_rule_I5_an_append_below_the_floor_is_refused_and_nothing_is_written(store: Store) -> None:
    begin(store)
    old, new = drive(store, 1), drive(store, 2)
    blob = encode_blob(b"of the old one")
    before = read(new.reader)
    with pytest.raises(StaleEpochError) as caught:
        old.append(STREAM, Epoch(1), [note("late"), note("later")], [blob], "note")
    assert caught.value.exit_code == 75
    with pytest.raises(StaleEpochError):
        old.check_fence(STREAM, Epoch(1))
    assert read(new.reader) == before
    assert not new.reader.has_blob(blob.content), "the blobs of a refused append were written"
    new.check_fence(STREAM, Epoch(2))
    add(new, 2, "goes on")


def test_rule_I5_an_append_above_the_floor_is_a_bug_of_the_caller(store: Store) -> None:
    begin(store)
    handle = drive(store)
    with pytest.raises(InternalError):
        add(handle, 2, "too early")
    assert head(handle.reader) == (2, 1)


def test_rule_I2_an_append_is_whole_or_not_at_all(store: Store) -> None:
    begin(store)
    handle = drive(store)
    blob = encode_blob(b"with it")
    with pytest.raises(InternalError):  # the second of them may not stand there
        handle.append(STREAM, Epoch(1), [note("first"), opened()], [blob], "outcome")
    assert head(handle.reader) == (2, 1)
    assert not handle.reader.has_blob(blob.content)
    handle.append(STREAM, Epoch(1), [note("first", changes=diff(FIRST, SECOND)), note("second")], [blob], "outcome")
    assert head(handle.reader) == (4, 1)
    assert handle.reader.has_blob(blob.content)
    assert handle.reader.image(STREAM, Seq(3)) == SECOND


REFUSED_FIRST: list[Callable[[], Record]] = [lambda: note("first"), lambda: Record(started())]


@pytest.mark.parametrize("first", REFUSED_FIRST, ids=["noted", "driver_started"])
def test_rule_L2_a_stream_begins_with_session_opened_or_forked_at_epoch_0_and_no_other(store: Store, first: Callable[[], Record]) -> None:
    with pytest.raises(InternalError):
        store.create(STREAM, first(), (), RandomIds())
    begin(store)
    handle = drive(store)
    with pytest.raises(InternalError):
        handle.open_stream(OTHER, first(), "fork")
    assert handle.reader.stream(OTHER) is None, "a refused stream was left behind"


def test_rule_L2_no_second_first_event_and_no_driver_but_by_raising_the_floor(store: Store) -> None:
    begin(store)
    handle = drive(store)
    for record in (opened(), Record(started("n2"))):
        with pytest.raises(InternalError):
            handle.append(STREAM, Epoch(1), [record], (), "note")
    assert head(handle.reader) == (2, 1)


def test_streams_have_floors_and_heads_of_their_own(store: Store) -> None:
    begin(store)
    handle = drive(store, 5)
    at = read(handle.reader)[1]
    first = handle.open_stream(OTHER, forked(STREAM, at, handle.log_id), "fork", STREAM, at.seq)
    assert (first.seq, head(handle.reader, OTHER)) == (1, (1, 0))
    with pytest.raises(MisuseError):
        handle.open_stream(OTHER, opened(), "fork")
    handle.raise_floor(OTHER, Epoch(2), started())
    add(handle, 2, "in the fork", stream=OTHER)
    assert (head(handle.reader), head(handle.reader, OTHER)) == ((2, 5), (3, 2))
    rows = handle.reader.streams()
    assert [row.id for row in rows] == sorted([STREAM, OTHER])
    assert [(row.parent, row.forked_at) for row in rows if row.id == OTHER] == [(STREAM, 2)]
    assert (read_texts(handle.reader), read_texts(handle.reader, OTHER)) == ([], ["in the fork"])
    for stream in (STREAM, OTHER):
        check_chain(handle.log_id, stream, read(handle.reader, stream))


def test_a_stream_that_is_not_there_is_refused_by_its_name(store: Store) -> None:
    begin(store)
    handle = drive(store)
    refused: list[Callable[[], object]] = [
        lambda: handle.append(OTHER, Epoch(0), [note("x")], (), "note"),
        lambda: handle.append_unfenced(OTHER, [note("x")], "note"),
        lambda: handle.admit(OTHER, "r", {}, 1),
        lambda: handle.raise_floor(OTHER, Epoch(1), started()),
    ]
    for act in refused:
        with pytest.raises(MisuseError, match="no session"):
            act()
    assert handle.reader.stream(OTHER) is None
    assert handle.reader.floor(OTHER) == 0


def test_rule_L8_nothing_follows_session_moved(store: Store) -> None:
    begin(store)
    handle = drive(store)
    handle.append(STREAM, Epoch(1), [Record(events.SessionMoved(9, "d" * 64))], (), "move")
    refused: list[Callable[[], object]] = [
        lambda: add(handle, 1, "x"),
        lambda: handle.append_unfenced(STREAM, [note("x")], "note"),
        lambda: handle.admit(STREAM, "r", {}, 1),
        lambda: handle.raise_floor(STREAM, Epoch(2), started()),
    ]
    for act in refused:
        with pytest.raises(MovedError):
            act()
    assert head(handle.reader) == (3, 1)


def test_rule_I2_an_event_comes_in_only_with_every_content_it_names(store: Store) -> None:
    begin(store)
    handle = drive(store)
    data = b"a content that nobody sent"
    change = put_change(b"new", Entry("f", 0o644, content_id(data), len(data)))
    with pytest.raises(ContentGoneError):
        handle.append(STREAM, Epoch(1), [note("too early", changes=(change,))], (), "note")
    assert read_texts(handle.reader) == []
    handle.append(STREAM, Epoch(1), [note("with it", changes=(change,))], (encode_blob(data),), "note")
    handle.append(STREAM, Epoch(1), [note("again", changes=(change,))], (), "note")
    assert read_texts(handle.reader) == ["with it", "again"]


UNWRITABLE = {
    "a number where text belongs": Record(events.Noted(4, 5)),  # type: ignore[arg-type]
    "a fraction of a millisecond": Record(events.Noted(1.5, "x")),  # type: ignore[arg-type]
    "nothing where text belongs": Record(events.Noted(4, None)),  # type: ignore[arg-type]
    "a path that leads out": note("x", changes=(put_change(b"../z", Entry("d", 0o755)),)),
    "an absolute path": note("x", changes=(put_change(b"/z", Entry("d", 0o755)),)),
    "an entry that cannot be": note("x", changes=(put_change(b"z", Entry("l", 0o777)),)),
}


@pytest.mark.parametrize("record", UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_could_not_be_read_again_is_misuse_and_nothing_is_written(store: Store, record: Record) -> None:
    """An append-only log would keep it for ever, and all that follows it."""
    begin(store)
    handle = drive(store)
    with pytest.raises(MisuseError):
        handle.append(STREAM, Epoch(1), [note("before"), record], (), "note")
    assert read_texts(handle.reader) == []
    add(handle, 1, "after")
    assert read_texts(handle.reader) == ["after"]
