"""Walking a whole log: chain, cache rows, image roots, blobs. Finds all damage it can reach and changes nothing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eventlog import events
from eventlog.errors import CorruptError, UncertainCommitError
from eventlog.image import Entry, Image, check_image, fold_into, root_hash
from eventlog.reader import Reader, StoredEvent, StreamRow
from eventlog.show import show_text
from eventlog.values import ContentId, StreamId

_SQLITE_IOERR = 10


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


Wanted = dict[tuple[ContentId, int], str]
"""Contents that events refer to, with the size each states, and where."""


def verify(reader: Reader) -> Verified:
    """Check everything that eventlog/README, "Validity", lists."""
    findings: list[Finding] = []
    counted = 0
    wanted: Wanted = {}
    streams: list[StreamRow] = []
    with _collecting(findings, "database"):
        findings.extend(_check_database(reader))
    with _collecting(findings, "stream table"):
        streams = reader.streams()
    for row in streams:
        with _collecting(findings, f"stream {row.id}"):
            for damage in _verified_events(reader, row.id, wanted):
                counted += 1
                findings.extend(damage)
    with _collecting(findings, "event and image_change tables"):
        findings.extend(_check_orphans(reader))
    sizes: dict[ContentId, int] = {}
    with _collecting(findings, "blob table"):
        findings.extend(_check_blobs(reader, wanted, sizes))
    return Verified(len(streams), counted, len(sizes), sum(sizes.values()), tuple(findings))


@contextmanager
def _collecting(findings: list[Finding], where: str) -> Iterator[None]:
    """Damage that ends one part of the walk is a finding, and the other parts are walked all the same."""
    try:
        yield
    except CorruptError as error:
        findings.append(Finding(where, str(error)))


def _check_database(reader: Reader) -> Iterator[Finding]:
    said = _ask_integrity(reader)
    if said == ["ok"]:
        return
    again = _ask_integrity(reader)
    if said != again or any(map(_is_weather, said)):
        raise UncertainCommitError(f"{reader.name}: a page could not be read ({show_text(said[0])}); open the log again")
    for message in said:
        yield Finding("database", f"SQLite's integrity check says: {message}")


def _ask_integrity(reader: Reader) -> list[str]:
    return [str(message) for (message,) in reader.rows("PRAGMA integrity_check")]


def _is_weather(message: str) -> bool:
    """A page that could not be read (SQLITE_IOERR, of any kind) says nothing about the log. SQLite's check tells of it in its text only,
    and not always: what it says once and not twice is weather too."""
    return any(int(code) & 0xFF == _SQLITE_IOERR for code in re.findall(r"error code=(\d+)", message))


def _check_orphans(reader: Reader) -> Iterator[Finding]:
    sql = "SELECT DISTINCT stream, seq FROM image_change WHERE (stream, seq) NOT IN (SELECT stream, seq FROM event)"
    for stream, seq in reader.rows(sql):
        yield Finding(f"stream {stream} seq {seq}", "image changes belong to an event that is not there")
    for stream, count in reader.rows("SELECT stream, count(*) FROM event WHERE stream NOT IN (SELECT id FROM stream) GROUP BY stream"):
        yield Finding(f"stream {stream}", f"{count} events, but the stream has no row of its own")


def _verified_events(reader: Reader, stream: StreamId, wanted: Wanted) -> Iterator[list[Finding]]:
    image: dict[bytes, Entry] = {}
    for stored in reader.events(stream):
        where = f"stream {stream} seq {stored.seq}"
        fold_into(image, stored.changes)
        _want_blobs(stored, where, wanted)
        root = claimed_root(stored.event)
        found = _name_image(image) if root is not None else None
        damage = (
            []
            if root == found
            else [Finding(where, f"root {root} is claimed, but the image there has root {found}; the last good event is {stored.seq - 1}")]
        )
        yield damage


def _name_image(image: Image) -> str:
    try:
        check_image(image)
    except CorruptError as error:
        return f"none ({error})"
    return root_hash(image).hex()


def _want_blobs(stored: StoredEvent, where: str, wanted: Wanted) -> None:
    for change in stored.changes:
        if change.entry is not None and change.entry.content is not None:
            wanted.setdefault((ContentId(change.entry.content), change.entry.size), where)
    if isinstance(stored.event, events.CallSettled) and stored.event.output is not None:
        output = stored.event.output
        try:
            wanted.setdefault((ContentId(bytes.fromhex(output.blob)), output.kept), where)
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
            | events.InputAdmitted()
            | events.AttemptStarted()
            | events.CallUndone()
            | events.ModeSwitched()
            | events.RecoveryDecided()
            | events.Quarantined()
            | events.SessionResumed()
            | events.SessionMoved()
            | events.Noted()
        ):
            return None


def _check_blobs(reader: Reader, wanted: Wanted, sizes: dict[ContentId, int]) -> Iterator[Finding]:
    """Every blob is whole, every content that an event needs is there; `sizes` is filled with what is sound."""
    places = {content: where for (content, _), where in wanted.items()}
    names = {ContentId(row[0]) for row in reader.rows("SELECT hash FROM blob") if isinstance(row[0], bytes)}
    for name in sorted(names | set(places)):
        try:
            sizes[name] = sum(len(piece) for piece in reader.content(name))
        except CorruptError as error:
            yield Finding(places.get(name, "a blob that no event needs"), str(error))
    for (content, stated), where in wanted.items():
        if sizes.get(content, stated) != stated:
            yield Finding(where, f"blob {content.hex()} has {sizes[content]} bytes, {stated} are stated")
