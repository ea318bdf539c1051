"""The log as files of SQLite: damage behind the triggers' back (L3, I9), and files exchanged under a handle (L5, case 19).

The files are opened past the store here, while no handle of this process has them open (L6).
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from eventlog import durable
from eventlog.codec import encode_blob
from eventlog.conformance import processes
from eventlog.conformance.damage import count_events, refuse, tamper
from eventlog.conformance.fixtures import require
from eventlog.conformance.samples import (
    BLOBS,
    EMPTY,
    FIRST,
    HELLO,
    OTHER,
    SECOND,
    STREAM,
    add,
    begin,
    drive,
    head,
    note,
    opened,
    read,
    read_texts,
    started,
)
from eventlog.errors import CorruptError, LogMissingError, MisuseError, ReplacedError
from eventlog.image import diff
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.sqlite_store import LOG_NAME
from eventlog.store import Store, StoreFactory
from eventlog.values import Epoch
from eventlog.verify import verify


@pytest.fixture
def log(store: Store, place: Path) -> str:
    """The path of a log, closed: its driver of epoch 1 has written one note."""
    require(store, "sqlite files")
    begin(store)
    handle = drive(store)
    add(handle, 1, "one")
    handle.close()
    return str(place / LOG_NAME)


def check_refused(store: Store, log: str, floor: int) -> None:
    """Fail unless reading and appending at `floor` are refused as corrupt, and nothing is written."""
    before = count_events(log)
    reader = store.open_reading()
    with pytest.raises(CorruptError, match="disagrees with its events"):
        read(reader)
    reader.close()
    handle = store.open_writing(RandomIds())
    with pytest.raises(CorruptError, match="disagrees with its events"):
        add(handle, floor, "must not stand")
    with pytest.raises(CorruptError, match="disagrees with its events"):
        handle.append_unfenced(STREAM, [note("must not stand")], "note")
    with pytest.raises(CorruptError, match="disagrees with its events"):
        handle.raise_floor(STREAM, Epoch(20), started())
    handle.close()
    assert count_events(log) == before


@pytest.mark.parametrize("floor", [0, 9], ids=["lowered", "raised"])
def test_rule_L3_a_floor_that_disagrees_with_driver_started_is_refused(store: Store, log: str, floor: int) -> None:
    tamper(log, f"UPDATE stream SET floor = {floor}")
    check_refused(store, log, floor)


HEADS = {
    "lowered": "UPDATE stream SET head_seq = 2",
    "raised": "UPDATE stream SET head_seq = 4",
    "another hash": "UPDATE stream SET head_hash = zeroblob(32)",
    "newest event gone": "DELETE FROM event WHERE seq = 3",
    "driver_started at another epoch": "UPDATE event SET epoch = 5 WHERE seq = 2",
}


@pytest.mark.parametrize("statement", HEADS.values(), ids=HEADS)
def test_rule_L3_a_cache_row_that_disagrees_with_the_newest_events_stops_every_append(store: Store, log: str, statement: str) -> None:
    tamper(log, statement)
    before = count_events(log)
    handle = store.open_writing(RandomIds())
    with pytest.raises(CorruptError):
        add(handle, 1, "must not stand")
    with pytest.raises(CorruptError):
        read(handle.reader)
    handle.close()
    assert count_events(log) == before


FORBIDDEN = {
    "floor falls": ("UPDATE stream SET floor = 0, head_seq = head_seq + 1", "a floor never falls"),
    "head jumps": ("UPDATE stream SET head_seq = head_seq + 2", "a head moves by one"),
    "head stays": ("UPDATE stream SET floor = 7", "a head moves by one"),
    "stream goes": ("DELETE FROM stream", "never deleted"),
    "event changes": ("UPDATE event SET epoch = 0 WHERE seq = 2", "append-only"),
    "event goes": ("DELETE FROM event WHERE seq = 3", "append-only"),
    "event replaced": ("INSERT OR REPLACE INTO event SELECT * FROM event WHERE seq = 3", "append-only"),
    "change goes": ("DELETE FROM image_change", "append-only"),
    "blob goes": ("DELETE FROM blob", "append-only"),
    "log id changes": ("UPDATE meta SET value = 'x'", "append-only"),
}


@pytest.mark.parametrize(("statement", "words"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_rule_L3_no_statement_lowers_a_floor_or_takes_back_what_stands(store: Store, log: str, statement: str, words: str) -> None:
    assert words in refuse(log, statement)
    reader = store.open_reading()
    assert (head(reader), read_texts(reader)) == ((3, 1), ["one"])
    reader.close()


SPOILED = {
    "payload": "UPDATE event SET payload = replace(payload, 'one', 'two') WHERE seq = 3",
    "event id": "UPDATE event SET id = zeroblob(16) WHERE seq = 2",
    "kind": "UPDATE event SET kind = 'synced' WHERE seq = 3",
    "chain": "UPDATE event SET prev_hash = zeroblob(32) WHERE seq = 3",
    "a change": "UPDATE image_change SET mode = mode + 1 WHERE idx = 1",
    "a change gone": "DELETE FROM image_change WHERE idx = 2",
    "an event gone": "DELETE FROM event WHERE seq = 2",
}


@pytest.mark.parametrize("statement", SPOILED.values(), ids=SPOILED)
def test_rule_I9_a_spoiled_event_is_refused_when_it_is_read(store: Store, log: str, statement: str) -> None:
    tamper(log, "PRAGMA foreign_keys = OFF", statement)
    reader = store.open_reading()
    with pytest.raises(CorruptError):
        read(reader)
    reader.close()


def test_rule_I9_a_spoiled_content_is_refused_when_it_is_read(store: Store, log: str) -> None:
    tamper(log, "UPDATE blob SET codec = 'raw', bytes = zeroblob(size)")
    reader = store.open_reading()
    with pytest.raises(CorruptError):
        list(reader.content(encode_blob(HELLO).content))
    reader.close()


def test_an_imported_stream_is_read_under_its_origin_and_takes_nothing_more(store: Store, log: str) -> None:
    tamper(log, "UPDATE stream SET origin_log = (SELECT value FROM meta WHERE key = 'log_id'), origin_stream = id")
    handle = store.open_writing(RandomIds())
    for act in (
        lambda: add(handle, 1, "x"),
        lambda: handle.append_unfenced(STREAM, [note("x")], "note"),
        lambda: handle.admit(STREAM, "r", {}, 1),
        lambda: handle.raise_floor(STREAM, Epoch(2), started()),
    ):
        with pytest.raises(MisuseError, match="read-only"):
            act()
    (row,) = handle.reader.streams()
    assert row.origin is not None and (row.origin.log_id, row.origin.stream) == (handle.log_id, STREAM)
    assert read_texts(handle.reader) == ["one"]
    handle.close()


def is_sound(log: str) -> bool:
    """Whether `eventlog verify` finds nothing."""
    reader = Reader.open(log)
    try:
        return not verify(reader).findings
    finally:
        reader.close()


def test_rule_L5_no_log_is_published_over_a_left_wal(store: Store, log: str, place: Path) -> None:
    assert os.path.getsize(log + "-wal") > 0
    elsewhere = str(place.parent / "elsewhere")
    durable.rename(log, elsewhere, "conformance")
    before = sorted(os.listdir(place))
    with pytest.raises(LogMissingError):  # SQLite would play the old WAL into the new file
        store.create(STREAM, opened("new"), BLOBS, RandomIds())
    assert sorted(os.listdir(place)) == before, "something was made, or removed"
    durable.rename(elsewhere, log, "conformance")
    reader = store.open_reading()
    assert read_texts(reader) == ["one"]
    reader.close()
    assert is_sound(log)


class Trap:
    """Does something once, just before a connection executes its next BEGIN: after all that a writer does without the lock."""

    def __init__(self) -> None:
        self._act: Callable[[], None] | None = None

    def set(self, act: Callable[[], None]) -> None:
        self._act = act

    def watch(self, connection: apsw.Connection) -> None:
        connection.set_exec_trace(self._trace)

    def _trace(self, cursor: object, sql: str, bindings: object) -> bool:
        if self._act is not None and sql.startswith("BEGIN"):
            act, self._act = self._act, None
            act()
        return True


@pytest.fixture
def trap() -> Iterator[Trap]:
    """A trap in every connection that is opened from now on."""
    made = Trap()
    apsw.connection_hooks.append(made.watch)
    yield made
    apsw.connection_hooks.remove(made.watch)


def test_rule_L5_files_are_compared_under_the_lock(store: Store, make_store: StoreFactory, log: str, tmp_path: Path, trap: Trap) -> None:
    other = tmp_path / "other"
    other.mkdir()
    begin(make_store(other))
    handle = store.open_writing(RandomIds())
    holder = processes.start("eventlog.conformance.holder", log, str(other / LOG_NAME))
    assert processes.hear(holder) == "locked"
    size = os.path.getsize(log + "-wal")
    said: list[str] = []

    def exchange() -> None:
        """The other process has the lock; the file at the path is another one before it lets go."""
        processes.tell(holder)
        said.append(processes.hear(holder))

    trap.set(exchange)
    with pytest.raises(ReplacedError):
        add(handle, 1, "into a file that nobody will find")
    assert said == ["exchanged"], "the append did not wait for the lock"
    assert os.path.getsize(log + "-wal") == size, "something was written"
    handle.close()
    processes.end(holder)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_case_19_a_side_file_removed_under_a_handle_stops_it(store: Store, log: str, suffix: str) -> None:
    handle = store.open_writing(RandomIds())
    add(handle, 1, "before")
    durable.unlink(log + suffix, "conformance")
    with pytest.raises(ReplacedError):
        add(handle, 1, "after")
    with pytest.raises(ReplacedError):
        handle.insert_blobs([encode_blob(b"after")])
    handle.close()


def test_case_19_a_log_taken_from_its_path_stops_a_handle_and_is_the_same_one_when_it_is_back(store: Store, log: str, place: Path) -> None:
    handle = store.open_writing(RandomIds())
    elsewhere = str(place.parent / "elsewhere")
    durable.rename(log, elsewhere, "conformance")
    with pytest.raises(LogMissingError):
        add(handle, 1, "nowhere")
    with pytest.raises(LogMissingError):
        store.open_reading()
    durable.rename(elsewhere, log, "conformance")
    add(handle, 1, "back")
    assert read_texts(handle.reader) == ["one", "back"]
    handle.close()
    assert is_sound(log)


def test_case_19_closing_and_opening_remove_no_side_file(store: Store, log: str) -> None:
    before = {suffix: Path(log + suffix).read_bytes() for suffix in ("", "-wal")}
    assert before["-wal"], "the newest events stand in the WAL"
    for _ in range(2):
        store.open_reading().close()
        store.open_writing(RandomIds()).close()
    assert {suffix: Path(log + suffix).read_bytes() for suffix in ("", "-wal")} == before


def test_a_log_written_through_the_store_is_sound_by_verify(store: Store, log: str) -> None:
    handle = drive(store, 2)
    handle.append(STREAM, Epoch(2), [note("changes", changes=diff(FIRST, SECOND))], (), "outcome")
    handle.admit(STREAM, "r", {}, 1)
    handle.open_stream(OTHER, opened("other", EMPTY), "fork")
    handle.close()
    assert is_sound(log)
