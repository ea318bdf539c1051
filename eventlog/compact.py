"""Compaction: contents of old images are given up, and their room given back, inside the one file.

No file is exchanged. SQLite's page on how to corrupt a database names renaming one under its users; and as both generations would have
the same side-file name, a handle of the old one could bring the new one's WAL into the wrong file. So everything here is SQLite
transactions under SQLite's own locks, and every handle stays good. Events, image changes and the chain are not touched.

Order, and what a crash leaves:

1. The WAL is emptied (room for what follows).
2. One transaction: the contents' blobs are deleted, each content named by an event goes on record in `dropped`. The trigger that
   forbids deletions is taken away and made again in the same transaction. A crash leaves all of it or nothing.
3. A log of format 2 becomes one of format 3 in one transaction, where there is room. A crash leaves it what it was.
4. Free pages are given back, VACUUM_PAGES in each transaction; a crash leaves some for the next compaction. A log that began as
   format 1 cannot do that: it is rebuilt once, in one transaction (VACUUM), where there is room.
5. The WAL is emptied again; whoever keeps it from that is named.

Giving up and appending. A writer may have seen a content in the log, or put it there ahead, before it sends the event that names it.
Compaction may come in between. So the writer's transaction checks that all it names is there (`ContentGoneError` if not, nothing
written, the caller looks again), and that a list of chunks finds its chunks: whatever compaction does, no event stands without its
contents. Blobs that nothing names are given up only when nobody else has the log open: a second reason, so that a large capture
at work is not made to begin anew.

Steps: `cluster.commit.*`, `compact.commit.*`, `vacuum.commit.*`, `rebuild.commit.*`, and those of `wal`.
"""

import os

import apsw
import msgspec

from eventlog import connection, wal
from eventlog.errors import BusyError, FullError
from eventlog.ports import Clock, Ids
from eventlog.reader import Reader
from eventlog.retention import GivenUp, Policy, choose_given_up
from eventlog.survey import Blobs, Survey, read_blobs, read_pins, spread_owners, take_survey
from eventlog.values import FORMAT, ContentId
from eventlog.writer import Writer

VACUUM_PAGES = 512
"""8 MiB in one transaction: it fills the WAL about once, and holds the write lock for some milliseconds."""
TRIES = 3


class Reclaimable(msgspec.Struct, frozen=True):
    """What a compaction gives up: numbers, and stored bytes by the session that alone needed them; what several shared; what
    nothing names. `orphans_left` is True when the latter stays because somebody else has the log open."""

    contents: int
    chunks: int
    orphans: int
    by_session: dict[str, int]
    shared_bytes: int
    orphan_bytes: int
    orphans_left: bool

    @property
    def total_bytes(self) -> int:
        return sum(self.by_session.values()) + self.shared_bytes + self.orphan_bytes


class Compacted(msgspec.Struct, frozen=True):
    """What was given up and how the files stand: bytes of the database before and after, free pages that stay in it, and the WAL. `note`
    says why free pages stay, or is empty."""

    given_up: Reclaimable
    before_bytes: int
    after_bytes: int
    free_pages: int
    wal: wal.Tidied | wal.Pinned
    note: str


def plan_compaction(reader: Reader, policy: Policy, *, takes_orphans: bool) -> Reclaimable:
    """What `compact` would give up now. Changes nothing. Raises CorruptError for a damaged log."""
    survey = take_survey(reader, policy)
    blobs = read_blobs(reader)
    return _count(_choose(survey, blobs, frozenset(), takes_orphans), blobs, survey, takes_orphans)


def compact_log(path: str, policy: Policy, clock: Clock, ids: Ids, wait_secs: float = 0.0) -> Compacted:
    """Open a log and compact it; for `wait_secs` the end waits for whoever pins the WAL. Raises as `compact`."""
    is_alone = not wal.find_openers(path)  # before it is opened here: this process's own lock would hide the others
    writer = Writer.open(path, ids)
    try:
        return compact(writer, policy, clock, takes_orphans=is_alone, wait_secs=wait_secs)
    finally:
        writer.close()


def compact(writer: Writer, policy: Policy, clock: Clock, *, takes_orphans: bool, wait_secs: float = 0.0) -> Compacted:
    """Give up what the policy does not keep, then give back what is free. Running it again goes on where a crash ended it.

    Raises CorruptError (a damaged log is left as it is), BusyError, FullError, ReplacedError, UncertainCommitError.
    """
    before = _database_bytes(writer.reader)
    _check_room(writer, before)
    writer.tidy(clock)
    given_up = _give_up(writer, policy, clock, takes_orphans)
    older = _renew_format(writer, clock)
    note = "; ".join(filter(None, (older, _give_back(writer, clock))))
    tidied = writer.tidy(clock, wait_secs)
    return Compacted(given_up, before, _database_bytes(writer.reader), _free_pages(writer.reader), tidied, note)


def _check_room(writer: Writer, logical: int) -> None:
    """Emptying the WAL makes the database as large as its pages are: on a full disk that would take the last room and give nothing."""
    needed = logical - os.stat(writer.path).st_size
    status = os.statvfs(os.path.dirname(writer.path) or ".")
    free = status.f_bavail * status.f_frsize
    if needed > free:
        raise FullError(
            f"{writer.name}: bringing the WAL into the database needs {needed} bytes and {free} are free; nothing was changed: make room, "
            "then compact again"
        )


class _OutdatedError(Exception):
    """Since the survey somebody pinned or unpinned an event, a restore was decided (its target may be an image that was to go), or a
    session was moved away."""


def _give_up(writer: Writer, policy: Policy, clock: Clock, takes_orphans: bool) -> Reclaimable:
    for _ in range(TRIES):
        survey = take_survey(writer.reader, policy)
        try:
            return writer.maintain("compact", lambda handle: _delete(handle, writer.reader, survey, clock.now_ms(), takes_orphans))  # noqa: B023
        except _OutdatedError:
            continue
    raise BusyError(f"{writer.name}: events are pinned, or restores decided, again and again meanwhile; nothing was given up, try again")


def _delete(handle: apsw.Connection, reader: Reader, survey: Survey, at_ms: int, takes_orphans: bool) -> Reclaimable:
    if read_pins(reader) != survey.pins or _has_bound_since(reader, survey):
        raise _OutdatedError
    blobs = read_blobs(reader)
    given = _choose(survey, blobs, _named_since(reader, survey), takes_orphans)
    gone = given.contents | given.chunks | given.orphans
    if gone:
        guard = connection.read_trigger(handle, "blob_no_delete", reader.name)
        dropped = [(content, blobs.sizes[content][0], at_ms) for content in sorted(given.contents)]
        record = "INSERT INTO dropped (hash, size, reason, at_ms) VALUES (?, ?, 'compacted', ?) ON CONFLICT (hash) DO NOTHING"
        handle.executemany(record, dropped).fetchall()
        handle.execute("DROP TRIGGER blob_no_delete").fetchall()
        handle.executemany("DELETE FROM blob WHERE hash = ?", [(content,) for content in sorted(gone)]).fetchall()
        handle.execute(guard).fetchall()
    return _count(given, blobs, survey, takes_orphans)


def _has_bound_since(reader: Reader, survey: Survey) -> bool:
    """Whether an event came that has contents kept which were to go: a restore that is owed (R1), a bundle that must come again (L8)."""
    sql = (
        "SELECT 1 FROM event WHERE stream = ? AND seq > ? AND (kind = 'session_moved'"
        " OR kind = 'recovery_decided' AND json_extract(payload, '$.obligation')) LIMIT 1"
    )
    return any(reader.rows(sql, (row.id, survey.heads.get(row.id, 0))) for row in reader.streams())


def _named_since(reader: Reader, survey: Survey) -> frozenset[ContentId]:
    """All contents that events after the survey name: they are kept, whatever the policy will say of them the next time."""
    found: set[ContentId] = set()
    for row in reader.streams():
        after = survey.heads.get(row.id, 0)
        if row.head_seq == after:
            continue
        contents = "SELECT content FROM image_change WHERE stream = ? AND seq > ? AND content IS NOT NULL"
        outputs = (
            "SELECT unhex(json_extract(payload, '$.output.blob')) FROM event WHERE stream = ? AND seq > ? AND kind = 'call_settled'"
            " AND json_extract(payload, '$.output.blob') IS NOT NULL"
        )
        for sql in (contents, outputs):
            found |= {ContentId(name) for (name,) in reader.rows(sql, (row.id, after)) if isinstance(name, bytes)}
    return frozenset(found)


def _choose(survey: Survey, blobs: Blobs, since: frozenset[ContentId], takes_orphans: bool) -> GivenUp:
    named = frozenset(survey.owners) | since
    return choose_given_up(blobs.names, blobs.lists, named, survey.kept | since, takes_orphans=takes_orphans)


def _count(given: GivenUp, blobs: Blobs, survey: Survey, takes_orphans: bool) -> Reclaimable:
    owners = spread_owners(survey.owners, blobs.lists)
    by_session: dict[str, int] = {}
    shared = 0
    for content in given.contents | given.chunks:
        if len(owners[content]) == 1:
            (session,) = owners[content]
            by_session[session] = by_session.get(session, 0) + blobs.sizes[content][1]
        else:
            shared += blobs.sizes[content][1]
    numbers = (len(given.contents), len(given.chunks), len(given.orphans))
    return Reclaimable(*numbers, dict(sorted(by_session.items())), shared, blobs.stored(given.orphans), not takes_orphans)


def _give_back(writer: Writer, clock: Clock) -> str:
    """Give free pages back to the file system; why some stay, or "". What was given up is given up, whatever happens here."""
    if not _free_pages(writer.reader):
        return ""
    try:
        if writer.reader.rows("PRAGMA auto_vacuum") != [(2,)]:
            return _rebuild(writer)
        return _vacuum(writer, clock)
    except BusyError as error:
        return f"free pages stay for the next compaction: {error}"


def _renew_format(writer: Writer, clock: Clock) -> str:
    """A log of format 2 becomes one of format 3; why it stays what it is, or ""."""
    if writer.reader.format == FORMAT:
        return ""
    needed = 2 * _database_bytes(writer.reader)  # its rows a second time, in the WAL and then in the database
    status = os.statvfs(os.path.dirname(writer.path) or ".")
    free = status.f_bavail * status.f_frsize
    if free < needed:
        return f"the log stays format {writer.reader.format}: to become format {FORMAT} it needs {needed} bytes, and {free} are free"
    try:
        writer.cluster()
    except FullError:
        return f"the log stays format {writer.reader.format}: there was no room for it to become format {FORMAT}"
    writer.tidy(clock)
    return ""


def _rebuild(writer: Writer) -> str:
    """A log that began as format 1 has no map of its pages: one VACUUM makes it. It needs the file's size twice more for a moment."""
    needed = 2 * _database_bytes(writer.reader)
    status = os.statvfs(os.path.dirname(writer.path) or ".")
    free = status.f_bavail * status.f_frsize
    kept = "its free pages are used again by later appends, and not given back"
    if free < needed:
        return f"this log began as format 1 and must be rebuilt once, which needs {needed} bytes; {free} are free: {kept}"
    try:
        writer.rebuild()
    except FullError:
        return f"this log began as format 1 and must be rebuilt once; there was no room for that: {kept}"
    return ""


def _vacuum(writer: Writer, clock: Clock) -> str:
    """Give free pages back in small transactions, in smaller ones where there is no room: what is moved stands in the WAL first."""
    pages = VACUUM_PAGES
    while free := _free_pages(writer.reader):
        try:
            writer.maintain("vacuum", lambda handle: handle.execute(f"PRAGMA incremental_vacuum({pages})").fetchall())  # noqa: B023
        except FullError:
            writer.tidy(clock)
            if pages == 1:
                return f"{free} free pages stay: there is no room to move what lies behind them; make some, then compact again"
            pages = max(1, pages // 8)
            continue
        if _free_pages(writer.reader) >= free:
            return f"{free} free pages stay: SQLite gives none of them back now"
        if pages < VACUUM_PAGES:
            writer.tidy(clock)  # the file is cut now, not at its next checkpoint: room for the next step
    return ""


def _database_bytes(reader: Reader) -> int:
    return _number(reader, "page_count") * _number(reader, "page_size")


def _free_pages(reader: Reader) -> int:
    return _number(reader, "freelist_count")


def _number(reader: Reader, pragma: str) -> int:
    return int(str(reader.rows(f"PRAGMA {pragma}")[0][0]))
