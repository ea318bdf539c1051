"""Salvage: what can be proved of a damaged log, in a new log with an id of its own. The damaged one is never touched.

Of each stream the longest prefix is kept whose chain, placement, images and roots are sound: verbatim, as a read-only stream with its
origin's names, and a session that goes on from it, forked at the newest point that can be forked and whose files are all readable. What is
gone is listed. The new log is built under another name and appears whole, or not at all.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from eventlog import codec, events
from eventlog.blobs import batch_blobs
from eventlog.copying import copy_log
from eventlog.creation import publish_log
from eventlog.errors import CompactedError, CorruptError, MisuseError
from eventlog.fork import fork_record, newest_forkable
from eventlog.image import Entry, fold_into
from eventlog.ports import Clock, Ids
from eventlog.reader import BEGINNING, Origin, Position, StoredEvent, StreamRow
from eventlog.records import Dropped
from eventlog.salvage_reading import Sources, open_sources
from eventlog.show import show_text
from eventlog.values import ContentId, LogId, Seq, StreamId
from eventlog.verify import claimed_root, name_image
from eventlog.writer import Writer

_EMPTY = codec.encode_blob(b"")
SIDE_SUFFIXES = ("", "-wal", "-shm", "-journal", ".verified")


class KeptStream(msgspec.Struct, frozen=True):
    """What became of one stream. Events `kept + 1` to `lost_to` are lost, `why` says what stopped it ("" when all is kept).

    `prefix` is the read-only stream that holds the kept events ("" when there are none); `session` the one that goes on from it at seq
    `forked_at` of it ("" for none: `note` says why).
    """

    stream: StreamId
    kept: int
    lost_to: int
    why: str
    prefix: str = ""
    session: str = ""
    forked_at: int = 0
    note: str = ""


class LostContent(msgspec.Struct, frozen=True):
    """A content that an event names and that is gone: `path` in an image, or the output of a call (None)."""

    stream: StreamId
    seq: Seq
    path: bytes | None
    content: ContentId
    size: int


class Salvaged(msgspec.Struct, frozen=True):
    """A new log `path` with the id `log_id`, what it holds of each stream of the log `origin`, and which contents are gone."""

    path: str
    log_id: str
    origin: LogId
    streams: tuple[KeptStream, ...]
    lost: tuple[LostContent, ...]

    @property
    def is_whole(self) -> bool:
        """Nothing was lost."""
        return not self.lost and all(stream.kept == stream.lost_to for stream in self.streams)


class _Plan(msgspec.Struct):
    """A stream whose prefix is known."""

    stream: StreamId
    origin: Origin
    is_own: bool
    head: Position
    lost_to: int
    why: str
    is_moved: bool
    readable: list[tuple[int, int]] = msgspec.field(default_factory=list)


def salvage(
    path: str, target: str, ids: Ids, clock: Clock, log_id: LogId | None = None, seen: Mapping[StreamId, Seq] = MappingProxyType({})
) -> Salvaged:
    """Make the log `target` of what can be proved of the log at `path`. `log_id` is what is known of its id from elsewhere, `seen` the
    heads that its streams are known to have had: what lies between is lost too.

    Raises MisuseError when `target` exists or is a file of the log, LogMissingError, BusyError, FullError, and CorruptError when nothing
    can be salvaged; then there is no new log.
    """
    _check_target(path, target)
    with tempfile.TemporaryDirectory(prefix="eventlog-") as directory:
        sources = _open(path, directory, log_id)
        try:
            plans = [_plan(sources, stream, row) for stream, row in sources.streams().items()]
            _note_seen(plans, seen)
            if not any(plan.head.seq for plan in plans):
                raise CorruptError(f"{show_text(path)}: no event can be proved any more, nothing is salvaged; look for a bundle or a copy")
            known = {one.stream for one in plans}
            gone = [KeptStream(name, 0, seq, "the session is gone") for name, seq in seen.items() if name not in known]
            made = _build(target, sources, plans, ids, clock)
            return msgspec.structs.replace(made, streams=(*made.streams, *gone))
        finally:
            sources.close()


def _check_target(path: str, target: str) -> None:
    name = show_text(target)
    if any(os.path.realpath(target) == os.path.realpath(path) + suffix for suffix in SIDE_SUFFIXES):
        raise MisuseError(f"{name}: this is a file of the damaged log; name a new file")
    if os.path.lexists(target):
        raise MisuseError(f"{name}: there is something already; name a file that does not exist")
    if not os.path.isdir(os.path.dirname(target) or "."):
        raise MisuseError(f"{name}: its directory does not exist; make it first")


def _open(path: str, directory: str, log_id: LogId | None) -> Sources:
    try:
        sources = open_sources(copy_log(path, directory), directory, log_id)
    except CorruptError as error:
        raise CorruptError(
            f"{show_text(path)}: nothing can be read of it, not even its log id; look for a bundle or a copy, or name an anchor of it with "
            "--anchor, which has the id"
        ) from error
    for reader in sources.readers:
        reader.name = show_text(path)  # messages name what the person named, not a copy
    return sources


def _plan(sources: Sources, stream: StreamId, row: StreamRow | None) -> _Plan:
    """How much of a stream is sound."""
    origin = row.origin if row is not None and row.origin is not None else Origin(sources.log_id, stream)
    stated = max(row.head_seq if row is not None else 0, sources.newest_seq(stream))
    position, image, why, is_moved = BEGINNING, dict[bytes, Entry](), "", False
    root: str | None = None
    try:
        for verbatim in sources.walk(stream, origin, stated):
            stored = verbatim.stored
            fold_into(image, stored.changes)
            root = None if stored.changes or root is None else root
            claimed = claimed_root(stored.event)
            if claimed is not None:
                root = name_image(image) if root is None else root
                if root != claimed:
                    raise CorruptError(f"stream {stream} seq {stored.seq}: the image there is not the one that is claimed")
            position = Position(stored.seq, stored.hash, stored.epoch)
            is_moved = isinstance(stored.event, events.SessionMoved)
    except CorruptError as error:
        why = str(error)
    return _Plan(stream, origin, row is None or row.origin is None, position, max(stated, position.seq), why, is_moved)


def _note_seen(plans: list[_Plan], seen: Mapping[StreamId, Seq]) -> None:
    for plan in plans:
        head = seen.get(plan.stream, Seq(0))
        if head > plan.lost_to:
            plan.lost_to, plan.why = head, plan.why or f"the tail was cut: event {head} has been seen"


def _build(target: str, sources: Sources, plans: list[_Plan], ids: Ids, clock: Clock) -> Salvaged:
    kept: list[KeptStream] = []
    lost: list[LostContent] = []
    made: list[str] = []

    def fill(writer: Writer) -> None:
        copier = _Copier(sources, writer, clock.now_ms())
        for plan in plans:
            lost.extend(copier.copy_contents(plan))
            kept.append(_write_stream(sources, writer, plan, clock.now_ms()))
        made.append(writer.log_id)

    try:
        publish_log(target, fill, ids, origin=sources.log_id)
    except FileExistsError as error:
        raise MisuseError(f"{show_text(target)}: there is something already; name a file that does not exist") from error
    return Salvaged(target, made[0], sources.log_id, tuple(kept), tuple(lost))


class _Copier:
    """Brings contents over, and remembers which are gone."""

    def __init__(self, sources: Sources, writer: Writer, now_ms: int) -> None:
        self._sources = sources
        self._writer = writer
        self._now_ms = now_ms
        self._gone: dict[ContentId, str] = {}

    def copy_contents(self, plan: _Plan) -> list[LostContent]:
        """The contents that a prefix names; `plan` learns at which seqs all files of the image are readable."""
        lost: list[LostContent] = []
        gone_before = len(self._gone)
        unreadable: set[bytes] = set()
        dropped: dict[ContentId, Dropped] = {}
        for verbatim in self._sources.walk(plan.stream, plan.origin, plan.head.seq):
            stored = verbatim.stored
            for path, content, size in _contents(stored):
                reason = self._bring(content)
                if reason:
                    dropped.setdefault(content, Dropped(content, size, reason, self._now_ms))
                if reason == "lost":
                    lost.append(LostContent(plan.stream, stored.seq, path, content, size))
            for change in stored.changes:
                if change.op != "times":
                    unreadable.discard(change.path)
                if change.entry is not None and change.entry.content is not None and ContentId(change.entry.content) in self._gone:
                    unreadable.add(change.path)
            if not unreadable:
                _extend(plan.readable, stored.seq)
        if len(self._gone) > gone_before or dropped:
            self._writer.record_dropped(dropped.values())
        return lost

    def _bring(self, content: ContentId) -> str:
        """Make sure that the new log has a content; "" when it has, else why it is gone."""
        if content in self._gone:
            return self._gone[content]
        if self._writer.reader.has_blob(content):
            return ""
        if content == _EMPTY.content:
            self._writer.insert_blobs([_EMPTY])  # known by its name
            return ""
        try:
            for batch in batch_blobs(self._new_blobs(content)):
                self._writer.insert_blobs(batch)
        except CompactedError:
            self._gone[content] = "compacted"
        except CorruptError:
            self._gone[content] = self._sources.dropped_reason(content) or "lost"
        return self._gone.get(content, "")

    def _new_blobs(self, content: ContentId) -> Iterator[codec.Blob]:
        for blob in self._sources.content(content):
            if not self._writer.reader.has_blob(blob.content):
                yield blob


def _contents(stored: StoredEvent) -> Iterator[tuple[bytes | None, ContentId, int]]:
    for change in stored.changes:
        if change.entry is not None and change.entry.content is not None:
            yield change.path, ContentId(change.entry.content), change.entry.size
    if isinstance(stored.event, events.CallSettled) and stored.event.output is not None:
        output = stored.event.output
        with contextlib.suppress(ValueError):  # no blob is named: verify calls that damage, and there is nothing to bring
            yield None, ContentId(bytes.fromhex(output.blob)), output.kept


def _extend(ranges: list[tuple[int, int]], seq: int) -> None:
    if ranges and ranges[-1][1] == seq - 1:
        ranges[-1] = (ranges[-1][0], seq)
    else:
        ranges.append((seq, seq))


def _write_stream(sources: Sources, writer: Writer, plan: _Plan, now_ms: int) -> KeptStream:
    """A prefix as an imported stream and, for a session of that log itself, a fork that goes on from it."""
    if not plan.head.seq:
        return KeptStream(plan.stream, 0, plan.lost_to, plan.why)
    prefix = StreamId(f"{plan.origin.stream}@{plan.origin.log_id[:12]}:{plan.head.seq}")
    row = StreamRow(prefix, plan.head.epoch, plan.head.seq, plan.head.hash, None, None, plan.origin)
    at, note = _fork_point(sources, plan)
    if not at:
        writer.adopt_stream(row, sources.walk(plan.stream, plan.origin, plan.head.seq))
        return KeptStream(plan.stream, plan.head.seq, plan.lost_to, plan.why, prefix, note=note)
    record = fork_record(
        _stored(sources, plan, plan.head.seq), at, name=plan.stream, reason="salvaged", parent_log=plan.origin.log_id,
        parent=plan.origin.stream, now_ms=now_ms,
    )  # fmt: skip
    writer.import_stream(row, sources.walk(plan.stream, plan.origin, plan.head.seq), (), plan.stream, record, at)
    return KeptStream(plan.stream, plan.head.seq, plan.lost_to, plan.why, prefix, plan.stream, at)


def _stored(sources: Sources, plan: _Plan, upto: int) -> Iterator[StoredEvent]:
    return (verbatim.stored for verbatim in sources.walk(plan.stream, plan.origin, upto))


def _fork_point(sources: Sources, plan: _Plan) -> tuple[Seq, str]:
    """The newest point that can be forked and whose files are all readable, or 0 and why there is none."""
    if not plan.is_own:
        return Seq(0), "it was imported into the damaged log, and is read-only as it was there"
    if plan.is_moved:
        return Seq(0), "the session was moved away; drive it where it was imported"
    for first, last in reversed(plan.readable):
        try:
            at = newest_forkable(_stored(sources, plan, last))
        except CorruptError as error:
            return Seq(0), str(error)
        if at >= first:
            return at, ""
    return Seq(0), "no point of it can be forked with all its files readable; its events are there to be looked at"
