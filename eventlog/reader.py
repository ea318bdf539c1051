"""Reading a log: events with their chain checked, image changes, blobs with their names checked. Writes nothing.

Every value is verified before it is returned (I9); damage raises CorruptError that names the record and the last good one. Long
reads are many short transactions (case 18): events are append-only, so that a page read later continues the one before it.
"""

import itertools
import os
import struct
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, cast

import apsw
import msgspec
from blake3 import blake3

from eventlog import codec, connection, events
from eventlog.errors import CompactedError, CorruptError, InternalError
from eventlog.held_files import resolve_log
from eventlog.image import NO_CHANGES, Change, Entry, Image, changes_digest, fold_into
from eventlog.image_rows import COLUMNS, change_from_row
from eventlog.ports import Clock
from eventlog.show import advise_verify, show_text
from eventlog.values import FORMAT, READABLE_FORMATS, ZERO_HASH, ContentId, Epoch, LogId, Seq, StreamId

PAGE_EVENTS = 512
"""Events read in one transaction: enough to make its cost small, few enough to bound memory."""
PAGE_CHANGES = 4 * PAGE_EVENTS
"""Image changes read with a page of events: where it has more, each event's are read for themselves."""


class Origin(msgspec.Struct, frozen=True):
    """Where the events of an imported stream were written: their hashes are over these names."""

    log_id: LogId
    stream: StreamId


class StreamRow(msgspec.Struct, frozen=True):
    """The cache row of a stream. A fork has a `parent` and the seq there; an imported stream has an `origin` and is read-only."""

    id: StreamId
    floor: Epoch
    head_seq: Seq
    head_hash: bytes
    parent: StreamId | None = None
    forked_at: Seq | None = None
    origin: Origin | None = None


class Position(msgspec.Struct, frozen=True):
    """A place of a stream: an event's seq and hash, and its epoch."""

    seq: Seq
    hash: bytes
    epoch: Epoch


BEGINNING = Position(Seq(0), ZERO_HASH, Epoch(0))


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """One event as it stands in the log, decoded; `changes` are its image changes in path order.

    A Struct, because a long history makes many: a frozen dataclass takes ten times as long to make.
    """

    seq: Seq
    id: bytes
    epoch: Epoch
    hash: bytes
    event: events.Event
    changes: tuple[Change, ...]


class VerbatimEvent(msgspec.Struct, frozen=True):
    """An event with the columns that its hash covers exactly as stored, which decoding upcasts."""

    stored: StoredEvent
    kind: str
    version: int
    payload: bytes


# Text comes as bytes: SQLite hands out what is stored, and one spoilt letter must not hide which record has it.
_EVENT_PAGE = (
    "SELECT seq, id, epoch, CAST(kind AS BLOB), version, CAST(payload AS BLOB), prev_hash, hash,"
    " typeof(kind) = 'text' AND typeof(payload) = 'text' FROM event WHERE stream = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
)
BLOBS_AT_ONCE = 16
"""Blobs of one query: a blob is CHUNK_BYTES at most, so that this bounds the memory."""


def _some_blobs(number: int) -> str:
    return f"SELECT hash, codec, size, bytes FROM blob WHERE hash IN ({', '.join('?' * number)})"


_SOME_BLOBS = _some_blobs(BLOBS_AT_ONCE)
_MOVED = events.SessionMoved.kind
_PLACED = frozenset({*events.FIRST_KINDS, events.DriverStarted.kind, _MOVED})
"""Kinds that may not stand everywhere, or after which not everything may."""
_hash_event = codec.hash_event
_seqs_from = cast(Callable[[int], Iterator[Seq]], itertools.count)
"""Seqs without a call of `Seq` for each: a long history has many."""
_CHANGED_SEQS = "SELECT seq, count(*) FROM image_change WHERE stream = ? AND seq > ? AND seq <= ? GROUP BY seq"
_RAW_EVENTS = (
    "SELECT hash, seq, id, epoch, kind, version, payload, prev_hash FROM event WHERE stream = ? AND seq > ? AND seq <= ? ORDER BY seq"
)
_CHANGES_OF_PAGE = f"SELECT seq, idx, {COLUMNS} FROM image_change WHERE stream = ? AND seq > ? AND seq <= ? ORDER BY seq, idx"
_CHANGES = f"SELECT idx, {COLUMNS} FROM image_change WHERE stream = ? AND seq = ? ORDER BY idx"


class Reader:
    """Reads over one connection. Not to be used after a fork (case 21)."""

    def __init__(self, handle: apsw.Connection, path: str, name: str | None = None) -> None:
        self._handle = handle
        self._pid = os.getpid()
        self.path = resolve_log(path)
        self.name = show_text(path) if name is None else name
        self._format = self._read_format()
        self.log_id = LogId(self._meta("log_id"))

    @classmethod
    def open(cls, path: str, clock: Clock = connection.CLOCK, name: str | None = None) -> "Reader":
        """Open for reading only; locks are waited for by `clock`, and messages say `name` where it is another than the path's.

        Raises LogMissingError, CorruptError, BusyError, MisuseError.
        """
        handle = connection.open_readable(resolve_log(path), clock)
        try:
            return cls(handle, path, name)
        except BaseException as error:
            handle.close()
            if isinstance(error, apsw.Error):
                raise connection.translate(error, path) from error
            raise

    def close(self) -> None:
        """Close the handle. Refused in a forked process as any other use: it would end what its parent is in the middle of (case 21)."""
        self._guard()
        self._handle.close()

    def _guard(self) -> None:
        if os.getpid() != self._pid:
            raise InternalError(f"{self.name}: this handle belongs to process {self._pid}; a forked process must not use it (case 21)")

    def has_moved(self) -> bool:
        """Whether the database at the path is another one than this handle holds, or none (L5)."""
        self._guard()
        return connection.has_moved(self._handle)

    def rows(self, sql: str, bindings: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """All rows of one query in one short read transaction (case 18)."""
        self._guard()
        try:
            return self._handle.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise connection.translate(error, self.path, self.name) from error
        except UnicodeDecodeError as error:
            raise CorruptError(f"{self.name}: text that is not UTF-8 ({error}); {advise_verify(self.name)}") from error

    def _read_format(self) -> int:
        stated, header = self._meta("format"), self.rows("PRAGMA user_version")[0][0]
        if stated != str(header) or header not in READABLE_FORMATS or not isinstance(header, int):
            raise CorruptError(f"{self.name}: meta has another format than the file's header; {advise_verify(self.name)}")
        return header

    def _meta(self, key: str) -> str:
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        if not found or not isinstance(found[0][0], str):
            raise CorruptError(f"{self.name}: meta has no {key}; {advise_verify(self.name)}")
        return found[0][0]

    def streams(self) -> list[StreamRow]:
        """Every stream's cache row, by id."""
        return [_stream_row(row, self.name) for row in self.rows(f"SELECT {self._stream_columns()} FROM stream ORDER BY id")]

    def stream(self, stream: StreamId) -> StreamRow | None:
        """One stream's cache row, or None."""
        found = self.rows(f"SELECT {self._stream_columns()} FROM stream WHERE id = ?", (stream,))
        return _stream_row(found[0], self.name) if found else None

    def _stream_columns(self) -> str:
        origin = "origin_log, origin_stream" if self.is_beyond_1 else "NULL, NULL"
        return f"id, floor, head_seq, head_hash, parent, forked_at, {origin}"

    @property
    def format(self) -> int:
        """The log's format. Asked afresh while it is an older one: a writer beside us may make it one of today."""
        if self._format < FORMAT:
            self._format = self._read_format()
        return self._format

    @property
    def is_beyond_1(self) -> bool:
        """Whether the log has the tables and columns that format 1 lacks; asked of the log while it has not."""
        return self._format > 1 or self.format > 1

    def floor(self, stream: StreamId) -> Epoch:
        """The floor in the cache row; 0 for a stream that is not there."""
        row = self.stream(stream)
        return row.floor if row else Epoch(0)

    def find(self, event_id: bytes) -> Seq | None:
        """The seq of the event with this id, or None: how an uncertain commit is settled (L7)."""
        found = self.rows("SELECT seq FROM event WHERE id = ?", (event_id,))
        return Seq(_integer(found[0][0], self.name)) if found else None

    def events(self, stream: StreamId, after: Position = BEGINNING) -> Iterator[StoredEvent]:
        """The events of a stream in order up to the head there is now, chain and changes checked, then the cache row compared (L3).

        With `after`, those that follow a position that was verified before: the event there must still be the same one.
        """
        row = self.stream(stream)
        if row is None:
            raise self._cache_damaged(stream, after)
        self._check_position(stream, after)
        position = after
        while position.seq < row.head_seq:
            reached = yield from self._page(row, position)
            if reached is None:
                raise self._damaged(stream, Seq(position.seq + 1), "missing (no later one was found)")
            position = reached
        if position != Position(row.head_seq, row.head_hash, row.floor):
            raise self._cache_damaged(stream, position)
        self._check_newest(stream, position)

    def raw_rows(self, stream: StreamId, after: int, upto: int) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
        """The rows of events (their hash first) and of image changes with `after` < seq <= `upto`, exactly as they are stored: nothing is
        checked. Raises CorruptError for text that is none."""
        place = (stream, after, upto)
        return self.rows(_RAW_EVENTS, place), self.rows(_CHANGES_OF_PAGE, place)

    def _check_position(self, stream: StreamId, position: Position) -> None:
        if position == BEGINNING:
            return
        found = self.rows("SELECT hash, epoch FROM event WHERE stream = ? AND seq = ?", (stream, position.seq))
        if found != [(position.hash, position.epoch)]:
            raise self._damaged(stream, position.seq, "it is not the event that was verified here before")

    def _check_newest(self, stream: StreamId, position: Position) -> None:
        """The cache row and the newest event as of one instant: a writer at work beside us is not damage, an event beyond the row is."""
        self.rows("SAVEPOINT newest")
        try:
            row = self.stream(stream)
            newest = self.rows("SELECT seq, hash FROM event WHERE stream = ? ORDER BY seq DESC LIMIT 1", (stream,))
        finally:
            if not self._handle.get_autocommit():  # after a failure of the device SQLite has ended the transaction by itself (case 17)
                self.rows("RELEASE newest")
        if row is None or newest != ([(row.head_seq, row.head_hash)] if row.head_seq else []):
            raise self._cache_damaged(stream, position)

    def _cache_damaged(self, stream: StreamId, position: Position) -> CorruptError:
        return CorruptError(
            f"{self.name}: stream {stream}: its cache row disagrees with its events (head {position.seq}, floor {position.epoch}); "
            f"{advise_verify(self.name)}"
        )

    def _page(self, row: StreamRow, position: Position) -> Generator[StoredEvent, None, Position | None]:
        """The next events of a stream, at most PAGE_EVENTS, read in one short transaction, and then the position of the last; None, and
        no events, when there are no more."""
        found = self.rows(_EVENT_PAGE, (row.id, position.seq, row.head_seq, PAGE_EVENTS))
        if not found:
            return None
        # Asked for the page at once, and read at once where it is not much: most events change nothing, or little.
        place = (row.id, position.seq, found[-1][0])
        counted = {seq: _integer(number, self.name) for seq, number in self.rows(_CHANGED_SEQS, place)}
        read = self._read_changes(place) if 1 < len(counted) and sum(counted.values()) <= PAGE_CHANGES else None
        log_id, name = (self.log_id, row.id) if row.origin is None else (row.origin.log_id, row.origin.stream)
        domain = codec.event_domain(log_id, name)
        previous, floor, is_moved, seq = position.hash, position.epoch, self._is_moved(row.id, position), position.seq
        for seq, values in zip(_seqs_from(position.seq + 1), found, strict=False):
            if os.getpid() != self._pid:  # a fork may have come between two events of a page
                self._guard()
            changes: tuple[Change, ...] = ()
            if seq in counted:
                changes = self.changes(row.id, seq) if read is None else self._changes_of(row.id, seq, read[seq])
            stored = self._checked_event(row.id, values, seq, previous, domain, changes)
            kind = stored.event.kind
            if kind in _PLACED or stored.epoch != floor or seq == 1 or is_moved:  # of the others the check would say nothing
                misplaced = events.find_misplacement(kind, seq, stored.epoch, floor)
                if misplaced or is_moved:
                    raise self._damaged(row.id, seq, misplaced or "it follows session_moved, which is the last event of its stream")
                floor, is_moved = stored.epoch, kind == _MOVED
            previous = stored.hash
            yield stored
        return Position(seq, previous, floor)

    def _is_moved(self, stream: StreamId, position: Position) -> bool:
        """Whether the event at a position says that its session was moved away."""
        found = self.rows("SELECT 1 FROM event WHERE stream = ? AND seq = ? AND kind = ?", (stream, position.seq, _MOVED))
        return bool(found)

    def _checked_event(
        self, stream: StreamId, row: tuple[Any, ...], expected: Seq, previous: bytes, domain: bytes, changes: tuple[Change, ...]
    ) -> StoredEvent:
        seq, event_id, epoch, raw_kind, version, payload, prev_hash, digest, is_text = row
        if seq != expected:
            raise self._damaged(stream, expected, f"missing (the next one found is {seq})")
        changed = changes_digest(changes) if changes else NO_CHANGES
        try:
            computed = _hash_event(domain, expected, event_id, epoch, raw_kind, version, payload, changed, previous)
        except (TypeError, struct.error) as error:
            raise self._damaged(stream, expected, _describe_misfit(epoch, version)) from error
        if is_text != 1:
            raise self._damaged(stream, expected, "a column has the wrong type")
        if prev_hash != previous or digest != computed:
            raise self._damaged(stream, expected, "its hash does not fit its content and the event before it")
        try:
            event = events.DECODERS[raw_kind, version](payload)
        except (KeyError, msgspec.MsgspecError, RecursionError):
            kind = raw_kind.decode("utf-8", "backslashreplace")
            event = events.decode(kind, version, payload, f"{self.name}: stream {stream} seq {expected}")  # which says what is wrong
        return StoredEvent(expected, event_id, epoch, digest, event, changes)

    def _damaged(self, stream: StreamId, seq: Seq, what: str) -> CorruptError:
        return CorruptError(
            f"{self.name}: stream {stream} seq {seq}: {what}; the last good event is {seq - 1}; {advise_verify(self.name)}"
        )

    def changes(self, stream: StreamId, seq: Seq) -> tuple[Change, ...]:
        """The image changes of one event, by idx."""
        return self._changes_of(stream, seq, self.rows(_CHANGES, (stream, seq)))

    def _read_changes(self, place: tuple[object, ...]) -> Mapping[object, list[tuple[object, ...]]]:
        """The rows of idx and COLUMNS of the events of a page, by seq."""
        found: dict[object, list[tuple[object, ...]]] = defaultdict(list)
        for seq, *values in self.rows(_CHANGES_OF_PAGE, place):
            found[seq].append(tuple(values))
        return found

    def _changes_of(self, stream: StreamId, seq: Seq, rows: list[tuple[object, ...]]) -> tuple[Change, ...]:
        """The changes in rows of idx and COLUMNS, by idx."""
        if [row[0] for row in rows] != list(range(len(rows))):
            raise self._damaged(stream, seq, "its image changes are not numbered 0, 1, 2 ...")
        try:
            return tuple([change_from_row(row[1:], f"change {row[0]}") for row in rows])
        except CorruptError as error:
            raise self._damaged(stream, seq, str(error)) from error

    def image(self, stream: StreamId, upto: Seq) -> Image:
        """The image as of an event."""
        image: dict[bytes, Entry] = {}
        for (seq,) in self.rows("SELECT DISTINCT seq FROM image_change WHERE stream = ? AND seq <= ? ORDER BY seq", (stream, upto)):
            fold_into(image, self.changes(stream, Seq(_integer(seq, self.name))))
        return image

    def has_blob(self, content: ContentId) -> bool:
        """True when the log holds this content."""
        return bool(self.rows("SELECT 1 FROM blob WHERE hash = ?", (content,)))

    def blob(self, content: ContentId) -> codec.Blob:
        """One stored blob, not decoded. Raises CorruptError when it is missing."""
        found = self.rows("SELECT codec, size, bytes FROM blob WHERE hash = ?", (content,))
        if not found:
            raise self._missing(content)
        return self._stored_blob(content, found[0])

    def _stored_blob(self, content: ContentId, row: tuple[object, ...]) -> codec.Blob:
        name, size, data = row
        if not (isinstance(name, str) and isinstance(size, int) and isinstance(data, bytes)):
            raise CorruptError(f"{self.name}: blob {content.hex()} has a column of the wrong type; {advise_verify(self.name)}")
        return codec.Blob(content, name, size, data)

    def _missing(self, content: ContentId) -> CorruptError | CompactedError:
        """The error for a blob that is not there: given up on record, or damage."""
        match self.dropped_reason(content):
            case "compacted":
                return CompactedError(
                    f"{self.name}: the content {content.hex()} belongs to old images only and was given up by compaction; "
                    "its size and name are still in the log, its bytes may be in a bundle or a copy made before"
                )
            case "checkpointed":
                return CompactedError(
                    f"{self.name}: the content {content.hex()} is not in the log but in the checkpoint store of its session; "
                    "`recovery checkpoints list LOG` names it"
                )
            case "lost":
                return CorruptError(f"{self.name}: the content {content.hex()} was lost before this log was salvaged from a damaged one")
            case _:
                return CorruptError(f"{self.name}: blob {content.hex()} is missing; {advise_verify(self.name)}")

    def dropped_reason(self, content: ContentId) -> str | None:
        """Why the log lacks a content ("compacted", "lost", or "checkpointed": it never had it), or None when it is not on record."""
        self._guard()
        if not self.is_beyond_1:
            return None
        found = self.rows("SELECT reason FROM dropped WHERE hash = ?", (content,))
        return str(found[0][0]) if found else None

    def keeps_contents_elsewhere(self) -> bool:
        """Whether any content that events name lies in a checkpoint store and was never in the log."""
        self._guard()
        return self.is_beyond_1 and bool(self.rows("SELECT 1 FROM dropped WHERE reason = 'checkpointed' LIMIT 1"))

    def contents(self, contents: Iterable[ContentId]) -> Iterator[bytes]:
        """Whole contents one after another in the order given, each as `content` yields it; one query finds BLOBS_AT_ONCE of them."""
        waiting = iter(contents)
        while batch := list(itertools.islice(waiting, BLOBS_AT_ONCE)):
            rows = self.rows(_SOME_BLOBS if len(batch) == BLOBS_AT_ONCE else _some_blobs(len(batch)), tuple(batch))
            found = {row[0]: row[1:] for row in rows}
            for content in batch:
                if content not in found:
                    raise self._missing(content)
                yield from self._decoded(self._stored_blob(content, found[content]))

    def content(self, content: ContentId) -> Iterator[bytes]:
        """A whole content in pieces of at most CHUNK_BYTES, each verified; the whole verified before the iterator ends."""
        yield from self._decoded(self.blob(content))

    def _decoded(self, blob: codec.Blob) -> Iterator[bytes]:
        content = blob.content
        if blob.codec != "chunks":
            yield codec.decode_blob(blob)
            return
        hasher, total = blake3(), 0
        for name in codec.decode_chunk_list(blob):
            try:
                piece = codec.decode_blob(self.blob(name))
            except CorruptError as error:
                if not self.has_blob(content):
                    raise self._missing(content) from error  # given up by a compaction while it was read
                raise CorruptError(f"{self.name}: blob {content.hex()}: a chunk of it: {error}") from error
            hasher.update(piece)
            total += len(piece)
            yield piece
        if total != blob.size or hasher.digest() != content:
            raise CorruptError(f"{self.name}: blob {content.hex()}: its chunks do not make up its content")


def _describe_misfit(epoch: object, version: object) -> str:
    """Why the columns of an event could not be hashed."""
    if isinstance(epoch, int) and isinstance(version, int) and not (epoch >= 0 and 0 <= version < 1 << 32):
        return "a number is out of range"
    return "a column has the wrong type"


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int):
        raise CorruptError(f"{name}: found {value!r} where a number belongs; {advise_verify(name)}")
    return value


def _stream_row(row: tuple[object, ...], name: str) -> StreamRow:
    stream, floor, head_seq, head_hash, parent, forked_at, origin_log, origin_stream = row
    if not (isinstance(stream, str) and isinstance(floor, int) and isinstance(head_seq, int) and isinstance(head_hash, bytes)):
        raise CorruptError(f"{name}: a stream row has a column of the wrong type; {advise_verify(name)}")
    if not (_is_optional(parent, str) and _is_optional(forked_at, int) and (parent is None) == (forked_at is None)):
        raise CorruptError(f"{name}: stream {stream}: its parent is not one; {advise_verify(name)}")
    if not (_is_optional(origin_log, str) and _is_optional(origin_stream, str) and (origin_log is None) == (origin_stream is None)):
        raise CorruptError(f"{name}: stream {stream}: its origin is not one; {advise_verify(name)}")
    origin = Origin(LogId(str(origin_log)), StreamId(str(origin_stream))) if origin_log is not None else None
    parent_id = StreamId(str(parent)) if parent is not None else None
    at = Seq(forked_at) if isinstance(forked_at, int) else None
    return StreamRow(StreamId(stream), Epoch(floor), Seq(head_seq), head_hash, parent_id, at, origin)


def _is_optional(value: object, kind: type) -> bool:
    return value is None or isinstance(value, kind)
