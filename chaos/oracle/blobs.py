"""Blobs: decoding, hash and size of each. Sizes are checked before anything is allocated for them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import zstandard
from blake3 import blake3

CHUNK_SIZE = 1_048_576
HASH_SIZE = 32


class BlobDamage(Exception):
    """A blob is missing, does not decode, or is not what its name says."""


@dataclass(frozen=True, slots=True)
class Blob:
    """One row of `blob`."""

    codec: str
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BlobShelf:
    """All blobs of a log by hash, and the names of contents that it gave up on record; `elsewhere` finds those of a checkpoint store. What
    was verified once is remembered by name (rows do not change), contents are not kept."""

    rows: Mapping[bytes, Blob]
    given_up: frozenset[bytes] = frozenset()
    elsewhere: Callable[[bytes], "Blob | None"] = lambda name: None
    _verified: dict[bytes, int] = field(default_factory=dict)
    _damaged: dict[bytes, str] = field(default_factory=dict)

    def content(self, name: bytes) -> bytes:
        """The content named `name`, verified. Raises BlobDamage."""
        return b"".join(self.pieces(name))

    def verified_size(self, name: bytes) -> int:
        """The size of the content named `name`, which is decoded and hashed once. Raises BlobDamage, each time it is asked."""
        if name in self._damaged:
            raise BlobDamage(self._damaged[name])
        if name not in self._verified:
            try:
                self._verified[name] = sum(map(len, self.pieces(name)))
            except BlobDamage as damage:
                self._damaged[name] = str(damage)
                raise
        return self._verified[name]

    def pieces(self, name: bytes) -> Iterator[bytes]:
        """The content named `name` in pieces of at most CHUNK_SIZE. Raises BlobDamage, at the latest after the last piece."""
        blob = self._row(name)
        hasher = blake3()
        size = 0
        for piece in (self._chunk(name, chunk) for chunk in self._chunks(blob)) if blob.codec == "chunks" else (decode_plain(blob),):
            hasher.update(piece)
            size += len(piece)
            yield piece
        if size != blob.size:
            raise BlobDamage(f"blob {name.hex()} has {size} bytes, its row says {blob.size}")
        if hasher.digest() != name:
            raise BlobDamage(f"blob {name.hex()} holds content that hashes to {hasher.hexdigest()}")

    def _row(self, name: bytes) -> Blob:
        blob = self.rows.get(name) or self.elsewhere(name)
        if blob is None:
            raise BlobDamage(f"blob {name.hex()} is missing")
        if blob.codec == "chunks" and blob.size <= CHUNK_SIZE or blob.codec != "chunks" and blob.size > CHUNK_SIZE:
            raise BlobDamage(f"blob {name.hex()} has {blob.size} bytes and codec {blob.codec}")
        return blob

    def _chunks(self, blob: Blob) -> list[bytes]:
        count, rest = divmod(len(blob.data), HASH_SIZE)
        if rest or count < 2 or count > blob.size:
            raise BlobDamage(f"{len(blob.data)} bytes of chunk hashes do not fit {blob.size} bytes")
        return [blob.data[place * HASH_SIZE : (place + 1) * HASH_SIZE] for place in range(count)]

    def _chunk(self, name: bytes, chunk_name: bytes) -> bytes:
        chunk = self._row(chunk_name)
        if chunk.codec == "chunks" or not chunk.size:
            raise BlobDamage(f"chunk {chunk_name.hex()} of blob {name.hex()} is {chunk.codec} of {chunk.size} bytes")
        return self.content(chunk_name)


def decode_plain(blob: Blob) -> bytes:
    """The content of a raw or zstd blob, of at most `blob.size` bytes. Raises BlobDamage."""
    if blob.codec == "raw":
        return blob.data
    if blob.codec != "zstd":
        raise BlobDamage(f"codec {blob.codec!r} is unknown")
    try:
        stated = zstandard.get_frame_parameters(blob.data).content_size
        if stated not in (blob.size, zstandard.CONTENTSIZE_UNKNOWN):
            raise BlobDamage(f"zstd frame states {stated} bytes, its row {blob.size}")
        decoder = zstandard.ZstdDecompressor()
        return decoder.decompress(blob.data, max_output_size=max(blob.size, 1), allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BlobDamage(f"zstd frame does not decode: {error}") from error
