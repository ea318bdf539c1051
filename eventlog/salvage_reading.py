"""Reading a log that is damaged: point by point, from private copies, each value proved by the chain before it is believed.

A damaged page makes every query that touches it fail, and no other: so each event and each blob is asked for by itself. What one copy
does not give is asked of the next: the files as they are; their rows in a database with indices of its own; both under a first page
as new logs have it, for when the list of tables is gone; what is found on each page by itself. None can mislead: an event counts only
when its hash fits, a blob only by its name.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar, get_args

import apsw
from blake3 import blake3

from eventlog import codec, connection, events
from eventlog.carving import carve
from eventlog.clustering import cluster
from eventlog.errors import CompactedError, CorruptError, CrashworthyError
from eventlog.integrity import SOUND, ask_integrity
from eventlog.reader import BEGINNING, Origin, Position, Reader, StreamRow, VerbatimEvent
from eventlog.records import Reason
from eventlog.recovered import recover_rows
from eventlog.values import FORMAT, ContentId, LogId, Seq, StreamId

T = TypeVar("T")

_POINT = (
    "SELECT seq, id, epoch, CAST(kind AS BLOB), version, CAST(payload AS BLOB), prev_hash, hash,"
    " typeof(kind) = 'text' AND typeof(payload) = 'text' FROM event WHERE stream = ? AND seq = ?"
)
_TABLES = {"event", "image_change", "blob", "stream", "meta"}


class DamagedReader(Reader):
    """A reader of one private copy. `log_id` is asked of the copy, and given when the copy does not know it any more."""

    def __init__(self, handle: apsw.Connection, path: str, log_id: LogId | None) -> None:
        self._given = log_id
        super().__init__(handle, path)

    @classmethod
    def open_copy(cls, path: str, log_id: LogId | None) -> "DamagedReader":
        """Raises CorruptError when nothing of it can be read."""
        handle = connection.open_damaged(path)
        try:
            found = {str(name) for (name,) in handle.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            if not found >= _TABLES:
                raise CorruptError(f"{path}: the list of tables is not that of a log")
            return cls(handle, path, log_id)
        except apsw.Error as error:
            handle.close()
            raise CorruptError(f"{path}: the list of tables cannot be read ({error})") from error
        except CrashworthyError:
            handle.close()
            raise

    def _read_format(self) -> int:
        try:
            return super()._read_format()
        except CrashworthyError:
            return FORMAT

    def _meta(self, key: str) -> str:
        try:
            return super()._meta(key)
        except CrashworthyError:
            if key == "log_id" and self._given is not None:
                return self._given
            raise

    def verbatim(self, stream: StreamId, origin: Origin, seq: Seq, before: Position) -> VerbatimEvent:
        """One event, its hash checked in its origin's names. Raises CorruptError."""
        found = self.rows(_POINT, (stream, seq))
        if not found:
            raise self._damaged(stream, seq, "missing")
        domain = codec.event_domain(origin.log_id, origin.stream)
        stored = self._checked_event(stream, found[0], seq, before.hash, domain, self.changes(stream, seq))
        misplaced = events.find_misplacement(stored.event.kind, stored.seq, stored.epoch, before.epoch)
        if misplaced:
            raise self._damaged(stream, seq, misplaced)
        return VerbatimEvent(stored, stored.event.kind, int(str(found[0][4])), bytes(found[0][5]))  # type: ignore[call-overload]


class Sources:
    """All copies of one damaged log, the best first."""

    def __init__(self, readers: Sequence[DamagedReader]) -> None:
        self.readers = tuple(readers)
        self.log_id = readers[0].log_id

    def close(self) -> None:
        for reader in self.readers:
            reader.close()

    def first(self, ask: Callable[[DamagedReader], T]) -> T:
        """The answer of the first copy that has one; the first copy's error when none has."""
        errors: list[CrashworthyError] = []
        for reader in self.readers:
            try:
                return ask(reader)
            except (CorruptError, CompactedError) as error:
                errors.append(error)
        raise errors[0]

    def streams(self) -> dict[StreamId, StreamRow | None]:
        """Every session that a row or an event tells of, with its row where that can be read."""
        found: dict[StreamId, StreamRow | None] = {}
        for reader in self.readers:
            with contextlib.suppress(CorruptError):
                found.update({row.id: row for row in reader.streams() if found.get(row.id) is None})
            with contextlib.suppress(CorruptError):
                names = [name for (name,) in reader.rows("SELECT DISTINCT stream FROM event") if isinstance(name, str)]
                found.update({StreamId(name): None for name in names if name not in found})
        return dict(sorted(found.items()))

    def dropped_reason(self, content: ContentId) -> str | None:
        """Why the damaged log had given a content up, by the first copy that can tell; None when none does: a reason that no log knows is
        damage, and tells nothing."""
        for reader in self.readers:
            with contextlib.suppress(CorruptError):
                reason = reader.dropped_reason(content)
                if reason in get_args(Reason):
                    return reason
        return None

    def newest_seq(self, stream: StreamId) -> int:
        """The highest seq that any copy tells of, 0 for none."""
        newest = 0
        for reader in self.readers:
            with contextlib.suppress(CorruptError):
                found = reader.rows("SELECT max(seq) FROM event WHERE stream = ?", (stream,))[0][0]
                newest = max(newest, found if isinstance(found, int) else 0)
        return newest

    def walk(self, stream: StreamId, origin: Origin, upto: int) -> Iterator[VerbatimEvent]:
        """The events of a stream in order up to a seq, each proved. Raises CorruptError at the first that is not."""
        position = BEGINNING
        while position.seq < upto:
            verbatim = self._event(stream, origin, Seq(position.seq + 1), position)
            stored = verbatim.stored
            position = Position(stored.seq, stored.hash, stored.epoch)
            yield verbatim

    def _event(self, stream: StreamId, origin: Origin, seq: Seq, before: Position) -> VerbatimEvent:
        return self.first(lambda reader: reader.verbatim(stream, origin, seq, before))

    def plain(self, name: ContentId) -> codec.Blob:
        """A raw or zstd blob, proved. Raises CorruptError, CompactedError."""

        def ask(reader: DamagedReader) -> codec.Blob:
            blob = reader.blob(name)
            codec.decode_blob(blob)
            return blob

        return self.first(ask)

    def content(self, name: ContentId) -> Iterator[codec.Blob]:
        """The blobs of a content, the one that bears its name last. The whole is proved before the first is handed out.

        Raises CorruptError, CompactedError.
        """
        blob = self.first(lambda reader: self._proved(reader, name))
        if blob.codec == "chunks":
            for chunk in codec.decode_chunk_list(blob):
                yield self.plain(chunk)
        yield blob

    def _proved(self, reader: DamagedReader, name: ContentId) -> codec.Blob:
        blob = reader.blob(name)
        if blob.codec != "chunks":
            codec.decode_blob(blob)
            return blob
        whole, total = blake3(), 0
        for chunk in codec.decode_chunk_list(blob):
            piece = codec.decode_blob(self.plain(chunk))
            whole.update(piece)
            total += len(piece)
        if total != blob.size or whole.digest() != name:
            raise CorruptError(f"blob {name.hex()}: its chunks do not make up its content")
        return blob


def open_sources(copy: str, directory: str, log_id: LogId | None) -> Sources:
    """Every way to read the copied log. `log_id` is what is known of it from elsewhere. Raises CorruptError when there is none."""
    readers: list[DamagedReader] = []
    problems: list[CrashworthyError] = []
    makers: list[Callable[[str, str], str]] = [_plain, _recovered]
    for fresh in _FRESH:
        makers += [partial(_grafted, fresh), partial(_grafted_and_recovered, fresh)]
    makers.append(_carved)
    for make in makers:
        try:
            readers.append(DamagedReader.open_copy(make(copy, directory), log_id))
        except CrashworthyError as error:
            problems.append(error)
        if make is _plain and readers and _is_whole(readers[0]):
            break
    known = [reader for reader in readers if reader.log_id == readers[0].log_id]
    if not known:
        raise problems[0]
    return Sources(known)


def _is_whole(reader: DamagedReader) -> bool:
    try:
        return ask_integrity(reader.rows) == [SOUND]
    except CorruptError:
        return False


def _plain(copy: str, directory: str) -> str:
    return copy


def _recovered(copy: str, directory: str) -> str:
    made = os.path.join(directory, "recovered.sqlite")
    recover_rows(copy, made)
    return made


def _carved(copy: str, directory: str) -> str:
    made = os.path.join(directory, "carved.sqlite")
    carve(copy, made)
    return made


def _make_3(path: str) -> apsw.Connection:
    return connection.create(path)


def _make_2(path: str) -> apsw.Connection:
    return connection.create(path, 2)


def _make_3_of_2(path: str) -> apsw.Connection:
    """As `eventlog compact` leaves a log that began as format 2."""
    handle = connection.create(path, 2)
    handle.pragma("foreign_keys", False)
    handle.execute("BEGIN").fetchall()
    handle.execute("INSERT INTO meta (key, value) VALUES ('format', '2')").fetchall()
    cluster(handle, path)
    handle.execute("COMMIT").fetchall()
    return handle


_FRESH: dict[str, Callable[[str], apsw.Connection]] = {"format-3": _make_3, "format-2": _make_2, "format-3-of-2": _make_3_of_2}
"""New logs, one for each place at which the tables of a log can begin."""


def _grafted(fresh: str, copy: str, directory: str) -> str:
    """The copy under a first page as a new log has it: the tables of logs that were made in one way always begin at the same pages."""
    made = _copy_again(copy, directory, fresh)
    new = os.path.join(directory, f"{fresh}.sqlite")
    handle = _FRESH[fresh](new)
    handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    handle.close()
    with open(new, "rb") as file:
        page = bytearray(file.read(connection.PAGE_BYTES))
    page[32:40] = bytes(8)  # no list of free pages: the old one may be damaged, and nothing is written
    with open(made, "r+b") as file:
        page[28:32] = (os.path.getsize(made) // connection.PAGE_BYTES).to_bytes(4, "big")
        file.write(page)
    return made


def _grafted_and_recovered(fresh: str, copy: str, directory: str) -> str:
    made = os.path.join(directory, f"{fresh}-recovered.sqlite")
    recover_rows(os.path.join(directory, fresh, "log.sqlite"), made)
    return made


def _copy_again(copy: str, directory: str, name: str) -> str:
    place = os.path.join(directory, name)
    os.mkdir(place)
    for suffix in ("", "-wal"):
        if os.path.exists(copy + suffix):
            shutil.copyfile(copy + suffix, os.path.join(place, "log.sqlite" + suffix))
    return os.path.join(place, "log.sqlite")
