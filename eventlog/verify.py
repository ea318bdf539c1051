"""Walking a whole log: chain, cache rows, image roots, blobs. Finds all damage it can reach and changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from eventlog import events
from eventlog.errors import CorruptError
from eventlog.image import Entry, fold_changes, root_hash
from eventlog.reader import Reader, StoredEvent
from eventlog.values import ContentId, StreamId


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of damage: where it is, what is wrong, the last good record before it."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was walked, and what was found wrong (nothing, for a sound log)."""

    streams: int
    events: int
    blobs: int
    blob_bytes: int
    findings: tuple[Finding, ...]


def verify(reader: Reader) -> Verified:
    """Check everything that eventlog/README, "Validity", lists."""
    findings: list[Finding] = list(_check_database(reader))
    counted = 0
    wanted: dict[ContentId, str] = {}
    streams = reader.streams()
    for row in streams:
        try:
            for stored in _verified_events(reader, row.id, wanted):
                counted += 1
                findings.extend(stored)
        except CorruptError as error:
            findings.append(Finding(f"stream {row.id}", str(error)))
    findings.extend(_check_orphans(reader))
    blobs, size, damage = _check_blobs(reader, wanted)
    return Verified(len(streams), counted, blobs, size, (*findings, *damage))


def _check_database(reader: Reader) -> Iterator[Finding]:
    for (message,) in reader.rows("PRAGMA integrity_check"):
        if message != "ok":
            yield Finding("database", f"SQLite's integrity check says: {message}")


def _check_orphans(reader: Reader) -> Iterator[Finding]:
    sql = "SELECT DISTINCT stream, seq FROM image_change WHERE NOT EXISTS (SELECT 1 FROM event WHERE event.stream = image_change.stream AND event.seq = image_change.seq)"
    for stream, seq in reader.rows(sql):
        yield Finding(f"stream {stream} seq {seq}", "image changes belong to an event that is not there")
    for stream, count in reader.rows("SELECT stream, count(*) FROM event WHERE stream NOT IN (SELECT id FROM stream) GROUP BY stream"):
        yield Finding(f"stream {stream}", f"{count} events, but the stream has no row of its own")


def _verified_events(reader: Reader, stream: StreamId, wanted: dict[ContentId, str]) -> Iterator[list[Finding]]:
    image: dict[bytes, Entry] = {}
    for stored in reader.events(stream):
        where = f"stream {stream} seq {stored.seq}"
        image = fold_changes(image, stored.changes)
        _want_blobs(stored, where, wanted)
        root = claimed_root(stored.event)
        found = root_hash(image).hex() if root is not None else None
        damage = (
            []
            if root == found
            else [Finding(where, f"root {root} is claimed, but the image there has root {found}; the last good event is {stored.seq - 1}")]
        )
        yield damage


def _want_blobs(stored: StoredEvent, where: str, wanted: dict[ContentId, str]) -> None:
    for change in stored.changes:
        if change.entry is not None and change.entry.content is not None:
            wanted.setdefault(ContentId(change.entry.content), where)
    if isinstance(stored.event, events.CallSettled) and stored.event.output is not None:
        wanted.setdefault(ContentId(bytes.fromhex(stored.event.output.blob)), where)


def claimed_root(event: events.Event) -> str | None:
    """The root an event claims for the image at its seq, or None for an event that claims none."""
    match event:
        case events.SessionOpened() | events.WorkspaceObserved() | events.CallSettled():
            return event.root
        case events.RestoreFinished() | events.Synced() | events.SessionFinished():
            return event.root
        case events.DriverStarted() | events.AttemptStarted() | events.RecoveryDecided() | events.Quarantined() | events.Noted():
            return None


def _check_blobs(reader: Reader, wanted: dict[ContentId, str]) -> tuple[int, int, list[Finding]]:
    findings: list[Finding] = []
    total = 0
    names = {ContentId(row[0]) for row in reader.rows("SELECT hash FROM blob") if isinstance(row[0], bytes)}
    for name in sorted(names | set(wanted)):
        try:
            total += sum(len(piece) for piece in reader.content(name))
        except CorruptError as error:
            findings.append(Finding(wanted.get(name, "a blob that no event needs"), str(error)))
    return len(names), total, findings
