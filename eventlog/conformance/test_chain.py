"""The chain: hashes by the formula of eventlog/README, equal for equal ids in every store; redaction before anything is stored."""

from pathlib import Path

import msgspec

from eventlog import events, sqlite_store
from eventlog.conformance.formula import check_chain
from eventlog.conformance.samples import (
    BLOBS,
    FIRST,
    HELLO,
    OTHER,
    SECOND,
    STREAM,
    add,
    attempt,
    begin,
    drive,
    note,
    opened,
    read,
    started,
)
from eventlog.image import diff
from eventlog.ports import CountingIds
from eventlog.reader import StoredEvent
from eventlog.records import Record
from eventlog.store import Store
from eventlog.values import Epoch


def write_history(store: Store) -> dict[str, list[StoredEvent]]:
    """Something of everything, under ids 1, 2, 3 ...; all events by stream."""
    ids = CountingIds()
    begin(store, ids=ids)
    handle = store.open_writing(ids)
    handle.raise_floor(STREAM, Epoch(3), started())
    handle.append(STREAM, Epoch(3), [attempt({"run": "caf\u00e9 \u202e \x1b[0m", "nested": [1, None, True]})], (), "intent")
    handle.append(STREAM, Epoch(3), [note("changes", changes=diff(FIRST, SECOND)), note("\x00\x7f\u2028")], (), "outcome")
    handle.admit(STREAM, "r", {"b64": "/w=="}, 5)
    handle.open_stream(OTHER, opened("other", SECOND), "fork")
    handle.append(STREAM, Epoch(3), [Record(events.Synced(6, "0" * 64, "boot-1"))], (), "finish")
    found = {"": [], STREAM: read(handle.reader), OTHER: read(handle.reader, OTHER)}
    check_chain(handle.log_id, STREAM, found[STREAM])
    check_chain(handle.log_id, OTHER, found[OTHER])
    handle.close()
    return found


def test_rule_I9_every_hash_is_that_of_the_formula(store: Store) -> None:
    found = write_history(store)
    assert [len(found[STREAM]), len(found[OTHER])] == [7, 1]


def test_rule_I9_equal_ids_and_records_make_equal_events_and_hashes_in_every_store(store: Store, tmp_path: Path) -> None:
    directory = tmp_path / "reference"
    directory.mkdir()
    assert write_history(store) == write_history(sqlite_store.make(directory))


def test_rule_I9_what_an_event_says_comes_back_as_it_was_given(store: Store) -> None:
    begin(store)
    handle = drive(store)
    ended, output = events.Exit("exited", code=0), events.Output(len(HELLO), len(HELLO), False, BLOBS[0].content.hex())
    given: list[events.Event] = [
        events.CallSettled(1, 1, 1, "finished", "finished", "", ended, output, "0" * 64, [events.Untracked({"b64": "/w=="}, "socket")]),
        events.RecoveryDecided(2, "adopt", None, None, False, None, None, "transactional", {"a": {"b": [1.5, "x"]}}),
        events.Quarantined(3, 5, "directory", ["a", {"b64": "/w=="}]),
        events.Noted(4, "\u0000 caf\u00e9 \u202e \U0001f600 \x1b \" \\ \u2028"),
    ]
    handle.append(STREAM, Epoch(1), [Record(event) for event in given], (), "note")
    assert [one.event for one in read(handle.reader)[2:]] == given


def test_a_redaction_sees_every_event_first_and_a_redacted_call_says_so(store: Store) -> None:
    begin(store)

    def redact(event: events.Event) -> events.Event:
        match event:
            case events.AttemptStarted():
                return msgspec.structs.replace(event, input=dict.fromkeys(event.input, "[redacted]"))
            case events.Noted():
                return msgspec.structs.replace(event, text="[redacted]")
            case events.InputAdmitted():
                return msgspec.structs.replace(event, input={})
            case _:
                return event

    handle = store.open_writing(CountingIds(1000), redact)
    handle.raise_floor(STREAM, Epoch(1), started())
    handle.append(STREAM, Epoch(1), [attempt({"run": "secret"}), attempt({}), note("secret")], (), "intent")
    handle.append_unfenced(STREAM, [note("secret")], "note")
    handle.admit(STREAM, "r", {"say": "secret"}, 1)
    assert not handle.admit(STREAM, "r", {"say": "secret"}, 1).is_new
    stored = read(handle.reader)
    assert "secret" not in repr(stored)
    assert [one.event.redacted for one in stored if isinstance(one.event, events.AttemptStarted)] == [True, False]
    check_chain(handle.log_id, STREAM, stored)


def test_ids_of_logs_and_events_come_from_the_given_source(store: Store) -> None:
    begin(store, ids=CountingIds(7))
    handle = store.open_writing(CountingIds(500))
    handle.raise_floor(STREAM, Epoch(1), started())
    assert len(handle.log_id) == 32 and int(handle.log_id, 16) < 20
    assert read(handle.reader)[1].id == (500).to_bytes(16, "big")
    assert add(handle, 1, "next")[0].id == (501).to_bytes(16, "big")
