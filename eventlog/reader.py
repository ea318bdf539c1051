"""Reading a log: events with their chain checked, image changes, blobs with their names checked. Writes nothing.

Every value is verified before it is returned (I9); damage raises CorruptError that names the record and the last good one.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import apsw
from blake3 import blake3

from eventlog import codec, connection, events
from eventlog.errors import CorruptError, InternalError
from eventlog.image import Change, Entry, Image, changes_digest, fold_changes
from eventlog.image_rows import COLUMNS, change_from_row
from eventlog.show import show_text
from eventlog.values import CHUNK_BYTES, FORMAT, ZERO_HASH, ContentId, Epoch, LogId, Seq, StreamId


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The cache row of a stream."""

    id: StreamId
    floor: Epoch
    head_seq: Seq
    head_hash: bytes


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as it stands in the log, decoded; `changes` are its image changes in path order."""

    seq: Seq
    id: bytes
    epoch: Epoch
    hash: bytes
    event: events.Event
    changes: tuple[Change, ...]


class Reader:
    """Reads over one connection. Not to be used after a fork (case 21)."""

    def __init__(self, handle: apsw.Connection, path: str) -> None:
        self._handle = handle
        self._pid = os.getpid()
        self.path = path
        self.name = show_text(path)
        if self._meta("format") != str(FORMAT):
            raise CorruptError(f"{self.name}: meta has another format than the file's header; run `eventlog verify {self.name}`")
        self.log_id = LogId(self._meta("log_id"))

    @classmethod
    def open(cls, path: str) -> "Reader":
        """Open for reading only. Raises LogMissingError, CorruptError, MisuseError."""
        handle = connection.open_readable(path)
        try:
            return cls(handle, path)
        except apsw.Error as error:
            raise connection.translate(error, path) from error

    def close(self) -> None:
        self._handle.close()

    def rows(self, sql: str, bindings: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """All rows of one query in one short read transaction (case 18)."""
        if os.getpid() != self._pid:
            raise InternalError(f"{self.name}: this handle belongs to process {self._pid}; a forked process must not use it (case 21)")
        try:
            return self._handle.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise connection.translate(error, self.path) from error
        except UnicodeDecodeError as error:
            raise CorruptError(f"{self.name}: text that is not UTF-8 ({error}); run `eventlog verify {self.name}`") from error

    def _meta(self, key: str) -> str:
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        if not found or not isinstance(found[0][0], str):
            raise CorruptError(f"{self.name}: meta has no {key}; run `eventlog verify {self.name}`")
        return found[0][0]

    def streams(self) -> list[StreamRow]:
        """Every stream's cache row, by id."""
        return [_stream_row(row, self.name) for row in self.rows("SELECT id, floor, head_seq, head_hash FROM stream ORDER BY id")]

    def stream(self, stream: StreamId) -> StreamRow | None:
        """One stream's cache row, or None."""
        found = self.rows("SELECT id, floor, head_seq, head_hash FROM stream WHERE id = ?", (stream,))
        return _stream_row(found[0], self.name) if found else None

    def floor(self, stream: StreamId) -> Epoch:
        """The floor in the cache row; 0 for a stream that is not there."""
        row = self.stream(stream)
        return row.floor if row else Epoch(0)

    def find(self, event_id: bytes) -> Seq | None:
        """The seq of the event with this id, or None: how an uncertain commit is settled (L7)."""
        found = self.rows("SELECT seq FROM event WHERE id = ?", (event_id,))
        return Seq(_integer(found[0][0], self.name)) if found else None

    def events(self, stream: StreamId) -> Iterator[StoredEvent]:
        """All events of a stream in order, chain and changes checked, then the cache row compared (L3)."""
        previous, seq, floor = ZERO_HASH, 0, 0
        cached, rows = self._snapshot(stream)
        for row in rows:
            stored = self._checked_event(stream, row, Seq(seq + 1), previous)
            misplaced = events.find_misplacement(stored.event.kind, stored.seq, stored.epoch, floor)
            if misplaced:
                raise self._damaged(stream, stored.seq, misplaced)
            previous, seq, floor = stored.hash, stored.seq, stored.epoch
            yield stored
        if cached is None or (cached.head_seq, cached.head_hash, cached.floor) != (seq, previous, floor):
            raise CorruptError(
                f"{self.name}: stream {stream}: its cache row disagrees with its events (head {seq}, floor {floor}); "
                f"run `eventlog verify {self.name}`"
            )

    def _snapshot(self, stream: StreamId) -> tuple[StreamRow | None, list[tuple[object, ...]]]:
        """A stream's cache row and events as of one instant: a writer at work beside us is not damage."""
        # Text comes as bytes: SQLite hands out what is stored, and one spoilt letter must not hide which record has it.
        sql = (
            "SELECT seq, id, epoch, CAST(kind AS BLOB), version, CAST(payload AS BLOB), prev_hash, hash, typeof(kind) || typeof(payload)"
            " FROM event WHERE stream = ? ORDER BY seq"
        )
        self.rows("SAVEPOINT snapshot")
        try:
            return self.stream(stream), self.rows(sql, (stream,))
        finally:
            self.rows("RELEASE snapshot")

    def _checked_event(self, stream: StreamId, row: tuple[object, ...], expected: Seq, previous: bytes) -> StoredEvent:
        seq, event_id, epoch, raw_kind, version, payload, prev_hash, digest, types = row
        if seq != expected:
            raise self._damaged(stream, expected, f"missing (the next one found is {seq})")
        if not (isinstance(event_id, bytes) and isinstance(epoch, int) and isinstance(raw_kind, bytes) and isinstance(version, int)):
            raise self._damaged(stream, expected, "a column has the wrong type")
        if not (isinstance(payload, bytes) and isinstance(digest, bytes) and types == "texttext"):
            raise self._damaged(stream, expected, "a column has the wrong type")
        if epoch < 0 or not 0 <= version < 1 << 32:
            raise self._damaged(stream, expected, "a number is out of range")
        changes = self.changes(stream, expected)
        kind = raw_kind.decode("utf-8", "backslashreplace")
        computed = codec.event_hash(
            log_id=self.log_id, stream=stream, seq=expected, event_id=event_id, epoch=epoch, kind=kind, version=version, payload=payload,
            changes=changes_digest(changes), previous=previous,
        )  # fmt: skip
        if prev_hash != previous or digest != computed:
            raise self._damaged(stream, expected, "its hash does not fit its content and the event before it")
        event = events.decode(kind, version, payload, f"{self.name}: stream {stream} seq {expected}")
        return StoredEvent(expected, event_id, Epoch(epoch), digest, event, changes)

    def _damaged(self, stream: StreamId, seq: Seq, what: str) -> CorruptError:
        return CorruptError(
            f"{self.name}: stream {stream} seq {seq}: {what}; the last good event is {seq - 1}; run `eventlog verify {self.name}`"
        )

    def changes(self, stream: StreamId, seq: Seq) -> tuple[Change, ...]:
        """The image changes of one event, by idx."""
        sql = f"SELECT idx, {COLUMNS} FROM image_change WHERE stream = ? AND seq = ? ORDER BY idx"
        rows = self.rows(sql, (stream, seq))
        if [row[0] for row in rows] != list(range(len(rows))):
            raise self._damaged(stream, seq, "its image changes are not numbered 0, 1, 2 ...")
        try:
            return tuple(change_from_row(row[1:], f"change {row[0]}") for row in rows)
        except CorruptError as error:
            raise self._damaged(stream, seq, str(error)) from error

    def image(self, stream: StreamId, upto: Seq) -> Image:
        """The image as of an event."""
        image: dict[bytes, Entry] = {}
        for (seq,) in self.rows("SELECT DISTINCT seq FROM image_change WHERE stream = ? AND seq <= ? ORDER BY seq", (stream, upto)):
            image = fold_changes(image, self.changes(stream, Seq(_integer(seq, self.name))))
        return image

    def has_blob(self, content: ContentId) -> bool:
        """True when the log holds this content."""
        return bool(self.rows("SELECT 1 FROM blob WHERE hash = ?", (content,)))

    def blob(self, content: ContentId) -> codec.Blob:
        """One stored blob, not decoded. Raises CorruptError when it is missing."""
        found = self.rows("SELECT codec, size, bytes FROM blob WHERE hash = ?", (content,))
        if not found:
            raise CorruptError(f"{self.name}: blob {content.hex()} is missing; run `eventlog verify {self.name}`")
        name, size, data = found[0]
        if not (isinstance(name, str) and isinstance(size, int) and isinstance(data, bytes)):
            raise CorruptError(f"{self.name}: blob {content.hex()} has a column of the wrong type; run `eventlog verify {self.name}`")
        return codec.Blob(content, name, size, data)

    def content(self, content: ContentId) -> Iterator[bytes]:
        """A whole content in pieces of at most CHUNK_BYTES, each verified; the whole verified before the iterator ends."""
        blob = self.blob(content)
        if blob.codec != "chunks":
            yield codec.decode_blob(blob)
            return
        hasher, total = blake3(), 0
        for name in codec.decode_chunk_list(blob):
            if total % CHUNK_BYTES:
                raise CorruptError(f"{self.name}: blob {content.hex()}: a chunk before the last is not whole")
            try:
                piece = codec.decode_blob(self.blob(name))
            except CorruptError as error:
                raise CorruptError(f"{self.name}: blob {content.hex()}: a chunk of it: {error}") from error
            hasher.update(piece)
            total += len(piece)
            yield piece
        if total != blob.size or hasher.digest() != content:
            raise CorruptError(f"{self.name}: blob {content.hex()}: its chunks do not make up its content")


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int):
        raise CorruptError(f"{name}: found {value!r} where a number belongs; run `eventlog verify {name}`")
    return value


def _stream_row(row: tuple[object, ...], name: str) -> StreamRow:
    stream, floor, head_seq, head_hash = row
    if not (isinstance(stream, str) and isinstance(floor, int) and isinstance(head_seq, int) and isinstance(head_hash, bytes)):
        raise CorruptError(f"{name}: a stream row has a column of the wrong type; run `eventlog verify {name}`")
    return StreamRow(StreamId(stream), Epoch(floor), Seq(head_seq), head_hash)
