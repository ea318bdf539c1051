"""The digests of an image and of an event's changes, byte for byte as eventlog/README says. Pure.

No recursion: directories are hashed in reverse byte order of their paths, which puts every child before its parent.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from blake3 import blake3

from eventlog.errors import CorruptError
from eventlog.image_tree import Hashed, ImageTree
from eventlog.image_values import DIGEST_BYTES, Change, Entry, Image, optional, prefixed
from eventlog.values import RootHash

PLAIN_DIRECTORY_LIMIT = 4096
_BUCKETS = 256
_NULL = b"\0"
_NO_MARKS = _NULL * 3
_u16, _u64, _i64 = struct.Struct(">H"), struct.Struct(">Q"), struct.Struct(">q")
_owner = struct.Struct(">II")
_u32 = struct.Struct(">I").pack
_plain_row = struct.Struct(">12sH5s32sQ5xq").pack
_plain_entry = struct.Struct(">cH32sQ4x").pack
_BATCH = 1024
"""Changes encoded at a time: enough to make one hashing of many, few enough to hold."""


def changes_digest(changes: Iterable[Change]) -> bytes:
    """The digest of an event's changes in the order given, which must be byte order of path."""
    encoded = map(encode_change, changes)
    first = b"".join((b"crashworthy changes 1\0", *islice(encoded, _BATCH)))  # of most events all there is, and one hashing
    hasher = blake3(first)
    while batch := b"".join(islice(encoded, _BATCH)):
        hasher.update(batch)
    return hasher.digest()


def encode_change(change: Change) -> bytes:
    """One `row` of the changes digest."""
    entry, path = change.entry, change.path
    if entry is not None and change.op == "put" and _is_plain_file(entry):
        row = _plain_row(b"\0\0\0\3put\0\0\0\1f", entry.mode, b"\1\0\0\0\x20", entry.content, entry.size, change.mtime_ns)
        return _u32(len(path)) + path + row
    head = prefixed(change.path) + prefixed(change.op.encode())
    if entry is None:
        columns = prefixed(b"") + _u16.pack(0) + _NULL + _u64.pack(0) + _NULL * 5
    else:
        columns = prefixed(entry.kind.encode()) + _u16.pack(entry.mode) + optional(entry.content) + _u64.pack(entry.size)
        columns += optional(entry.target) + optional(entry.link) + optional(entry.xattrs) + encode_owner(entry.owner) + optional(entry.acl)
    return head + columns + _i64.pack(change.mtime_ns)


def _is_plain_file(entry: Entry) -> bool:
    """Whether it is what most entries are, a file with nothing but its content: encoded in one go, to the same bytes."""
    return (
        entry.kind == "f"
        and entry.link is None
        and entry.xattrs is None
        and entry.owner is None
        and entry.acl is None
        and entry.target is None
        and entry.content is not None
        and len(entry.content) == DIGEST_BYTES
    )


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
    """The directory hash of every directory of the image, by path; of a tree only the root's."""
    if isinstance(image, ImageTree):
        return _hash_tree(image)
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
    if _is_plain_file(entry):
        return _u32(len(name)) + name + _plain_entry(b"f", entry.mode, entry.content, entry.size)
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


_REMEMBERED_FROM = 256
"""Directories of more names keep their encoded entries: a thousandth of a millisecond each, hence 0.2 ms at most for all smaller ones."""
_NO_NAMES = _hash_entries(b"crashworthy directory 1\0", [])


def _hash_tree(tree: ImageTree) -> dict[bytes, bytes]:
    """The hashes of a tree; only what changed since they were last known is hashed. No recursion: deepest first."""
    wanted = (tree.directories.keys() - tree.hashed.keys()) | (tree.stale.keys() & tree.directories.keys())
    for path in list(wanted):
        while path:  # whatever changes changes the hash of all above it
            path = path.rpartition(b"/")[0]
            if path in wanted:
                break
            wanted.add(path)
    for path in sorted(wanted, key=lambda path: path.count(b"/") if path else -1, reverse=True):
        known = tree.hashed.get(path)
        made = _rehash(tree, path, known, tree.stale.get(path, set()))
        if made is None:
            continue
        tree.hashed[path] = made
        if path and (known is None or known.digest != made.digest):
            tree.note_stale(path)
    tree.stale.clear()
    return {b"": tree.hashed[b""].digest if b"" in tree.directories else _NO_NAMES}


def _rehash(tree: ImageTree, path: bytes, known: Hashed | None, stale: set[bytes]) -> Hashed | None:
    if known is not None and not stale or path not in tree.directories:
        return known
    entries = tree.directories[path].entries
    prefix = path + b"/" if path else b""

    def encode(name: bytes) -> bytes:
        below = tree.hashed.get(prefix + name)
        return _encode_entry(name, entries[name], _NO_NAMES if below is None else below.digest)

    if len(entries) <= _REMEMBERED_FROM:
        return Hashed(_hash_directory([(name, encode(name)) for name in entries]))
    is_plain = len(entries) <= PLAIN_DIRECTORY_LIMIT
    count = 1 if is_plain else _BUCKETS
    if known is None or known.buckets is None or known.digests is None or len(known.buckets) != count:
        buckets: list[dict[bytes, bytes]] = [{} for _ in range(count)]
        for name in entries:
            buckets[_bucket_of(name, count)][name] = encode(name)
        digests = [] if is_plain else [_hash_bucket(bucket) for bucket in buckets]
    else:
        buckets, digests = _renew_buckets(known.buckets, known.digests, entries, stale, encode)
    if is_plain:
        return Hashed(_hash_directory(list(buckets[0].items())), buckets, digests)
    return Hashed(blake3(b"crashworthy buckets 1\0" + _u64.pack(len(entries)) + b"".join(digests)).digest(), buckets, digests)


def _renew_buckets(
    buckets: list[dict[bytes, bytes]],
    digests: list[bytes],
    entries: Mapping[bytes, Entry],
    stale: set[bytes],
    encode: Callable[[bytes], bytes],
) -> tuple[list[dict[bytes, bytes]], list[bytes]]:
    """New lists, in which the buckets of the stale names are new: the old ones may belong to another tree too."""
    buckets, digests = list(buckets), list(digests)
    renewed: set[int] = set()
    for name in stale:
        number = _bucket_of(name, len(buckets))
        if number not in renewed:
            renewed.add(number)
            buckets[number] = dict(buckets[number])
        if name in entries:
            buckets[number][name] = encode(name)
        else:
            buckets[number].pop(name, None)
    for number in renewed if digests else ():
        digests[number] = _hash_bucket(buckets[number])
    return buckets, digests


def _bucket_of(name: bytes, count: int) -> int:
    return blake3(name).digest()[0] if count > 1 else 0


def _hash_bucket(bucket: Mapping[bytes, bytes]) -> bytes:
    return _hash_entries(b"crashworthy bucket 1\0", sorted(bucket.items()))
