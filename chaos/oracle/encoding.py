"""The byte encodings of eventlog/README: change rows, event hashes, entries, directories, images. Pure.

Numbers are big-endian; `H` is BLAKE3-256; `b(x)` is the length as u32 before x; `opt(x)` is one zero byte, or 01 and b(x).
"""

from collections.abc import Iterable

from blake3 import blake3

from .values import Change, Event

LARGEST_PLAIN_DIRECTORY = 4096
ZERO_HASH = bytes(32)


def digest(data: bytes) -> bytes:
    """H(data)."""
    return blake3(data).digest()


def unsigned(number: int, size: int) -> bytes:
    """`number` in `size` bytes, unsigned."""
    return number.to_bytes(size, "big")


def counted(data: bytes) -> bytes:
    """b(data)."""
    return unsigned(len(data), 4) + data


def optional(data: bytes | None) -> bytes:
    """opt(data)."""
    return b"\0" if data is None else b"\1" + counted(data)


def owner_of(change: Change) -> bytes | None:
    """`owner` of the README: None when it is not tracked."""
    if change.uid is None or change.gid is None:
        return None
    return unsigned(change.uid, 4) + unsigned(change.gid, 4)


def encode_change(change: Change) -> bytes:
    """`row` of the README."""
    return b"".join((
        counted(change.path),
        counted(change.op.encode()),
        counted(change.kind.encode()),
        unsigned(change.mode, 2),
        optional(change.content),
        unsigned(change.size, 8),
        optional(change.target),
        optional(change.link),
        optional(change.xattrs),
        optional(owner_of(change)),
        optional(change.acl),
        change.mtime_ns.to_bytes(8, "big", signed=True),
    ))


def changes_digest(changes: Iterable[Change]) -> bytes:
    """The digest of an event's changes, which have to come by idx."""
    return digest(b"crashworthy changes 1\0" + b"".join(map(encode_change, changes)))


NO_CHANGES = changes_digest(())


def event_hash(log_id: str, event: Event) -> bytes:
    """The hash an event must have, given what it says of itself (its `prev_hash` included)."""
    log, stream, kind = log_id.encode(), event.stream.encode(), event.kind.encode()
    return digest(b"".join((
        b"crashworthy event 1\0",
        len(log).to_bytes(4, "big"),
        log,
        len(stream).to_bytes(4, "big"),
        stream,
        event.seq.to_bytes(8, "big"),
        len(event.id).to_bytes(4, "big"),
        event.id,
        event.epoch.to_bytes(8, "big"),
        len(kind).to_bytes(4, "big"),
        kind,
        event.version.to_bytes(4, "big"),
        len(event.stored).to_bytes(4, "big"),
        event.stored,
        changes_digest(event.changes) if event.changes else NO_CHANGES,
        event.prev_hash,
    )))


def xattrs_digest(pairs: bytes | None) -> bytes | None:
    """The digest of encoded attribute pairs; None for none."""
    return None if pairs is None else digest(b"crashworthy xattrs 1\0" + pairs)


def encode_pairs(attributes: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """`pairs` of the README, sorted by name; None when there are no attributes."""
    return b"".join(counted(name) + counted(value) for name, value in sorted(attributes)) or None


def names_in_pairs(pairs: bytes) -> list[bytes]:
    """The attribute names in encoded pairs, as they stand. Raises ValueError when the bytes are not pairs."""
    fields: list[bytes] = []
    rest = pairs
    while rest:
        size = int.from_bytes(rest[:4], "big")
        if len(rest) < 4 + size:
            raise ValueError("attribute pairs end inside a field")
        fields.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    if len(fields) % 2:
        raise ValueError("attribute pairs end with a name that has no value")
    return fields[::2]


def encode_body(change: Change, directory_hash: bytes) -> bytes:
    """`body` of the README; `directory_hash` counts for a directory only."""
    if change.kind == "f":
        return (change.content or b"") + unsigned(change.size, 8)
    if change.kind == "d":
        return directory_hash
    return counted(change.target or b"") if change.kind == "l" else b""


def encode_marks(change: Change) -> bytes:
    """The end of an entry, and the middle of an image: attributes, owner, acl."""
    acl = None if change.acl is None else digest(change.acl)
    return optional(xattrs_digest(change.xattrs)) + optional(owner_of(change)) + optional(acl)


def encode_entry(name: bytes, change: Change, directory_hash: bytes) -> bytes:
    """`entry` of the README."""
    return b"".join((
        counted(name),
        change.kind.encode(),
        unsigned(change.mode, 2),
        encode_body(change, directory_hash),
        optional(change.link),
        encode_marks(change),
    ))


def hash_directory(entries: list[tuple[bytes, bytes]]) -> bytes:
    """The hash of a directory. `entries`: (name, encoded entry) in any order; above 4096 of them buckets are used."""
    ordered = sorted(entries)
    if len(ordered) <= LARGEST_PLAIN_DIRECTORY:
        return digest(b"crashworthy directory 1\0" + unsigned(len(ordered), 8) + b"".join(encoded for _, encoded in ordered))
    buckets: list[list[bytes]] = [[] for _ in range(256)]
    for name, encoded in ordered:
        buckets[digest(name)[0]].append(encoded)
    return digest(b"crashworthy buckets 1\0" + unsigned(len(ordered), 8) + b"".join(map(hash_bucket, buckets)))


def hash_bucket(encoded: list[bytes]) -> bytes:
    """`bucket_i` of the README."""
    return digest(b"crashworthy bucket 1\0" + unsigned(len(encoded), 8) + b"".join(encoded))


def excludes_digest(lines: Iterable[bytes]) -> bytes | None:
    """The digest of a session's pattern lines; None for none."""
    counted_lines = b"".join(map(counted, lines))
    return digest(b"crashworthy excludes 1\0" + counted_lines) if counted_lines else None


def hash_image(root: Change, directory_hash: bytes, excludes: Iterable[bytes] = ()) -> bytes:
    """The root hash of an image of a session with these pattern lines."""
    marks = encode_marks(root) + optional(excludes_digest(excludes))
    return digest(b"crashworthy image 1\0" + unsigned(root.mode, 2) + marks + directory_hash)
