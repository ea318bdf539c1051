"""The bytes that the chain covers, and blobs. Pure: eventlog/README is the specification, to the byte."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import zstandard
from blake3 import blake3

from eventlog.errors import CorruptError
from eventlog.values import CHUNK_BYTES, ContentId

EVENT_DOMAIN = b"crashworthy event 1\0"
_compressor = zstandard.ZstdCompressor(level=3)
_UNKNOWN_SIZE = -1
_decompressor = zstandard.ZstdDecompressor()


@dataclass(frozen=True, slots=True)
class Blob:
    """One stored blob: `content` names the uncompressed bytes, `size` their number."""

    content: ContentId
    codec: str
    size: int
    data: bytes


def sized(data: bytes) -> bytes:
    """`b(x)` of the README."""
    return struct.pack(">I", len(data)) + data


def event_hash(
    *,
    log_id: str,
    stream: str,
    seq: int,
    event_id: bytes,
    epoch: int,
    kind: str,
    version: int,
    payload: bytes,
    changes: bytes,
    previous: bytes,
) -> bytes:
    """The 32-byte chain hash of one event; `changes` and `previous` are 32 bytes each."""
    return blake3(
        b"".join(
            (
                EVENT_DOMAIN,
                sized(log_id.encode()),
                sized(stream.encode()),
                struct.pack(">Q", seq),
                sized(event_id),
                struct.pack(">Q", epoch),
                sized(kind.encode()),
                struct.pack(">I", version),
                sized(payload),
                changes,
                previous,
            )
        )
    ).digest()


def content_id(data: bytes) -> ContentId:
    """The name of a content."""
    return ContentId(blake3(data).digest())


def encode_blob(data: bytes) -> Blob:
    """One blob of at most CHUNK_BYTES of content, compressed when that saves room."""
    packed = _compressor.compress(data)
    if len(packed) < len(data):
        return Blob(content_id(data), "zstd", len(data), packed)
    return Blob(content_id(data), "raw", len(data), data)


def encode_chunk_list(name: ContentId, size: int, chunks: Sequence[ContentId]) -> Blob:
    """The blob of a content above CHUNK_BYTES: the hashes of its chunks."""
    return Blob(name, "chunks", size, b"".join(chunks))


def decode_chunk_list(blob: Blob) -> tuple[ContentId, ...]:
    """The chunk names in a `chunks` blob; CorruptError when their number does not fit the size."""
    expected = -(-blob.size // CHUNK_BYTES)
    if expected < 2:
        raise CorruptError(f"blob {blob.content.hex()}: cut into chunks, but its size is {blob.size}")
    if len(blob.data) != 32 * expected:
        raise CorruptError(f"blob {blob.content.hex()}: {len(blob.data)} bytes of chunk names where {32 * expected} belong")
    return tuple(ContentId(blob.data[at : at + 32]) for at in range(0, len(blob.data), 32))


def decode_blob(blob: Blob) -> bytes:
    """The content of a `raw` or `zstd` blob, verified against its name (I9)."""
    if not 0 <= blob.size <= CHUNK_BYTES:
        raise CorruptError(f"blob {blob.content.hex()}: size {blob.size} is not from 0 to the chunk size")
    match blob.codec:
        case "raw":
            data = blob.data
        case "zstd":
            data = _decompress(blob)
        case other:
            raise CorruptError(f"blob {blob.content.hex()}: unknown codec {other!r}")
    if len(data) != blob.size or blake3(data).digest() != blob.content:
        raise CorruptError(f"blob {blob.content.hex()}: its bytes do not hash to its name; run `eventlog verify` on the log")
    return data


def _decompress(blob: Blob) -> bytes:
    try:
        # The frame's own word is compared first: zstd allocates what it says (a flipped bit there asks for exabytes).
        if zstandard.frame_content_size(blob.data) not in (blob.size, _UNKNOWN_SIZE):
            raise CorruptError(f"blob {blob.content.hex()}: its frame states another size than {blob.size}")
        return _decompressor.decompress(blob.data, max_output_size=blob.size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptError(f"blob {blob.content.hex()}: {error}; run `eventlog verify` on the log") from error
