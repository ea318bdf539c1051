"""Appending to a log: one fenced transaction per append.

Ordering invariants. An append is BEGIN IMMEDIATE (the write lock, then everything is read afresh: case 24), the held files compared
with the path (L5), the cache row compared with the events (L3), the epoch compared with the floor (I5), the rows inserted, the head
advanced, COMMIT with `synchronous=FULL`. Nothing is hashed, compressed or called back while the lock is held except the chain hash
itself. A COMMIT whose answer is lost poisons the handle (L7).

Steps: `<purpose>.commit.before` (no lock held), `.locked` (just before COMMIT), `.after`.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import apsw

from eventlog import codec, connection, durable, events, steps
from eventlog.blobs import batch_blobs
from eventlog.errors import (
    CorruptError,
    EpochTakenError,
    HeadMovedError,
    InternalError,
    LogMissingError,
    MisuseError,
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


@dataclass(frozen=True, slots=True)
class Record:
    """An event to append, with the image changes that are one commit with it (I2)."""

    event: events.Event
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a record came to stand."""

    seq: Seq
    id: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A record with everything computed that needs no lock."""

    id: bytes
    kind: str
    version: int
    payload: bytes
    changes: tuple[Change, ...]
    digest: bytes


class Writer:
    """The one writing handle of a process. Never used after a fork; poisoned by an uncertain commit."""

    def __init__(self, handle: apsw.Connection, path: str, ids: Ids) -> None:
        self._handle = handle
        self._ids = ids
        self._pid = os.getpid()
        self._poisoned = False
        self.path = path
        self.name = show_text(path)
        self.reader = Reader(handle, path)
        self._held = _file_identities(path)

    @classmethod
    def open(cls, path: str, ids: Ids) -> "Writer":
        """Open an existing log for writing. Raises LogMissingError, CorruptError, BusyError, MisuseError."""
        handle = connection.open_writable(path)
        try:
            return cls(handle, path, ids)
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

        Raises StaleEpochError below the floor (nothing written), CorruptError, ReplacedError, BusyError, FullError, UncertainCommitError.
        """
        prepared = self._prepare(records)
        return self._transact(stream, prepared, tuple(blobs), purpose, lambda row: self._check_floor(row, epoch))

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
        self._run("BEGIN IMMEDIATE")
        try:
            self._check_files()
            self._insert_blobs(batch)
        except BaseException as error:
            self._abandon(error)
            raise
        self._commit("blobs", ())

    def _prepare(self, records: Sequence[Record]) -> list[_Prepared]:
        self._guard()
        return [
            _Prepared(
                self._ids.new_id(),
                record.event.kind,
                record.event.version,
                events.encode(record.event),
                record.changes,
                changes_digest(record.changes),
            )
            for record in records
        ]

    def _transact(
        self, stream: StreamId, prepared: list[_Prepared], blobs: tuple[codec.Blob, ...], purpose: str, check: Callable[[StreamRow], Epoch]
    ) -> list[Appended]:
        steps.reach(f"{purpose}.commit.before")
        self._run("BEGIN IMMEDIATE")
        try:
            self._check_files()
            row = self._checked_row(stream)
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
        newest = self.reader.rows("SELECT seq, hash FROM event WHERE stream = ? ORDER BY seq DESC LIMIT 1", (stream,))
        sql = "SELECT epoch FROM event WHERE stream = ? AND kind = 'driver_started' ORDER BY seq DESC LIMIT 1"
        started = self.reader.rows(sql, (stream,))
        floor = started[0][0] if started else 0
        head = [(row.head_seq, row.head_hash)] if row.head_seq or row.head_hash != ZERO_HASH else []
        if newest != head or floor != row.floor:
            raise CorruptError(
                f"{self.name}: stream {stream}: its cache row (floor {row.floor}, head {row.head_seq}) disagrees with its events "
                f"(floor {floor}); run `eventlog verify {self.name}`"
            )
        return row

    def _insert_blobs(self, blobs: tuple[codec.Blob, ...]) -> None:
        rows = [(blob.content, blob.codec, blob.size, blob.data) for blob in blobs]
        self._many("INSERT INTO blob (hash, codec, size, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING", rows)

    def _insert_events(self, row: StreamRow, epoch: Epoch, prepared: list[_Prepared]) -> list[Appended]:
        seq, previous, floor, appended = row.head_seq, row.head_hash, row.floor, []
        for item in prepared:
            seq = Seq(seq + 1)
            misplaced = events.find_misplacement(item.kind, seq, epoch, floor)
            if misplaced:
                raise InternalError(f"{self.name}: session {row.id} seq {seq}: {misplaced}")
            digest = codec.event_hash(
                log_id=self.log_id, stream=row.id, seq=seq, event_id=item.id, epoch=epoch, kind=item.kind, version=item.version,
                payload=item.payload, changes=item.digest, previous=previous,
            )  # fmt: skip
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
        """L5: inside the transaction, the files held (database, WAL, index) are the files at the path."""
        if _file_identities(self.path) != self._held:
            raise ReplacedError(
                f"{self.name}: the files at this path are no longer those this driver opened; stop whatever replaced them and drive again"
            )

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


def create_log(path: str, stream: StreamId, opened: Record, blobs: Iterable[codec.Blob], ids: Ids) -> None:
    """Make a log whose one stream already holds its `session_opened`, under `path`, all or nothing (README, sync point 1).

    Raises FileExistsError when `path` exists: somebody else made it, and theirs stands. LogMissingError when it is gone and its side
    files are not: a log was here, and its WAL would be played into the new one (L5, L9). FullError when there is no room.
    """
    _check_no_side_files(path)
    temporary = f"{path}.new-{os.getpid()}-{ids.new_id().hex()}"
    try:
        _build(temporary, stream, opened, blobs, ids)
    except apsw.Error as error:
        raise connection.translate(error, path) from error
    descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
    try:
        durable.sync_file(descriptor, "log.create")
    finally:
        os.close(descriptor)
    try:
        durable.link(temporary, path, "log.create")
    finally:
        with contextlib.suppress(FileNotFoundError):  # a driver that found the log under both names has taken this one away
            durable.unlink(temporary, "log.create")
    durable.sync_directory(os.path.dirname(path) or ".", "log.create")


def _check_no_side_files(path: str) -> None:
    for suffix in ("-wal", "-journal"):
        # In this order: a side file seen first and no log after it means that the log was taken away, not that it is being made.
        if os.path.exists(path + suffix) and not os.path.exists(path):
            raise LogMissingError(
                f"{show_text(path)}: the log is gone but its {show_text(path + suffix)} is there; put the log back, or move that file away"
            )


def _build(temporary: str, stream: StreamId, opened: Record, blobs: Iterable[codec.Blob], ids: Ids) -> None:
    """A whole log under a name that nobody looks for, its WAL emptied and gone."""
    handle = connection.create(temporary)
    try:
        handle.execute("BEGIN IMMEDIATE")
        log_id = ids.new_id().hex()
        handle.execute("INSERT INTO meta (key, value) VALUES ('format', '1'), ('log_id', ?)", (log_id,))
        handle.execute("INSERT INTO stream (id, floor, head_seq, head_hash) VALUES (?, 0, 0, ?)", (stream, ZERO_HASH))
        handle.execute("COMMIT")
        writer = Writer(handle, temporary, ids)
        for batch in batch_blobs(blobs):
            writer.insert_blobs(batch)
        writer.append(stream, Epoch(0), [opened], (), "open")
        # Not `pragma`, which knows no arguments in parentheses. It raises when the file cannot take all of the WAL: closing would not say.
        handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        handle.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        handle.close()
