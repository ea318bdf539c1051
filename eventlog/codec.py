"""The bytes that the chain covers, and blobs. Pure: eventlog/README is the specification, to the byte."""

import struct
from collections.abc import Sequence

import msgspec
import zstandard
from blake3 import blake3

from eventlog.errors import CorruptError
from eventlog.values import CHUNK_BYTES, ContentId

EVENT_DOMAIN = b"crashworthy event 1\0"
LEAST_COMPRESSED_BYTES = 128
LEAST_SAVING = 8
"""A content below LEAST_COMPRESSED_BYTES is not tried, and what is tried is kept packed when it saves at least one part in LEAST_SAVING.

Measured (`make bench-log`, the last table): text of 64 bytes grows, of 128 saves a fifth, of 256 a third; what saves less than an eighth
is packed already, and unpacking it costs every reader more than naming it.
"""
SAMPLE_BYTES = 512
SAMPLED_FROM, SAMPLED_BELOW = 1 << 11, 1 << 16
"""Contents of these sizes are sampled first (benchmarks/README, "The zstd threshold"): below, trying costs no more; above, zstd gives up as
early itself. A content that packs only by its repetitions, all byte values alike in number, is missed and kept as it is."""
_compressor = zstandard.ZstdCompressor(level=3)
_sampler = zstandard.ZstdCompressor(level=1)
_UNKNOWN_SIZE = -1
_decompressor = zstandard.ZstdDecompressor()


class Blob(msgspec.Struct, frozen=True):
    """One stored blob: `content` names the uncompressed bytes, `size` their number."""

    content: ContentId
    codec: str
    size: int
    data: bytes


def sized(data: bytes) -> bytes:
    """`b(x)` of the README."""
    return struct.pack(">I", len(data)) + data


def event_domain(log_id: str, stream: str) -> bytes:
    """The beginning of what is hashed for an event, the same for all events of a stream."""
    return EVENT_DOMAIN + sized(log_id.encode()) + sized(stream.encode())


def hash_event(
    domain: bytes, seq: int, event_id: bytes, epoch: int, kind: bytes, version: int, payload: bytes, changes: bytes, previous: bytes
) -> bytes:
    """The 32-byte chain hash of one event; `changes` and `previous` are 32 bytes each, `domain` is that of `event_domain`.

    Raises TypeError or struct.error for a value of another type and for a number that its field cannot hold.
    """
    kind_length = len(kind)
    if len(event_id) != ID_BYTES or kind_length > MOST_KIND_BYTES:  # which no sound log has: the same bytes by a longer way
        head = struct.pack(">QI", seq, len(event_id)) + event_id + struct.pack(">QI", epoch, kind_length)
        return blake3(b"".join((domain, head, kind, struct.pack(">II", version, len(payload)), payload, changes, previous))).digest()
    head = _heads[kind_length](seq, ID_BYTES, event_id, epoch, kind_length, kind, version, len(payload))
    return blake3(b"".join((domain, head, payload, changes, previous))).digest()


ID_BYTES = 16
MOST_KIND_BYTES = 64
_heads = [struct.Struct(f">QI{ID_BYTES}sQI{length}sII").pack for length in range(MOST_KIND_BYTES + 1)]
"""What packs the head of an event at once, by the length of its kind: a long history has many events."""


def content_id(data: bytes) -> ContentId:
    """The name of a content."""
    return ContentId(blake3(data).digest())


def encode_blob(data: bytes, name: ContentId | None = None) -> Blob:
    """One blob of at most CHUNK_BYTES of content, compressed where that saves enough room; the same blob for the same content always.

    `name` is its content id where the caller has hashed these very bytes.
    """
    if name is None:
        name = ContentId(blake3(data).digest())
    size = len(data)
    if size >= LEAST_COMPRESSED_BYTES and not (SAMPLED_FROM <= size < SAMPLED_BELOW and _looks_packed(data)):
        packed = _compressor.compress(data)
        if len(packed) * LEAST_SAVING <= size * (LEAST_SAVING - 1):
            return Blob(name, "zstd", size, packed)
    return Blob(name, "raw", size, data)


def _looks_packed(data: bytes) -> bool:
    """Whether every so manieth byte of a content of middle size does not pack, which tells of most that none of it would: with a stride
    that is odd the sample has bytes of every place in numbers of two, four and eight bytes."""
    sample = data[:: len(data) // SAMPLE_BYTES | 1]
    return len(_sampler.compress(sample)) >= len(sample)


def encode_chunk_list(name: ContentId, size: int, chunks: Sequence[ContentId]) -> Blob:
    """The blob of a content above CHUNK_BYTES: the hashes of its chunks."""
    return Blob(name, "chunks", size, b"".join(chunks))


def decode_chunk_list(blob: Blob) -> tuple[ContentId, ...]:
    """The chunk names in a `chunks` blob; CorruptError when their number cannot fit the size."""
    count, rest = divmod(len(blob.data), 32)
    if rest or not 2 <= count <= blob.size or count * CHUNK_BYTES < blob.size:
        raise CorruptError(f"blob {blob.content.hex()}: {len(blob.data)} bytes of chunk names do not fit a content of {blob.size} bytes")
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
