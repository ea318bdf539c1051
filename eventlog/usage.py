"""Where a log's room goes: by session, what is shared, what nothing names, free pages and the WAL. Reads only."""


import msgspec

from eventlog import wal
from eventlog.reader import Reader
from eventlog.retention import Policy
from eventlog.survey import Blobs, Owners, Survey, read_blobs, spread_owners, take_survey
from eventlog.values import StreamId

_EVENTS = "SELECT count(*), coalesce(sum(length(CAST(payload AS BLOB))), 0) FROM event WHERE stream = ?"
_CHANGES = "SELECT count(*), coalesce(sum(length(path)), 0) FROM image_change WHERE stream = ?"


class SessionUsage(msgspec.Struct, frozen=True):
    """One session: its events and image changes with the bytes of payloads and paths; the contents its events name, and the stored bytes
    (chunks included) that it alone needs and that it shares with other sessions; how many of its contents were given up."""

    session: str
    events: int
    payload_bytes: int
    changes: int
    path_bytes: int
    contents: int
    own_bytes: int
    shared_bytes: int
    given_up: int
    pins: int


class Usage(msgspec.Struct, frozen=True):
    """A whole log, in bytes. `shared_bytes` are stored once, however many sessions share them; `unnamed_bytes` are those of blobs that no
    event needs; `free_bytes` are free pages inside `database_bytes`. `pinned_by` are processes that read from the WAL right now."""

    sessions: tuple[SessionUsage, ...]
    shared_bytes: int
    unnamed_bytes: int
    database_bytes: int
    free_bytes: int
    wal_bytes: int
    pinned_by: tuple[wal.Holder, ...]


def measure_usage(reader: Reader) -> Usage:
    """Read the whole log. Raises CorruptError for a damaged one."""
    pinned_by, wal_bytes = wal.find_pins(reader.path), wal.wal_bytes(reader.path)
    survey = take_survey(reader, Policy())
    blobs = read_blobs(reader)
    owners = spread_owners(survey.owners, blobs.lists)
    named = blobs.names & owners.keys()
    sessions = tuple(_measure_session(reader, stream, survey, blobs, owners) for stream in survey.heads)
    shared = blobs.stored(name for name in named if len(owners[name]) > 1)
    page = _number(reader, "page_size")
    sizes = (_number(reader, "page_count") * page, _number(reader, "freelist_count") * page)
    return Usage(sessions, shared, blobs.stored(blobs.names - named), *sizes, wal_bytes, pinned_by)


def _measure_session(reader: Reader, stream: StreamId, survey: Survey, blobs: Blobs, owners: Owners) -> SessionUsage:
    ((count, payload_bytes),) = reader.rows(_EVENTS, (stream,))
    ((changes, path_bytes),) = reader.rows(_CHANGES, (stream,))
    contents = [content for content, mine in survey.owners.items() if stream in mine]
    stored = [name for name in blobs.sizes if stream in owners.get(name, ())]
    return SessionUsage(
        session=stream,
        events=int(str(count)),
        payload_bytes=int(str(payload_bytes)),
        changes=int(str(changes)),
        path_bytes=int(str(path_bytes)),
        contents=len(contents),
        own_bytes=blobs.stored(name for name in stored if len(owners[name]) == 1),
        shared_bytes=blobs.stored(name for name in stored if len(owners[name]) > 1),
        given_up=sum(content not in blobs.sizes for content in contents),
        pins=sum(stream == pinned for pinned, _ in survey.pins),
    )


def _number(reader: Reader, pragma: str) -> int:
    return int(str(reader.rows(f"PRAGMA {pragma}")[0][0]))
