"""Blobs decode to exactly what their name and row say, or are damage."""

import pytest
import zstandard

from chaos.oracle.blobs import CHUNK_SIZE, Blob, BlobDamage, BlobShelf
from tests.chaos.oracle.log_builder import digest

TEXT = b"some text " * 20
PACKED = zstandard.ZstdCompressor().compress(TEXT)
SIZELESS = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
BIG = bytes(CHUNK_SIZE) + b"tail"
CHUNKS = {
    digest(bytes(CHUNK_SIZE)): Blob("zstd", CHUNK_SIZE, zstandard.ZstdCompressor().compress(bytes(CHUNK_SIZE))),
    digest(b"tail"): Blob("raw", 4, b"tail"),
}
NAMES = digest(bytes(CHUNK_SIZE)) + digest(b"tail")


@pytest.mark.parametrize(
    ("content", "blob"),
    [
        (b"", Blob("raw", 0, b"")),
        (b"", Blob("zstd", 0, zstandard.ZstdCompressor().compress(b""))),
        (TEXT, Blob("raw", len(TEXT), TEXT)),
        (TEXT, Blob("zstd", len(TEXT), PACKED)),
        (TEXT, Blob("zstd", len(TEXT), SIZELESS)),
        (BIG, Blob("chunks", len(BIG), NAMES)),
    ],
)
def test_a_blob_decodes(content: bytes, blob: Blob) -> None:
    shelf = BlobShelf({digest(content): blob, **CHUNKS})
    assert shelf.content(digest(content)) == content
    assert shelf.verified_size(digest(content)) == len(content)


@pytest.mark.parametrize(
    ("content", "blob"),
    [
        (TEXT, Blob("raw", len(TEXT), TEXT[:-1])),
        (TEXT, Blob("raw", len(TEXT), TEXT[:-1] + b"x")),
        (TEXT, Blob("zstd", len(TEXT) + 1, PACKED)),
        (TEXT, Blob("zstd", len(TEXT), PACKED[:-1])),
        (TEXT, Blob("zstd", len(TEXT), PACKED + b"x")),
        (TEXT, Blob("zstd", len(TEXT), PACKED + PACKED)),
        (TEXT, Blob("zstd", len(TEXT) - 1, SIZELESS)),
        (TEXT, Blob("zstd", len(TEXT) + 1, SIZELESS)),
        (TEXT, Blob("zstd", len(TEXT), TEXT)),
        (TEXT, Blob("chunks", len(TEXT), digest(TEXT))),
        (BIG, Blob("raw", len(BIG), BIG)),
        (BIG, Blob("chunks", len(BIG), NAMES[:32])),
        (BIG, Blob("chunks", len(BIG), NAMES[32:] + NAMES[:32])),
        (BIG, Blob("chunks", len(BIG) - 1, NAMES)),
        (BIG, Blob("chunks", len(BIG), NAMES[:32] + digest(b"missing"))),
        (BIG, Blob("chunks", 2**62, NAMES)),
    ],
)
def test_a_damaged_blob_is_refused_every_time(content: bytes, blob: Blob) -> None:
    shelf = BlobShelf({digest(content): blob, **CHUNKS})
    for _ in range(2):
        with pytest.raises(BlobDamage):
            shelf.verified_size(digest(content))


def test_a_content_of_any_size_is_verified_a_chunk_at_a_time() -> None:
    shelf = BlobShelf({digest(BIG): Blob("chunks", len(BIG), NAMES), **CHUNKS})
    assert [len(piece) for piece in shelf.pieces(digest(BIG))] == [CHUNK_SIZE, 4]
