"""Loading a log: copy `log.sqlite` and its WAL, open the copy only, read every row into values.

The newest commits of a killed driver stand only in the WAL, so it is copied too; the `-shm` is not, SQLite builds it anew. The
originals are never opened through SQLite: that would recover, checkpoint and change the evidence.

Malformed rows are left out and become defects. A stream that lost rows so is not `complete`; only the chain oracle judges it.
"""

import contextlib
import os
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from . import rows
from .blobs import Blob, BlobShelf
from .image import fold_events
from .refusals import accepted_statements
from .values import Change, Defect, Event, Stream

COPY_NAME = "log.sqlite"
APPLICATION_ID = 0x43574C31
PRAGMAS: Mapping[str, object] = {
    "application_id": APPLICATION_ID,
    "page_size": 16384,
    "journal_mode": b"wal",
    "integrity_check": b"ok",
}
FORMATS = (2, 3)
"""The formats that a writer of today leaves: format 3 differs from 2 in where SQLite keeps the rows, and in no row."""
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Log:
    """A loaded log. `defects` are those found while reading; what follows from the rows themselves is the chain oracle's."""

    log_id: str
    streams: Mapping[str, Stream]
    blobs: BlobShelf
    defects: tuple[Defect, ...]


def load_log(path: str, scratch: str) -> Log:
    """Load the log at `path` by way of a copy in `scratch`, which is empty again afterwards. A log that is missing or no database
    gives a Log without streams and with a defect. Raises OSError when the file cannot be read."""
    try:
        copy = copy_log(path, scratch)
    except FileNotFoundError:
        return empty_log(f"there is no log at {path}")
    try:
        return read_copy(copy)
    except sqlite3.Error as error:
        return empty_log(f"the log cannot be read: {error}")
    finally:
        remove_copy(scratch)


def read_head(path: str, scratch: str, stream: str) -> int:
    """The seq of the newest event of a stream, by way of a copy; 0 when there is no such log or stream. Raises OSError, also for a log
    that is none."""
    return max((seq for seq, _ in read_kinds(path, scratch, stream)), default=0)


def read_kinds(path: str, scratch: str, stream: str) -> list[tuple[int, str]]:
    """Seq and kind of each event of a stream, in order, by way of a copy; none when there is no such log or stream. Raises OSError, also
    for a log that is none. Nothing is verified."""
    try:
        connection = sqlite3.connect(copy_log(path, scratch), isolation_level=None)
    except FileNotFoundError:
        return []
    try:
        with contextlib.closing(connection):
            rows = connection.execute("SELECT seq, kind FROM event WHERE stream = ? ORDER BY seq", (stream,))
            return [(int(seq), str(kind)) for seq, kind in rows]
    except (sqlite3.Error, ValueError) as error:
        raise OSError(f"the log cannot be read: {error}") from error
    finally:
        remove_copy(scratch)


def empty_log(reason: str) -> Log:
    """What stands for a log that has nothing to judge."""
    return Log("", {}, BlobShelf({}), (Defect(None, None, reason),))


def copy_log(path: str, scratch: str) -> str:
    """Copy the file and its WAL, if it has one; returns the path of the copy."""
    copy = os.path.join(scratch, COPY_NAME)
    shutil.copyfile(path, copy)
    if os.path.exists(path + "-wal"):
        shutil.copyfile(path + "-wal", copy + "-wal")
    return copy


def remove_copy(scratch: str) -> None:
    """Remove the copy and what SQLite put beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            os.unlink(os.path.join(scratch, COPY_NAME + suffix))
        except FileNotFoundError:
            pass  # not every log has every side file


def read_copy(copy: str) -> Log:
    """Open the copy and read it all. Raises sqlite3.Error."""
    connection = sqlite3.connect(copy, isolation_level=None)
    try:
        connection.text_factory = rows.Text
        connection.execute("PRAGMA synchronous = OFF")  # the copy is thrown away
        return Reader(connection).read()
    finally:
        connection.close()


class Reader:
    """Reads one open copy. Defects gather in `defects`, seqs of left-out rows in `broken`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.defects: list[Defect] = []
        self.broken: dict[str, int] = {}

    def read(self) -> Log:
        """The whole log."""
        self._check_header()
        log_id = self._read_meta()
        changes = self._read_changes()
        events = self._read_events(changes)
        self.defects += [
            Defect(stream, seq, "image changes belong to no event") for stream, seq in changes if seq not in events.get(stream, {})
        ]
        streams = self._read_streams(events)
        blobs = self._read_blobs()
        self.defects += [Defect(None, None, complaint) for complaint in accepted_statements(self.connection)]
        return Log(log_id, streams, BlobShelf(blobs, self._read_given_up()), tuple(self.defects))

    def _complain(self, stream: str | None, seq: int | None, problem: str) -> None:
        self.defects.append(Defect(stream, seq, problem))

    def _check_header(self) -> None:
        for name, wanted in PRAGMAS.items():
            found = self.connection.execute(f"PRAGMA {name}").fetchone()
            if found is None or found[0] != wanted:
                self._complain(None, None, f"{name} is {found and found[0]!r:.200}, not {wanted!r}")

    def _read_meta(self) -> str:
        values = {bytes(key): value for key, value in self.connection.execute("SELECT key, value FROM meta") if isinstance(key, bytes)}
        stated, header = values.get(b"format"), self.connection.execute("PRAGMA user_version").fetchone()[0]
        if header not in FORMATS or stated != b"%d" % header:
            self._complain(None, None, f"format is {stated!r} in meta and {header} in the header, not one of {FORMATS} in both")
        log_id = values.get(b"log_id")
        if not isinstance(log_id, bytes) or len(log_id) != 32 or log_id.strip(b"0123456789abcdef"):
            self._complain(None, None, f"log_id is {log_id!r:.80}, not 32 lower-case hex digits")
            return ""
        return log_id.decode()

    def _place(self, row: rows.Row, table: str) -> Place | None:
        """Where a row of `event` or `image_change` belongs; None (and a defect) when it does not say."""
        try:
            return rows.text(row[0], "stream"), rows.integer(row[1], "seq", 1)
        except rows.Malformed as problem:
            self._complain(None, None, f"{table}: {problem}")
            return None

    def _break(self, place: Place, problem: str) -> None:
        stream, seq = place
        self._complain(stream, seq, problem)
        self.broken[stream] = min(seq, self.broken.get(stream, seq))

    def _read_changes(self) -> dict[Place, tuple[Change, ...]]:
        gathered: defaultdict[Place, list[Change]] = defaultdict(list)
        for row in self.connection.execute(f"SELECT {rows.CHANGE_COLUMNS} FROM image_change ORDER BY stream, seq, idx"):
            place = self._place(row, "image_change")
            if place is not None:
                self._read_change(place, row, gathered[place])
        return {place: tuple(changes) for place, changes in gathered.items()}

    def _read_change(self, place: Place, row: rows.Row, before: list[Change]) -> None:
        try:
            idx = rows.integer(row[2], "idx")
            change = rows.read_change(row)
        except rows.Malformed as problem:
            self._break(place, f"image_change: {problem}")
            return
        if idx != len(before):
            self._break(place, f"image_change has idx {idx} where {len(before)} must be")
        before.append(change)

    def _read_events(self, changes: Mapping[Place, tuple[Change, ...]]) -> dict[str, dict[int, Event | None]]:
        events: defaultdict[str, dict[int, Event | None]] = defaultdict(dict)
        for row in self.connection.execute(f"SELECT {rows.EVENT_COLUMNS} FROM event ORDER BY stream, seq"):
            place = self._place(row, "event")
            if place is not None:
                events[place[0]][place[1]] = self._read_event(place, row, changes.get(place, ()))
        return events

    def _read_event(self, place: Place, row: rows.Row, changes: tuple[Change, ...]) -> Event | None:
        try:
            return rows.read_event(row, changes)
        except rows.Malformed as problem:
            self._break(place, str(problem))
            return None

    def _read_streams(self, events: Mapping[str, dict[int, Event | None]]) -> dict[str, Stream]:
        streams: dict[str, Stream] = {}
        for row in self.connection.execute(f"SELECT {rows.STREAM_COLUMNS} FROM stream"):
            try:
                header = rows.read_stream(row)
            except rows.Malformed as problem:
                self._complain(None, None, f"stream: {problem}")
                continue
            streams[header.id] = self._assemble(header, events.get(header.id, {}))
        self.defects += [Defect(name, None, "events of a stream that is not in the stream table") for name in events if name not in streams]
        return streams

    def _assemble(self, header: rows.StreamRow, events: dict[int, Event | None]) -> Stream:
        """The stream with its events up to the first gap or malformed row."""
        run: list[Event] = []
        limit = self.broken.get(header.id, rows.LARGEST)
        while (event := events.get(len(run) + 1)) is not None and event.seq < limit:
            run.append(event)
        if len(run) != len(events):
            self._complain(header.id, len(run) + 1, f"of {len(events)} events the first {len(run)} are whole and without a gap")
        prefix = tuple(run)
        return Stream(
            header.id, header.floor, header.head_seq, header.head_hash, prefix, fold_events(prefix), len(run) == len(events)
        )

    def _read_given_up(self) -> frozenset[bytes]:
        if not self.connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'dropped'").fetchall():
            return frozenset()  # format 1
        found = self.connection.execute("SELECT hash FROM dropped").fetchall()
        return frozenset(name for (name,) in found if isinstance(name, bytes))

    def _read_blobs(self) -> dict[bytes, Blob]:
        blobs: dict[bytes, Blob] = {}
        for row in self.connection.execute(f"SELECT {rows.BLOB_COLUMNS} FROM blob"):
            try:
                name, blob = rows.read_blob(row)
            except rows.Malformed as problem:
                self._complain(None, None, f"blob: {problem}")
                continue
            blobs[name] = blob
        return blobs
