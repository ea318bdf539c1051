"""Making a fork: a new stream in the same log that goes on from a point of another one (rule C9).

The parent is read through the verified chain before the log is opened for writing; events are append-only, so that what was read is
still so when the fork's one commit is made. Nothing is copied: the fork's image names the same contents. Steps: `fork.commit.*`.
"""


import msgspec

from eventlog.errors import InternalError, MisuseError, ReplacedError
from eventlog.events import SessionForked
from eventlog.fork import fork_record
from eventlog.history import Point, check_contents, find_point
from eventlog.image import fold_changes
from eventlog.ports import Clock, Ids
from eventlog.reader import Reader, StreamRow
from eventlog.records import Record
from eventlog.show import show_text
from eventlog.streams import choose_stream
from eventlog.values import SESSION_NAME, LogId, Seq, StreamId
from eventlog.writer import Writer


class Forked(msgspec.Struct, frozen=True):
    """A fork: its name, its parent and the event it goes on from, its image's root (hex) and the number of calls it began with."""

    stream: StreamId
    parent: StreamId
    parent_seq: Seq
    root: str
    calls: int


class _Source(msgspec.Struct, frozen=True):
    """What was read of the parent."""

    log_id: LogId
    parent: StreamId
    at: Seq
    hash: str
    event: SessionForked
    record: Record


def fork_session(path: str, session: str | None, point: Point, name: str, *, clock: Clock, ids: Ids) -> Forked:
    """Fork a session of the log at `path` at a point, as the session `name`, whose floor begins at 0.

    Raises MisuseError for a name that is none or is taken and for a point that cannot be forked (naming the nearest ones),
    CompactedError when a content of the image was given up, and what opening and appending raise.
    """
    if not SESSION_NAME.match(name):
        raise MisuseError(f"{show_text(name)!r} is no name of a session; write 1 to 64 letters, digits, '.', '_' or '-'")
    reader = Reader.open(path)
    try:
        source = _read(reader, choose_stream(reader, session), point, name, clock)
        if reader.stream(StreamId(name)) is not None:
            raise MisuseError(f"{reader.name}: there is a session {name} already; choose another name")
    finally:
        reader.close()
    writer = Writer.open(path, ids)
    try:
        _check_same(writer, source)
        writer.open_stream(StreamId(name), source.record, "fork", source.parent, source.at)
    finally:
        writer.close()
    return Forked(StreamId(name), source.parent, source.at, source.event.root, len(source.event.calls))


def _read(reader: Reader, row: StreamRow, point: Point, name: str, clock: Clock) -> _Source:
    at = find_point(reader, row, point)
    log_id, stream = (reader.log_id, row.id) if row.origin is None else (row.origin.log_id, row.origin.stream)
    record = fork_record(reader.events(row.id), at, name=name, reason="forked", parent_log=log_id, parent=stream, now_ms=clock.now_ms())
    if not isinstance(record.event, SessionForked):
        raise InternalError(f"a fork begins with {record.event.kind}")
    check_contents(reader, fold_changes({}, record.changes))
    return _Source(reader.log_id, row.id, at, record.event.parent_hash, record.event, record)


def _check_same(writer: Writer, source: _Source) -> None:
    """The log opened for writing is the one that was read, not another that came to its path."""
    found = writer.reader.rows("SELECT hash FROM event WHERE stream = ? AND seq = ?", (source.parent, source.at))
    if writer.log_id != source.log_id or found != [(bytes.fromhex(source.hash),)]:
        raise ReplacedError(f"{writer.name}: another log came to this path meanwhile; nothing was forked, look at it and fork again")
