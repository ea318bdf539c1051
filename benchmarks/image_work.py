"""What the engine does in the image benchmark: scans, a first image into a log, a call's scans and commits, a rebuild from the log."""

import os

from benchmarks.image_trees import sync
from eventlog import events
from eventlog.blobs import batch_blobs, encode_content
from eventlog.collection import collection_paused
from eventlog.creation import create_log
from eventlog.image import Entry, Image, diff, fold_into, root_hash
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import ContentId, Epoch, StreamId
from eventlog.writer import Writer
from recovery.workspace.apply import apply_plan
from recovery.workspace.content import read_verified
from recovery.workspace.made import SUFFIX, read_made, write_made
from recovery.workspace.pack import write_pack
from recovery.workspace.restore_plan import plan_restore
from recovery.workspace.scan import Scanner
from recovery.workspace.values import Scan
from recovery.workspace.watch import Watch

STREAM = StreamId("bench")
IDENTITY = events.RootIdentity("r", 1, None, "0")


class Scanned:
    """One workspace under a scanner, with a watcher or without."""

    def __init__(self, root: str, watched: bool) -> None:
        self.root = root
        self.scanner = Scanner(root)
        self.watch = Watch(root) if watched else None
        self.image: Image = self.scan().image
        self.settle()

    def scan(self) -> Scan:
        return self.scanner.scan(hints=self.watch.drain() if self.watch is not None else None)

    def settle(self) -> None:
        """Scan until nothing is too young to be remembered."""
        while True:
            self.scan()
            if not self.scanner.hashed and not self.scanner._young:
                return

    def look(self) -> int:
        """A scan, what changed since the last look, and the root hash: what a call pays at its end."""
        found = self.scan()
        changes = diff(self.image, found.image)
        root_hash(found.image)
        self.image = found.image
        return len(changes)

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()


def take_first_image(directory: str, root: str) -> None:
    """Scan, hash, and make a log that holds the whole tree, as a session is opened: what `git add` does for its index."""
    scanner = Scanner(root)
    with collection_paused():
        found = scanner.scan()
        changes = diff({}, found.image)
        opened = events.SessionOpened(
            1, "bench", "w", "transactional", "stop", [], root_hash(found.image).hex(), IDENTITY, "l", 1, [], [], [], None, None
        )
        contents = {change.entry.content: (change.path, change.entry) for change in changes if change.entry and change.entry.content}
        blobs = (blob for path, entry in contents.values() for blob in _encode(scanner, root, path, entry))
        create_log(os.path.join(directory, "log.sqlite"), STREAM, Record(opened, changes), blobs, RandomIds())


def start_driver(directory: str) -> None:
    """A driver takes over the session, so that calls can be committed."""
    writer = Writer.open(os.path.join(directory, "log.sqlite"), RandomIds())
    writer.raise_floor(STREAM, Epoch(1), events.DriverStarted(1, events.DriverIdentity("n", 1, 1, "b", 1), "l", 1, "cgroup"))
    writer.close()


def commit(writer: Writer, scanner: Scanner, root: str, before: Image, found: Scan) -> int:
    """What changed, its contents and one event into the log; the number of changes."""
    changes = diff(before, found.image)
    contents = {change.entry.content: (change.path, change.entry) for change in changes if change.entry and change.entry.content}
    for batch in batch_blobs(blob for path, entry in contents.values() for blob in _encode(scanner, root, path, entry)):
        writer.insert_blobs(batch)
    note = events.Noted(1, root_hash(found.image).hex())
    writer.append(STREAM, Epoch(1), [Record(note, changes)], (), "bench")
    return len(changes)


def _encode(scanner: Scanner, root: str, path: bytes, entry: Entry):  # type: ignore[no-untyped-def]
    assert entry.content is not None
    kept = scanner.kept.get(entry.content)
    pieces = [kept] if kept is not None else read_verified(root, path, entry.content, entry.size)
    return encode_content(pieces, ContentId(entry.content))


def rebuild(log_directory: str, target: str) -> None:
    """The image at the log's head, folded from verified events, written below the empty directory `target`, scanned, compared with the root
    hash that the log states, and synced once: all that a driver and its file worker do, in one process."""
    root, side = os.path.join(target, "w"), os.path.join(target, "side")
    os.mkdir(root)
    os.mkdir(side)
    reader = Reader.open(os.path.join(log_directory, "log.sqlite"))
    image: dict[bytes, Entry] = {}
    wanted = ""
    for stored in reader.events(STREAM):
        fold_into(image, stored.changes)
        wanted = stored.event.root if isinstance(stored.event, events.SessionOpened) else wanted
    scanner = Scanner(root)
    plan = plan_restore(scanner.scan(against=image), image, ())
    pack = os.path.join(target, "pack")
    write_pack(pack, plan, lambda contents: reader.contents(map(ContentId, contents)), "contents")
    applied = apply_plan(plan, root=root, side=side, quarantine_directory="bench-1", pack=pack, step="restore", is_shared=True)
    write_made(pack + SUFFIX, applied.made)
    scanner.learn(read_made(pack + SUFFIX))
    for name in (pack, pack + SUFFIX):
        os.unlink(name)
    if root_hash(scanner.scan(against=image).image).hex() != wanted:
        raise RuntimeError("the rebuilt tree is not the image")
    sync(root)
    reader.close()
