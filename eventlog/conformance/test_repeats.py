"""What is sent twice stands once: records with ids (L7), admitted inputs (L2)."""

import pytest

from eventlog import events
from eventlog.conformance.samples import OTHER, STREAM, add, attempt, begin, drive, head, note, opened, read, started
from eventlog.errors import HeadMovedError, MisuseError, StaleEpochError
from eventlog.ports import RandomIds
from eventlog.records import Record
from eventlog.store import Store
from eventlog.values import Epoch, Seq

IDS = [bytes([number]) * 16 for number in range(1, 5)]


def test_rule_L7_records_with_ids_are_written_once_and_answered_with_where_they_stand(store: Store) -> None:
    begin(store)
    first = drive(store)
    records = [note("one", IDS[0]), note("two", IDS[1])]
    answer = first.append(STREAM, Epoch(1), records, (), "note")
    second = drive(store, 2)
    add(second, 2, "between")
    # As after an uncertain commit: sent again, by another handle, and even under an epoch that is over.
    assert second.append(STREAM, Epoch(2), records, (), "note") == answer
    assert first.append(STREAM, Epoch(1), records, (), "note") == answer
    assert head(second.reader) == (6, 2)
    assert [second.reader.find(event_id) for event_id in IDS[:3]] == [3, 4, None]


def test_rule_L7_an_id_belongs_to_one_event_for_ever(store: Store) -> None:
    begin(store)
    handle = drive(store)
    handle.append(STREAM, Epoch(1), [note("one", IDS[0]), note("two", IDS[1])], (), "note")
    handle.open_stream(OTHER, opened("other"), "fork")
    for stream, epoch, records in (
        (STREAM, 1, [note("another", IDS[0])]),
        (STREAM, 1, [note("one", IDS[0]), note("new", IDS[2])]),
        (OTHER, 0, [note("one", IDS[0])]),
    ):
        with pytest.raises(MisuseError):
            handle.append(stream, Epoch(epoch), records, (), "note")
    assert (head(handle.reader), head(handle.reader, OTHER)) == ((4, 1), (1, 0))
    assert handle.reader.find(IDS[2]) is None


def test_rule_L7_without_ids_equal_records_are_events_of_their_own(store: Store) -> None:
    begin(store)
    handle = drive(store)
    assert [answer.seq for _ in range(3) for answer in add(handle, 1, "same")] == [3, 4, 5]


def test_rule_L2_an_input_is_admitted_once_for_each_request_whoever_sends_it(store: Store) -> None:
    begin(store)
    driver, outside = drive(store, 7), store.open_writing(RandomIds())
    first = outside.admit(STREAM, "request-1", {"say": "caf\u00e9"}, 10)
    assert (first.is_new, first.appended.seq) == (True, 3)
    for handle in (driver, outside):
        again = handle.admit(STREAM, "request-1", {"say": "caf\u00e9"}, 99)
        assert (again.is_new, again.appended) == (False, first.appended)
    with pytest.raises(MisuseError, match="another input"):
        outside.admit(STREAM, "request-1", {"say": "something else"}, 10)
    assert driver.admit(STREAM, "request-2", {}, 11).is_new
    stored = read(driver.reader)
    assert [(one.epoch, one.event) for one in stored[2:]] == [
        (7, events.InputAdmitted(10, "request-1", {"say": "caf\u00e9"})),
        (7, events.InputAdmitted(11, "request-2", {})),
    ]


def test_rule_L2_request_ids_belong_to_a_stream(store: Store) -> None:
    begin(store)
    handle = drive(store)
    handle.open_stream(OTHER, opened("other"), "fork")
    assert handle.admit(STREAM, "r", {"to": 1}, 1).is_new
    assert handle.admit(OTHER, "r", {"to": 2}, 1).is_new


def test_rule_L2_an_admitted_request_is_not_appended_a_second_time_by_another_way(store: Store) -> None:
    begin(store)
    handle = drive(store)
    handle.admit(STREAM, "r", {}, 1)
    again = Record(events.InputAdmitted(1, "r", {}))
    with pytest.raises(MisuseError, match="admitted"):
        handle.append_unfenced(STREAM, [again], "note")
    with pytest.raises(MisuseError, match="admitted"):
        handle.append(STREAM, Epoch(1), [note("with it"), again], (), "note")
    assert head(handle.reader) == (3, 1)


def test_rule_L7_an_admitted_input_with_an_id_may_be_sent_again(store: Store) -> None:
    begin(store)
    handle = drive(store)
    record = Record(events.InputAdmitted(1, "r", {}), id=IDS[0])
    assert handle.append_unfenced(STREAM, [record], "note") == handle.append_unfenced(STREAM, [record], "note")
    assert head(handle.reader) == (3, 1)


def test_rule_L2_unfenced_are_notes_and_inputs_only_and_stand_under_the_floor_of_then(store: Store) -> None:
    begin(store)
    outside = store.open_writing(RandomIds())
    outside.append_unfenced(STREAM, [note("before any driver")], "note")
    drive(store, 6)
    outside.append_unfenced(STREAM, [note("beside a driver")], "note")
    for record in (attempt({}), Record(started("n9")), Record(events.SessionFinished(9, "0" * 64)), opened()):
        with pytest.raises(MisuseError, match="driver"):
            outside.append_unfenced(STREAM, [note("with it"), record], "note")
    assert [(one.event.kind, one.epoch) for one in read(outside.reader)[1:]] == [("noted", 0), ("driver_started", 6), ("noted", 6)]


def test_an_unfenced_append_after_a_head_that_moved_writes_nothing(store: Store) -> None:
    """Whoever answers a question must have read all there is: of two answers given at once one stands."""
    begin(store)
    outside = store.open_writing(RandomIds())
    seen = Seq(head(outside.reader)[0])
    outside.append_unfenced(STREAM, [note("first")], "note", after=seen)
    with pytest.raises(HeadMovedError):
        outside.append_unfenced(STREAM, [note("second")], "note", after=seen)
    assert head(outside.reader)[0] == seen + 1


def test_an_unfenced_append_lets_no_stale_driver_in(store: Store) -> None:
    begin(store)
    old = drive(store, 1)
    drive(store, 2)
    old.append_unfenced(STREAM, [note("anybody may")], "note")
    with pytest.raises(StaleEpochError):
        add(old, 1, "but not this")
