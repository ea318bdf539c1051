"""A content as a checkpoint store keeps it, in one file or value (recovery/README, "Checkpoint stores"). Pure.

    codec (1 byte: 0 raw, 1 zstd, 2 chunks) | u64(size of the content) | data

What `data` is says eventlog/README, "Blobs": the same codecs, the same cutting into chunks.
"""

import struct
from collections.abc import Callable, Iterator

from blake3 import blake3

from eventlog.codec import Blob, decode_blob, decode_chunk_list
from eventlog.errors import CorruptError
from eventlog.values import ContentId

_CODECS = ("raw", "zstd", "chunks")
_HEAD = struct.Struct(">BQ")


def encode_object(blob: Blob) -> bytes:
    """The stored bytes of one blob."""
    return _HEAD.pack(_CODECS.index(blob.codec), blob.size) + blob.data


def decode_object(content: ContentId, stored: bytes) -> Blob:
    """The blob in stored bytes; its content is not proved yet (`read_object` does). Raises CorruptError."""
    if len(stored) < _HEAD.size:
        raise CorruptError(f"it has {len(stored)} bytes, fewer than its head")
    number, size = _HEAD.unpack_from(stored)
    if number >= len(_CODECS):
        raise CorruptError(f"its codec is {number}, which is none")
    return Blob(content, _CODECS[number], size, stored[_HEAD.size :])


def read_object(blob: Blob, find: Callable[[ContentId], Blob]) -> Iterator[bytes]:
    """The content of a blob in pieces, each proved, and the whole before the iterator ends; `find` gives the blobs of its chunks.

    Raises CorruptError, and what `find` raises.
    """
    if blob.codec != "chunks":
        yield decode_blob(blob)
        return
    hasher, total = blake3(), 0
    for name in decode_chunk_list(blob):
        piece = decode_blob(find(name))
        hasher.update(piece)
        total += len(piece)
        yield piece
    if total != blob.size or hasher.digest() != blob.content:
        raise CorruptError("its chunks do not make up what its name says")


def prove_object(content: ContentId, find: Callable[[ContentId], Blob]) -> None:
    """Read a content to its end. Raises CorruptError, and what `find` raises."""
    for _ in read_object(find(content), find):
        pass


def chunks_of(blob: Blob) -> tuple[ContentId, ...]:
    """The contents that this one is made up of; none of a small one. Raises CorruptError."""
    return decode_chunk_list(blob) if blob.codec == "chunks" else ()
