"""Looking at the workspace for the log: scan, difference to the head image, and the contents that the log lacks.

An image is complete or does not exist (I11): a failed scan records nothing. A failure during a call is counted in the ledger (rule
C5), from the third on it needs a person.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

import msgspec

from eventlog import events
from eventlog.blobs import batch_blobs, encode_content
from eventlog.codec import Blob
from eventlog.errors import ContentGoneError, InternalError, NeedsPersonError, ScanError, required
from eventlog.image import Change, Entry, Image, diff, is_identity_change, root_hash
from eventlog.show import encode_bytes
from eventlog.values import ContentId
from recovery.checkpoints.vault import ContentsChangedError
from recovery.context import Context
from recovery.labels import Label
from recovery.limits import find_crossing, measure, measure_image
from recovery.root import check_root
from recovery.space.ledger import append_fenced
from recovery.space.records import ScanFailed
from recovery.workspace.content import read_verified
from recovery.workspace.profile import Profile
from recovery.workspace.scan import RootMissing, Scanner, scan
from recovery.workspace.side import RESERVED_NAME
from recovery.workspace.values import OVER_LIMIT, Scan, Untracked

T = TypeVar("T")
TRIES = 3
SCAN_FAILURES_BEFORE_PERSON = 3
MOVE_AWAY = "make the path readable, or move it out of the workspace; `recovery drive STATE_DIR` then goes on"
"""The way out where images are copied into checkpoints, for which everything is read."""
MASS_DELETION_PATHS = 50  # rule C4
SMALL_COMMIT_BYTES = 8 << 20


class LimitCrossedError(NeedsPersonError):
    """The workspace is above a limit of a session whose images must all be in the log; nothing of it was read (C8)."""

    def __init__(self, crossing: str) -> None:
        self.crossing = crossing
        super().__init__(
            f"no image is taken in mode transactional: {crossing}. Make the workspace smaller and drive again, or begin a session of mode "
            "auto"
        )


def refuse_over_limit(context: Context) -> None:
    """Raise LimitCrossedError where no call is open and the workspace is above a limit of mode transactional: what recovery would read of
    it is what may not be read (C8). An open call is decided all the same: its restore makes the workspace smaller."""
    state = context.journal.state
    if state.mode != "transactional" or state.modes.limits is None or state.open_call is not None or state.obligation is not None:
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if crossing := find_crossing(measure(context.root, context.profile), state.modes.limits):
            raise LimitCrossedError(crossing)


class Capture(msgspec.Struct, frozen=True):
    """The workspace as scanned: its root hash, what changed since the head image, and blobs small enough for the same commit."""

    scan: Scan
    root: str
    changes: tuple[Change, ...]
    blobs: tuple[Blob, ...]
    crossing: str = ""
    """Which limit of the session the workspace is above; its contents are not in `blobs` then."""

    @property
    def differs(self) -> bool:
        """True when the image differs from the head, times aside."""
        return is_identity_change(self.changes)

    @property
    def untracked(self) -> list[events.Untracked]:
        """What no image holds, as it stands in events."""
        return list_untracked(self.scan.untracked)


def list_untracked(nodes: tuple[Untracked, ...]) -> list[events.Untracked]:
    """Untracked nodes as they stand in events."""
    return [events.Untracked(encode_bytes(node.path), node.kind) for node in nodes]


def look(root: str, scanner: Scanner | None, profile: Profile, against: Image, processes: Collection[int] = ()) -> Scan:
    """One scan of a workspace against an image (`Scanner.scan`), by the driver's own scanner where there is one, which has the session's
    `profile`. `processes` are the pids of the space that live: a store through a mapping of theirs moves no time. Raises ScanError,
    RootMissing."""
    if scanner is not None:
        return scanner.scan(processes=processes, against=against)
    return scan(root, side_directory_name=RESERVED_NAME, profile=profile, against=against)


def look_again(context: Context, against: Image) -> Scan:
    """`look` by a driver."""
    return look(context.root, context.scanner, context.profile, against, context.space.list_processes())


def look_by_hints(context: Context) -> Scan:
    """One scan, of what the driver's watcher names where it has one. Raises ScanError, RootMissing."""
    if context.scanner is None or context.watch is None:
        return look_again(context, context.journal.state.image)
    processes = context.space.list_processes()
    return context.scanner.scan(hints=context.watch.drain(), processes=processes, against=context.journal.state.image)


def capture(context: Context, *, whole: bool = False) -> Capture:
    """Scan and make everything ready that a commit of the difference needs; `whole`: whatever a watcher says. Limits are asked before
    anything is read (C8). Raises ScanError, LimitCrossedError in mode transactional."""
    state = context.journal.state
    limits = None if state.mode == "checkpoint" else state.modes.limits
    crossing = "" if limits is None else find_crossing(measure(context.root, context.profile), limits)
    if crossing and state.mode == "transactional":
        raise LimitCrossedError(crossing)
    for attempt in range(1, TRIES + 1):
        found = look_again(context, context.journal.state.image) if whole else look_by_hints(context)
        changes = diff(context.journal.state.image, found.image)
        if limits is not None and not crossing:
            crossing = find_crossing(measure_image(found.image), limits)  # it may have grown under the scan
        if crossing and state.mode == "transactional":
            raise LimitCrossedError(crossing)
        if crossing or state.mode == "checkpoint":
            return Capture(found, root_hash(found.image, context.profile.excludes).hex(), changes, (), crossing)
        try:
            blobs = tuple(_new_blobs(context, changes))
        except ScanError:
            # A file changed between scan and reading: the whole look is taken again, so that image and contents belong together (case 2).
            if attempt == TRIES:
                raise
            continue
        return Capture(found, root_hash(found.image, context.profile.excludes).hex(), changes, blobs)
    raise InternalError("the loop above returns or raises")


def commit_look(work: Callable[[], T]) -> T:
    """Run `work`, which captures and commits what it found; again when a compaction beside us gave up a content in between that the
    capture had seen in the log, or a file changed before it was copied into a checkpoint. Nothing was written then (the append is refused
    as a whole), and a new capture brings the content."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(ContentGoneError, ContentsChangedError):
            return work()
    return work()


def count_removed(before: Image, after: Image, changes: tuple[Change, ...]) -> tuple[int, bool]:
    """How many tracked paths are gone whose content is under no other path, and whether that is a mass deletion (C4). Pure."""
    kept = {entry.content for entry in after.values() if entry.content is not None}
    removed = sum(change.op == "del" and before[change.path].content not in kept for change in changes)
    return removed, removed >= MASS_DELETION_PATHS and 2 * removed > len(before)


def capture_outside(context: Context, *, whole: bool = False) -> Capture:
    """`capture` outside any call. Raises NeedsPersonError for a mass deletion nobody accepted: it is not recorded (C4)."""
    check_root(context.root, context.journal.state)
    found = capture(context, whole=whole)
    removed, is_mass = count_removed(context.journal.state.image, found.scan.image, found.changes)
    if is_mass and found.root != context.accept_outside:
        raise NeedsPersonError(describe_outside_deletion(removed, found.root))
    return found


def describe_outside_deletion(removed: int, root: str) -> str:
    """The sentence for a mass deletion: the counts, the state seen, and the way out."""
    return (
        f"{Label.OUTSIDE_DELETION.value}: {removed} tracked paths are gone outside any call; if that is meant, "
        f"`recovery drive STATE_DIR --accept-outside {root}`"
    )


def capture_after_call(context: Context, call: int) -> Capture:
    """`capture` at a call's end: also checks that the root is the session's own (D3), and counts failures (C5)."""
    check_root(context.root, context.journal.state)
    try:
        return capture(context)
    except LimitCrossedError as error:
        return _stale_capture(context, error.crossing)
    except RootMissing:
        check_root(context.root, context.journal.state)
        raise
    except ScanError as error:
        count_scan_failure(context, call, error)
        raise


def _stale_capture(context: Context, crossing: str) -> Capture:
    """What stands for a workspace that a call made larger than an image may be: the image before it, and that it is stale (C8)."""
    state = context.journal.state
    untracked = (Untracked(b"", OVER_LIMIT), *(one for one in state.untracked if one.path))
    return Capture(Scan(state.image, untracked), state.root, (), (), crossing)


def count_scan_failure(context: Context, call: int, error: ScanError) -> None:
    """Record that a scan failed while `call` was open. Raises NeedsPersonError from the third time on (C5)."""
    append_fenced(context.ledger, context.epoch, ScanFailed(context.epoch, call, str(error)))
    failures = context.ledger.state.scan_failures[call]
    if failures >= SCAN_FAILURES_BEFORE_PERSON:
        is_copied = context.journal.state.mode == "checkpoint"
        way_out = MOVE_AWAY if is_copied else (
            "repair the path, then drive again, or `recovery settle STATE_DIR --exclude PATH` leaves it out of the images; after that "
            "`--undo` undoes the call, if its outcome is not wanted"
        )
        raise NeedsPersonError(f"call {call} cannot be recorded after {failures} scans: {error}; {way_out}") from error


def _new_blobs(context: Context, changes: tuple[Change, ...]) -> Iterator[Blob]:
    """Blobs of contents the log lacks, up to SMALL_COMMIT_BYTES of contents; the others go in ahead, in commits of their own: harmless by
    their names (I2)."""
    waiting = 0
    large: list[tuple[bytes, Entry]] = []
    for path, entry in _lacking(context, changes):
        if waiting + entry.size <= SMALL_COMMIT_BYTES:
            waiting += entry.size
            yield from _encode(context, path, entry)
        else:
            large.append((path, entry))
    for batch in batch_blobs(blob for path, entry in large for blob in _encode(context, path, entry)):
        context.journal.insert_blobs(batch)


def _lacking(context: Context, changes: tuple[Change, ...]) -> Iterator[tuple[bytes, Entry]]:
    """The changed files whose content is not in the log, each content once."""
    seen: set[bytes] = set()
    for change in changes:
        entry = change.entry
        if entry is None or entry.content is None or entry.content in seen or context.journal.reader.has_blob(ContentId(entry.content)):
            continue
        seen.add(entry.content)
        yield change.path, entry


def _encode(context: Context, path: bytes, entry: Entry) -> Iterator[Blob]:
    content = required(entry.content, "only a file's content is put into the log")
    kept = context.scanner.kept.get(content) if context.scanner else None
    pieces = [kept] if kept is not None else read_verified(context.root, path, content, entry.size)
    return encode_content(pieces, ContentId(content))
