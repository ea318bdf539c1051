"""What a store of a log is: a place that makes one log and opens it, a handle that writes, a handle that reads.

The contract, whoever keeps it. An append is all or nothing, and it is durable (as far as the store's capabilities go) when it returns.
The epoch is compared with the floor in the very transaction that writes (I5). A handle shows what was committed through any handle, as
of the call. Stored are the bytes that `events.encode` makes, and the hashes of eventlog/README over them: two stores that are given
the same ids and records hold the same bytes. Every value is verified before it is returned (I9).

A handle is used in the process and by the thread that opened it. After `close` each of its other methods raises InternalError and does
nothing; so they do in a forked process, where a store may be used by several.

`eventlog.conformance` is the suite that a store must pass; the SQLite store and the store in memory pass it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from eventlog import codec, events
from eventlog.image import Change, Image
from eventlog.ports import Ids
from eventlog.reader import BEGINNING, Position, StoredEvent, StreamRow
from eventlog.records import Admitted, Appended, Record, Redact
from eventlog.values import ContentId, Epoch, LogId, Seq, StreamId

Capability = Literal["processes", "durable", "sqlite files"]

CAPABILITIES: dict[Capability, str] = {
    "processes": "several processes may have the store open at once",
    "durable": "what an append acknowledged outlives the death of its process",
    "sqlite files": "the log is log.sqlite with SQLite's side files, as eventlog/README has it, directly in the store's directory",
}
"""What a store may declare, and what it promises by that. The suite skips by name what a store does not promise."""


class ReadingHandle(Protocol):
    """Reads one log. Never changes it, never blocks a writer."""

    @property
    def log_id(self) -> LogId:
        """The log's id: 32 lower-case hex digits, random, for ever the same."""
        ...

    def streams(self) -> list[StreamRow]:
        """Every stream, by id."""
        ...

    def stream(self, stream: StreamId) -> StreamRow | None:
        """One stream's head and floor, or None when it is not there."""
        ...

    def floor(self, stream: StreamId) -> Epoch:
        """The epoch of the newest driver_started; 0 when there is none, and for a stream that is not there."""
        ...

    def find(self, event_id: bytes) -> Seq | None:
        """The seq of the event with this id (16 bytes), in whichever stream; None when no event has it (L7)."""
        ...

    def events(self, stream: StreamId, after: Position = BEGINNING) -> Iterator[StoredEvent]:
        """The events that follow `after`, in order without a gap, up to the head of when the iteration began.

        Raises CorruptError when the stream is not there, when the event at `after` is another one, and for damage.
        """
        ...

    def changes(self, stream: StreamId, seq: Seq) -> tuple[Change, ...]:
        """The image changes of one event, in the order in which they were appended; none for an event that is not there."""
        ...

    def image(self, stream: StreamId, upto: Seq) -> Image:
        """The fold of all image changes from seq 1 up to and including `upto`."""
        ...

    def has_blob(self, content: ContentId) -> bool:
        """Whether the log holds this content."""
        ...

    def content(self, content: ContentId) -> Iterator[bytes]:
        """A content in pieces, the whole verified against its name before the iterator ends.

        Raises CorruptError when it is missing or does not hash to its name, CompactedError when it was given up on record.
        """
        ...

    def close(self) -> None:
        """Give the handle back. Nothing that was appended is lost by it."""
        ...


class WritingHandle(Protocol):
    """Writes one log. Several may be open; each append is checked against what all of them have written."""

    @property
    def log_id(self) -> LogId:
        """The log's id."""
        ...

    @property
    def reader(self) -> ReadingHandle:
        """What is committed, seen through this handle; closed with it."""
        ...

    def raise_floor(self, stream: StreamId, epoch: Epoch, started: events.DriverStarted, after: Seq | None = None) -> Appended:
        """Append `started` and make `epoch` the floor; with `after`, only while that is the head (L1, L2).

        Raises StaleEpochError below the floor, EpochTakenError at it, HeadMovedError for another head, and as `append`.
        """
        ...

    def append(
        self, stream: StreamId, epoch: Epoch, records: Sequence[Record], blobs: Iterable[codec.Blob], purpose: str
    ) -> list[Appended]:
        """Append records and insert blobs in one commit, under `epoch`, which must be the floor (I2, I5).

        Records whose ids the log has are not written again; where they stand is the answer. All records of one append have an id, or
        none has. Every content that the events name is in the log already or among `blobs`: else ContentGoneError, and nothing is written.
        Raises StaleEpochError below the floor;
        InternalError above it and for a record that may not stand there; MisuseError for a stream that is not there or was imported, for
        an id that stands for another event, and for a request that was admitted already; MovedError behind session_moved; CorruptError,
        BusyError, FullError, ReplacedError. After each of these nothing was written. UncertainCommitError: everything or nothing was,
        the handle refuses, and a new one finds out by event id (L7).

        `purpose` names the crash points that the append passes: `<purpose>.commit.before`, `.locked`, `.after`.
        """
        ...

    def append_unfenced(self, stream: StreamId, records: Sequence[Record], purpose: str, after: Seq | None = None) -> list[Appended]:
        """Append what any process may (`events.UNFENCED_KINDS`), under the floor found in the same transaction (L2).

        With `after` only while that event is the head: HeadMovedError otherwise. Raises MisuseError for any other kind, and as `append`.
        """
        ...

    def admit(self, stream: StreamId, request_id: str, given: dict[str, Any], at_ms: int) -> Admitted:
        """Take an input in, once for each request id of a stream: sent again, the answer is where it stands.

        Raises MisuseError when the request was admitted with another input, and as `append`.
        """
        ...

    def open_stream(
        self, stream: StreamId, first: Record, purpose: str, parent: StreamId | None = None, forked_at: Seq | None = None
    ) -> Appended:
        """Begin a stream with its first event (session_opened or session_forked, epoch 0), in one commit.

        Raises MisuseError when the stream is there, InternalError for any other first event, and as `append`.
        """
        ...

    def insert_blobs(self, blobs: Iterable[codec.Blob]) -> None:
        """Insert blobs in one commit, ahead of the one that names them. One that is there already is left as it is."""
        ...

    def check_fence(self, stream: StreamId, epoch: Epoch) -> None:
        """Raise StaleEpochError once the floor is above `epoch`."""
        ...

    def close(self) -> None:
        """Give the handle back; what it did not commit was never there."""
        ...


class Store(Protocol):
    """One place that holds one log, or none yet."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this store promises beyond the contract of its handles."""
        ...

    def create(self, stream: StreamId, first: Record, blobs: Iterable[codec.Blob], ids: Ids) -> None:
        """Make the log with its first stream, its first event and these blobs, all or nothing.

        Raises FileExistsError when there is a log, which stays as it is; LogMissingError when there is none but its remains are (L5, L9).
        """
        ...

    def open_writing(self, ids: Ids, redact: Redact | None = None) -> WritingHandle:
        """A handle that writes; `redact` is given every event before it is encoded, hashed or stored.

        Raises LogMissingError when there is no log, and makes none (L9); CorruptError, BusyError, MisuseError.
        """
        ...

    def open_reading(self) -> ReadingHandle:
        """A handle that reads. Raises LogMissingError when there is no log, CorruptError, MisuseError."""
        ...


StoreFactory = Callable[[Path], Store]
"""Makes a store of a directory that belongs to it alone, empty at first. With the capability `processes`, another process that calls
it with the same directory has the same log."""
