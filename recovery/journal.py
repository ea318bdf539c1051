"""The session's log as its driver uses it: append under the driver's epoch, and the state folded from what stands."""

from collections.abc import Iterable, Iterator, Sequence

from eventlog import codec, events
from eventlog.connection import WAL_BYTES
from eventlog.errors import HeadMovedError, MisuseError, NeedsPersonError
from eventlog.ports import Clock
from eventlog.reader import Reader, StoredEvent
from eventlog.records import Appended, Dropped, Record
from eventlog.show import show_text
from eventlog.values import Epoch, Seq, StreamId
from eventlog.wal import wal_bytes
from eventlog.writer import Writer
from recovery.state import SessionState, fold_event, fold_stream

Known = tuple[SessionState, list[str]]
"""A session's verified, folded state, and the hash (hex) of every event by seq - 1."""


def read_state(reader: Reader, stream: StreamId) -> Known:
    """The verified, folded state of a session, and its hashes. Raises CorruptError, MisuseError."""
    if reader.stream(stream) is None:
        known = ", ".join(row.id for row in reader.streams())
        raise MisuseError(
            f"{reader.name}: holds session {known}, not {show_text(stream)}; name another state directory in the session file"
        )
    hashes: list[str] = []

    def noted() -> Iterator[StoredEvent]:
        # Folded as they come: a long history is never held whole.
        for stored in reader.events(stream):
            hashes.append(stored.hash.hex())
            yield stored

    return fold_stream(noted(), f"{reader.name}: session {stream}"), hashes


def only_stream(reader: Reader) -> StreamId:
    """The id of the one session that a state directory's log was made for: forks and imported streams beside it are kept, not driven."""
    streams = [row for row in reader.streams() if row.parent is None and row.origin is None]
    if not streams:
        raise NeedsPersonError(
            f"{reader.name}: holds only sessions that were forked, imported or salvaged, which this version keeps and does not drive; "
            "`eventlog show` and `eventlog checkout` give their history and files"
        )
    if len(streams) != 1:
        raise MisuseError(f"{reader.name}: holds {len(streams)} sessions, a state directory has one; name its own state directory")
    return streams[0].id


class Journal:
    """One driver's log handle, its epoch, and the fold. Every append is fenced; what it returns stands on disk."""

    def __init__(self, writer: Writer, stream: StreamId, epoch: Epoch, known: Known | None = None) -> None:
        """`known` is what this process has just read and verified: it is taken as it is while the log's head is still the same event."""
        self._writer = writer
        self.stream = stream
        self.epoch = epoch
        is_current = known is not None and self._is_head(known[0])
        self.state, self.hashes = known if known is not None and is_current else read_state(writer.reader, stream)

    def _is_head(self, state: SessionState) -> bool:
        """Whether a state was read up to the log's present head: its hash stands for all events before it."""
        row = self.reader.stream(self.stream)
        return row is not None and (row.head_seq, row.head_hash.hex(), row.floor) == (state.head_seq, state.head_hash, state.floor)

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
        """One fenced commit."""
        appended = self._writer.append(self.stream, self.epoch, records, blobs, purpose)
        for place, record in zip(appended, records, strict=True):
            self._fold(place, record)
        return appended

    def insert_blobs(self, blobs: Iterable[codec.Blob]) -> None:
        """Blobs ahead of the commit that names them."""
        self._writer.insert_blobs(blobs)

    def note_checkpointed(self, contents: Iterable[Dropped]) -> None:
        """Put contents on record that the log will name and a checkpoint holds, ahead of the commit that names them."""
        self._writer.record_dropped(contents)

    def _fold(self, place: Appended, record: Record) -> None:
        if place.seq != self.state.head_seq + 1:
            # Somebody appended in between (a note): the fold is made anew from what stands.
            self.state, self.hashes = read_state(self._writer.reader, self.stream)
            return
        stored = StoredEvent(Seq(place.seq), place.id, self.epoch, place.hash, record.event, record.changes)
        self.state = fold_event(self.state, stored, f"{self.reader.name}: session {self.stream}")
        self.hashes.append(place.hash.hex())

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
