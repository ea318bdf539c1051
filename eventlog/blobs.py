"""Turning contents into blobs. Pure: contents come in as pieces, blobs go out; whoever calls inserts them."""

from collections.abc import Iterable, Iterator, Sequence

from blake3 import blake3

from eventlog.codec import Blob, encode_blob, encode_chunk_list
from eventlog.values import CHUNK_BYTES, ContentId

BATCH_BYTES = 8 << 20
"""What one commit of blobs holds of contents at most: it bounds memory, and the time for which the log is locked."""

AVERAGE_CHUNK_BYTES = 1 << 18
LEAST_CHUNK_BYTES = 1 << 16
"""A changed byte costs about one chunk: smaller ones would store less again and need more rows (2 GiB are some 8,000 of them)."""


def encode_content(pieces: Iterable[bytes], name: ContentId | None = None) -> Iterator[Blob]:
    """The blobs of one content, the one that bears its name last; a few chunks are held at a time. `name` is its content id where the
    caller, or who yields the pieces, has hashed these very bytes.

    A content of more than CHUNK_BYTES is cut where its own bytes say so (FastCDC): after an insertion at its beginning the chunks behind
    are the same ones, and are stored once.
    """
    begun, rest = _read_first(iter(pieces))
    if len(begun) <= CHUNK_BYTES:
        yield encode_blob(begun, name)
        return
    hasher, total, names = blake3(), 0, []
    for chunk in _cut(_Pieces(begun, rest)):
        hasher.update(chunk)
        total += len(chunk)
        blob = encode_blob(chunk)
        names.append(blob.content)
        yield blob
    yield encode_chunk_list(ContentId(hasher.digest()), total, names)


def _read_first(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes of a content, more than CHUNK_BYTES of them where it has more, and what follows."""
    begun = bytearray()
    for piece in pieces:
        begun += piece
        if len(begun) > CHUNK_BYTES:
            break
    return bytes(begun), pieces


def _cut(stream: "_Pieces") -> Iterator[bytes]:
    import pyfastcdc  # only where a content is large: a driver of small files is forked without it

    cutter = pyfastcdc.FastCDC(avg_size=AVERAGE_CHUNK_BYTES, min_size=LEAST_CHUNK_BYTES, max_size=CHUNK_BYTES)
    for chunk in cutter.cut_stream(stream):
        yield bytes(chunk.data)


class _Pieces:
    """Pieces of bytes, read as a stream."""

    def __init__(self, begun: bytes, rest: Iterator[bytes]) -> None:
        self._held = memoryview(begun)
        self._rest = rest

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end only."""
        while not self._held:
            try:
                self._held = memoryview(next(self._rest))
            except StopIteration:
                return b""
        given, self._held = self._held[:size], self._held[size:]
        return bytes(given)


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
