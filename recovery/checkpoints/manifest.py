"""The manifest of a checkpoint: which image it is a copy of, path by path. Pure. Byte for byte (as in recovery/README):

    "crashworthy checkpoint 1\\n" | root (32) | u32(n) | b(exclude line 1) .. b(exclude line n) | u64(paths) | b(row 1) .. b(row paths)

A row is that of the changes digest (eventlog/README) for a `put` of the path; rows stand in byte order of path. The checkpoint is named
by the BLAKE3 of these bytes. Who reads one believes nothing of it: the name is compared with the bytes, and the root is worked out again.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from eventlog import codec
from eventlog.errors import CorruptError
from eventlog.image import Entry, Image, check_image, encode_change, put_change, root_hash
from eventlog.later import later

if TYPE_CHECKING:
    from eventlog import bundle_format as form
else:
    form = later("eventlog.bundle_format")  # where a manifest is read

MAGIC = b"crashworthy checkpoint 1\n"
_MOST_LINES = 1 << 16


class Checkpoint(msgspec.Struct, frozen=True):
    """A checkpoint, read and proved: its name (hex), the image, the root hash of that (hex), the pattern lines that name it with it."""

    manifest: str
    root: str
    image: dict[bytes, Entry]
    excludes: tuple[str, ...]


def encode_manifest(image: Image, root: bytes, excludes: Sequence[str] = ()) -> Iterator[bytes]:
    """The bytes of the manifest of `image`, whose root hash with these `excludes` is `root`, in pieces."""
    lines = [codec.sized(line.encode("utf-8", "surrogateescape")) for line in excludes]
    yield MAGIC + root + struct.pack(">I", len(lines)) + b"".join(lines) + struct.pack(">Q", len(image))
    for path in sorted(image):
        yield codec.sized(encode_change(put_change(path, image[path])))


def decode_manifest(data: bytes, name: str) -> Checkpoint:
    """The checkpoint in the bytes of a manifest that is called `name` (hex). Raises CorruptError, saying what does not fit."""
    if blake3(data).hexdigest() != name:
        raise CorruptError("its bytes do not hash to its name")
    fields = form.Fields(data)
    if fields.take(len(MAGIC)) != MAGIC:
        raise CorruptError("it is no manifest, or one of a newer version of crashworthy")
    root, count = fields.take(32), fields.u32()
    if count > _MOST_LINES:
        raise CorruptError(f"it states {count} exclude lines")
    excludes = tuple(fields.sized().decode("utf-8", "surrogateescape") for _ in range(count))
    image: dict[bytes, Entry] = {}
    last: bytes | None = None
    for number in range(fields.number()):
        change = form.decode_change(fields.sized(), f"path {number + 1}")
        if change.entry is None or (last is not None and change.path <= last):
            raise CorruptError(f"path {number + 1} is no entry, or not in order")
        image[change.path] = change.entry
        last = change.path
    fields.end()
    check_image(image)
    if root_hash(image, excludes) != root:
        raise CorruptError("its paths do not make up the image that it states")
    return Checkpoint(name, root.hex(), image, excludes)
