"""The digests of an image and of an event's changes, byte for byte as eventlog/README says. Pure.

No recursion: directories are hashed in reverse byte order of their paths, which puts every child before its parent.
"""

import struct
from collections.abc import Iterable, Sequence

from blake3 import blake3

from eventlog.errors import CorruptError
from eventlog.image_values import Change, Entry, Image, optional, prefixed
from eventlog.values import RootHash

PLAIN_DIRECTORY_LIMIT = 4096
_BUCKETS = 256
_NULL = b"\0"
_NO_MARKS = _NULL * 3
_u16, _u64, _i64 = struct.Struct(">H"), struct.Struct(">Q"), struct.Struct(">q")
_owner = struct.Struct(">II")


def changes_digest(changes: Iterable[Change]) -> bytes:
    """The digest of an event's changes in the order given, which must be byte order of path."""
    hasher = blake3(b"crashworthy changes 1\0")
    for change in changes:
        hasher.update(encode_change(change))
    return hasher.digest()


def encode_change(change: Change) -> bytes:
    """One `row` of the changes digest."""
    entry = change.entry
    head = prefixed(change.path) + prefixed(change.op.encode())
    if entry is None:
        columns = prefixed(b"") + _u16.pack(0) + _NULL + _u64.pack(0) + _NULL * 5
    else:
        columns = prefixed(entry.kind.encode()) + _u16.pack(entry.mode) + optional(entry.content) + _u64.pack(entry.size)
        columns += optional(entry.target) + optional(entry.link) + optional(entry.xattrs) + encode_owner(entry.owner) + optional(entry.acl)
    return head + columns + _i64.pack(change.mtime_ns)


def encode_owner(owner: tuple[int, int] | None) -> bytes:
    """`opt(owner)` of the format."""
    return _NULL if owner is None else optional(_owner.pack(*owner))


def decode_owner(encoded: bytes | None) -> tuple[int, int] | None:
    """The user and the group id in an `owner` of the format. Raises CorruptError for bytes of another length."""
    if encoded is None:
        return None
    if len(encoded) != _owner.size:
        raise CorruptError(f"an owner of {len(encoded)} bytes instead of {_owner.size}")
    user, group = _owner.unpack(encoded)
    return int(user), int(group)


NO_CHANGES = changes_digest(())
"""The digest of an event without changes, as most are."""


def root_hash(image: Image, excludes: Sequence[str] = ()) -> RootHash:
    """The name of an image of a session with these excludes. Times do not count; `image` must be valid (`check_image`)."""
    content = hash_directories(image)[b""]
    return name_image(image[b""], content, excludes)


def name_image(root: Entry, content: bytes, excludes: Sequence[str] = ()) -> RootHash:
    """The root hash, from the root's entry and its directory hash."""
    head = b"crashworthy image 1\0" + _u16.pack(root.mode)
    return RootHash(blake3(head + _encode_marks(root) + _excludes_digest(excludes) + content).digest())


def _excludes_digest(excludes: Sequence[str]) -> bytes:
    """Two sessions that leave out other paths never have an image of one name; without excludes the place is NULL, as it was before there
    were any."""
    if not excludes:
        return _NULL
    lines = b"".join(prefixed(line.encode("utf-8", "surrogateescape")) for line in excludes)
    return optional(blake3(b"crashworthy excludes 1\0" + lines).digest())


def hash_directories(image: Image) -> dict[bytes, bytes]:
    """The directory hash of every directory of the image, by path."""
    children: dict[bytes, list[tuple[bytes, bytes]]] = {path: [] for path, entry in image.items() if entry.kind == "d"}
    hashes: dict[bytes, bytes] = {}
    for path in sorted(image, reverse=True):
        entry = image[path]
        if entry.kind == "d":
            hashes[path] = _hash_directory(children.pop(path))
        if path:
            parent, _, name = path.rpartition(b"/")
            children[parent].append((name, _encode_entry(name, entry, hashes.get(path, b""))))
    return hashes


def _encode_entry(name: bytes, entry: Entry, directory_hash: bytes) -> bytes:
    head = prefixed(name) + entry.kind.encode() + _u16.pack(entry.mode)
    return head + _encode_body(entry, directory_hash) + optional(entry.link) + _encode_marks(entry)


def _encode_body(entry: Entry, directory_hash: bytes) -> bytes:
    if entry.kind == "f":
        return (entry.content or b"") + _u64.pack(entry.size)
    if entry.kind == "d":
        return directory_hash
    if entry.kind == "l":
        return prefixed(entry.target or b"")
    return b""


def _encode_marks(entry: Entry) -> bytes:
    """Attributes, owner and ACL, as they end an entry."""
    if entry.xattrs is None and entry.owner is None and entry.acl is None:
        return _NO_MARKS
    xattrs = _NULL if entry.xattrs is None else optional(blake3(b"crashworthy xattrs 1\0" + entry.xattrs).digest())
    acl = _NULL if entry.acl is None else optional(blake3(entry.acl).digest())
    return xattrs + encode_owner(entry.owner) + acl


def _hash_directory(entries: list[tuple[bytes, bytes]]) -> bytes:
    entries.sort()
    if len(entries) <= PLAIN_DIRECTORY_LIMIT:
        return _hash_entries(b"crashworthy directory 1\0", entries)
    buckets: list[list[tuple[bytes, bytes]]] = [[] for _ in range(_BUCKETS)]
    for name, encoded in entries:
        buckets[blake3(name).digest()[0]].append((name, encoded))
    hasher = blake3(b"crashworthy buckets 1\0" + _u64.pack(len(entries)))
    for bucket in buckets:
        hasher.update(_hash_entries(b"crashworthy bucket 1\0", bucket))
    return hasher.digest()


def _hash_entries(domain: bytes, entries: list[tuple[bytes, bytes]]) -> bytes:
    return blake3(domain + _u64.pack(len(entries)) + b"".join(encoded for _, encoded in entries)).digest()
