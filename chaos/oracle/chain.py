"""Oracle `chain`: the log is valid in itself (eventlog/README: Events and the chain, Images, Blobs, Validity)."""

from collections.abc import Iterator

from .blobs import BlobDamage, BlobShelf
from .checkpoints import checkpoint_defects
from .encoding import ZERO_HASH, event_hash, names_in_pairs
from .evidence import Evidence, known
from .load import Log
from .paths import is_valid_path
from .values import Change, Defect, Event, Finding, Stream, failed, hex_of, name_event, passed

KINDS_WITH_ROOT = frozenset(
    {
        "session_opened",
        "session_forked",
        "workspace_observed",
        "call_settled",
        "call_replayed",
        "restore_finished",
        "checkpoint_taken",
        "synced",
        "session_paused",
        "session_finished",
        "session_failed",
    }
)
COLUMNS_OF_KIND = {"f": {"content"}, "d": set[str](), "l": {"target"}, "p": set[str]()}
KINDS_WITH_XATTRS = ("f", "d")
SYMLINK_MODE = 0o777


def judge_chain(evidence: Evidence) -> Finding:
    """Every stream of the log is whole, chained, fenced and folds to the roots it names; every blob referred to is there; the
    triggers refuse. The first defect is reported with the last valid record before it."""
    log = known(evidence.log)
    defects = [*log.defects, *(defect for stream in log.streams.values() for defect in stream_defects(log, stream))]
    if evidence.request.stream not in log.streams:
        defects.append(Defect(evidence.request.stream, None, f"the log has no such stream, but {sorted(log.streams)}"))
    if not defects:
        return passed(f"{sum(len(stream.events) for stream in log.streams.values())} events, {len(log.blobs.rows)} blobs")
    return report(log, defects)


def report(log: Log, defects: list[Defect]) -> Finding:
    """The finding for the first of `defects`: those without a place first, then by stream and seq."""
    first = min(defects, key=lambda defect: (defect.stream or "", defect.seq or 0))
    more = f" (and {len(defects) - 1} more)" if len(defects) > 1 else ""
    if first.stream is None or first.seq is None:
        where = "" if first.stream is None else f"stream {first.stream}: "
        return failed(f"{where}{first.text}{more}", path=first.path, expected=first.expected, found=first.found)
    stream = log.streams.get(first.stream)
    return failed(
        f"stream {first.stream} seq {first.seq}: {first.text}{more}; last valid record before it: seq {first.seq - 1}",
        path=first.path,
        expected=first.expected,
        found=first.found,
        event=name_event(stream.event_at(first.seq)) if stream else None,
    )


def stream_defects(log: Log, stream: Stream) -> Iterator[Defect]:
    """All that is wrong with one stream."""
    yield from chain_defects(log.log_id, stream)
    yield from epoch_defects(stream)
    yield from cache_defects(stream)
    yield from stream.fold.defects
    yield from track_defects(stream)
    yield from checkpoint_defects(stream, log.blobs)
    for event in stream.events:
        yield from change_defects(event)
        yield from root_defects(stream, event)
        yield from reference_defects(log.blobs, event)


def chain_defects(log_id: str, stream: Stream) -> Iterator[Defect]:
    """Hashes and their links; that the first event, and no other, opens the session; ids that occur twice."""
    previous = ZERO_HASH
    ids: set[bytes] = set()
    for event in stream.events:
        if event.prev_hash != previous:
            yield defect(event, "prev_hash is not the hash before it", previous.hex(), event.prev_hash.hex())
        wanted = event_hash(log_id, event)
        if event.hash != wanted:
            yield defect(event, "hash is not that of the record", wanted.hex(), event.hash.hex())
        if (event.kind in ("session_opened", "session_forked")) != (event.seq == 1):
            yield defect(event, f"{event.kind} at seq {event.seq}: the first event, and no other, is session_opened or session_forked")
        if event.id in ids:
            yield defect(event, f"id {event.id.hex()} occurs twice")
        previous = event.hash
        ids.add(event.id)


def epoch_defects(stream: Stream) -> Iterator[Defect]:
    """Epochs never fall, a driver's is above all before it, everybody else's is the newest driver's."""
    floor = 0
    for event in stream.events:
        if event.kind == "driver_started":
            if event.epoch <= floor:
                yield defect(event, "driver_started is not above every epoch before it", f"> {floor}", str(event.epoch))
            floor = max(floor, event.epoch)
        elif event.epoch != floor:
            yield defect(event, "epoch is not that of the newest driver_started", str(floor), str(event.epoch))


def cache_defects(stream: Stream) -> Iterator[Defect]:
    """The columns of the stream table agree with the events."""
    if not stream.events:
        yield Defect(stream.id, None, "the stream has no events")
        return
    newest = stream.events[-1]
    floor = max([event.epoch for event in stream.of_kind("driver_started")][-1:], default=0)
    columns = (
        ("head_seq", str(newest.seq), str(stream.head_seq)),
        ("head_hash", newest.hash.hex(), stream.head_hash.hex()),
        ("floor", str(floor), str(stream.floor)),
    )
    for name, expected, found in columns:
        if expected != found:
            yield Defect(stream.id, newest.seq, f"cached {name} does not agree with the events", expected=expected, found=found)


def track_defects(stream: Stream) -> Iterator[Defect]:
    """Every entry has an owner where owners are tracked, none elsewhere; ACLs stand only where they are tracked, on no symlink."""
    track = stream.events[0].payload.get("track", ()) if stream.events else ()
    for event in stream.events:
        for change in event.changes:
            if change.op == "put" and (change.uid is not None) != ("owners" in track):
                yield Defect(event.stream, event.seq, f"image change: {'no' if change.uid is None else 'an'} owner", change.path)
            if change.acl is not None and ("acls" not in track or change.kind == "l"):
                yield Defect(event.stream, event.seq, "image change: an ACL where none may be", change.path)


def change_defects(event: Event) -> Iterator[Defect]:
    """The form of the change rows: paths valid and in byte order, once each, columns as the kind of entry has them."""
    previous: bytes | None = None
    for change in event.changes:
        problem = change_problem(change)
        if previous is not None and change.path <= previous:
            problem = "changes are not in byte order of path, one each"
        if problem is not None:
            yield Defect(event.stream, event.seq, f"image change: {problem}", change.path)
        previous = change.path


def change_problem(change: Change) -> str | None:
    """What is wrong with the form of one row, None when nothing is."""
    if not is_valid_path(change.path):
        return "the path has not the form of a path"
    if (change.uid is None) != (change.gid is None):
        return "uid and gid are not tracked together"
    if change.op in ("del", "times"):
        return removal_problem(change)
    if change.op != "put":
        return f"op {change.op!r} is unknown"
    return entry_problem(change)


def removal_problem(change: Change) -> str | None:
    """A `del` or `times` row says nothing beside its path (and the time)."""
    rest = (change.content, change.target, change.link, change.xattrs, change.uid, change.gid, change.acl)
    is_bare = change.kind == "" and change.mode == 0 and change.size == 0 and all(value is None for value in rest)
    if not is_bare or (change.op == "del" and change.mtime_ns != 0):
        return f"a {change.op} row has columns that are not empty"
    return None


def entry_problem(change: Change) -> str | None:
    """A `put` row has the columns of its kind and no others."""
    if change.kind not in COLUMNS_OF_KIND:
        return f"kind {change.kind!r} is unknown"
    for column in ("content", "target"):
        if (getattr(change, column) is not None) != (column in COLUMNS_OF_KIND[change.kind]):
            return f"{column} does not suit kind {change.kind}"
    if change.kind != "f" and change.size:
        return f"kind {change.kind} has a size"
    if change.kind == "d" and change.link is not None:
        return "a directory has a link group"
    if change.kind == "l" and change.mode != SYMLINK_MODE:
        return f"a symlink has mode {change.mode:04o}"
    return xattrs_problem(change)


def xattrs_problem(change: Change) -> str | None:
    """Attributes are pairs sorted by name, of files and directories only, NULL when there are none."""
    if change.xattrs is None:
        return None
    if change.kind not in KINDS_WITH_XATTRS:
        return f"kind {change.kind} has attributes"
    try:
        names = names_in_pairs(change.xattrs)
    except ValueError as error:
        return str(error)
    if not names or names != sorted(set(names)):
        return "attributes are not sorted by name, one each, at least one"
    return None


def root_defects(stream: Stream, event: Event) -> Iterator[Defect]:
    """The root an event names is that of the image folded up to it."""
    if event.kind in KINDS_WITH_ROOT:
        found = hex_of(stream.root_at(event.seq))
        if event.payload["root"] != found:
            yield defect(event, "root is not that of the folded image", event.payload["root"], found)


def reference_defects(blobs: BlobShelf, event: Event) -> Iterator[Defect]:
    """Every content and output an event refers to is a blob that decodes, hashes to its name and has the size stated."""
    for change in event.changes:
        problem = None if change.content is None else blob_problem(blobs, change.content, change.size)
        if problem is not None:
            yield Defect(event.stream, event.seq, problem, change.path)
    output = event.payload.get("output") if event.kind == "call_settled" else None
    problem = None if output is None else blob_problem(blobs, bytes.fromhex(output["blob"]), output["kept"])
    if problem is not None:
        yield defect(event, f"output: {problem}")


def blob_problem(blobs: BlobShelf, name: bytes, size: int) -> str | None:
    """What is wrong with the blob `name` that should have `size` bytes. One that was given up on record may be away."""
    if name in blobs.given_up and name not in blobs.rows:
        return None
    try:
        found = blobs.verified_size(name)
    except BlobDamage as damage:
        return str(damage)
    return None if found == size else f"blob {name.hex()} has {found} bytes, {size} are stated"


def defect(event: Event, text: str, expected: str | None = None, found: str | None = None) -> Defect:
    """A defect at an event."""
    return Defect(event.stream, event.seq, text, None, expected, found)
