"""Appending to a log: one fenced transaction per append.

Ordering invariants. An append is BEGIN IMMEDIATE (the write lock, then everything is read afresh: case 24), the held files compared
with the path (L5), the cache row compared with the events (L3), the epoch compared with the floor (I5), the rows inserted, the head
advanced, COMMIT with `synchronous=FULL`. Nothing is hashed, compressed or called back while the lock is held except the chain hash
itself. A COMMIT whose answer is lost poisons the handle (L7).

An append is idempotent where its records have ids: the loser of two equal appends is given what the winner recorded, and an append
whose commit was uncertain can be sent again after a reopen.

Steps: `<purpose>.commit.before` (no lock held), `.locked` (just before COMMIT), `.after`.
"""

import functools
import json
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

from eventlog import codec, connection, events, steps, wal
from eventlog.clustering import cluster
from eventlog.errors import (
    ContentGoneError,
    CorruptError,
    EpochTakenError,
    HeadMovedError,
    InternalError,
    MisuseError,
    MovedError,
    StaleEpochError,
    UncertainCommitError,
)
from eventlog.held_files import resolve_log
from eventlog.image_rows import COLUMNS, change_to_row
from eventlog.ports import Clock, Ids
from eventlog.preparing import Prepared, prepare
from eventlog.reader import StreamRow, VerbatimEvent
from eventlog.records import Admitted, Appended, Dropped, Record, Redact, Unlock
from eventlog.show import advise_verify, as_word, show_text
from eventlog.transaction import T, Transactions, until_unlocked
from eventlog.values import ZERO_HASH, Epoch, LogId, Seq, StreamId


class _AlreadyAdmittedError(Exception):
    """An input stands already; raised inside the transaction, which then writes nothing."""

    def __init__(self, appended: Appended, request_id: str, given: dict[str, Any]) -> None:
        super().__init__(appended)
        self.appended = appended
        self.request_id = request_id
        self.given = given


class Writer(Transactions):
    """The one writing handle of a process. Never used after a fork; poisoned by an uncertain commit.

    Threads may share it: their transactions come one after another. What `reader` reads is what the transaction under way has written, so
    it is for the thread that writes.
    """

    def __init__(
        self,
        handle: apsw.Connection,
        path: str,
        ids: Ids,
        redact: Redact | None = None,
        unlock: Unlock | None = None,
        clock: Clock = connection.CLOCK,
        busy_ms: int = connection.BUSY_MS,
        name: str | None = None,
    ) -> None:
        super().__init__(handle, path, unlock, clock, busy_ms, name)
        self._redact = redact
        self._ids = ids
        self._known: dict[StreamId, StreamRow] = {}  # the cache rows as this handle's last appends left them
        self._known_at = -1  # SQLite's data version then: another one means that somebody else has committed (L3)
        self._domains: dict[StreamId, bytes] = {}

    @classmethod
    def open(
        cls,
        path: str,
        ids: Ids,
        redact: Redact | None = None,
        clock: Clock = connection.CLOCK,
        unlock: Unlock | None = None,
        busy_ms: int = connection.BUSY_MS,
    ) -> "Writer":
        """Open an existing log for writing; `redact` sees every event before it is written.

        The write lock is waited for `busy_ms` milliseconds of `clock`; `unlock` is asked what then.

        Raises LogMissingError, CorruptError, BusyError, MisuseError.
        """
        handle = until_unlocked(lambda: connection.open_writable(resolve_log(path), busy_ms, clock), unlock)
        try:
            return cls(handle, path, ids, redact, unlock, clock, busy_ms)
        except BaseException as error:
            handle.close()  # whoever tries again must not find the locks of the attempt before
            if isinstance(error, apsw.Error):
                raise connection.translate(error, path) from error
            raise

    @property
    def log_id(self) -> LogId:
        return self.reader.log_id

    def close(self) -> None:
        """Close the handle; a poisoned one too. Refused in a forked process (case 21)."""
        self.reader.close()

    def raise_floor(self, stream: StreamId, epoch: Epoch, started: events.DriverStarted, after: Seq | None = None) -> Appended:
        """Make `epoch` the floor; the driver's first write (L2). With `after`, only while that is still the head.

        Raises StaleEpochError when a newer epoch holds the floor, EpochTakenError when another identity holds this one (L1),
        HeadMovedError when the head is not `after`.
        """
        prepared = self._prepared([Record(started)])
        raised = self._transact(stream, prepared, (), "floor", lambda row: self._check_raise(row, epoch, after))[0]
        self._bring_over()
        return raised

    def _bring_over(self) -> None:
        """Bring the WAL into the database, as far as readers let it: a floor must not fall because somebody removes the WAL (I5)."""
        try:
            with self._alone:
                self._handle.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (apsw.BusyError, apsw.FullError):
            return  # the commit stands in the WAL, and the next checkpoint brings it over
        except apsw.Error as error:
            raise self._failed(error) from error

    def append(
        self, stream: StreamId, epoch: Epoch, records: Sequence[Record], blobs: Iterable[codec.Blob], purpose: str
    ) -> list[Appended]:
        """Append records and insert blobs in one commit under `epoch`, which must be the floor.

        Records whose ids the log has already are not written again: the same ones are answered with where they stand. Raises
        StaleEpochError below the floor (nothing written), CorruptError, ReplacedError, MovedError, BusyError, FullError,
        UncertainCommitError, and MisuseError for an id that stands for something else, or a request that was admitted before.
        """
        self._guard()
        prepared = prepare(records, self._ids, self._redact, self.name)
        try:
            return self._transact(stream, prepared, tuple(blobs), purpose, functools.partial(self._check_floor, epoch))
        except _AlreadyAdmittedError as found:
            raise self._admitted_before(stream, found) from found

    def append_unfenced(self, stream: StreamId, records: Sequence[Record], purpose: str, after: Seq | None = None) -> list[Appended]:
        """Append what any process may, under the floor found in the same transaction (L2), and with `after` only while that is the head.
        Raises HeadMovedError, and as `append`."""
        for record in records:
            if record.event.kind not in events.UNFENCED_KINDS:
                raise MisuseError(f"{self.name}: {record.event.kind} is written by a session's driver only, under its epoch")

        def check(row: StreamRow) -> Epoch:
            if after is not None:
                self._check_head(row, after)
            return row.floor

        try:
            return self._transact(stream, self._prepared(records), (), purpose, check)
        except _AlreadyAdmittedError as found:
            raise self._admitted_before(stream, found) from found

    def admit(self, stream: StreamId, request_id: str, given: dict[str, Any], at_ms: int) -> Admitted:
        """Take an input in, once for each `request_id`: who sends it again is given where it stands. Raises as `append`, and MisuseError
        when that request id was taken in with another input (as it was redacted)."""
        prepared = self._prepared([Record(events.InputAdmitted(at_ms, request_id, given))])
        try:
            return Admitted(self._transact(stream, prepared, (), "admit", lambda row: row.floor)[0], is_new=True)
        except _AlreadyAdmittedError as found:
            if _as_json(found.given) != _as_json(self._decode_admitted(prepared[0]).input):
                raise MisuseError(
                    f"{self.name}: session {stream}: request {show_text(request_id)} was admitted with another input at seq "
                    f"{found.appended.seq}; use a new request id"
                ) from found
            return Admitted(found.appended, is_new=False)

    def _admitted_before(self, stream: StreamId, found: _AlreadyAdmittedError) -> MisuseError:
        return MisuseError(
            f"{self.name}: session {stream}: request {show_text(found.request_id)} was admitted at seq {found.appended.seq}; "
            "`admit` answers where it stands"
        )

    def open_stream(
        self, stream: StreamId, first: Record, purpose: str, parent: StreamId | None = None, forked_at: Seq | None = None
    ) -> Appended:
        """Begin a stream with its first event (session_opened or session_forked), in one commit. Raises MisuseError when it is there."""
        prepared = self._prepared([first])
        with self._writing(purpose, (prepared[0].id,)):
            return self._begin_stream(stream, prepared, parent, forked_at)

    def import_stream(
        self, row: StreamRow, stored: Iterable[VerbatimEvent], dropped: Iterable[Dropped], fork: StreamId, first: Record, at: Seq
    ) -> Appended:
        """Insert an imported stream with its events as they are, what was given up of their contents, and a fork of it, in one commit.

        `row` has an origin and states the head that `stored` reaches: `stored` checks the chain up to it while it is read, under the
        lock, and raises when that fails. `first` is the fork's session_forked, at seq `at` of the stream. Raises as `open_stream`, what
        `stored` raises, CorruptError for rows that the log refuses, and ContentGoneError when a content is neither here nor dropped:
        a compaction may have taken those that were sent ahead.
        """
        prepared = self._prepared([first])
        with self._writing("import", (prepared[0].id,)):
            self._insert_imported(row, stored)
            self._insert_dropped(dropped)
            for sql in (_MISSING_IMPORTED, _MISSING_OUTPUT):
                missing = self.reader.rows(sql, (row.id,))
                if missing:
                    raise self._gone(missing[0][0])
            return self._begin_stream(fork, prepared, row.id, at)

    def adopt_stream(self, row: StreamRow, stored: Iterable[VerbatimEvent]) -> None:
        """Insert an imported stream with its events as they are and no fork of it, in one commit. As `import_stream` otherwise."""
        with self._writing("adopt", ()):
            self._insert_imported(row, stored)

    def record_dropped(self, dropped: Iterable[Dropped]) -> None:
        """Put contents that the log does not have on record, in one commit. Raises as `append`."""
        with self._writing("dropped", ()):
            self._insert_dropped(dropped)

    def _insert_dropped(self, dropped: Iterable[Dropped]) -> None:
        rows = [(item.content, item.size, item.reason, item.at_ms) for item in dropped]
        self._many("INSERT INTO dropped (hash, size, reason, at_ms) VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING", rows)

    def move_away(self, stream: StreamId, digest: str, after: Seq, at_ms: int) -> Appended:
        """Append `session_moved` under the floor, while `after` is still the head; nothing is appended after it (L8).

        `digest` (hex) is that of the bundle with all events up to `after`. Raises HeadMovedError, and as `append`.
        """

        def check(row: StreamRow) -> Epoch:
            self._check_head(row, after)
            return row.floor

        return self._transact(stream, self._prepared([Record(events.SessionMoved(at_ms, digest))]), (), "move", check)[0]

    def check_fence(self, stream: StreamId, epoch: Epoch) -> None:
        """Raise StaleEpochError once a newer epoch holds the floor; one short read, no lock."""
        self._guard()
        try:
            floor = self.reader.floor(stream)
        except UncertainCommitError:
            self._poisoned = True
            raise
        if epoch < floor:
            raise StaleEpochError(f"{self.name}: session {stream}: epoch {epoch} is below the floor {floor}; a newer driver has it")

    def insert_blobs(self, blobs: Iterable[codec.Blob]) -> None:
        """Insert blobs ahead of the commit that names them: content-addressed, harmless when that never comes."""
        self._guard()
        batch = tuple(blobs)
        with self._alone:
            self._begin()
            try:
                self._check_files()
                self._insert_blobs(batch)
            except BaseException as error:
                self._abandon(error)
                raise
            self._commit("blobs", ())

    def maintain(self, purpose: str, work: Callable[[apsw.Connection], T]) -> T:
        """One transaction under the write lock, the files checked (L5), for work on the log that appends no event. Raises as `append`."""
        with self._writing(purpose, ()):
            return work(self._handle)

    def rebuild(self) -> None:
        """Write the whole database anew, with a map of its pages, in one transaction of SQLite's own. Raises as `append`."""
        self._guard()
        self._check_files()
        steps.reach("rebuild.commit.before")
        try:
            with self._alone:
                connection.set_incremental_vacuum(self._handle)
                self._handle.execute("VACUUM").fetchall()
        except apsw.Error as error:
            raise self._failed(error) from error
        steps.reach("rebuild.commit.after")

    def cluster(self) -> None:
        """Make a log of format 2 one of format 3, in one transaction. Raises as `append`, and CorruptError for a log without a trigger."""
        self._guard()
        with self._alone:
            self._handle.pragma("foreign_keys", False)  # refused inside a transaction, hence before it
            try:
                with self._writing("cluster", ()):
                    cluster(self._handle, self.name)
            finally:
                connection.set_foreign_keys(self._handle)

    def tidy(self, clock: Clock, wait_secs: float = 0.0) -> wal.Tidied | wal.Pinned:
        """Bring the WAL into the database and cut it to nothing, if nobody needs it within `wait_secs`; else say who does. Idle work:
        nothing is held up by it. Raises ReplacedError: a WAL that is not the database's own is never brought into it (L5)."""
        self._guard()
        self._check_files()
        try:
            with self._alone:
                return wal.tidy(self._handle, self.path, clock, wait_secs, self._restore_patience)
        except apsw.Error as error:
            raise self._failed(error) from error

    def _restore_patience(self) -> None:
        connection.set_busy_wait(self._handle, self._busy_ms, self._clock)

    def _prepared(self, records: Sequence[Record]) -> list[Prepared]:
        self._guard()
        return prepare(records, self._ids, self._redact, self.name)

    def _begin_stream(self, stream: StreamId, prepared: list[Prepared], parent: StreamId | None, forked_at: Seq | None) -> Appended:
        """The row of a new stream and its first event, inside a transaction."""
        if self.reader.stream(stream) is not None:
            raise MisuseError(f"{self.name}: there is a session {show_text(stream)} already; choose another name")
        self._run(
            "INSERT INTO stream (id, parent, forked_at, floor, head_seq, head_hash) VALUES (?, ?, ?, 0, 0, ?)",
            (stream, parent, forked_at, ZERO_HASH),
        )
        row = StreamRow(stream, Epoch(0), Seq(0), ZERO_HASH, parent, forked_at, None)
        appended = self._insert_events(row, Epoch(0), prepared)
        self._check_contents(stream, prepared, appended, ())
        return appended[0]

    def _insert_imported(self, row: StreamRow, stored: Iterable[VerbatimEvent]) -> None:
        """The row of an imported stream, its head final from the beginning (it takes no update), and its events as they are."""
        if row.origin is None:
            raise InternalError(f"{self.name}: an imported stream without an origin")
        if self.reader.stream(row.id) is not None:
            raise MisuseError(f"{self.name}: {show_text(row.id)} was imported meanwhile; run the same command again")
        self._run(
            "INSERT INTO stream (id, floor, head_seq, head_hash, origin_log, origin_stream) VALUES (?, ?, ?, ?, ?, ?)",
            (row.id, row.floor, row.head_seq, row.head_hash, row.origin.log_id, row.origin.stream),
        )
        previous = ZERO_HASH
        for item in stored:
            one = item.stored
            values = (row.id, one.seq, one.id, one.epoch, item.kind, item.version, item.payload.decode(), previous, one.hash)
            self._run(_INSERT_EVENT, values)
            self._many(_INSERT_CHANGE, [(row.id, one.seq, index, *change_to_row(change)) for index, change in enumerate(one.changes)])
            previous = one.hash

    def _transact(
        self, stream: StreamId, prepared: list[Prepared], blobs: tuple[codec.Blob, ...], purpose: str, check: Callable[[StreamRow], Epoch]
    ) -> list[Appended]:
        version = self._handle.data_version
        steps.reach(f"{purpose}.commit.before")
        with self._alone:
            self._begin()
            try:
                self._check_files()
                if version() != self._known_at:
                    self._known.clear()
                row = self._known.get(stream) or self._checked_row(stream)
                recorded = self._find_recorded(stream, prepared)
                if recorded:
                    self._rollback()
                    return recorded
                epoch = check(row)
                if blobs:
                    self._insert_blobs(blobs)
                appended = self._insert_events(row, epoch, prepared)
                for item in prepared:
                    if item.changes or item.output is not None:
                        self._check_contents(stream, prepared, appended, blobs)
                        break
            except BaseException as error:
                self._abandon(error)
                raise
            self._commit(purpose, tuple(map(_id_of, prepared)))
            if prepared and prepared[-1].kind != _MOVED:  # nothing follows session_moved, and the check says so by name
                last, self._known_at = appended[-1], version()
                self._known[stream] = StreamRow(stream, epoch, last.seq, last.hash, row.parent, row.forked_at)
            return appended

    def _check_raise(self, row: StreamRow, epoch: Epoch, after: Seq | None) -> Epoch:
        if epoch < row.floor:
            raise StaleEpochError(f"{self.name}: session {row.id}: epoch {epoch} is below the floor {row.floor}; a newer driver has it")
        if epoch == row.floor:
            raise EpochTakenError(
                f"{self.name}: session {row.id}: epoch {epoch} is held by another driver; start again under epoch {row.floor + 1}"
            )
        if after is not None:
            self._check_head(row, after)
        return epoch

    def _check_head(self, row: StreamRow, after: Seq) -> None:
        if row.head_seq != after:
            raise HeadMovedError(f"{self.name}: session {row.id}: the head moved from {after} to {row.head_seq}; read it again")

    def _check_floor(self, epoch: Epoch, row: StreamRow) -> Epoch:
        if epoch < row.floor:
            raise StaleEpochError(f"{self.name}: session {row.id}: epoch {epoch} is below the floor {row.floor}; a newer driver has it")
        if epoch > row.floor:
            raise InternalError(f"{self.name}: session {row.id}: append at epoch {epoch} above the floor {row.floor}")
        return epoch

    def _checked_row(self, stream: StreamId) -> StreamRow:
        """The cache row, checked against the newest event and the newest driver_started inside this transaction (L3).

        Asked whenever anybody else has committed since this handle's last append to the stream. Until then the row is what that append
        left, after such a check: it is not read again, and what came to stand in its place unnoticed is not believed.
        """
        row = self.reader.stream(stream)
        if row is None:
            raise MisuseError(f"{self.name}: there is no session {stream} in this log; `eventlog show {as_word(self.name)}` lists what is")
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
            raise self._cache_damaged(row)
        if found and found[0][2] == events.SessionMoved.kind:
            raise MovedError(f"{self.name}: session {stream} was moved away by `eventlog export --move`; drive it where it was imported")
        return row

    def _cache_damaged(self, row: StreamRow) -> CorruptError:
        return CorruptError(
            f"{self.name}: stream {row.id}: its cache row (floor {row.floor}, head {row.head_seq}) disagrees with its events; "
            f"{advise_verify(self.name)}"
        )

    def _find_recorded(self, stream: StreamId, prepared: list[Prepared]) -> list[Appended]:
        """What stands in the log of an append that was sent before; empty when nothing of it does. All of it stands in a row, or nothing
        (L7)."""
        for item in prepared:
            if item.is_repeatable or item.kind == _ADMITTED:
                break
        else:
            return []
        found = [self._find_same(stream, item) for item in prepared] if prepared[0].is_repeatable else []
        standing = [appended for appended in found if appended is not None]
        if not standing:
            self._check_admissions(stream, prepared)
            return []
        if [appended.seq for appended in standing] != [standing[0].seq + index for index in range(len(prepared))]:
            raise MisuseError(f"{self.name}: only a part of this append is in the log; send it again as it was first sent")
        return standing

    def _find_same(self, stream: StreamId, item: Prepared) -> Appended | None:
        """Where the event with this id stands, or None. Its hash says whether it is the same one: kind, payload and changes are in it."""
        rows = self.reader.rows("SELECT stream, seq, epoch, prev_hash, hash FROM event WHERE id = ?", (item.id,))
        if not rows:
            return None
        where, seq, epoch, previous, digest = rows[0]
        if not (isinstance(seq, int) and isinstance(epoch, int) and isinstance(previous, bytes) and isinstance(digest, bytes)):
            raise CorruptError(f"{self.name}: event {item.id.hex()} has a column of the wrong type; {advise_verify(self.name)}")
        domain = codec.event_domain(self.log_id, stream)
        kind = item.kind.encode()
        mine = codec.hash_event(domain, Seq(seq), item.id, Epoch(epoch), kind, item.version, item.payload, item.digest, previous)
        if where != stream or digest != mine:
            raise MisuseError(f"{self.name}: event id {item.id.hex()} stands for another event; an id belongs to one event for ever")
        return Appended(Seq(seq), item.id, digest)

    def _check_admissions(self, stream: StreamId, prepared: list[Prepared]) -> None:
        requests = [self._decode_admitted(item).request_id for item in prepared if item.kind == events.InputAdmitted.kind]
        if len(set(requests)) != len(requests):
            raise MisuseError(f"{self.name}: session {stream}: one append admits one request twice; send it once")
        for request_id in requests:
            self._check_admission(stream, request_id)

    def _check_admission(self, stream: StreamId, request_id: str) -> None:
        """Raise _AlreadyAdmittedError when a request stands in the stream."""
        sql = (
            "SELECT seq, id, hash, CAST(payload AS BLOB), version FROM event"
            " WHERE stream = ? AND kind = 'input_admitted' AND json_extract(payload, '$.request_id') = ?"
        )
        rows = self.reader.rows(sql, (stream, request_id))
        if not rows:
            return
        seq, event_id, digest, stored, version = rows[0]
        if not (isinstance(seq, int) and isinstance(event_id, bytes) and isinstance(digest, bytes)) or not (
            isinstance(version, int) and isinstance(stored, bytes)
        ):
            raise CorruptError(f"{self.name}: stream {stream}: an admitted input has a column of the wrong type")
        before = events.decode(events.InputAdmitted.kind, version, stored, f"{self.name}: stream {stream} seq {seq}")
        if not isinstance(before, events.InputAdmitted):
            raise InternalError(f"{self.name}: an admitted input decodes to {before.kind}")
        raise _AlreadyAdmittedError(Appended(Seq(seq), event_id, digest), request_id, before.input)

    def _decode_admitted(self, item: Prepared) -> events.InputAdmitted:
        """An admitted input as it will be read: redacted, and as JSON has it."""
        event = events.decode(item.kind, item.version, item.payload, self.name)
        if not isinstance(event, events.InputAdmitted):
            raise InternalError(f"{self.name}: an admitted input decodes to {event.kind}")
        return event

    def _insert_blobs(self, blobs: tuple[codec.Blob, ...]) -> None:
        rows = [(blob.content, blob.codec, blob.size, blob.data) for blob in blobs]
        self._many("INSERT INTO blob (hash, codec, size, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING", rows)
        for blob in blobs:
            if blob.codec == "chunks":
                self._check_chunks(blob)

    def _check_chunks(self, blob: codec.Blob) -> None:
        """A list of chunks comes in only while all of them are there: those that went ahead of it may have been given up meanwhile."""
        for chunk in codec.decode_chunk_list(blob):
            if not self.reader.has_blob(chunk):
                raise self._gone(chunk)

    def _check_contents(self, stream: StreamId, prepared: list[Prepared], appended: list[Appended], blobs: tuple[codec.Blob, ...]) -> None:
        """An event comes in only while the log holds every content it names. Whoever prepared it saw them there, or put them there, in
        an earlier transaction, and compaction may have given them up since: only under this lock the answer stays true. `blobs` are those
        that this transaction has put in."""
        put_in = {blob.content for blob in blobs}
        for item, place in zip(prepared, appended, strict=True):
            if not item.changes and item.output is None:
                continue
            missing = []
            for change in item.changes:
                if change.entry is not None and change.entry.content is not None and change.entry.content not in put_in:
                    missing = self.reader.rows(_MISSING_CONTENT, (stream, place.seq))
                    break
            if not missing and item.output is not None and not self.reader.has_blob(item.output):
                missing = [(item.output,)]
            if missing:
                raise self._gone(missing[0][0])

    def _gone(self, content: object) -> ContentGoneError:
        name = content.hex() if isinstance(content, bytes) else repr(content)
        return ContentGoneError(
            f"{self.name}: the content {name} that this append needs is not in the log (compaction may have given it up since it was "
            "looked for); nothing was recorded; send it again with its contents"
        )

    def _insert_events(self, row: StreamRow, epoch: Epoch, prepared: list[Prepared]) -> list[Appended]:
        seq, previous, floor, appended = row.head_seq, row.head_hash, row.floor, []
        domain = self._domains.get(row.id)
        if domain is None:
            domain = self._domains[row.id] = codec.event_domain(self.log_id, row.id)
        for item in prepared:
            seq = Seq(seq + 1)
            if epoch != floor or seq == 1 or item.kind in events.PLACED_KINDS:
                misplaced = events.find_misplacement(item.kind, seq, epoch, floor)
                if misplaced:
                    raise InternalError(f"{self.name}: session {row.id} seq {seq}: {misplaced}")
            digest = codec.hash_event(domain, seq, item.id, epoch, item.kind.encode(), item.version, item.payload, item.digest, previous)
            values = (row.id, seq, item.id, epoch, item.kind, item.version, item.payload.decode(), previous, digest)
            advance = (seq, digest, epoch, row.id, previous, floor)
            self._run(_INSERT_AND_ADVANCE, values + advance)
            if self._handle.changes() != 1:
                raise self._cache_damaged(row)
            if item.changes:
                self._many(_INSERT_CHANGE, [(row.id, seq, index, *change_to_row(change)) for index, change in enumerate(item.changes)])
            appended.append(Appended(seq, item.id, digest))
            previous, floor = digest, epoch
        return appended

_ADMITTED, _MOVED = events.InputAdmitted.kind, events.SessionMoved.kind
_id_of = operator.attrgetter("id")
_INSERT_EVENT = "INSERT INTO event (stream, seq, id, epoch, kind, version, payload, prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADVANCE = "UPDATE stream SET head_seq = ?, head_hash = ?, floor = ? WHERE id = ? AND head_hash = ? AND floor = ?"
_INSERT_AND_ADVANCE = f"{_INSERT_EVENT}; {_ADVANCE}"
_INSERT_CHANGE = f"INSERT INTO image_change (stream, seq, idx, {COLUMNS}) VALUES ({', '.join('?' * 16)})"


_MISSING_CONTENT = (
    "SELECT content FROM image_change WHERE stream = ? AND seq = ? AND content IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM blob WHERE hash = content)"
    " AND NOT EXISTS (SELECT 1 FROM dropped WHERE hash = content AND reason IN ('lost', 'checkpointed')) LIMIT 1"
)


_MISSING_IMPORTED = (
    "SELECT content FROM image_change WHERE stream = ? AND content IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM blob WHERE hash = content) AND NOT EXISTS (SELECT 1 FROM dropped WHERE hash = content) LIMIT 1"
)
_MISSING_OUTPUT = (
    "SELECT output FROM"
    " (SELECT unhex(json_extract(payload, '$.output.blob')) AS output FROM event WHERE stream = ? AND kind = 'call_settled')"
    " WHERE output IS NOT NULL AND NOT EXISTS (SELECT 1 FROM blob WHERE hash = output)"
    " AND NOT EXISTS (SELECT 1 FROM dropped WHERE hash = output) LIMIT 1"
)


def _as_json(given: dict[str, Any]) -> str:
    """One text for one JSON value, whatever the order of its keys; 1, 1.0 and true are three values."""
    return json.dumps(given, sort_keys=True)
