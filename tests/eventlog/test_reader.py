"""Reading: everything is checked before it is handed out, and a writer at work beside us is not damage."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from eventlog import codec, events
from eventlog.errors import CorruptError, LogMissingError, MisuseError
from eventlog.image import changes_digest, root_hash
from eventlog.reader import Reader
from eventlog.values import ContentId, Epoch, Seq, StreamId
from tests.eventlog import support
from tests.eventlog.support import STREAM, tamper


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.make_log(tmp_path)


@pytest.fixture
def reader(log: str) -> Iterator[Reader]:
    made = Reader.open(log)
    yield made
    made.close()


def read_all(path: str) -> list[str]:
    """The kinds of all events."""
    reader = Reader.open(path)
    try:
        return [stored.event.kind for stored in reader.events(STREAM)]
    finally:
        reader.close()


KINDS = [
    "session_opened", "driver_started", "attempt_started", "call_settled", "driver_started", "noted", "noted", "synced", "session_finished",
]  # fmt: skip


def test_a_whole_log_is_read_in_order_with_its_epochs_and_changes(reader: Reader) -> None:
    stored = list(reader.events(STREAM))
    assert [one.event.kind for one in stored] == KINDS
    assert [one.seq for one in stored] == list(range(1, 10))
    assert [one.epoch for one in stored] == [0, 1, 1, 1, 4, 4, 4, 4, 4]
    assert [bool(one.changes) for one in stored] == [True, False, False, True, False, False, False, False, False]
    assert [(row.id, row.floor, row.head_seq, row.head_hash) for row in reader.streams()] == [(STREAM, 4, 9, stored[-1].hash)]


def test_the_image_is_that_of_its_seq(reader: Reader) -> None:
    assert reader.image(STREAM, Seq(1)) == reader.image(STREAM, Seq(3)) == support.IMAGE
    assert reader.image(STREAM, Seq(4)) == reader.image(STREAM, Seq(9)) == support.LATER
    assert reader.image(STREAM, Seq(0)) == {}


def test_a_content_comes_back_in_pieces_that_are_each_verified(reader: Reader) -> None:
    for data in (support.HELLO, support.BIG, b"", support.OUTPUT):
        assert b"".join(reader.content(codec.content_id(data))) == data
    assert reader.has_blob(codec.content_id(support.BIG)) and not reader.has_blob(ContentId(bytes(32)))


def test_an_event_is_found_by_its_id(reader: Reader) -> None:
    for stored in reader.events(STREAM):
        assert reader.find(stored.id) == stored.seq
    assert reader.find(bytes(16)) is None


def test_a_stream_that_is_not_there_has_no_row_and_floor_0(reader: Reader) -> None:
    assert reader.stream(StreamId("other")) is None
    assert reader.floor(StreamId("other")) == 0
    with pytest.raises(CorruptError):
        list(reader.events(StreamId("other")))


def test_a_log_that_grows_while_it_is_read_is_not_damage(log: str, reader: Reader) -> None:
    writer = support.open_writer(log, first_id=5_000_000)
    seen = []
    for stored in reader.events(STREAM):
        support.add(writer, 4, "meanwhile")
        seen.append(stored.seq)
    assert seen == list(range(1, 10))
    writer.raise_floor(STREAM, Epoch(5), support.started("n5"))
    assert len(list(reader.events(STREAM))) == 19
    writer.close()


def test_case_18_no_read_transaction_stays_open_between_events(log: str, reader: Reader) -> None:
    walk = reader.events(STREAM)
    next(walk)
    assert not reader._handle.in_transaction
    writer = support.open_writer(log, first_id=5_000_000)
    support.add(writer, 4, "meanwhile")
    assert writer._handle.wal_checkpoint(mode=3) == (0, 0)
    writer.close()
    assert len(list(walk)) == 8


def test_invariant_I9_a_reader_cannot_write(log: str, reader: Reader) -> None:
    with pytest.raises(MisuseError, match="readonly"):
        reader.rows("INSERT INTO meta VALUES ('x', 'y')")


def test_reading_neither_checkpoints_nor_deletes_the_wal_of_a_killed_log(log: str) -> None:
    before = [Path(log + suffix).read_bytes() for suffix in ("", "-wal")]
    assert read_all(log) == KINDS
    assert [Path(log + suffix).read_bytes() for suffix in ("", "-wal")] == before


def test_a_copy_of_log_and_wal_is_read_and_one_without_its_wal_lacks_the_newest(log: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        (copy / ("log.sqlite" + suffix)).write_bytes(Path(log + suffix).read_bytes())
    assert read_all(str(copy / "log.sqlite")) == KINDS
    alone = tmp_path / "alone.sqlite"
    alone.write_bytes(Path(log).read_bytes())
    assert read_all(str(alone)) == KINDS[:5], "the newest raised floor and all before it stand in the database"


DAMAGE = {
    "payload changed": (
        "UPDATE event SET payload = replace(payload, 'true', 'evil') WHERE seq = 3",
        r"seq 3: its hash .*last good event is 2",
    ),
    "payload is a blob": ("UPDATE event SET payload = CAST(payload AS BLOB) WHERE seq = 3", "seq 3: a column has the wrong type"),
    "payload is not UTF-8": ("UPDATE event SET payload = CAST(x'7bff7d' AS TEXT) WHERE seq = 3", "seq 3: its hash"),
    "kind is not UTF-8": ("UPDATE event SET kind = CAST(x'6eff' AS TEXT) WHERE seq = 6", "seq 6: its hash"),
    "kind changed": ("UPDATE event SET kind = 'synced' WHERE seq = 6", "seq 6: its hash"),
    "version changed": ("UPDATE event SET version = 2 WHERE seq = 6", "seq 6: its hash"),
    "version out of range": ("UPDATE event SET version = -1 WHERE seq = 6", "seq 6: a number is out of range"),
    "epoch changed": ("UPDATE event SET epoch = 3 WHERE seq = 6", "seq 6: its hash"),
    "epoch below zero": ("UPDATE event SET epoch = -1 WHERE seq = 6", "seq 6: a number is out of range"),
    "epoch is text": ("UPDATE event SET epoch = 'x' WHERE seq = 6", "seq 6: a column has the wrong type"),
    "id changed": ("UPDATE event SET id = zeroblob(16) WHERE seq = 6", "seq 6: its hash"),
    "hash changed": ("UPDATE event SET hash = zeroblob(32) WHERE seq = 6", "seq 6: its hash"),
    "link broken": ("UPDATE event SET prev_hash = zeroblob(32) WHERE seq = 6", "seq 6: its hash"),
    "event gone": ("DELETE FROM event WHERE seq = 6", r"seq 6: missing \(the next one found is 7\)"),
    "first event gone": ("DELETE FROM event WHERE seq = 1", r"seq 1: missing"),
    "newest event gone": ("DELETE FROM event WHERE seq = 9", r"seq 9: missing \(no later one was found\); the last good event is 8"),
    "all events gone": ("DELETE FROM event", r"seq 1: missing \(no later one"),
    "change gone": ("DELETE FROM image_change WHERE seq = 4 AND idx = 0", "seq 4: its image changes are not numbered"),
    "last change gone": ("DELETE FROM image_change WHERE seq = 4 AND idx = 2", "seq 4: its hash"),
    "change moved": ("UPDATE image_change SET idx = 7 WHERE seq = 4 AND idx = 2", "seq 4: its image changes are not numbered"),
    "change altered": ("UPDATE image_change SET mode = 511 WHERE seq = 1 AND idx = 1", "seq 1: its hash"),
    "mode out of range": ("UPDATE image_change SET mode = 70000 WHERE seq = 1 AND idx = 1", "seq 1: change 1: an image change is neither"),
    "mode below zero": ("UPDATE image_change SET mode = -1 WHERE seq = 1 AND idx = 1", "seq 1: change 1: an image change is neither"),
    "size below zero": ("UPDATE image_change SET size = -1 WHERE seq = 1 AND idx = 1", "seq 1: change 1: an image change is neither"),
    "owner set": ("UPDATE image_change SET uid = 0, gid = 0 WHERE seq = 1 AND idx = 1", "seq 1: its hash"),
    "half an owner": ("UPDATE image_change SET uid = 0 WHERE seq = 1 AND idx = 1", "seq 1: change 1: an image change has 0 and None"),
    "op unknown": ("UPDATE image_change SET op = 'cp' WHERE seq = 1 AND idx = 1", "seq 1: change 1: an image change is neither"),
    "path is text": ("UPDATE image_change SET path = 'a' WHERE seq = 1 AND idx = 1", "seq 1: change 1: an image change has no path"),
    "target is text": ("UPDATE image_change SET target = 'a' WHERE seq = 1 AND idx = 1", "seq 1: change 1: an image change has 'a'"),
    "log id changed": ("UPDATE meta SET value = printf('%032d', 0) WHERE key = 'log_id'", "seq 1: its hash"),
    "log id gone": ("DELETE FROM meta WHERE key = 'log_id'", "meta has no log_id"),
    "format of another kind": ("UPDATE meta SET value = '1' WHERE key = 'format'", "another format than the file's header"),
    "format gone": ("DELETE FROM meta WHERE key = 'format'", "meta has no format"),
    "stream row of a wrong type": ("UPDATE stream SET floor = 'x'", "stream row has a column of the wrong type"),
    "head hash changed": ("UPDATE stream SET head_hash = zeroblob(32)", "cache row disagrees"),
    "table gone": ("DROP TABLE image_change", "no such table"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_invariant_I9_damage_is_a_typed_error_that_names_the_record(log: str, name: str) -> None:
    statement, words = DAMAGE[name]
    if statement.startswith("DROP"):
        tamper_without_triggers(log, statement)
    else:
        tamper(log, statement)
    with pytest.raises(CorruptError, match=words) as caught:
        read_all(log)
    assert "eventlog verify" in str(caught.value)
    assert log in str(caught.value)


def tamper_without_triggers(path: str, statement: str) -> None:
    """Change the schema itself."""
    handle = apsw.Connection(path)
    handle.execute(statement)
    handle.close()


def test_rule_L2_a_session_that_opens_twice_or_not_first_is_damage_though_its_chain_holds(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    forge(path, "session_opened", 0)
    with pytest.raises(CorruptError, match="seq 2: session_opened at seq 2"):
        read_all(path)


@pytest.mark.parametrize(("kind", "epoch", "words"), [("driver_started", 0, "not above the floor 0"), ("noted", 3, "epoch 3 where")])
def test_invariant_I5_an_epoch_out_of_order_is_damage_though_its_chain_holds(tmp_path: Path, kind: str, epoch: int, words: str) -> None:
    path = support.create_small(tmp_path)
    forge(path, kind, epoch)
    with pytest.raises(CorruptError, match=f"seq 2: .*{words}"):
        read_all(path)


def test_rule_L8_nothing_follows_session_moved_though_the_chain_holds(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    forge(path, "session_moved", 0)
    assert read_all(path)[-1] == "session_moved"
    forge(path, "noted", 0)
    with pytest.raises(CorruptError, match="seq 3: it follows session_moved"):
        read_all(path)


def forge(path: str, kind: str, epoch: int, payload: bytes | None = None) -> None:
    """Append an event with a right hash that no writer of ours would append."""
    reader = Reader.open(path)
    row = reader.streams()[0]
    log_id = reader.log_id
    reader.close()
    examples: dict[str, events.Event] = {
        "session_opened": support.opened().event, "driver_started": support.started(), "noted": events.Noted(1, "x"),
        "session_moved": events.SessionMoved(1, "d" * 64),
    }  # fmt: skip
    stored = payload if payload is not None else events.encode(examples[kind])
    event_id = (row.head_seq + 1).to_bytes(16, "little")
    domain = codec.event_domain(log_id, row.id)
    digest = codec.hash_event(
        domain, row.head_seq + 1, event_id, epoch, kind.encode(), 1, stored, changes_digest(()), row.head_hash
    )
    text = stored.decode().replace("'", "''")
    tamper(
        path,
        f"INSERT INTO event VALUES ('{row.id}', {row.head_seq + 1}, x'{event_id.hex()}', {epoch}, '{kind}', 1, '{text}',"
        f" x'{row.head_hash.hex()}', x'{digest.hex()}')",
        f"UPDATE stream SET head_seq = head_seq + 1, head_hash = x'{digest.hex()}', floor = {epoch}",
    )


def test_an_unknown_kind_and_a_newer_version_in_a_sound_chain_are_refused_by_name(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    forge(path, "session_teleported", 0, b"{}")
    with pytest.raises(CorruptError, match=r"seq 2: unknown event kind 'session_teleported'; it was written by a newer version"):
        read_all(path)


BLOB_DAMAGE = {
    "gone": ("DELETE FROM blob WHERE hash = x'{hash}'", "is missing"),
    "bytes": ("UPDATE blob SET bytes = zeroblob(length(bytes)) WHERE hash = x'{hash}'", "{hash}"),
    "size": ("UPDATE blob SET size = size + 1 WHERE hash = x'{hash}'", "{hash}"),
    "codec": ("UPDATE blob SET codec = 'raw' WHERE hash = x'{hash}'", "{hash}"),
    "type": ("UPDATE blob SET size = 'x' WHERE hash = x'{hash}'", "wrong type"),
}


@pytest.mark.parametrize("name", BLOB_DAMAGE)
@pytest.mark.parametrize("data", [support.HELLO, support.BIG, support.BIG[: 1 << 20]], ids=["small", "chunks", "chunk"])
def test_invariant_I9_a_damaged_blob_is_never_handed_out_whole(log: str, name: str, data: bytes) -> None:
    content = codec.content_id(data)
    statement, words = BLOB_DAMAGE[name]
    tamper(log, statement.format(hash=content.hex()))
    reader = Reader.open(log)
    with pytest.raises(CorruptError, match=words.format(hash=content.hex())):
        b"".join(reader.content(content))
    reader.close()


def test_invariant_I9_chunks_that_are_sound_but_not_these_are_damage(log: str) -> None:
    big = codec.content_id(support.BIG)
    chunks = [codec.content_id(support.BIG[: 1 << 20]), codec.content_id(support.BIG[1 << 20 :])]
    for names in ((chunks[1], chunks[0]), (chunks[0], chunks[0]), (chunks[0], codec.content_id(b""))):
        tamper(log, f"UPDATE blob SET bytes = x'{b''.join(names).hex()}' WHERE hash = x'{big.hex()}'")
        reader = Reader.open(log)
        with pytest.raises(CorruptError, match=big.hex()):
            b"".join(reader.content(big))
        reader.close()


NOT_LOGS: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "missing": (lambda path: None, LogMissingError, "there is no log here"),
    "empty": (lambda path: path.touch(), CorruptError, "the log is an empty file"),
    "text": (lambda path: path.write_text("hello\n" * 5000), CorruptError, "is damaged"),
    "directory": (lambda path: path.mkdir(), MisuseError, "not a regular file"),
    "pipe": (lambda path: os.mkfifo(path), MisuseError, "not a regular file"),
    "another database": (lambda path: apsw.Connection(str(path)).execute("CREATE TABLE t (a)"), CorruptError, "application id"),
    "newer format": (lambda path: newer(path), MisuseError, "log format 4 is not known here"),
}


def newer(path: Path) -> None:
    made = support.create_small(path.parent)
    handle = apsw.Connection(made)
    handle.execute("PRAGMA user_version = 4")
    handle.close()
    os.rename(made, path)


@pytest.mark.parametrize("name", NOT_LOGS)
def test_what_is_not_a_log_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    make, kind, words = NOT_LOGS[name]
    path = tmp_path / "caf\u00e9\x1b.sqlite"
    make(path)
    with pytest.raises(kind, match=words) as caught:
        Reader.open(str(path))
    assert "caf\u00e9\\x1b.sqlite" in str(caught.value) and "\n" not in str(caught.value)


def test_the_root_of_the_sample_is_its_own() -> None:
    assert root_hash(support.IMAGE) != root_hash(support.LATER)
