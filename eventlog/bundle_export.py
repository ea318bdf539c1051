"""Making bundles of a session, and moving a session into one. The format is that of `bundle_format`.

Ordering invariants. A bundle is written under a name that nobody looks for and synced before it is moved to its own; the move replaces
nothing, and the directory is synced after it. With `move`, `session_moved` with the bundle's digest is committed between the two (L8): a
crash before that commit leaves a live session and no bundle, one after it a fenced session from which the same bundle comes again.

Steps: `bundle.write.before|after`, `bundle.sync.before|after` (:1 the file, :2 the directory), `move.commit.*`, `bundle.move.*`.
"""

import errno
import filecmp
import os
from collections.abc import Callable, Iterable, Iterator

import msgspec
import zstandard
from blake3 import blake3

from eventlog import bundle_format as form
from eventlog import codec, durable, events
from eventlog.errors import CorruptError, CrashworthyError, FullError, MisuseError, MovedError
from eventlog.fork import newest_forkable
from eventlog.history import read_image, read_upto
from eventlog.identity_files import IDENTITY_DIRECTORY
from eventlog.image import changes_digest, encode_change
from eventlog.ports import Clock, Ids
from eventlog.reader import Origin, Reader, StoredEvent, StreamRow, VerbatimEvent
from eventlog.show import advise_verify, as_word, show_path, show_text
from eventlog.values import ZERO_HASH, ContentId, Epoch, Seq, StreamId
from eventlog.writer import Writer

Fetch = Callable[[ContentId], Iterable[bytes]]
"""Yields the bytes of a content that the log keeps elsewhere, proved by its name before the last of them."""


class Exported(msgspec.Struct, frozen=True):
    """A bundle that was made: `digest` (32 bytes) names it, `file_bytes` is the size of the file."""

    header: form.Header
    digest: bytes
    counts: form.Counts
    file_bytes: int


def export(reader: Reader, stream: StreamId, file: str, ids: Ids, upto: Seq | None = None, fetch: Fetch | None = None) -> Exported:
    """Write the events of a session up to `upto` (None: its head now), and their contents, to a new file `file`. What of the image there
    is only in the session's checkpoint store comes from `fetch`.

    Raises MisuseError when `file` is there or cannot be written, and without `fetch` as `check_in_log`; what `fetch` raises; FullError,
    CorruptError when the log cannot give all of it.
    """
    _check_target(reader, file)
    row = _find_stream(reader, stream)
    head = row.head_seq if upto is None else upto
    if not 1 <= head <= row.head_seq:
        raise MisuseError(f"{reader.name}: session {show_text(stream)} has no event {head}; its events are 1 to {row.head_seq}")
    if os.path.lexists(file):
        raise _taken(file)
    elsewhere = _find_elsewhere(reader, row, newest_forkable(read_upto(reader, stream, head)), fetch)
    temporary = _temporary(file, ids)
    exported = _write(reader, row, head, temporary, form.PLAIN_MAGIC, elsewhere)
    _place(temporary, file)
    return exported


def export_moved(writer: Writer, stream: StreamId, file: str, ids: Ids, clock: Clock, fetch: Fetch | None = None) -> Exported:
    """Move a session into a new file `file`: nothing is ever appended to it in this log again (L8). `fetch` as in `export`.

    May be run again after a crash, and then gives the same bundle. Raises as `export`; MisuseError when a call or a restore is open at
    the head (a fork could not go on from there, C9) or the files there are not in the log (`check_in_log`); HeadMovedError when a driver
    appended meanwhile (the session is as it was); CorruptError when the bundle is not the one that `session_moved` names.
    """
    reader = writer.reader
    _check_target(reader, file)
    row = _find_stream(reader, stream)
    if row.origin is not None:
        raise MisuseError(f"{reader.name}: session {show_text(stream)} was imported and is read-only; export it without --move")
    recorded = _recorded_digest(reader, stream)
    head = row.head_seq if recorded is None else Seq(row.head_seq - 1)
    if recorded is None:
        _check_movable(reader, row)
        if os.path.lexists(file):
            raise _taken(file)
    elsewhere = _find_elsewhere(reader, row, head, fetch)
    temporary = _temporary(file, ids)
    exported = _write(reader, row, head, temporary, form.MOVED_MAGIC, elsewhere)
    try:
        if recorded is None:
            writer.move_away(stream, exported.digest.hex(), head, clock.now_ms())
        elif exported.digest.hex() != recorded:
            raise CorruptError(
                f"{reader.name}: session {show_text(stream)} was moved into the bundle {recorded}, and its events now make "
                f"{exported.digest.hex()}; {advise_verify(reader.name)}"
            )
        if recorded is not None and _is_same(temporary, file):
            durable.unlink(temporary, "bundle")
            return exported
    except BaseException:
        durable.unlink(temporary, "bundle")
        raise
    try:
        _place(temporary, file)
    except CrashworthyError as error:
        raise type(error)(
            f"{error}. The session is moved all the same: nothing is appended to it here any more, and `eventlog export --move` with "
            "another --to writes the same bundle again"
        ) from error
    return exported


class _Elsewhere(msgspec.Struct, frozen=True):
    """Contents that the log has not and that go out all the same."""

    contents: frozenset[bytes] = frozenset()
    fetch: Fetch = lambda content: ()


def _find_elsewhere(reader: Reader, row: StreamRow, at: Seq, fetch: Fetch | None) -> _Elsewhere:
    """What must be fetched so that a session can go on from `at`. Raises as `check_in_log` where there is nothing to fetch it with."""
    if fetch is None:
        check_in_log(reader, row, at)
        return _Elsewhere()
    return _Elsewhere(frozenset(find_in_store(reader, row.id, at).values()), fetch)


def check_in_log(reader: Reader, row: StreamRow, at: Seq) -> None:
    """Raise MisuseError when files of the session at `at` lie in its checkpoint store: nothing could go on from the log alone."""
    for path in find_in_store(reader, row.id, at):
        raise MisuseError(
            f"{reader.name}: session {show_text(row.id)} keeps its files in its checkpoint store, and at seq {at} the log has not the "
            f"content of {show_path(path)}: nothing could go on from this log alone, and nothing was made. "
            f"`recovery export` takes what is missing from the store"
        )


def find_in_store(reader: Reader, stream: StreamId, at: Seq) -> dict[bytes, bytes]:
    """The paths of the image at `at` whose contents are only in the session's checkpoint store, in order, with these contents."""
    if not reader.keeps_contents_elsewhere():
        return {}
    image = read_image(reader, stream, at)
    wanted = {path: image[path].content for path in sorted(image)}
    return {path: content for path, content in wanted.items() if content is not None and _is_elsewhere(reader, ContentId(content))}


def _is_elsewhere(reader: Reader, content: ContentId) -> bool:
    return not reader.has_blob(content) and reader.dropped_reason(content) == "checkpointed"


def _find_stream(reader: Reader, stream: StreamId) -> StreamRow:
    row = reader.stream(stream)
    if row is None:
        raise MisuseError(f"{reader.name}: there is no session {show_text(stream)}; `eventlog show {as_word(reader.name)}` lists what is")
    return row


def _recorded_digest(reader: Reader, stream: StreamId) -> str | None:
    """The digest in `session_moved`, when that is the newest event."""
    found = reader.rows("SELECT kind FROM event WHERE stream = ? ORDER BY seq DESC LIMIT 1", (stream,))
    if found != [(events.SessionMoved.kind,)]:
        return None
    moved = None
    for stored in reader.events(stream):
        moved = stored.event
    if not isinstance(moved, events.SessionMoved):
        raise MovedError(f"{reader.name}: session {show_text(stream)} changed while it was read; run the same command again")
    return moved.digest


def _check_movable(reader: Reader, row: StreamRow) -> None:
    newest = newest_forkable(reader.events(row.id))
    if newest < row.head_seq:
        raise MisuseError(
            f"{reader.name}: session {show_text(row.id)} cannot be moved now: at seq {row.head_seq} a call or a restore is open; let its "
            f"driver end it (`recovery drive`) and run the same command again, or export without --move (a fork begins at seq {newest})"
        )


def _check_target(reader: Reader, file: str) -> None:
    """A file whose name begins with the log's could be taken for one of SQLite's own beside it, or of this package's."""
    log = os.path.realpath(reader.path)
    named = os.path.join(os.path.realpath(os.path.dirname(file) or "."), os.path.basename(file))
    own = (log + "-", log + ".", os.path.join(os.path.dirname(log), IDENTITY_DIRECTORY) + os.sep)
    if any(target == log or target.startswith(own) for target in (named, os.path.realpath(file))):
        raise MisuseError(f"{show_text(file)}: this is the name of a file of the log; name another file for the bundle")


def _temporary(file: str, ids: Ids) -> str:
    return f"{file}.new-{os.getpid()}-{ids.new_id().hex()}"


def _taken(file: str) -> MisuseError:
    return MisuseError(f"{show_text(file)}: there is a file of this name already; it stays as it is, name another file")


def _is_same(temporary: str, file: str) -> bool:
    """Whether an earlier run got as far as the bundle's own name."""
    return os.path.isfile(file) and filecmp.cmp(temporary, file, shallow=False)


def _write(reader: Reader, row: StreamRow, head: Seq, temporary: str, magic: bytes, elsewhere: _Elsewhere) -> Exported:
    """The whole bundle under its temporary name, synced."""
    tally = _Tally()
    try:
        _check_sizes(reader, row, head)
        durable.write_new(temporary, _compress(magic, _records(reader, row, head, tally, elsewhere)), "bundle")
        size = os.stat(temporary).st_size
    except OSError as error:
        raise _cannot_write(temporary, error) from error
    if tally.header is None:
        raise CorruptError(f"{reader.name}: session {show_text(row.id)} has no events")
    if tally.meta_bytes > form.EVENTS_ALLOWANCE + form.EVENTS_RATIO * size:
        durable.unlink(temporary, "bundle")
        raise MisuseError(
            f"{reader.name}: the events of session {show_text(row.id)} compress so well that no import would take them; copy log.sqlite "
            "and its -wal together instead"
        )
    return Exported(tally.header, tally.digest, tally.counts, size)


def _check_sizes(reader: Reader, row: StreamRow, head: Seq) -> None:
    """Raise MisuseError for a payload that no bundle takes, before anything is written."""
    found = reader.rows(
        "SELECT seq, length(CAST(payload AS BLOB)) FROM event WHERE stream = ? AND seq <= ? AND length(CAST(payload AS BLOB)) > ? LIMIT 1",
        (row.id, head, form.MOST_BYTES[form.EVENT] - EVENT_HEAD_ROOM),
    )
    for seq, size in found:
        raise MisuseError(
            f"{reader.name}: session {show_text(row.id)} seq {seq} has a payload of {size} bytes, and a bundle takes events of "
            f"{form.MOST_BYTES[form.EVENT]}: it cannot be exported; copy log.sqlite and its -wal together instead"
        )


def _place(temporary: str, file: str) -> None:
    try:
        durable.move(temporary, file, "bundle")
    except OSError as error:
        durable.unlink(temporary, "bundle")
        raise (_taken(file) if isinstance(error, FileExistsError) else _cannot_write(file, error)) from error
    durable.sync_directory(os.path.dirname(file) or ".", "bundle")


def _cannot_write(file: str, error: OSError) -> CrashworthyError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FullError(f"{show_text(file)}: no room left for the bundle; make room and run the same command again")
    return MisuseError(f"{show_text(file)}: cannot be written ({error.strerror}); name a file in a directory that can")


EVENT_HEAD_ROOM = 4096
"""What an event's record has beside its payload, generously."""


class _Tally(msgspec.Struct):
    """What was written so far."""

    header: form.Header | None = None
    counts: form.Counts = msgspec.field(default_factory=form.Counts)
    meta_bytes: int = 0
    digest: bytes = b""


def _compress(magic: bytes, records: Iterable[bytes]) -> Iterator[bytes]:
    """The file: the compressor is fed the same sizes whatever the records are, because its output depends on them."""
    parameters = zstandard.ZstdCompressionParameters.from_level(form.LEVEL, window_log=form.WINDOW_LOG)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    yield magic
    held = bytearray()
    for record in records:
        held += record
        while len(held) >= form.FEED_BYTES:
            yield stream.compress(bytes(held[: form.FEED_BYTES]))
            del held[: form.FEED_BYTES]
    yield stream.compress(bytes(held))
    yield stream.flush()


def _records(reader: Reader, row: StreamRow, head: Seq, tally: _Tally, elsewhere: _Elsewhere) -> Iterator[bytes]:
    """Every record, the trailer with the digest of all before it last."""
    hasher = blake3()
    wanted: dict[ContentId, int] = {}
    try:
        for record in _meta(_event_records(reader, row, head, tally, wanted), tally):
            hasher.update(record)
            yield record
        for record in _content_records(reader, wanted, tally, elsewhere):
            hasher.update(record)
            yield record
    except CorruptError as error:
        raise CorruptError(f"{reader.name}: session {show_text(row.id)} cannot be exported: {error}") from error
    tally.digest = hasher.digest()
    yield form.encode_record(form.TRAILER, form.encode_trailer(tally.counts, tally.digest))


def _meta(records: Iterable[bytes], tally: _Tally) -> Iterator[bytes]:
    for record in records:
        tally.meta_bytes += len(record)
        yield record


def _event_records(reader: Reader, row: StreamRow, head: Seq, tally: _Tally, wanted: dict[ContentId, int]) -> Iterator[bytes]:
    origin = row.origin if row.origin is not None else Origin(reader.log_id, row.id)
    tally.header = _read_header(reader, row, origin, head)
    yield form.encode_record(form.HEADER, form.encode_header(tally.header))
    domain, previous = codec.event_domain(origin.log_id, origin.stream), ZERO_HASH
    for stored in reader.events(row.id):
        verbatim = _read_verbatim(reader, row.id, stored, domain, previous)
        form.want_contents(wanted, stored)
        yield form.encode_record(form.EVENT, form.encode_event(verbatim))
        for change in stored.changes:
            yield form.encode_record(form.CHANGE, encode_change(change))
        counts = tally.counts
        tally.counts = msgspec.structs.replace(counts, events=counts.events + 1, changes=counts.changes + len(stored.changes))
        previous = stored.hash
        if stored.seq == head:
            break
    if previous != tally.header.head_hash:
        raise CorruptError(f"its head is no longer the event that stood at seq {head}")


def _read_header(reader: Reader, row: StreamRow, origin: Origin, head: Seq) -> form.Header:
    found = reader.rows("SELECT hash, epoch FROM event WHERE stream = ? AND seq = ?", (row.id, head))
    digest, epoch = found[0] if found else (None, None)
    if not (isinstance(digest, bytes) and isinstance(epoch, int)):
        raise CorruptError(f"there is no event at seq {head}; {advise_verify(reader.name)}")
    # Every event has the epoch of the newest driver_started before it: the floor at the head is the head's own epoch.
    return form.Header(origin, head, digest, Epoch(epoch))


def _read_verbatim(reader: Reader, stream: StreamId, stored: StoredEvent, domain: bytes, previous: bytes) -> VerbatimEvent:
    """An event with its columns as stored, hashed once more over exactly what goes out."""
    sql = "SELECT kind, version, CAST(payload AS BLOB) FROM event WHERE stream = ? AND seq = ?"
    kind, version, payload = reader.rows(sql, (stream, stored.seq))[0]
    if not (isinstance(kind, str) and isinstance(version, int) and isinstance(payload, bytes)):
        raise CorruptError(f"seq {stored.seq}: a column has the wrong type")
    changed = changes_digest(stored.changes)
    if codec.hash_event(domain, stored.seq, stored.id, stored.epoch, kind.encode(), version, payload, changed, previous) != stored.hash:
        raise CorruptError(f"seq {stored.seq}: it is not the event that was verified a moment ago")
    return VerbatimEvent(stored, kind, version, payload)


def _content_records(reader: Reader, wanted: dict[ContentId, int], tally: _Tally, elsewhere: _Elsewhere) -> Iterator[bytes]:
    """Every content in byte order of its id, decoded: how a log cuts and packs it is that log's own affair."""
    for content in sorted(wanted):
        size, counts = wanted[content], tally.counts
        is_fetched = content in elsewhere.contents
        if not is_fetched and not reader.has_blob(content) and (reason := reader.dropped_reason(content)) is not None:
            tally.counts = msgspec.structs.replace(counts, given_up=counts.given_up + 1)
            given_up = form.GivenUp(content, size, form.checked_reason(reason))
            yield form.encode_record(form.GIVEN_UP, form.encode_given_up(given_up))
            continue
        tally.counts = msgspec.structs.replace(counts, contents=counts.contents + 1, content_bytes=counts.content_bytes + size)
        yield form.encode_record(form.CONTENT, form.encode_content(content, size))
        total = 0
        for piece in _recut(elsewhere.fetch(content) if is_fetched else reader.content(content)):
            total += len(piece)
            yield form.encode_record(form.PIECE, piece)
        if total != size:
            raise CorruptError(f"content {content.hex()} has {total} bytes where events state {size}")


def _recut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of PIECE_BYTES, the last one shorter; none at all for nothing."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= form.PIECE_BYTES:
            yield bytes(held[: form.PIECE_BYTES])
            del held[: form.PIECE_BYTES]
    if held:
        yield bytes(held)
