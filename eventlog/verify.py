"""Walking a whole log: chain, cache rows, image roots, forks, blobs. Finds all damage it can reach and changes nothing.

Memory holds one image, one page of events and two bits for each blob, however long the log is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from eventlog import events
from eventlog.connection import expected_indices, expected_tables, expected_triggers
from eventlog.errors import CorruptError, UncertainCommitError
from eventlog.excludes import first_excludes, stream_excludes
from eventlog.findings import Finding
from eventlog.image import Entry, Image, check_image, fold_into, root_hash
from eventlog.integrity import SOUND, ask_integrity
from eventlog.pointer_map import find_silent_entries
from eventlog.reader import BEGINNING, Position, Reader, StoredEvent, StreamRow
from eventlog.show import advise_verify, show_text
from eventlog.values import ContentId, Seq, StreamId
from eventlog.verify_blobs import BlobMark, BlobWalk, check_blobs, check_contents, check_output, find_mark
from eventlog.verify_forks import check_fork

_SQLITE_IOERR = 10
_INDICES = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"


class Head(msgspec.Struct, frozen=True):
    """How far a stream was verified, and the root of the image there ("" for one that cannot be named)."""

    position: Position
    root: str


class Mark(msgspec.Struct, frozen=True):
    """How far a log was verified: each stream's head, and the newest blob."""

    heads: Mapping[StreamId, Head]
    blob: BlobMark | None


class Verified(msgspec.Struct, frozen=True):
    """What was walked, and what was found wrong (nothing, for a sound log).

    `blob_bytes` are the unpacked bytes of the `blobs` that are sound, those of a chunk once, however many contents hold it. `orphans` are
    blobs that no event needs (a crashed append leaves them; compaction takes them back), `orphan_bytes` what they take; both None when
    not all of the log was walked. `given_up` are contents that events name and that stand in `dropped`. `mark` is how far the walk came.
    """

    streams: int
    events: int
    blobs: int
    blob_bytes: int
    findings: tuple[Finding, ...]
    orphans: int | None = 0
    orphan_bytes: int | None = 0
    given_up: int = 0
    mark: Mark = msgspec.field(default_factory=lambda: Mark({}, None))


class _Walk(msgspec.Struct):
    """What one run of verify has seen."""

    since: Mark
    counted: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    heads: dict[StreamId, Head] = msgspec.field(default_factory=dict)
    blobs: BlobWalk = msgspec.field(default_factory=BlobWalk)


def verify(reader: Reader, since: Mark | None = None) -> Verified:
    """Check everything that eventlog/README, "Validity", lists; with `since`, what follows that mark (README, "Verify")."""
    walk = _Walk(since if since is not None else Mark({}, None))
    streams: list[StreamRow] = []
    if since is None:
        with _collecting(walk.findings, "database"):
            walk.findings.extend(_check_database(reader))
    with _collecting(walk.findings, "stream table"):
        streams = reader.streams()
    walk.findings.extend(_gone_streams(walk.since, streams))
    for row in streams:
        _verify_stream(reader, row, walk)
    if since is None:
        with _collecting(walk.findings, "event and image_change tables"):
            walk.findings.extend(_check_orphan_rows(reader))
    with _collecting(walk.findings, "blob table"):
        walk.findings.extend(check_blobs(reader, walk.blobs, find_mark(reader, walk.since.blob)))
    return _conclude(walk, len(streams))


def _conclude(walk: _Walk, streams: int) -> Verified:
    blobs = walk.blobs
    whole = walk.since == Mark({}, None)
    mark = Mark(walk.heads, blobs.newest or walk.since.blob)
    orphans, orphan_bytes = (blobs.orphans, blobs.orphan_bytes) if whole else (None, None)
    return Verified(
        streams, walk.counted, blobs.sound, blobs.sound_bytes, tuple(walk.findings), orphans, orphan_bytes, len(blobs.given_up), mark
    )


@contextmanager
def _collecting(findings: list[Finding], where: str, stream: StreamId | None = None) -> Iterator[None]:
    """Damage that ends one part of the walk is a finding, and the other parts are walked all the same."""
    try:
        yield
    except CorruptError as error:
        findings.append(Finding(where, str(error), "database" if stream is None else "chain", stream))


def _check_triggers(reader: Reader) -> Iterator[Finding]:
    """Append-only rests on the triggers: a log that lost one may have been altered by any program without a word."""
    found = {str(name): str(sql) for name, sql in reader.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")}
    for name, sql in expected_triggers(reader.format).items():
        if found.get(name) != sql:
            state = "has other words than it must" if name in found else "is missing"
            yield Finding("database", f"the trigger {name} {state}: what it refuses could be done since")


def _check_rules(reader: Reader) -> Iterator[Finding]:
    """The CHECKs of the tables. SQLite's own check leaves them out on a handle that only reads: there they are not even parsed
    (sqlite3AddCheckConstraint in its build.c). They are those of the format: what the file itself says of its tables may be damaged too."""
    for table, sql in expected_tables(reader.format).items():
        for rule in list_rules(sql):
            ((broken,),) = reader.rows(f"SELECT count(*) FROM {table} WHERE NOT ({rule})")
            if broken:
                yield Finding("database", f"{broken} rows of the table {table} are not as it demands: {rule}")


def list_rules(sql: str) -> list[str]:
    """The expressions of the CHECKs in a statement that makes a table of this format: no string in it holds a parenthesis."""
    rules = []
    for begin in (found.end() for found in re.finditer(r"CHECK \(", sql)):
        depth = 1
        for end in range(begin, len(sql)):
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            if depth == 0:
                rules.append(sql[begin:end])
                break
    return rules


def _check_database(reader: Reader) -> Iterator[Finding]:
    yield from _check_triggers(reader)
    yield from _check_pages(reader)
    yield from _check_rules(reader)
    yield from _check_indices(reader)
    if silent := find_silent_entries(reader):
        yield Finding("database", f"the pointer map says nothing of {silent} pages: free pages could not be given back")


def _check_indices(reader: Reader) -> Iterator[Finding]:
    """Every index is there, word for word: one of them refuses a request's second admission. One of some rows names those and no others,
    which SQLite's own check of 3.54 does not count."""
    found = {str(name): (str(table), str(sql)) for name, table, sql in reader.rows(_INDICES)}
    for name, expected in expected_indices(reader.format).items():
        table, sql = found.get(name, ("", ""))
        if sql != expected:
            state = "has other words than it must" if name in found else "is missing"
            yield Finding("database", f"the index {name} {state}: what it refuses could be done since")
            continue
        condition = sql.partition(" WHERE ")[2]
        # In one statement, so that both see the same state of a log that somebody goes on writing.
        ways = (f"INDEXED BY {name}", "NOT INDEXED")
        counts = [f"(SELECT count(*) || ' ' || total(rowid) FROM {table} {way} WHERE {condition})" for way in ways]
        if reader.rows(f"SELECT {counts[0]} = {counts[1]}") != [(1,)]:
            yield Finding("database", f"the index {name} does not name the rows of {table} that it must: {condition}")


def _check_pages(reader: Reader) -> Iterator[Finding]:
    """What SQLite itself says of its pages."""
    said = _ask_integrity(reader)
    if said == [SOUND]:
        return
    again = _ask_integrity(reader)
    if said != again or any(map(_is_weather, said)):
        raise UncertainCommitError(f"{reader.name}: a page could not be read ({show_text(said[0])}); open the log again")
    for message in said:
        yield Finding("database", f"SQLite's integrity check says: {message}")


def _ask_integrity(reader: Reader) -> list[str]:
    return ask_integrity(reader.rows)


def _is_weather(message: str) -> bool:
    """A page that could not be read (SQLITE_IOERR, of any kind) says nothing about the log. SQLite's check tells of it in its text only,
    and not always: what it says once and not twice is weather too."""
    return any(int(code) & 0xFF == _SQLITE_IOERR for code in re.findall(r"error code=(\d+)", message))


def _check_orphan_rows(reader: Reader) -> Iterator[Finding]:
    sql = (
        "SELECT DISTINCT stream, seq FROM image_change AS change WHERE NOT EXISTS"
        " (SELECT 1 FROM event WHERE stream = change.stream AND seq = change.seq) LIMIT 1000"
    )
    for stream, seq in reader.rows(sql):
        yield Finding(f"stream {stream} seq {seq}", "image changes belong to an event that is not there")
    for stream, count in reader.rows("SELECT stream, count(*) FROM event WHERE stream NOT IN (SELECT id FROM stream) GROUP BY stream"):
        yield Finding(f"stream {stream}", f"{count} events, but the stream has no row of its own")


def _gone_streams(since: Mark, streams: list[StreamRow]) -> Iterator[Finding]:
    there = {row.id for row in streams}
    for stream, head in since.heads.items():
        if stream not in there:
            what = f"the session is gone; its {head.position.seq} events were verified here before"
            yield Finding(f"stream {stream}", what, "tail", stream, head.position.seq)


def _verify_stream(reader: Reader, row: StreamRow, walk: _Walk) -> None:
    """One stream from where the mark left it, as far as it is sound."""
    where = f"stream {row.id}"
    known = walk.since.heads.get(row.id, Head(BEGINNING, ""))
    position = known.position
    if row.head_seq < position.seq:
        gone = position.seq - row.head_seq
        what = f"{gone} events are gone: the head is {row.head_seq}, and events up to {position.seq} were verified here before"
        walk.findings.append(Finding(where, what, "tail", row.id, Seq(row.head_seq + 1)))
        return
    seen = _StreamWalk(reader, row, known)
    with _collecting(walk.findings, where, row.id):
        for stored in reader.events(row.id, position):
            position = Position(stored.seq, stored.hash, stored.epoch)
            walk.counted += 1
            walk.findings.extend(seen.take(stored, walk.blobs))
    walk.heads[row.id] = Head(position, seen.root())
    with _collecting(walk.findings, where, row.id):
        walk.findings.extend(check_contents(reader, row.id, known.position.seq, position.seq, walk.blobs))


class _StreamWalk:
    """The image along one stream, and what its events say of it."""

    def __init__(self, reader: Reader, row: StreamRow, known: Head) -> None:
        self._reader = reader
        self._row = row
        self._known = known
        self._image: dict[bytes, Entry] | None = None
        self._root: str | None = known.root
        self._excludes: tuple[str, ...] | None = None

    def take(self, stored: StoredEvent, blobs: BlobWalk) -> Iterator[Finding]:
        """Fold one event; yields what is wrong with it."""
        where = f"stream {self._row.id} seq {stored.seq}"
        image = self._image
        if image is None:
            image = self._image = self._image_before()
        if self._excludes is None:
            found = first_excludes(stored.event)
            self._excludes = stream_excludes(self._reader, self._row.id) if found is None else found
        if stored.changes or stored.seq == 1:
            fold_into(image, stored.changes)
            self._root = None
        claimed = claimed_root(stored.event)
        if claimed is not None and claimed != self.root():
            what = f"root {claimed} is claimed, but the image there has root {self.root()}; the last good event is {stored.seq - 1}"
            yield Finding(where, what, "image", self._row.id, stored.seq)
        output = _output(stored, where)
        if output is not None:
            yield from check_output(self._reader, *output, self._row.id, stored.seq, blobs)
        if isinstance(stored.event, events.SessionForked):
            yield from check_fork(self._reader, self._row, stored.event)

    def root(self) -> str:
        """The root of the image after the newest event taken; named once for all events that change nothing."""
        if self._root is None:
            self._root = name_image(self._image or {}, self._excludes or ())
        return self._root

    def _image_before(self) -> dict[bytes, Entry]:
        """The image where the mark left the stream. Its changes are not hashed again; the root of their fold is compared."""
        image: dict[bytes, Entry] = dict(self._reader.image(self._row.id, self._known.position.seq)) if self._known.position.seq else {}
        if image and name_image(image, stream_excludes(self._reader, self._row.id)) != self._known.root:
            raise CorruptError(
                f"{self._reader.name}: stream {self._row.id}: the image changes up to seq {self._known.position.seq} are not those that "
                f"were verified here before; {advise_verify(self._reader.name)}"
            )
        return image


def name_image(image: Image, excludes: Sequence[str] = ()) -> str:
    """The root of an image in hex, or why it has none."""
    try:
        check_image(image)
    except CorruptError as error:
        return f"none ({error})"
    return root_hash(image, excludes).hex()


def _output(stored: StoredEvent, where: str) -> tuple[ContentId, int] | None:
    if not isinstance(stored.event, events.CallSettled) or stored.event.output is None:
        return None
    output = stored.event.output
    try:
        return ContentId(bytes.fromhex(output.blob)), output.kept
    except ValueError as error:
        raise CorruptError(f"{where}: output names no blob ({output.blob!r}); the last good event is {stored.seq - 1}") from error


def claimed_root(event: events.Event) -> str | None:
    """The root an event claims for the image at its seq, or None for an event that claims none."""
    match event:
        case events.SessionOpened() | events.SessionForked() | events.WorkspaceObserved() | events.CallSettled() | events.CallReplayed():
            return event.root
        case events.RestoreFinished() | events.CheckpointTaken() | events.Synced():
            return event.root
        case events.SessionPaused() | events.SessionFinished() | events.SessionFailed():
            return event.root
        case (
            events.DriverStarted()
            | events.SessionPlaced()
            | events.InputAdmitted()
            | events.AttemptStarted()
            | events.CallUndone()
            | events.ModeSwitched()
            | events.RecoveryDecided()
            | events.Quarantined()
            | events.PauseRequested()
            | events.ApprovalAsked()
            | events.ApprovalAnswered()
            | events.SessionResumed()
            | events.SessionMoved()
            | events.RootRecorded()
            | events.Noted()
        ):
            return None
