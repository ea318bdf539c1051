"""Taking a bundle into a log: its events as a verified, read-only prefix, and a fork that goes on from it.

Ordering invariants. The whole bundle is read and checked before anything is written. Then it is read again from the same open file by
the same checks: contents go in first, in batches (named by what they hold, they harm nothing when the import ends there, and compaction
takes them back), then one transaction holds the stream with all its events, what was given up on record, and the fork. Either all of that
is in the log, or none.

Steps: `blobs.commit.*`, then `import.commit.before|locked|after`; for a new log those of `creation` too.
"""

import contextlib
import os
import re
from collections.abc import Iterator

import msgspec

from eventlog import bundle_format as form
from eventlog import events
from eventlog.blobs import batch_blobs, encode_content
from eventlog.bundle_reader import Bundle, Walk
from eventlog.codec import Blob
from eventlog.creation import publish_log
from eventlog.errors import ContentGoneError, CorruptError, MisuseError
from eventlog.fork import fork_record, newest_forkable
from eventlog.ports import Clock, Ids
from eventlog.reader import Reader, StreamRow, VerbatimEvent
from eventlog.records import Dropped, Record
from eventlog.show import show_path, show_text
from eventlog.values import ContentId, Seq, StreamId
from eventlog.writer import Writer

TRIES = 3
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Imported(msgspec.Struct, frozen=True):
    """What an import made: the fork `session`, at seq `forked_at` of the read-only stream `prefix`, which `is_reused` when it was there."""

    header: form.Header
    digest: bytes
    counts: form.Counts
    is_moved: bool
    prefix: StreamId
    is_reused: bool
    session: StreamId
    forked_at: Seq


class _Survey(msgspec.Struct, frozen=True):
    """A bundle that was read to its end and is sound, and where it goes. `prefix` holds its events, already when `is_found`."""

    header: form.Header
    digest: bytes
    counts: form.Counts
    forked_at: Seq
    session: StreamId
    prefix: StreamId
    is_found: bool
    most_bytes: int
    given_up: frozenset[ContentId]


def import_bundle(path: str, file: str, ids: Ids, clock: Clock, name: str | None = None) -> Imported:
    """Take the bundle `file` into the log at `path`, as a session `name` (None: the name it had).

    Raises MisuseError for what is no bundle, for a name that is taken or that is none, and when events of the same session are here in
    another form; CorruptError for a bundle that is not sound (nothing was written); FullError when it has no room; and as `Writer.append`.
    """
    bundle = Bundle(file)
    try:
        reader = Reader.open(path)
        try:
            survey = _survey(bundle, path, name, reader)
        finally:
            reader.close()
        writer = Writer.open(path, ids)
        try:
            return _fill_again(writer, bundle, survey, clock)
        finally:
            writer.close()
    finally:
        bundle.close()


def _fill_again(writer: Writer, bundle: Bundle, survey: _Survey, clock: Clock) -> Imported:
    """`_fill`, and again when a compaction took contents that were sent ahead before the commit that names them."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(ContentGoneError):
            return _fill(writer, bundle, survey, clock)
    return _fill(writer, bundle, survey, clock)


def import_into_new(path: str, file: str, ids: Ids, clock: Clock, name: str | None = None) -> Imported:
    """Make a new log at `path` that holds the bundle `file`, all or nothing.

    Raises as `import_bundle`, and MisuseError when `path` exists.
    """
    bundle = Bundle(file)
    try:
        if os.path.lexists(path):
            raise _exists(path)
        survey = _survey(bundle, path, name, None)
        made: list[Imported] = []
        try:
            publish_log(path, lambda writer: made.append(_fill(writer, bundle, survey, clock)), ids)
        except FileExistsError as error:
            raise _exists(path) from error
        return made[0]
    finally:
        bundle.close()


def check_import(path: str, file: str, name: str | None = None, *, new: bool = False) -> Imported:
    """What `import_bundle` (or, with `new`, `import_into_new`) would make: the whole bundle is read and checked, nothing is written.

    Raises as they do before they write.
    """
    bundle = Bundle(file)
    try:
        if new:
            if os.path.lexists(path):
                raise _exists(path)
            return _check(bundle, path, name, None)
        reader = Reader.open(path)
        try:
            return _check(bundle, path, name, reader)
        finally:
            reader.close()
    finally:
        bundle.close()


def _check(bundle: Bundle, path: str, name: str | None, reader: Reader | None) -> Imported:
    survey = _survey(bundle, path, name, reader)
    record = _read_fork(bundle.walk(survey.most_bytes), survey, bundle, 0)
    _check_whole(record, survey, reader, bundle.name)
    return _describe(survey, bundle)


def _describe(survey: _Survey, bundle: Bundle) -> Imported:
    return Imported(
        survey.header, survey.digest, survey.counts, bundle.is_moved, survey.prefix, survey.is_found, survey.session, survey.forked_at
    )  # fmt: skip


def _name_prefix(header: form.Header, reader: Reader | None) -> StreamId:
    """The name of an imported stream: `<origin stream>@<first 12 digits of the origin log's id>:<head seq>`, all 32 where that is taken."""
    names = [StreamId(f"{header.origin.stream}@{header.origin.log_id[:digits]}:{header.head_seq}") for digits in (12, 32)]
    return names[0] if reader is None or reader.stream(names[0]) is None else names[1]


def _exists(path: str) -> MisuseError:
    return MisuseError(f"{show_text(path)}: there is something already; import without --new to take the bundle into that log")


def _survey(bundle: Bundle, path: str, name: str | None, reader: Reader | None) -> _Survey:
    """Read all of a bundle and write nothing."""
    most_bytes = _free_bytes(path)
    walk = bundle.walk(most_bytes)
    found = None if reader is None else _find_prefix(reader, walk.header, bundle.name)
    firsts: list[events.Event] = []

    def stored() -> Iterator[VerbatimEvent]:
        for verbatim in walk.events():
            if reader is not None and found is None:
                _check_new(reader, verbatim, bundle.name)
            if not firsts:
                firsts.append(verbatim.stored.event)
            yield verbatim

    with bundle.naming():
        forked_at = newest_forkable(verbatim.stored for verbatim in stored())
    session = _choose_name(name, firsts[0], bundle.name)
    prefix = found.id if found is not None else _name_prefix(walk.header, reader)
    if session == prefix or (reader is not None and reader.stream(session) is not None):
        raise MisuseError(f"{show_text(path)}: there is a session {show_text(session)} already; choose another name with --as")
    for _, _, pieces in walk.contents():
        for _ in pieces:
            pass
    walk.finish()
    given_up = frozenset(item.content for item in walk.given_up)
    return _Survey(walk.header, walk.digest, walk.counts, forked_at, session, prefix, found is not None, most_bytes, given_up)


def _free_bytes(path: str) -> int:
    """What the log's file system has room for."""
    try:
        status = os.statvfs(os.path.dirname(path) or ".")
    except OSError as error:
        raise MisuseError(f"{show_text(path)}: its directory cannot be looked at ({error.strerror}); make it first") from error
    return status.f_bavail * status.f_frsize


def _find_prefix(reader: Reader, header: form.Header, name: str) -> StreamRow | None:
    """The stream of this log that holds the events of the bundle already: an imported one, or the session itself.

    Raises MisuseError when it holds only a part of them (an imported stream takes no more, and an event id is in a log once), or others.
    """
    for row in reader.streams():
        origin = (row.origin.log_id, row.origin.stream) if row.origin is not None else (reader.log_id, row.id)
        if origin != (header.origin.log_id, header.origin.stream):
            continue
        if row.head_seq < header.head_seq:
            raise MisuseError(
                f"{reader.name}: session {show_text(row.id)} holds the first {row.head_seq} events of the {header.head_seq} in {name}, "
                "and it takes no more of them; import into another log (`eventlog import --new`)"
            )
        there = reader.rows("SELECT hash FROM event WHERE stream = ? AND seq = ?", (row.id, header.head_seq))
        if there != [(header.head_hash,)]:
            raise MisuseError(
                f"{reader.name}: session {show_text(row.id)} has another event at seq {header.head_seq} than {name}: they are two "
                "histories under one name, and a log holds one; import into another log (`eventlog import --new`)"
            )
        return row
    return None


def _check_new(reader: Reader, verbatim: VerbatimEvent, name: str) -> None:
    if reader.find(verbatim.stored.id) is not None:
        raise MisuseError(
            f"{reader.name}: the event {verbatim.stored.id.hex()} at seq {verbatim.stored.seq} of {name} is in this log already, in "
            "another session; an id stands for one event, import into another log (`eventlog import --new`)"
        )


def _choose_name(given: str | None, first: events.Event, file: str) -> StreamId:
    name = given if given is not None else first.name if isinstance(first, events.SessionOpened | events.SessionForked) else ""
    if not _NAME.fullmatch(name):
        raise MisuseError(
            f"{file}: '{show_text(name)}' is no name for a session (1 to 64 letters, digits, '.', '_', '-'); give one with --as"
        )
    return StreamId(name)


def _fill(writer: Writer, bundle: Bundle, survey: _Survey, clock: Clock) -> Imported:
    """Write what was surveyed."""
    walk = bundle.walk(survey.most_bytes)
    record = _read_fork(walk, survey, bundle, clock.now_ms())
    _check_whole(record, survey, writer.reader, bundle.name)
    for batch in batch_blobs(_new_blobs(walk, writer.reader)):
        writer.insert_blobs(batch)
    walk.finish()
    _check_same(walk, survey, bundle)
    header = survey.header
    if survey.is_found:
        writer.open_stream(survey.session, record, "import", survey.prefix, survey.forked_at)
    else:
        row = StreamRow(survey.prefix, header.floor, header.head_seq, header.head_hash, None, None, header.origin)
        again = bundle.walk(survey.most_bytes)
        if again.header != header:
            raise _changed(bundle)
        writer.import_stream(row, again.events(), _dropped(walk, writer.reader, clock), survey.session, record, survey.forked_at)
    return _describe(survey, bundle)


def _read_fork(walk: Walk, survey: _Survey, bundle: Bundle, now_ms: int) -> Record:
    """The fork's first event; all events of the walk were read when this returns, and nothing was written."""
    stored = walk.events()
    origin = survey.header.origin
    with bundle.naming():
        record = fork_record(
            (verbatim.stored for verbatim in stored),
            survey.forked_at,
            name=survey.session,
            reason="moved" if bundle.is_moved else "imported",
            parent_log=origin.log_id,
            parent=origin.stream,
            now_ms=now_ms,
        )
    for _ in stored:
        pass
    if walk.header != survey.header:
        raise _changed(bundle)
    return record


def _check_whole(record: Record, survey: _Survey, reader: Reader | None, name: str) -> None:
    """Raise MisuseError when the image from which the session would go on is not whole, here or in the bundle."""
    for change in record.changes:
        content = None if change.entry is None else change.entry.content
        if content in survey.given_up and (reader is None or not reader.has_blob(ContentId(content))):
            raise MisuseError(
                f"{name}: the session would go on from seq {survey.forked_at}, and the content of {show_path(change.path)} there was "
                "given up before this bundle was made; export it up to an event whose image is still kept (`--upto SEQ`; "
                "`eventlog pin` keeps one)"
            )


def _new_blobs(walk: Walk, reader: Reader) -> Iterator[Blob]:
    """The blobs of every content that the log does not have yet."""
    for content, _, pieces in walk.contents():
        if reader.has_blob(content):
            for _ in pieces:
                pass
        else:
            yield from encode_content(pieces)


def _dropped(walk: Walk, reader: Reader, clock: Clock) -> list[Dropped]:
    """What the bundle says was given up and the log does not have either."""
    now_ms = clock.now_ms()
    return [Dropped(item.content, item.size, item.reason, now_ms) for item in walk.given_up if not reader.has_blob(item.content)]


def _check_same(walk: Walk, survey: _Survey, bundle: Bundle) -> None:
    if walk.digest != survey.digest:
        raise _changed(bundle)


def _changed(bundle: Bundle) -> CorruptError:
    return CorruptError(f"{bundle.name}: it changed while it was read; no session was imported, leave the file alone and run it again")
