"""The store in memory: lists and dictionaries behind the protocol of `eventlog.store`, for simulation and for tests.

The same events, hashes and refusals as the SQLite store, and the same steps at a commit; a second handle that wants to write while
one is between `<purpose>.commit.locked` and its commit is refused as busy at once. The death of a process is that its handles are
dropped: what was committed stays in the store object. A commit here is one assignment after another in one process, so that none is
ever uncertain; and no files are there to be exchanged.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from eventlog import codec, events, steps
from eventlog.errors import (
    BusyError,
    ContentGoneError,
    CorruptError,
    EpochTakenError,
    HeadMovedError,
    InternalError,
    LogMissingError,
    MisuseError,
    MovedError,
    StaleEpochError,
)
from eventlog.image import NO_CHANGES, Change, Entry, Image, changes_digest, fold_into
from eventlog.ports import Ids
from eventlog.preparing import encode_checked, output_content, redact_event
from eventlog.reader import BEGINNING, Position, StoredEvent, StreamRow
from eventlog.records import Admitted, Appended, Record, Redact
from eventlog.show import show_text
from eventlog.store import Capability, ReadingHandle, Store, WritingHandle
from eventlog.values import ZERO_HASH, ContentId, Epoch, LogId, Seq, StreamId


class Row(msgspec.Struct, frozen=True):
    """One event as stored: what the SQLite store has in `event` and `image_change`."""

    id: bytes
    epoch: Epoch
    kind: str
    version: int
    payload: bytes
    changes: tuple[Change, ...]
    hash: bytes


class _Prepared(msgspec.Struct, frozen=True):
    """A record, encoded and with its id."""

    id: bytes
    kind: str
    version: int
    payload: bytes
    changes: tuple[Change, ...]
    request_id: str | None
    is_repeatable: bool
    output: ContentId | None


class _Stream(msgspec.Struct):
    """A stream: its events, and for each request id the seq that admitted it."""

    id: StreamId
    parent: StreamId | None
    forked_at: Seq | None
    domain: bytes
    floor: Epoch = Epoch(0)
    rows: list[Row] = msgspec.field(default_factory=list)
    requests: dict[str, Seq] = msgspec.field(default_factory=dict)

    @property
    def head_hash(self) -> bytes:
        return self.rows[-1].hash if self.rows else ZERO_HASH

    def copy(self) -> "_Stream":
        """The stream as it is now; its rows are never changed, and shared."""
        return _Stream(self.id, self.parent, self.forked_at, self.domain, self.floor, list(self.rows), dict(self.requests))


class _Log(msgspec.Struct):
    """All that is committed."""

    id: LogId
    streams: dict[StreamId, _Stream] = msgspec.field(default_factory=dict)
    places: dict[bytes, tuple[StreamId, Seq]] = msgspec.field(default_factory=dict)
    blobs: dict[ContentId, codec.Blob] = msgspec.field(default_factory=dict)
    is_locked: bool = False


class MemoryStore:
    """`eventlog.store.Store` in this object; it promises nothing beyond."""

    def __init__(self) -> None:
        self._log: _Log | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset()

    def create(self, stream: StreamId, first: Record, blobs: Iterable[codec.Blob], ids: Ids) -> None:
        if self._log is not None:
            raise FileExistsError("memory: there is a log already")
        ids.new_id()  # the SQLite store names its unfinished file by one: equal ids must make equal logs
        log = _Log(LogId(ids.new_id().hex()))
        writer = _Writer(log, ids, None)
        writer.insert_blobs(blobs)
        writer.open_stream(stream, first, "open")
        self._log = log

    def open_writing(self, ids: Ids, redact: Redact | None = None) -> WritingHandle:
        return _Writer(self._existing(), ids, redact)

    def open_reading(self) -> ReadingHandle:
        return _Reader(self._existing())

    def rows(self, stream: StreamId) -> Sequence[Row]:
        """The events of a stream as they are stored, for who reads them with other eyes; none for one that is not there."""
        found = self._existing().streams.get(stream)
        return () if found is None else found.rows

    @property
    def blobs(self) -> Mapping[ContentId, codec.Blob]:
        """The contents as they are stored."""
        return self._existing().blobs

    @property
    def log_id(self) -> LogId:
        return self._existing().id

    def copy(self) -> "MemoryStore":
        """Another store that holds what is committed here now; nothing that comes later is shared."""
        log, made = self._existing(), MemoryStore()
        made._log = _Log(log.id, {name: one.copy() for name, one in log.streams.items()}, dict(log.places), dict(log.blobs))
        return made

    def let_go(self) -> None:
        """The process that had begun an append is dead: its lock is nobody's, and nothing of the append stands."""
        self._existing().is_locked = False

    def _existing(self) -> _Log:
        if self._log is None:
            raise LogMissingError("memory: there is no log here; a missing log is never made anew")
        return self._log


def make(directory: Path) -> Store:
    """A new store. The directory is that of `StoreFactory`, and not used."""
    return MemoryStore()


class _Reader:
    def __init__(self, log: _Log) -> None:
        self._log: _Log | None = log

    def _opened(self) -> _Log:
        if self._log is None:
            raise InternalError("memory: this handle is closed")
        return self._log

    @property
    def log_id(self) -> LogId:
        return self._opened().id

    def close(self) -> None:
        self._log = None

    def streams(self) -> list[StreamRow]:
        return [_describe(found) for _, found in sorted(self._opened().streams.items())]

    def stream(self, stream: StreamId) -> StreamRow | None:
        found = self._opened().streams.get(stream)
        return None if found is None else _describe(found)

    def floor(self, stream: StreamId) -> Epoch:
        found = self._opened().streams.get(stream)
        return Epoch(0) if found is None else found.floor

    def find(self, event_id: bytes) -> Seq | None:
        found = self._opened().places.get(event_id)
        return None if found is None else found[1]

    def events(self, stream: StreamId, after: Position = BEGINNING) -> Iterator[StoredEvent]:
        found = self._opened().streams.get(stream)
        if found is None:
            raise CorruptError(f"memory: there is no session {show_text(stream)} to read")
        if after != BEGINNING and _position(found, after.seq) != after:
            raise CorruptError(f"memory: stream {stream} seq {after.seq}: it is not the event that was verified here before")
        # The head of now: what is appended during the iteration is for the next one.
        for seq, row in enumerate(found.rows[after.seq :], after.seq + 1):
            event = events.decode(row.kind, row.version, row.payload, f"memory: stream {stream} seq {seq}")
            yield StoredEvent(Seq(seq), row.id, row.epoch, row.hash, event, row.changes)

    def changes(self, stream: StreamId, seq: Seq) -> tuple[Change, ...]:
        found = self._opened().streams.get(stream)
        return found.rows[seq - 1].changes if found is not None and 0 < seq <= len(found.rows) else ()

    def image(self, stream: StreamId, upto: Seq) -> Image:
        found = self._opened().streams.get(stream)
        image: dict[bytes, Entry] = {}
        for row in found.rows[: max(0, upto)] if found is not None else ():
            fold_into(image, row.changes)
        return image

    def has_blob(self, content: ContentId) -> bool:
        return content in self._opened().blobs

    def content(self, content: ContentId) -> Iterator[bytes]:
        blob = self._blob(content)
        if blob.codec != "chunks":
            yield codec.decode_blob(blob)
            return
        hasher, total = blake3(), 0
        for name in codec.decode_chunk_list(blob):
            piece = codec.decode_blob(self._blob(name))
            hasher.update(piece)
            total += len(piece)
            yield piece
        if total != blob.size or hasher.digest() != content:
            raise CorruptError(f"memory: blob {content.hex()}: its chunks do not make up its content")

    def _blob(self, content: ContentId) -> codec.Blob:
        found = self._opened().blobs.get(content)
        if found is None:
            raise CorruptError(f"memory: blob {content.hex()} is missing")
        return found


def _describe(found: _Stream) -> StreamRow:
    return StreamRow(found.id, found.floor, Seq(len(found.rows)), found.head_hash, found.parent, found.forked_at)


def _position(found: _Stream, seq: Seq) -> Position | None:
    if not 0 < seq <= len(found.rows):
        return None
    row = found.rows[seq - 1]
    return Position(seq, row.hash, row.epoch)


class _Writer:
    def __init__(self, log: _Log, ids: Ids, redact: Redact | None) -> None:
        self._log: _Log | None = log
        self._ids = ids
        self._redact = redact
        self._reader = _Reader(log)

    @property
    def log_id(self) -> LogId:
        return self._opened().id

    @property
    def reader(self) -> ReadingHandle:
        return self._reader

    def close(self) -> None:
        self._log = None
        self._reader.close()

    def raise_floor(self, stream: StreamId, epoch: Epoch, started: events.DriverStarted, after: Seq | None = None) -> Appended:
        return self._transact(stream, [self._prepare(Record(started))], (), "floor", lambda found: _check_raise(found, epoch, after))[0]

    def append(
        self, stream: StreamId, epoch: Epoch, records: Sequence[Record], blobs: Iterable[codec.Blob], purpose: str
    ) -> list[Appended]:
        prepared = self._prepare_all(records)
        return self._transact(stream, prepared, tuple(blobs), purpose, lambda found: _check_floor(found, epoch))

    def append_unfenced(self, stream: StreamId, records: Sequence[Record], purpose: str, after: Seq | None = None) -> list[Appended]:
        for record in records:
            if record.event.kind not in events.UNFENCED_KINDS:
                raise MisuseError(f"memory: {record.event.kind} is written by a session's driver only, under its epoch")

        def check(found: _Stream) -> Epoch:
            _check_head(found, after)
            return found.floor

        return self._transact(stream, self._prepare_all(records), (), purpose, check)

    def admit(self, stream: StreamId, request_id: str, given: dict[str, Any], at_ms: int) -> Admitted:
        log = self._opened()
        event = events.InputAdmitted(at_ms, request_id, given)
        prepared = self._prepare(Record(event))
        found = log.streams.get(stream)
        if found is None or prepared.request_id not in found.requests:
            return Admitted(self._transact(stream, [prepared], (), "admit", lambda found: found.floor)[0], is_new=True)
        steps.reach("admit.commit.before")
        _check_appendable(log, stream)
        seq = found.requests[prepared.request_id]
        row = found.rows[seq - 1]
        if _admitted_input(row.payload) != _admitted_input(prepared.payload):
            raise MisuseError(
                f"memory: session {stream}: request {show_text(request_id)} was admitted with another input at seq {seq}; "
                "use a new request id"
            )
        return Admitted(Appended(seq, row.id, row.hash), is_new=False)

    def open_stream(
        self, stream: StreamId, first: Record, purpose: str, parent: StreamId | None = None, forked_at: Seq | None = None
    ) -> Appended:
        log = self._opened()
        prepared = self._prepare(first)
        steps.reach(f"{purpose}.commit.before")
        _check_unlocked(log)
        if stream in log.streams:
            raise MisuseError(f"memory: there is a session {show_text(stream)} already; choose another name")
        made = _Stream(stream, parent, forked_at, codec.event_domain(log.id, stream))
        rows = _chain(log, made, Epoch(0), [prepared])
        _check_contents(log, [prepared], ())
        return self._commit(log, made, rows, [prepared], (), purpose)[0]

    def insert_blobs(self, blobs: Iterable[codec.Blob]) -> None:
        log = self._opened()
        batch = tuple(blobs)
        _check_unlocked(log)
        _pass_locked(log, "blobs")
        _insert_blobs(log, batch)
        steps.reach("blobs.commit.after")

    def check_fence(self, stream: StreamId, epoch: Epoch) -> None:
        self._opened()
        floor = self._reader.floor(stream)
        if epoch < floor:
            raise _stale(stream, epoch, floor)

    def _opened(self) -> _Log:
        if self._log is None:
            raise InternalError("memory: this handle is closed")
        return self._log

    def _prepare_all(self, records: Sequence[Record]) -> list[_Prepared]:
        given = [record.id for record in records if record.id is not None]
        if given and (len(set(given)) != len(records) or any(len(one) != 16 for one in given)):
            raise MisuseError("memory: the records of one append have an id of 16 bytes each, all different, or none has one")
        return [self._prepare(record) for record in records]

    def _prepare(self, record: Record) -> _Prepared:
        self._opened()
        event = redact_event(record.event, self._redact, "memory")
        event_id = self._ids.new_id() if record.id is None else record.id
        request_id = event.request_id if isinstance(event, events.InputAdmitted) else None
        payload, output = encode_checked(event, record.changes, "memory"), output_content(event)
        return _Prepared(event_id, event.kind, event.version, payload, record.changes, request_id, record.id is not None, output)

    def _transact(
        self,
        stream: StreamId,
        prepared: list[_Prepared],
        blobs: tuple[codec.Blob, ...],
        purpose: str,
        check: Callable[[_Stream], Epoch],
    ) -> list[Appended]:
        log = self._opened()
        steps.reach(f"{purpose}.commit.before")
        _check_unlocked(log)
        found = _check_appendable(log, stream)
        recorded = _find_recorded(log, found, prepared)
        if recorded:
            return recorded
        epoch = check(found)
        rows = _chain(log, found, epoch, prepared)
        _check_contents(log, prepared, blobs)
        return self._commit(log, found, rows, prepared, blobs, purpose)

    def _commit(
        self, log: _Log, found: _Stream, rows: list[Row], prepared: list[_Prepared], blobs: tuple[codec.Blob, ...], purpose: str
    ) -> list[Appended]:
        """From here on nothing is refused: what `locked` lets pass is written whole."""
        _pass_locked(log, purpose)
        log.streams[found.id] = found
        _insert_blobs(log, blobs)
        appended = []
        for row, item in zip(rows, prepared, strict=True):
            found.rows.append(row)
            seq = Seq(len(found.rows))
            found.floor = row.epoch
            log.places[row.id] = (found.id, seq)
            if item.request_id is not None:
                found.requests[item.request_id] = seq
            appended.append(Appended(seq, row.id, row.hash))
        steps.reach(f"{purpose}.commit.after")
        return appended


def _pass_locked(log: _Log, purpose: str) -> None:
    log.is_locked = True
    try:
        steps.reach(f"{purpose}.commit.locked")
    finally:
        log.is_locked = False


def _check_unlocked(log: _Log) -> None:
    if log.is_locked:
        raise BusyError("memory: the log is locked by another handle; try again when its append has ended")


def _check_appendable(log: _Log, stream: StreamId) -> _Stream:
    found = log.streams.get(stream)
    if found is None:
        raise MisuseError(f"memory: there is no session {show_text(stream)} in this log")
    if found.rows[-1].kind == events.SessionMoved.kind:
        raise MovedError(f"memory: session {stream} was moved away; drive it where it was imported")
    return found


def _find_recorded(log: _Log, found: _Stream, prepared: list[_Prepared]) -> list[Appended]:
    """What stands in the log of an append that was sent before; empty when nothing of it does."""
    recorded = []
    for item in prepared:
        place = log.places.get(item.id) if item.is_repeatable else None
        if place is None:
            break
        stream, seq = place
        row = log.streams[stream].rows[seq - 1]
        if (stream, row.kind, row.payload, row.changes) != (found.id, item.kind, item.payload, item.changes):
            raise MisuseError(f"memory: event id {item.id.hex()} stands for another event; an id belongs to one event for ever")
        recorded.append(Appended(seq, row.id, row.hash))
    if recorded and len(recorded) != len(prepared):
        raise MisuseError("memory: only a part of this append is in the log; send it again as it was first sent")
    return recorded


def _chain(log: _Log, found: _Stream, epoch: Epoch, prepared: list[_Prepared]) -> list[Row]:
    """The rows that an append becomes; nothing is written yet, and any refusal is raised here."""
    seq, previous, floor, rows = len(found.rows), found.head_hash, found.floor, list[Row]()
    ids, requests = set[bytes](), set[str]()
    for item in prepared:
        seq += 1
        misplaced = events.find_misplacement(item.kind, seq, epoch, floor)
        if misplaced:
            raise InternalError(f"memory: session {found.id} seq {seq}: {misplaced}")
        if item.request_id is not None and (item.request_id in found.requests or item.request_id in requests):
            raise MisuseError(f"memory: session {found.id}: request {show_text(item.request_id)} was admitted already")
        if item.id in log.places or item.id in ids:
            raise CorruptError(f"memory: event id {item.id.hex()} stands in the log already")
        ids.add(item.id)
        if item.request_id is not None:
            requests.add(item.request_id)
        changed = changes_digest(item.changes) if item.changes else NO_CHANGES
        digest = codec.hash_event(found.domain, seq, item.id, epoch, item.kind.encode(), item.version, item.payload, changed, previous)
        rows.append(Row(item.id, epoch, item.kind, item.version, item.payload, item.changes, digest))
        previous, floor = digest, epoch
    return rows


def _check_contents(log: _Log, prepared: list[_Prepared], blobs: tuple[codec.Blob, ...]) -> None:
    """An event comes in only while the log holds every content it names, or is given it with the event."""
    given = {blob.content for blob in blobs}
    for item in prepared:
        named = [change.entry.content for change in item.changes if change.entry is not None]
        for name in (*named, item.output):
            content = None if name is None else ContentId(name)
            if content is None:
                continue
            if content not in log.blobs and content not in given:
                raise ContentGoneError(f"memory: the content {content.hex()} that this append needs is not in the log; send it with it")


def _insert_blobs(log: _Log, blobs: tuple[codec.Blob, ...]) -> None:
    for blob in blobs:
        log.blobs.setdefault(blob.content, blob)


def _check_raise(found: _Stream, epoch: Epoch, after: Seq | None) -> Epoch:
    if epoch < found.floor:
        raise _stale(found.id, epoch, found.floor)
    if epoch == found.floor:
        raise EpochTakenError(
            f"memory: session {found.id}: epoch {epoch} is held by another driver; start again under epoch {found.floor + 1}"
        )
    _check_head(found, after)
    return epoch


def _check_head(found: _Stream, after: Seq | None) -> None:
    if after is not None and len(found.rows) != after:
        raise HeadMovedError(f"memory: session {found.id}: the head moved from {after} to {len(found.rows)}; read it again")


def _check_floor(found: _Stream, epoch: Epoch) -> Epoch:
    if epoch < found.floor:
        raise _stale(found.id, epoch, found.floor)
    if epoch > found.floor:
        raise InternalError(f"memory: session {found.id}: append at epoch {epoch} above the floor {found.floor}")
    return epoch


def _stale(stream: StreamId, epoch: Epoch, floor: Epoch) -> StaleEpochError:
    return StaleEpochError(f"memory: session {stream}: epoch {epoch} is below the floor {floor}; a newer driver has it")


def _admitted_input(payload: bytes) -> str:
    """One text for one JSON value, whatever the order of its keys; 1, 1.0 and true are three values."""
    return json.dumps(json.loads(payload)["input"], sort_keys=True)
