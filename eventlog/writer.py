"""Appending to a log: one fenced transaction per append.

Ordering invariants. An append is BEGIN IMMEDIATE (the write lock, then everything is read afresh: case 24), the held files compared
with the path (L5), the cache row compared with the events (L3), the epoch compared with the floor (I5), the rows inserted, the head
advanced, COMMIT with `synchronous=FULL`. Nothing is hashed, compressed or called back while the lock is held except the chain hash
itself. A COMMIT whose answer is lost poisons the handle (L7).

An append is idempotent where its records have ids: the loser of two equal appends is given what the winner recorded, and an append
whose commit was uncertain can be sent again after a reopen.

Steps: `<purpose>.commit.before` (no lock held), `.locked` (just before COMMIT), `.after`.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import apsw
import msgspec

from eventlog import codec, connection, events, steps
from eventlog.errors import (
    BusyError,
    CorruptError,
    EpochTakenError,
    HeadMovedError,
    InternalError,
    LogMissingError,
    MisuseError,
    MovedError,
    ReplacedError,
    StaleEpochError,
    UncertainCommitError,
)
from eventlog.image import Change, changes_digest
from eventlog.image_rows import COLUMNS, change_to_row
from eventlog.ports import Ids
from eventlog.reader import Reader, StreamRow
from eventlog.show import show_text
from eventlog.values import ZERO_HASH, Epoch, LogId, Seq, StreamId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Record:
    """An event to append, with the image changes that are one commit with it (I2).

    `id` is 16 bytes, for an append that may be sent more than once; without one, each append is an event of its own.
    """

    event: events.Event
    changes: tuple[Change, ...] = ()
    id: bytes | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a record came to stand."""

    seq: Seq
    id: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Admitted:
    """Where an input stands, and whether this call put it there."""

    appended: Appended
    is_new: bool


Unlock = Callable[[BusyError], bool]
"""Asked when a lock was not to be had within its bound: True when whoever held it is gone, and the lock is to be tried for again (L4)."""

Redact = Callable[[events.Event], events.Event]
"""Takes out of an event what must not be written down. It is called before anything is encoded, hashed or locked."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A record with everything computed that needs no lock."""

    id: bytes
    kind: str
    version: int
    payload: bytes
    changes: tuple[Change, ...]
    digest: bytes
    is_repeatable: bool


class _AlreadyAdmittedError(Exception):
    """An input stands already; raised inside the transaction, which then writes nothing."""

    def __init__(self, appended: Appended, payload_input: object) -> None:
        super().__init__(appended)
        self.appended = appended
        self.payload_input = payload_input


class Writer:
    """The one writing handle of a process. Never used after a fork; poisoned by an uncertain commit."""

    def __init__(
        self, handle: apsw.Connection, path: str, ids: Ids, redact: Redact | None = None, unlock: Unlock | None = None
    ) -> None:  # fmt: skip
        self._handle = handle
        self._unlock = unlock
        self._redact = redact
        self._ids = ids
        self._pid = os.getpid()
        self._poisoned = False
        self.path = path
        self.name = show_text(path)
        self.reader = Reader(handle, path)
        self._held = _file_identities(path)

    @classmethod
    def open(
        cls, path: str, ids: Ids, redact: Redact | None = None, unlock: Unlock | None = None, busy_ms: int = connection.BUSY_MS
    ) -> "Writer":
        """Open an existing log for writing; `redact` sees every event before it is written.

        The write lock is waited for `busy_ms` milliseconds; `unlock` is asked what then.

        Raises LogMissingError, CorruptError, BusyError, MisuseError.
        """
        handle = _until_unlocked(lambda: connection.open_writable(path, busy_ms), unlock)
        try:
            return cls(handle, path, ids, redact, unlock)
        except apsw.Error as error:
            raise connection.translate(error, path) from error

    @property
    def log_id(self) -> LogId:
        return self.reader.log_id

    def close(self) -> None:
        self._handle.close()

    def raise_floor(self, stream: StreamId, epoch: Epoch, started: events.DriverStarted, after: Seq | None = None) -> Appended:
        """Make `epoch` the floor; the driver's first write (L2). With `after`, only while that is still the head.

        Raises StaleEpochError when a newer epoch holds the floor, EpochTakenError when another identity holds this one (L1),
        HeadMovedError when the head is not `after`.
        """
        prepared = self._prepare([Record(started)])
        return self._transact(stream, prepared, (), "floor", lambda row: self._check_raise(row, epoch, after))[0]

    def append(
        self, stream: StreamId, epoch: Epoch, records: Sequence[Record], blobs: Iterable[codec.Blob], purpose: str
    ) -> list[Appended]:
        """Append records and insert blobs in one commit under `epoch`, which must be the floor.

        Records whose ids the log has already are not written again: the same ones are answered with where they stand. Raises
        StaleEpochError below the floor (nothing written), CorruptError, ReplacedError, MovedError, BusyError, FullError,
        UncertainCommitError, and MisuseError for an id that stands for something else.
        """
        prepared = self._prepare(records)
        return self._transact(stream, prepared, tuple(blobs), purpose, lambda row: self._check_floor(row, epoch))

    def append_unfenced(self, stream: StreamId, records: Sequence[Record], purpose: str) -> list[Appended]:
        """Append what any process may, under the floor found in the same transaction (L2): notes and inputs. Raises as `append`."""
        for record in records:
            if record.event.kind not in events.UNFENCED_KINDS:
                raise MisuseError(f"{self.name}: {record.event.kind} is written by a session's driver only, under its epoch")
        return self._transact(stream, self._prepare(records), (), purpose, lambda row: row.floor)

    def admit(self, stream: StreamId, request_id: str, given: dict[str, Any], at_ms: int) -> Admitted:
        """Take an input in, once for each `request_id`: who sends it again is given where it stands. Raises as `append`, and MisuseError
        when that request id was taken in with another input."""
        event = events.InputAdmitted(at_ms, request_id, given)
        try:
            return Admitted(self.append_unfenced(stream, [Record(event)], "admit")[0], is_new=True)
        except _AlreadyAdmittedError as found:
            if found.payload_input != self._redacted(event).input:
                raise MisuseError(
                    f"{self.name}: session {stream}: request {show_text(request_id)} was admitted with another input at seq "
                    f"{found.appended.seq}; use a new request id"
                ) from found
            return Admitted(found.appended, is_new=False)

    def open_stream(
        self, stream: StreamId, first: Record, purpose: str, parent: StreamId | None = None, forked_at: Seq | None = None
    ) -> Appended:
        """Begin a stream with its first event (session_opened or session_forked), in one commit. Raises MisuseError when it is there."""
        prepared = self._prepare([first])
        steps.reach(f"{purpose}.commit.before")
        self._begin()
        try:
            self._check_files()
            if self.reader.stream(stream) is not None:
                raise MisuseError(f"{self.name}: there is a session {show_text(stream)} already; choose another name")
            self._run(
                "INSERT INTO stream (id, parent, forked_at, floor, head_seq, head_hash) VALUES (?, ?, ?, 0, 0, ?)",
                (stream, parent, forked_at, ZERO_HASH),
            )
            row = StreamRow(stream, Epoch(0), Seq(0), ZERO_HASH, parent, forked_at, None)
            appended = self._insert_events(row, Epoch(0), prepared)
        except BaseException as error:
            self._abandon(error)
            raise
        self._commit(purpose, (prepared[0].id,))
        return appended[0]

    def check_fence(self, stream: StreamId, epoch: Epoch) -> None:
        """Raise StaleEpochError once a newer epoch holds the floor; one short read, no lock."""
        self._guard()
        floor = self.reader.floor(stream)
        if epoch < floor:
            raise StaleEpochError(f"{self.name}: session {stream}: epoch {epoch} is below the floor {floor}; a newer driver has it")

    def insert_blobs(self, blobs: Iterable[codec.Blob]) -> None:
        """Insert blobs ahead of the commit that names them: content-addressed, harmless when that never comes."""
        self._guard()
        batch = tuple(blobs)
        self._begin()
        try:
            self._check_files()
            self._insert_blobs(batch)
        except BaseException as error:
            self._abandon(error)
            raise
        self._commit("blobs", ())

    def _prepare(self, records: Sequence[Record]) -> list[_Prepared]:
        self._guard()
        return [self._prepare_one(record) for record in records]

    def _prepare_one(self, record: Record) -> _Prepared:
        event = record.event if self._redact is None else self._redacted(record.event)
        given = record.id is not None
        event_id = record.id if record.id is not None else self._ids.new_id()
        return _Prepared(event_id, event.kind, event.version, events.encode(event), record.changes, changes_digest(record.changes), given)

    def _redacted(self, event: events.E) -> events.E:
        """The event as it may be written. A call whose recorded input was redacted says so: it cannot be replayed from the log."""
        if self._redact is None:
            return event
        redacted = self._redact(event)
        if type(redacted) is not type(event):
            raise InternalError(f"{self.name}: the redaction made {type(redacted).__name__} of {event.kind}")
        if isinstance(redacted, events.AttemptStarted) and isinstance(event, events.AttemptStarted) and redacted.input != event.input:
            return msgspec.structs.replace(redacted, redacted=True)
        return redacted

    def _transact(
        self, stream: StreamId, prepared: list[_Prepared], blobs: tuple[codec.Blob, ...], purpose: str, check: Callable[[StreamRow], Epoch]
    ) -> list[Appended]:
        steps.reach(f"{purpose}.commit.before")
        self._begin()
        try:
            self._check_files()
            row = self._checked_row(stream)
            recorded = self._find_recorded(stream, prepared)
            if recorded:
                self._rollback()
                return recorded
            epoch = check(row)
            self._insert_blobs(blobs)
            appended = self._insert_events(row, epoch, prepared)
        except BaseException as error:
            self._abandon(error)
            raise
        self._commit(purpose, tuple(item.id for item in prepared))
        return appended

    def _check_raise(self, row: StreamRow, epoch: Epoch, after: Seq | None) -> Epoch:
        if epoch < row.floor:
            raise StaleEpochError(f"{self.name}: session {row.id}: epoch {epoch} is below the floor {row.floor}; a newer driver has it")
        if epoch == row.floor:
            raise EpochTakenError(
                f"{self.name}: session {row.id}: epoch {epoch} is held by another driver; start again under epoch {row.floor + 1}"
            )
        if after is not None and row.head_seq != after:
            raise HeadMovedError(f"{self.name}: session {row.id}: the head moved from {after} to {row.head_seq}; read it again")
        return epoch

    def _check_floor(self, row: StreamRow, epoch: Epoch) -> Epoch:
        if epoch < row.floor:
            raise StaleEpochError(f"{self.name}: session {row.id}: epoch {epoch} is below the floor {row.floor}; a newer driver has it")
        if epoch > row.floor:
            raise InternalError(f"{self.name}: session {row.id}: append at epoch {epoch} above the floor {row.floor}")
        return epoch

    def _checked_row(self, stream: StreamId) -> StreamRow:
        """The cache row, checked against the newest event and the newest driver_started inside this transaction (L3)."""
        row = self.reader.stream(stream)
        if row is None:
            raise MisuseError(f"{self.name}: there is no session {stream} in this log; `eventlog show {self.name}` lists what is")
        if row.origin is not None:
            raise MisuseError(
                f"{self.name}: session {stream} was imported and is read-only; `eventlog fork` makes a session of it that goes on"
            )
        found = self.reader.rows("SELECT seq, hash, kind FROM event WHERE stream = ? ORDER BY seq DESC LIMIT 1", (stream,))
        newest = [(seq, digest) for seq, digest, _ in found]
        sql = "SELECT epoch FROM event WHERE stream = ? AND kind = 'driver_started' ORDER BY seq DESC LIMIT 1"
        started = self.reader.rows(sql, (stream,))
        floor = started[0][0] if started else 0
        head = [(row.head_seq, row.head_hash)] if row.head_seq or row.head_hash != ZERO_HASH else []
        if newest != head or floor != row.floor:
            raise CorruptError(
                f"{self.name}: stream {stream}: its cache row (floor {row.floor}, head {row.head_seq}) disagrees with its events "
                f"(floor {floor}); run `eventlog verify {self.name}`"
            )
        if found and found[0][2] == events.SessionMoved.kind:
            raise MovedError(f"{self.name}: session {stream} was moved away by `eventlog export --move`; drive it where it was imported")
        return row

    def _find_recorded(self, stream: StreamId, prepared: list[_Prepared]) -> list[Appended]:
        """What stands in the log of an append that was sent before; empty when nothing of it does. All of it stands, or nothing (L7)."""
        if not prepared:
            return []
        if prepared[0].kind == events.InputAdmitted.kind:
            self._find_admitted(stream, prepared[0].payload)
        if not prepared[0].is_repeatable:
            return []
        found = []
        for item in prepared:
            rows = self.reader.rows("SELECT stream, seq, hash, kind, CAST(payload AS BLOB) FROM event WHERE id = ?", (item.id,))
            if not rows:
                break
            where, seq, digest, kind, payload = rows[0]
            if (where, kind, payload) != (stream, item.kind, item.payload) or not (isinstance(seq, int) and isinstance(digest, bytes)):
                raise MisuseError(f"{self.name}: event id {item.id.hex()} stands for another event; an id belongs to one event for ever")
            found.append(Appended(Seq(seq), item.id, digest))
        if found and len(found) != len(prepared):
            raise MisuseError(f"{self.name}: only a part of this append is in the log; send it again as it was first sent")
        return found

    def _find_admitted(self, stream: StreamId, payload: bytes) -> None:
        admitted = events.decode(events.InputAdmitted.kind, events.InputAdmitted.version, payload, self.name)
        sql = (
            "SELECT seq, id, hash, CAST(payload AS BLOB), version FROM event"
            " WHERE stream = ? AND kind = 'input_admitted' AND json_extract(payload, '$.request_id') = ?"
        )
        if not isinstance(admitted, events.InputAdmitted):
            raise InternalError(f"{self.name}: an admitted input decodes to {admitted.kind}")
        rows = self.reader.rows(sql, (stream, admitted.request_id))
        if not rows:
            return
        seq, event_id, digest, stored, version = rows[0]
        if not (isinstance(seq, int) and isinstance(event_id, bytes) and isinstance(digest, bytes)) or not (
            isinstance(version, int) and isinstance(stored, bytes)
        ):
            raise CorruptError(f"{self.name}: stream {stream}: an admitted input has a column of the wrong type")
        before = events.decode(events.InputAdmitted.kind, version, stored, f"{self.name}: stream {stream} seq {seq}")
        given = before.input if isinstance(before, events.InputAdmitted) else None
        raise _AlreadyAdmittedError(Appended(Seq(seq), event_id, digest), given)

    def _insert_blobs(self, blobs: tuple[codec.Blob, ...]) -> None:
        rows = [(blob.content, blob.codec, blob.size, blob.data) for blob in blobs]
        self._many("INSERT INTO blob (hash, codec, size, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING", rows)

    def _insert_events(self, row: StreamRow, epoch: Epoch, prepared: list[_Prepared]) -> list[Appended]:
        seq, previous, floor, appended = row.head_seq, row.head_hash, row.floor, []
        domain = codec.event_domain(self.log_id, row.id)
        for item in prepared:
            seq = Seq(seq + 1)
            misplaced = events.find_misplacement(item.kind, seq, epoch, floor)
            if misplaced:
                raise InternalError(f"{self.name}: session {row.id} seq {seq}: {misplaced}")
            digest = codec.hash_event(domain, seq, item.id, epoch, item.kind.encode(), item.version, item.payload, item.digest, previous)
            values = (row.id, seq, item.id, epoch, item.kind, item.version, item.payload.decode(), previous, digest)
            self._run(
                "INSERT INTO event (stream, seq, id, epoch, kind, version, payload, prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            self._many(_INSERT_CHANGE, [(row.id, seq, index, *change_to_row(change)) for index, change in enumerate(item.changes)])
            self._run("UPDATE stream SET head_seq = ?, head_hash = ?, floor = ? WHERE id = ?", (seq, digest, epoch, row.id))
            appended.append(Appended(seq, item.id, digest))
            previous, floor = digest, epoch
        return appended

    def _guard(self) -> None:
        if os.getpid() != self._pid:
            raise InternalError(f"{self.name}: this handle belongs to process {self._pid}; a forked process must not use it (case 21)")
        if self._poisoned:
            raise UncertainCommitError(
                f"{self.name}: an earlier commit's end is unknown; open the log again and look the event up by its id"
            )

    def _check_files(self) -> None:
        """L5: inside the transaction, the files held (database, WAL, index) are the files at the path. SQLite itself compares the
        database it has open; the side files are compared with what stood there when this handle was made."""
        if _file_identities(self.path) != self._held or connection.has_moved(self._handle):
            raise ReplacedError(
                f"{self.name}: the files at this path are no longer those this driver opened; stop whatever replaced them and drive again"
            )

    def _begin(self) -> None:
        """Take the write lock; past the bound whoever holds it is judged (L4)."""
        _until_unlocked(lambda: self._run("BEGIN IMMEDIATE"), self._unlock)

    def _run(self, sql: str, bindings: tuple[object, ...] = ()) -> None:
        try:
            self._handle.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise connection.translate(error, self.path) from error

    def _many(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        try:
            self._handle.executemany(sql, rows).fetchall()
        except apsw.Error as error:
            raise connection.translate(error, self.path) from error

    def _abandon(self, error: BaseException) -> None:
        """End the transaction that `error` stopped. After a failure of the device nothing more is written through this handle."""
        if isinstance(error, UncertainCommitError):
            self._poisoned = True
        self._rollback()

    def _rollback(self) -> None:
        if self._handle.get_autocommit():
            return  # case 17: SQLite has rolled back by itself
        try:
            self._handle.execute("ROLLBACK").fetchall()
        except apsw.Error:
            # The error that led here is on its way to the caller and says more; the handle is stuck and must not write again.
            self._poisoned = True

    def _commit(self, purpose: str, event_ids: tuple[bytes, ...]) -> None:
        steps.reach(f"{purpose}.commit.locked")
        try:
            self._handle.execute("COMMIT").fetchall()
        except apsw.FullError as error:
            self._rollback()
            raise connection.translate(error, self.path) from error
        except apsw.Error as error:
            # The commit may or may not stand (case 17: SQLite may have rolled back already). Only the file knows.
            self._poisoned = True
            names = " ".join(event_id.hex() for event_id in event_ids)
            raise UncertainCommitError(
                f"{self.name}: COMMIT failed ({error}); open the log again: it stands if the events are there ({names or 'blobs only'})",
                event_ids,
            ) from error
        steps.reach(f"{purpose}.commit.after")


def _until_unlocked(act: Callable[[], T], unlock: Unlock | None) -> T:
    while True:
        try:
            return act()
        except BusyError as error:
            if unlock is None or not unlock(error):
                raise


_INSERT_CHANGE = f"INSERT INTO image_change (stream, seq, idx, {COLUMNS}) VALUES ({', '.join('?' * 16)})"


def _file_identities(path: str) -> tuple[tuple[int, int] | None, ...]:
    """Device and inode of database, WAL and index; None for a side file that is not there. Asked by name, never by opening (L6)."""
    database = _file_identity(path)
    if database is None:
        raise LogMissingError(f"{show_text(path)}: the log is gone from its path; put it back before driving again")
    return database, _file_identity(path + "-wal"), _file_identity(path + "-shm")


def _file_identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None  # the caller says what a missing file means
    return status.st_dev, status.st_ino
