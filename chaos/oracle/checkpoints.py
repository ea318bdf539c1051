"""Checkpoint stores as recovery/README writes them ("Checkpoint stores"): the objects in one, and whether each checkpoint that a log names
is there, of the image that the log has at that event, with contents that are what their names say."""

import os
from collections.abc import Iterator

from .blobs import Blob, BlobDamage, BlobShelf
from .encoding import counted, encode_change, unsigned
from .image import ImageFold
from .paths import bytes_of
from .values import Defect, Event, Stream

CODECS = ("raw", "zstd", "chunks")
MAGIC = b"crashworthy checkpoint 1\n"
TIME_SIZE = 8
"""The last bytes of a row: times are recorded and not compared."""


def find_store(stream: Stream) -> str | None:
    """The directory of the checkpoints of a stream, None where its first event names none."""
    said = stream.events[0].payload.get("checkpoints") if stream.events else None
    return None if said is None else os.fsdecode(bytes_of(said["store"]))


def read_object(path: str) -> Blob | None:
    """The blob in a file of a store; None when it is not there or cannot be one."""
    try:
        with open(path, "rb") as file:
            stored = file.read()
    except OSError:
        return None
    if len(stored) < 9 or stored[0] >= len(CODECS):
        return None
    return Blob(CODECS[stored[0]], int.from_bytes(stored[1:9], "big"), stored[9:])


def find_content(store: str, name: bytes) -> Blob | None:
    """One content of a store."""
    return read_object(os.path.join(store, "contents", name.hex()[:2], name.hex()))


def checkpoint_defects(stream: Stream, blobs: BlobShelf) -> Iterator[Defect]:
    """What is wrong with the checkpoints that a stream names."""
    store = find_store(stream)
    if store is None:
        return
    owner = str(stream.events[0].payload["ledger_id"])
    excludes = [bytes_of(line) for line in stream.events[0].payload.get("excludes", ())]
    image = ImageFold(tuple(excludes))
    for event in stream.events:
        image.apply(event.changes)
        name = _named(event)
        if not name:
            continue
        problem = _find_problem(store, owner, name, image, excludes, blobs)
        if problem:
            yield Defect(event.stream, event.seq, f"checkpoint {name}: {problem}")


def _named(event: Event) -> str:
    if event.kind == "checkpoint_taken":
        return str(event.payload["manifest"])
    first = event.payload.get("checkpoints") if event.kind == "session_opened" else None
    return str(first["manifest"]) if first else ""


def _find_problem(store: str, owner: str, name: str, image: ImageFold, excludes: list[bytes], blobs: BlobShelf) -> str:
    found = read_object(os.path.join(store, "manifests", owner, name))
    if found is None:
        return "its manifest is not there"
    try:
        data = BlobShelf({bytes.fromhex(name): found}, elsewhere=lambda chunk: find_content(store, chunk)).content(bytes.fromhex(name))
    except BlobDamage as damage:
        return str(damage)
    rows = [encode_change(image.entries[path]) for path in sorted(image.entries)]
    head = MAGIC + (image.root() or b"") + unsigned(len(excludes), 4) + b"".join(map(counted, excludes)) + unsigned(len(rows), 8)
    if not data.startswith(head):
        return "it is not one of the image there"
    place = len(head)
    for row in rows:
        if data[place : place + 4 + len(row) - TIME_SIZE] != counted(row)[:-TIME_SIZE]:
            return "a row is not that of the image there"
        place += 4 + len(row)
    if place != len(data):
        return "it has more rows than the image"
    return _find_lost(store, image, blobs)


def _find_lost(store: str, image: ImageFold, blobs: BlobShelf) -> str:
    for entry in image.entries.values():
        if entry.content is None:
            continue
        if find_content(store, entry.content) is None:
            return f"the content {entry.content.hex()} is not there"
        try:
            if blobs.verified_size(entry.content) != entry.size:
                return f"the content {entry.content.hex()} has another size"
        except BlobDamage as damage:
            return str(damage)
    return ""
