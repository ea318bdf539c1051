"""Following a log: each committed event once and in order, as it comes, by at most one poll in POLL_SECS.

Ordering invariants. A poll looks whether the files held are those at the path (L5), then asks `PRAGMA data_version`, which is one short
read and changes when another connection has committed; only then events are read, in short transactions (case 18): a follower blocks no
writer and pins no WAL. The version is taken before the events are read, so that a commit in between is met by the next poll. Each
stream goes on from the seq and hash it has come to: nothing is skipped, repeated or read from another history.

When the files were exchanged (a person put a copy there), the log at the path is opened and followed on if it is the same log and holds the
event that was seen last, else the follower ends with ReplacedError. A log that is gone is LogMissingError. Neither is ever silence.
"""

import math
from collections.abc import Callable, Iterator

import msgspec

from eventlog import events
from eventlog.errors import CorruptError, MisuseError, ReplacedError
from eventlog.held_files import HeldFiles, look_at_files, resolve_log
from eventlog.ports import Clock
from eventlog.reader import BEGINNING, Position, Reader, StoredEvent, StreamRow
from eventlog.show import show_text
from eventlog.values import Epoch, Seq, StreamId

POLL_SECS = 0.1
"""The least time between two polls."""
OPENINGS = 5

END_KINDS = (events.SessionFinished.kind, events.SessionFailed.kind, events.SessionMoved.kind)
"""What ends a session for who follows it. Notes may still come after it."""


class Followed(msgspec.Struct, frozen=True):
    """An event of a stream; when it was seen (Unix milliseconds), and whether it was committed after the first look."""

    stream: StreamId
    stored: StoredEvent
    seen_ms: int
    is_new: bool


def never() -> bool:
    """The stop condition of who follows until interrupted."""
    return False


class Follower:
    """Follows a log from its beginning, or from where `begin_after` puts it. It has a handle of its own; not to be used after a fork."""

    def __init__(self, path: str, clock: Clock, stream: StreamId | None = None) -> None:
        """Open a log to follow one stream, or all of them. Raises LogMissingError, CorruptError, BusyError, MisuseError."""
        self._clock = clock
        self._path = path = resolve_log(path)
        self._stream = stream
        self._positions: dict[StreamId, Position] = {}
        self._ended: set[StreamId] = set()
        self._version: object = None
        self._next_poll = clock.monotonic()
        self.polls = 0
        self._reader, self._held = _open_held(path, clock)
        if stream is not None and self._reader.stream(stream) is None:
            known = ", ".join(show_text(row.id) for row in self._reader.streams())
            error = MisuseError(f"{self._reader.name}: there is no session {show_text(stream)} in this log; it holds {known}")
            self._reader.close()
            raise error

    def close(self) -> None:
        self._reader.close()

    def begin_after(self, seq: Seq) -> None:
        """Follow what comes after event `seq` of the one stream that is followed (0: all). Raises MisuseError when it is not there yet."""
        if self._stream is None:
            raise MisuseError(f"{self._reader.name}: a seq is a place in one session; name the session")
        self._begin(self._stream, seq)

    def begin_at_heads(self) -> None:
        """Follow only what comes from now on."""
        for row in self._rows():
            self._begin(row.id, row.head_seq)

    def _begin(self, stream: StreamId, seq: Seq) -> None:
        if seq == 0:
            self._positions[stream] = BEGINNING
            return
        found = self._reader.rows("SELECT hash, epoch FROM event WHERE stream = ? AND seq = ?", (stream, seq))
        if not found:
            head = max(row.head_seq for row in self._rows())
            raise MisuseError(f"{self._reader.name}: session {show_text(stream)} has no event {seq} yet; its head is {head}")
        digest, epoch = found[0]
        if isinstance(digest, bytes) and isinstance(epoch, int):  # else the events that follow are found damaged
            self._positions[stream] = Position(seq, digest, Epoch(epoch))
        kinds = ", ".join("?" * len(END_KINDS))
        if self._reader.rows(f"SELECT 1 FROM event WHERE stream = ? AND seq <= ? AND kind IN ({kinds}) LIMIT 1", (stream, seq, *END_KINDS)):
            self._ended.add(stream)

    def follow(
        self, stop: Callable[[], bool] = never, *, deadline: float = math.inf, until_end: bool = False
    ) -> Iterator[Followed]:
        """Yield each event, waiting for more, until `stop` says so, or `deadline` (of the clock's `monotonic`) has passed; with `until_end`
        also once every session followed has ended.

        What was committed before the end of following is still yielded. Between polls it waits by the clock, never less than POLL_SECS
        from one to the next. Raises ReplacedError, LogMissingError, CorruptError, BusyError.
        """
        is_new = False
        while True:
            self._wait_for_turn()
            is_last = stop() or self._clock.monotonic() >= deadline  # asked before the poll: what stands by then is seen
            yield from self._poll(is_new=is_new)
            if is_last or (until_end and self._has_ended()):
                return
            is_new = True

    def _wait_for_turn(self) -> None:
        while (left := self._next_poll - self._clock.monotonic()) > 0:
            self._clock.pause(left)
        self._next_poll = self._clock.monotonic() + POLL_SECS

    def _poll(self, *, is_new: bool) -> Iterator[Followed]:
        self.polls += 1
        if look_at_files(self._path) != self._held:
            self._reopen()
        try:
            yield from self._read(is_new=is_new)
        except CorruptError:
            if look_at_files(self._path) == self._held:
                raise
            # The files were exchanged while we read: what we held belonged together no more. No event of that was yielded: its hash
            # would have had to follow from the one before.
            self._reopen()
            yield from self._read(is_new=is_new)

    def _read(self, *, is_new: bool) -> Iterator[Followed]:
        version = self._reader.rows("PRAGMA data_version")
        if version == self._version:
            return
        for row in self._rows():
            position = self._positions.get(row.id, BEGINNING)
            if (position.seq, position.hash) != (row.head_seq, row.head_hash):
                yield from self._read_stream(row.id, position, is_new=is_new)
        self._version = version  # only now: whoever breaks off above finds the rest at the next poll

    def _read_stream(self, stream: StreamId, position: Position, *, is_new: bool) -> Iterator[Followed]:
        for stored in self._reader.events(stream, position):
            self._positions[stream] = Position(stored.seq, stored.hash, stored.epoch)
            if stored.event.kind in END_KINDS:
                self._ended.add(stream)
            yield Followed(stream, stored, self._clock.now_ms(), is_new)

    def _rows(self) -> list[StreamRow]:
        return [row for row in self._reader.streams() if self._stream in (None, row.id)]

    def _has_ended(self) -> bool:
        """An imported stream takes no more: it has ended whatever its last event is. A fork that no driver has begun is waited for only
        when it is the one that was named."""
        return all(row.id in self._ended or row.origin is not None or self._is_idle_fork(row) for row in self._rows())

    def _is_idle_fork(self, row: StreamRow) -> bool:
        return self._stream is None and row.parent is not None and row.floor == 0

    def _reopen(self) -> None:
        """Go on in the log that is at the path now, if it continues this one."""
        before, name = self._reader.log_id, self._reader.name
        self._reader.close()
        self._reader, self._held = _open_held(self._path, self._clock)
        self._version = None
        if self._reader.log_id != before or not all(self._holds(stream, place) for stream, place in self._positions.items()):
            raise ReplacedError(f"{name}: another log is at this path now, without the events that were seen here; stop what put it there")

    def _holds(self, stream: StreamId, place: Position) -> bool:
        if place == BEGINNING:
            return self._reader.stream(stream) is not None
        return self._reader.rows("SELECT hash FROM event WHERE stream = ? AND seq = ?", (stream, place.seq)) == [(place.hash,)]


def _open_held(path: str, clock: Clock) -> tuple[Reader, HeldFiles]:
    """A reader, and the files it holds."""
    for _ in range(OPENINGS):
        reader = Reader.open(path, clock)
        try:
            held = look_at_files(path)
            if not reader.has_moved():  # else they were exchanged between the two lines above
                return reader, held
        except BaseException:
            reader.close()
            raise
        reader.close()
    raise ReplacedError(f"{show_text(path)}: the files are exchanged again and again; stop what does it")
