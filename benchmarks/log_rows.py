"""The rows of an append as bare statements: what SQLite alone costs, with nothing of the log's own around it.

`open_bare` is the bare insert that budgets are held against. The others write what an append writes: in the log's own tables (`open_rows`),
or in layouts that were tried (`LAYOUTS`), at any size of page. None of them has a chain, a fence or a comparison of files: all values are
made beforehand but the id of each event.
"""

import os
import random
from collections.abc import Callable

import apsw

from benchmarks.measure import Work
from eventlog import codec, connection, events
from eventlog.values import FORMAT, StreamId

STREAM = StreamId("bench")
TEXT = "one event of an ordinary session, of about the size of an intent; " * 4
MOST_WARM_COMMITS = 2_000
STEADY_COMMITS = 40
READY_BLOBS = 256
"""So many contents are made beforehand; each is stored under a name of its own, however often it comes."""
EVENT_TABLE = (
    "CREATE TABLE event (stream TEXT NOT NULL, seq INTEGER NOT NULL, id BLOB NOT NULL UNIQUE, epoch INTEGER NOT NULL, kind TEXT NOT NULL,"
    " version INTEGER NOT NULL, payload TEXT NOT NULL, prev_hash BLOB NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (stream, seq))"
)
INSERT = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
ZERO = bytes(32)
Opened = tuple[apsw.Connection, Work]


def open_bare(path: str, page_bytes: int = connection.PAGE_BYTES) -> Opened:
    """SQLite by itself: the same row into the same table, WAL, synchronous=FULL, the same page size; no chain, fence, cache or trigger."""
    handle = apsw.Connection(path)
    handle.pragma("page_size", page_bytes)
    handle.pragma("journal_mode", "wal")
    handle.pragma("synchronous", "full")
    handle.execute(EVENT_TABLE)
    seq = 0
    payload = make_payload()

    def insert() -> None:
        nonlocal seq
        seq += 1
        handle.execute("BEGIN IMMEDIATE").fetchall()
        handle.execute(INSERT, (STREAM, seq, os.urandom(16), 1, "noted", 1, payload, ZERO, ZERO)).fetchall()
        handle.execute("COMMIT").fetchall()

    return handle, insert


def make_payload() -> str:
    return events.encode(events.Noted(1, TEXT)).decode()


def make_content(number: int) -> bytes:
    """The 1 KiB of one file, half of it compressible."""
    return (random.Random(number).randbytes(512) + b"half of it the same " * 26)[:1024]


def warm_wal(path: str, work: Work) -> int:
    """Run `work` until the WAL of `path` grows no more: it was begun anew, and its pages are written over. How often it ran.

    A commit that makes the file longer costs up to twice one that does not, and a bare WAL grows for 1,000 pages, a log's for 512: a
    ratio of a growing one and one that is grown says nothing.
    """
    size, same = -1, 0
    for commits in range(1, MOST_WARM_COMMITS + 1):
        work()
        found = os.stat(path + "-wal").st_size
        size, same = found, same + 1 if found == size else 0
        if same == STEADY_COMMITS:
            return commits
    raise RuntimeError(f"{path}: its WAL still grows after {MOST_WARM_COMMITS} commits")


def _open_database(path: str, page_bytes: int, schema: str) -> apsw.Connection:
    """A database with the settings of a log but for the size of its pages."""
    handle = apsw.Connection(path)
    handle.pragma("page_size", page_bytes)
    connection.set_incremental_vacuum(handle)
    connection.set_wal(handle, path)
    connection.set_synchronous_full(handle, path)
    connection.set_recursive_triggers(handle)
    connection.set_foreign_keys(handle)
    handle.pragma("wal_autocheckpoint", connection.WAL_BYTES // page_bytes)
    connection.set_journal_size_limit(handle)
    handle.execute(schema).fetchall()
    return handle


def _named_blobs() -> Callable[[int], tuple[bytes, codec.Blob]]:
    """What gives a blob and a name for it that none before had."""
    ready = [codec.encode_blob(make_content(number)) for number in range(READY_BLOBS)]
    return lambda seq: (codec.content_id(seq.to_bytes(8, "big")), ready[seq % READY_BLOBS])


_INSERT_BLOB = "INSERT INTO blob (hash, codec, size, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING"
_INSERT_AND_ADVANCE = (
    "INSERT INTO event (stream, seq, id, epoch, kind, version, payload, prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);"
    " UPDATE stream SET head_seq = ?, head_hash = ?, floor = ? WHERE id = ? AND head_hash = ? AND floor = ?"
)
_INSERT_CHANGE = f"INSERT INTO image_change VALUES ({', '.join('?' * 16)})"


def open_rows(path: str, page_bytes: int = connection.PAGE_BYTES, *, has_change: bool) -> Opened:
    """The statements of an append into the tables of today's format, with its triggers, checks and foreign keys."""
    handle = _open_database(path, page_bytes, connection.schema_of(FORMAT))
    handle.execute("INSERT INTO stream (id, floor, head_seq, head_hash) VALUES (?, 1, 0, ?)", (STREAM, ZERO))
    cursor, payload, blob_of, seq = handle.cursor(), make_payload(), _named_blobs(), 0

    def write() -> None:
        nonlocal seq
        seq += 1
        cursor.execute("BEGIN IMMEDIATE")
        if has_change:
            name, blob = blob_of(seq)
            cursor.execute(_INSERT_BLOB, (name, blob.codec, blob.size, blob.data))
        event = (STREAM, seq, os.urandom(16), 1, "noted", 1, payload, ZERO, ZERO)
        cursor.execute(_INSERT_AND_ADVANCE, (*event, seq, ZERO, 1, STREAM, ZERO, 1))
        if has_change:
            cursor.execute(_INSERT_CHANGE, (STREAM, seq, 0, b"file-%d" % seq, *_entry(name, blob), seq))
        cursor.execute("COMMIT")

    return handle, write


def _entry(name: bytes, blob: codec.Blob) -> tuple[object, ...]:
    return ("put", "f", 0o644, name, blob.size, None, None, None, None, None, None)


_PLACED = """
CREATE TABLE stream (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, floor INTEGER NOT NULL CHECK (floor >= 0),
    head_seq INTEGER NOT NULL CHECK (head_seq >= 0), head_hash BLOB NOT NULL CHECK (length(head_hash) = 32), origin_log TEXT
);
CREATE TABLE event (
    place INTEGER PRIMARY KEY, id BLOB NOT NULL {unique} CHECK (length(id) = 16), epoch INTEGER NOT NULL, kind TEXT NOT NULL,
    version INTEGER NOT NULL, payload TEXT NOT NULL, prev_hash BLOB NOT NULL CHECK (length(prev_hash) = 32),
    hash BLOB NOT NULL CHECK (length(hash) = 32), changes BLOB
);
CREATE INDEX event_driver ON event (place) WHERE kind = 'driver_started';
CREATE TABLE image_change (
    place INTEGER NOT NULL, idx INTEGER NOT NULL, path BLOB NOT NULL, op TEXT NOT NULL CHECK (op IN ('put', 'del', 'times')),
    kind TEXT NOT NULL, mode INTEGER NOT NULL, content BLOB, size INTEGER NOT NULL, target BLOB, link BLOB, xattrs BLOB, uid INTEGER,
    gid INTEGER, acl BLOB, mtime_ns INTEGER NOT NULL, PRIMARY KEY (place, idx)
) WITHOUT ROWID;
CREATE TABLE blob (
    key INTEGER PRIMARY KEY, hash BLOB NOT NULL CHECK (length(hash) = 32),
    codec TEXT NOT NULL CHECK (codec IN ('raw', 'zstd', 'chunks')), size INTEGER NOT NULL, bytes BLOB NOT NULL
);
CREATE TRIGGER stream_advance BEFORE UPDATE ON stream
WHEN NEW.floor < OLD.floor OR NEW.head_seq <> OLD.head_seq + 1 OR NEW.id <> OLD.id OR OLD.origin_log IS NOT NULL
BEGIN SELECT RAISE (ABORT, 'a head moves by one'); END;
"""
_PLACED_INSERT = (
    "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);"
    " UPDATE stream SET head_seq = ?, head_hash = ?, floor = ? WHERE number = 1 AND head_hash = ? AND floor = ?"
)
_PLACED_BLOB = "INSERT INTO blob VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_PLACED_CHANGE = f"INSERT INTO image_change VALUES ({', '.join('?' * 15)})"
FIRST_PLACE = 1 << 40
"""A place is the number of a stream and, in the lower 40 bits, a seq: events then need no index beside their table."""


def open_placed(
    path: str, page_bytes: int = connection.PAGE_BYTES, *, has_change: bool, has_id_index: bool = True, is_inline: bool = False
) -> Opened:
    """A layout that was tried: an event's row id is its place, a content's the first 8 bytes of its name, so that neither has an index
    for it. Without an index of ids nothing would refuse an id that comes twice; inline, changes stand in the event's row."""
    handle = _open_database(path, page_bytes, _PLACED.format(unique="UNIQUE" if has_id_index else ""))
    handle.execute("INSERT INTO stream VALUES (1, ?, 1, 0, ?, NULL)", (STREAM, ZERO))
    cursor, payload, blob_of, seq = handle.cursor(), make_payload(), _named_blobs(), 0

    def write() -> None:
        nonlocal seq
        seq += 1
        place, inline = FIRST_PLACE + seq, None
        cursor.execute("BEGIN IMMEDIATE")
        if has_change:
            name, blob = blob_of(seq)
            inline = name + bytes(60) if is_inline else None
            cursor.execute(_PLACED_BLOB, (int.from_bytes(name[:8], "big", signed=True), name, blob.codec, blob.size, blob.data))
        event = (place, os.urandom(16), 1, "noted", 1, payload, ZERO, ZERO, inline)
        cursor.execute(_PLACED_INSERT, (*event, seq, ZERO, 1, ZERO, 1))
        if has_change and not is_inline:
            cursor.execute(_PLACED_CHANGE, (place, 0, b"file-%d" % seq, *_entry(name, blob), seq))
        cursor.execute("COMMIT")

    return handle, write
