"""Turning contents into blobs. Pure: contents come in as pieces, blobs go out; whoever calls inserts them."""

from collections.abc import Iterable, Iterator, Sequence

from blake3 import blake3

from eventlog.codec import Blob, encode_blob, encode_chunk_list
from eventlog.values import CHUNK_BYTES, ContentId

BATCH_BYTES = 8 << 20
"""What one commit of blobs holds of contents at most: it bounds memory, and the time for which the log is locked."""


def encode_content(pieces: Iterable[bytes]) -> Iterator[Blob]:
    """The blobs of one content, the one that bears its name last; at most two chunks are held at a time."""
    hasher, total, names = blake3(), 0, []
    held: Blob | None = None
    for chunk in _rechunk(pieces):
        hasher.update(chunk)
        total += len(chunk)
        if held is not None:
            yield held
        held = encode_blob(chunk)
        names.append(held.content)
    if held is None:
        yield encode_blob(b"")
        return
    yield held
    if len(names) > 1:
        yield encode_chunk_list(ContentId(hasher.digest()), total, names)


def batch_blobs(blobs: Iterable[Blob], most_bytes: int = BATCH_BYTES) -> Iterator[Sequence[Blob]]:
    """The blobs in order, in batches of at most `most_bytes` of content, a larger one alone; one batch is held at a time."""
    batch: list[Blob] = []
    total = 0
    for blob in blobs:
        size = len(blob.data) if blob.codec == "chunks" else blob.size
        if batch and total + size > most_bytes:
            yield batch
            batch, total = [], 0
        batch.append(blob)
        total += size
    if batch:
        yield batch


def _rechunk(pieces: Iterable[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) > CHUNK_BYTES:
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
    if buffer:
        yield bytes(buffer)
