"""The bytes of the chain against the oracle's own writing of them; blobs decode to exactly what their name and row say."""

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chaos.oracle import encoding
from chaos.oracle.values import Event
from eventlog import codec
from eventlog.errors import CorruptError
from eventlog.image import changes_digest
from eventlog.values import CHUNK_BYTES, ContentId

TEXT = b"some text " * 30
PACKED = zstandard.ZstdCompressor().compress(TEXT)
SIZELESS = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
BOMB = zstandard.ZstdCompressor().compress(bytes(64 << 20))
NAME = codec.content_id(TEXT)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
digests = st.binary(min_size=32, max_size=32)
numbers = st.integers(0, (1 << 63) - 1)


@given(names, names, numbers, st.binary(min_size=16, max_size=16), numbers, names, st.integers(0, (1 << 32) - 1), names, digests)
def test_the_event_hash_is_that_of_the_format_page(
    log_id: str, stream: str, seq: int, event_id: bytes, epoch: int, kind: str, version: int, payload: str, previous: bytes
) -> None:
    stored = payload.encode()
    event = Event(stream, seq, event_id, epoch, kind, version, stored, {}, previous, bytes(32), ())
    assert encoding.event_hash(log_id, event) == codec.hash_event(
        codec.event_domain(log_id, stream), seq, event_id, epoch, kind.encode(), version, stored, changes_digest(()), previous
    )


@given(st.binary(max_size=3000))
def test_a_blob_comes_back_and_is_never_longer_than_its_content(data: bytes) -> None:
    blob = codec.encode_blob(data)
    assert codec.decode_blob(blob) == data
    assert (blob.content, blob.size) == (encoding.digest(data), len(data))
    assert len(blob.data) <= len(data)


def test_a_blob_is_compressed_only_when_that_saves_room() -> None:
    assert codec.encode_blob(TEXT).codec == "zstd"
    assert codec.encode_blob(b"").codec == "raw"
    assert codec.encode_blob(bytes(range(256))).codec == "raw"


@pytest.mark.parametrize("blob", [codec.Blob(NAME, "zstd", len(TEXT), SIZELESS), codec.Blob(NAME, "raw", len(TEXT), TEXT)])
def test_every_form_the_format_page_allows_is_read(blob: codec.Blob) -> None:
    assert codec.decode_blob(blob) == TEXT


@pytest.mark.parametrize(
    "blob",
    [
        codec.Blob(NAME, "raw", len(TEXT), TEXT[:-1]),
        codec.Blob(NAME, "raw", len(TEXT) - 1, TEXT[:-1]),
        codec.Blob(NAME, "raw", len(TEXT), TEXT[:-1] + b"x"),
        codec.Blob(NAME, "raw", len(TEXT) - 1, TEXT),
        codec.Blob(NAME, "raw", -1, TEXT),
        codec.Blob(NAME, "zstd", len(TEXT), PACKED[:-1]),
        codec.Blob(NAME, "zstd", len(TEXT), PACKED + b"x"),
        codec.Blob(NAME, "zstd", len(TEXT), PACKED + PACKED),
        codec.Blob(NAME, "zstd", len(TEXT) + 1, PACKED),
        codec.Blob(NAME, "zstd", len(TEXT) - 1, SIZELESS),
        codec.Blob(NAME, "zstd", len(TEXT) + 1, SIZELESS),
        codec.Blob(NAME, "zstd", len(TEXT), TEXT),
        codec.Blob(NAME, "zstd", -1, PACKED),
        codec.Blob(NAME, "lz4", len(TEXT), TEXT),
        codec.Blob(NAME, "chunks", len(TEXT), NAME),
        codec.Blob(codec.content_id(bytes(CHUNK_BYTES + 1)), "raw", CHUNK_BYTES + 1, bytes(CHUNK_BYTES + 1)),
        codec.Blob(codec.content_id(bytes(64 << 20)), "zstd", 64 << 20, BOMB),
    ],
)
def test_invariant_I9_a_damaged_blob_is_refused_by_its_name(blob: codec.Blob) -> None:
    with pytest.raises(CorruptError, match=blob.content.hex()):
        codec.decode_blob(blob)


def test_invariant_I9_a_frame_that_states_another_size_is_refused_before_room_is_taken_for_it() -> None:
    honest = zstandard.ZstdCompressor().compress(bytes(300))
    lying = honest[:4] + b"\xe0" + (1 << 62).to_bytes(8, "little") + honest[7:]
    assert zstandard.frame_content_size(lying) == 1 << 62
    with pytest.raises(CorruptError, match="states another size"):
        codec.decode_blob(codec.Blob(codec.content_id(bytes(300)), "zstd", 300, lying))


def test_a_list_of_chunks_comes_back() -> None:
    chunks = [ContentId(bytes([number]) * 32) for number in range(3)]
    blob = codec.encode_chunk_list(NAME, 2 * CHUNK_BYTES + 1, chunks)
    assert codec.decode_chunk_list(blob) == tuple(chunks)
    for size in (0, 2, 3 * CHUNK_BYTES + 1, 1 << 62, -1):
        with pytest.raises(CorruptError, match=NAME.hex()):
            codec.decode_chunk_list(replace(blob, size=size))


def test_a_content_of_one_chunk_is_not_cut_into_chunks() -> None:
    with pytest.raises(CorruptError, match="do not fit"):
        codec.decode_chunk_list(codec.Blob(NAME, "chunks", len(TEXT), NAME))


@pytest.mark.parametrize("size", [0, 1, codec.LEAST_COMPRESSED_BYTES - 1])
def test_a_small_content_is_kept_raw_however_well_it_packs(size: int) -> None:
    assert codec.encode_blob(b"a" * size).codec == "raw"


def test_a_content_is_kept_packed_only_where_that_saves_an_eighth() -> None:
    """Beside `tail`, which does not pack, a run of one letter costs a few bytes: the room saved is that run."""
    tail = b"".join(codec.content_id(b"%d" % number) for number in range(64))
    kinds = [codec.encode_blob(tail + b"a" * run).codec for run in range(0, 1024, 16)]
    assert kinds[0] == "raw" and kinds[-1] == "zstd" and kinds == sorted(kinds), "raw up to one size, packed from there on"
    least = kinds.index("zstd") * 16
    assert least >= (len(tail) + least) / codec.LEAST_SAVING > least - 48
    assert codec.decode_blob(codec.encode_blob(tail + b"a" * least)) == tail + b"a" * least
