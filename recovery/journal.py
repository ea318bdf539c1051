"""The session's log as its driver uses it: append under the driver's epoch, and the state folded from what stands."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eventlog import codec, events
from eventlog.connection import WAL_BYTES
from eventlog.errors import CorruptError, HeadMovedError, InternalError, MisuseError, NeedsPersonError
from eventlog.ports import Clock
from eventlog.reader import BEGINNING, Position, Reader, StoredEvent
from eventlog.records import Admitted, Appended, Dropped, Record
from eventlog.show import as_word, show_text
from eventlog.values import Epoch, Seq, StreamId
from eventlog.wal import wal_bytes
from eventlog.writer import Writer
from recovery.fold_cache import FoldCache, Known
from recovery.state import SessionState, fold_event, fold_further, fold_stream, replace


def read_state(reader: Reader, stream: StreamId, *, is_placed: bool = True, cache: FoldCache | None = None) -> Known:
    """The verified, folded state of a session, and its hashes; without `is_placed` also of a fork that has no workspace yet. `cache` is
    begun with where it fits the log.

    Raises CorruptError, MisuseError, NeedsPersonError."""
    if reader.stream(stream) is None:
        known = ", ".join(row.id for row in reader.streams())
        raise MisuseError(
            f"{reader.name}: holds session {known}, not {show_text(stream)}; name another state directory in the session file"
        )
    kept = cache.load(reader, stream) if cache is not None else None
    where = f"{reader.name}: session {stream}"
    if kept is None:
        hashes: list[str] = []
        state = fold_stream(_note_each(reader, stream, BEGINNING, hashes, cache), where)
    else:
        before, hashes = kept
        position = Position(Seq(before.head_seq), bytes.fromhex(before.head_hash), Epoch(before.floor))
        state = fold_further(before, _note_each(reader, stream, position, hashes, cache), where)
    if is_placed and not state.is_placed:
        raise NeedsPersonError(
            f"{reader.name}: session {stream} was forked or imported and has no workspace yet; "
            f"`recovery place {as_word(os.path.dirname(reader.name) or '.')} --workspace DIR` gives it one"
        )
    return state, hashes


def _note_each(reader: Reader, stream: StreamId, after: Position, hashes: list[str], cache: FoldCache | None) -> Iterator[StoredEvent]:
    """The events after a position, to be folded as they come: a long history is never held whole."""
    for stored in reader.events(stream, after):
        hashes.append(stored.hash.hex())
        if cache is not None:
            cache.follow(reader, stored, stream)
        yield stored


def is_head(reader: Reader, stream: StreamId, state: SessionState) -> bool:
    """Whether a state was read up to the log's present head: its hash stands for all events before it."""
    row = reader.stream(stream)
    return row is not None and (row.head_seq, row.head_hash.hex(), row.floor) == (state.head_seq, state.head_hash, state.floor)


def only_stream(reader: Reader) -> StreamId:
    """The id of the one session that a state directory's log was made for: one that was opened here, or that goes on from an imported one.
    Forks of it and imported streams beside it are kept, not driven."""
    rows = {row.id: row for row in reader.streams()}
    streams = [row for row in rows.values() if row.origin is None and (row.parent is None or rows[row.parent].origin)]
    if not streams:
        raise NeedsPersonError(
            f"{reader.name}: holds no session that could be driven; `eventlog show` and `eventlog checkout` give histories and files"
        )
    if len(streams) != 1:
        raise MisuseError(f"{reader.name}: holds {len(streams)} sessions, a state directory has one; name its own state directory")
    return streams[0].id


class Journal:
    """One driver's log handle, its epoch, and the fold. Every append is fenced; what it returns stands on disk."""

    def __init__(
        self, writer: Writer, stream: StreamId, epoch: Epoch, known: Known | None = None, cache: FoldCache | None = None
    ) -> None:
        """`known` is what this process has just read and verified: it is taken as it is while the log's head is still the same event. The
        fold is kept in `cache` from time to time."""
        self._writer = writer
        self._cache = cache
        self.stream = stream
        self.epoch = epoch
        is_current = known is not None and is_head(self.reader, stream, known[0])
        self.state, self.hashes = known if known is not None and is_current else read_state(writer.reader, stream)

    @property
    def reader(self) -> Reader:
        return self._writer.reader

    @property
    def log_id(self) -> str:
        return self._writer.log_id

    def raise_floor(self, started: events.DriverStarted) -> bool:
        """The driver's first write (T1); False, and nothing written, when the session has finished meanwhile: nothing follows its end.

        Raises StaleEpochError, EpochTakenError.
        """
        while not self.state.is_finished:
            try:
                appended = self._writer.raise_floor(self.stream, self.epoch, started, Seq(self.state.head_seq))
            except HeadMovedError:
                self.state, self.hashes = read_state(self._writer.reader, self.stream)
                continue
            self._fold(appended, Record(started))
            return True
        return False

    def append(self, records: Sequence[Record], blobs: Iterable[codec.Blob], purpose: str) -> list[Appended]:
        """One fenced commit. Raises InternalError, and nothing is written, where the log could not be read with these events in it."""
        expected = self._fold_ahead(records)
        appended = self._writer.append(self.stream, self.epoch, records, blobs, purpose)
        if [place.seq for place in appended] == list(range(self.state.head_seq + 1, expected.head_seq + 1)):
            self.hashes += [place.hash.hex() for place in appended]
            self.state = replace(expected, head_hash=self.hashes[-1])
        else:
            self._catch_up()  # somebody appended in between (a note), or the log had these events already
        if self._cache is not None:
            self._cache.offer(self.reader, self.stream, self.state)
        return appended

    def _fold_ahead(self, records: Sequence[Record]) -> SessionState:
        """The state as it will be with `records` behind the head, but for the hash of the head."""
        state, where = self.state, f"{self.reader.name}: session {self.stream}"
        for seq, record in enumerate(records, state.head_seq + 1):
            stored = StoredEvent(Seq(seq), bytes(16), self.epoch, bytes(32), record.event, record.changes)
            try:
                state = fold_event(state, stored, where)
            except CorruptError as error:
                raise InternalError(f"nothing is written: {error}") from error
        return state

    def admit(self, request_id: str, given: dict[str, Any], at_ms: int) -> Admitted:
        """Take an input in, once for each request id. Raises StaleEpochError, MisuseError for another input under a known id."""
        self.check_fence()
        admitted = self._writer.admit(self.stream, request_id, given, at_ms)
        if admitted.is_new:
            written = events.encode(events.InputAdmitted(at_ms, request_id, given))  # as whoever reads the log has it: a tuple is a list
            read = events.decode(events.InputAdmitted.kind, events.InputAdmitted.version, written, "an input")
            self._fold(admitted.appended, Record(read))
        return admitted

    def insert_blobs(self, blobs: Iterable[codec.Blob]) -> None:
        """Blobs ahead of the commit that names them."""
        self._writer.insert_blobs(blobs)

    def note_checkpointed(self, contents: Iterable[Dropped]) -> None:
        """Put contents on record that the log will name and a checkpoint holds, ahead of the commit that names them."""
        self._writer.record_dropped(contents)

    def _fold(self, place: Appended, record: Record) -> None:
        if place.seq != self.state.head_seq + 1:
            self._catch_up()  # somebody appended in between (a note)
            return
        stored = StoredEvent(Seq(place.seq), place.id, self.epoch, place.hash, record.event, record.changes)
        self.state = fold_event(self.state, stored, f"{self.reader.name}: session {self.stream}")
        self.hashes.append(place.hash.hex())

    def _catch_up(self) -> None:
        """Fold what stands in the log beyond the state."""
        where = f"{self.reader.name}: session {self.stream}"
        position = Position(Seq(self.state.head_seq), bytes.fromhex(self.state.head_hash), Epoch(self.state.floor))
        for stored in self.reader.events(self.stream, position):
            self.state = fold_event(self.state, stored, where)
            self.hashes.append(stored.hash.hex())

    def refresh(self) -> None:
        """Take in what others have appended meanwhile: notes, inputs, what is asked for, answers. Raises StaleEpochError."""
        if not is_head(self.reader, self.stream, self.state):
            self._catch_up()
            self.check_fence()

    def check_fence(self) -> None:
        """Raise StaleEpochError once a newer epoch holds the floor."""
        self._writer.check_fence(self.stream, self.epoch)

    def tidy(self, clock: Clock) -> None:
        """At a clean end: a WAL beyond its bound (a reader pinned it, a commit was large) is emptied, if nobody needs it now. Within the
        bound it is left alone: that costs nothing, and whoever copies the files takes both anyway."""
        if wal_bytes(self._writer.path) > WAL_BYTES:
            self._writer.tidy(clock)

    def close(self) -> None:
        self._writer.close()
