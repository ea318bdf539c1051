"""Contents become blobs: cut at whole chunks whatever the pieces, the one that bears the name last."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.blobs import batch_blobs, encode_content
from eventlog.codec import Blob, content_id, decode_blob, decode_chunk_list
from eventlog.values import CHUNK_BYTES

PATTERN = bytes(range(251)) * (3 * CHUNK_BYTES // 251 + 1)


def join(blobs: list[Blob]) -> bytes:
    """The content that the blobs of one content hold, read as a reader would."""
    by_name = {blob.content: blob for blob in blobs}
    last = blobs[-1]
    if last.codec != "chunks":
        return decode_blob(last)
    return b"".join(decode_blob(by_name[name]) for name in decode_chunk_list(last))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, empty ones among them."""
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in zip(marks, marks[1:], strict=False)]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 1])
def test_a_content_comes_back_and_its_last_blob_bears_its_name(size: int) -> None:
    data = PATTERN[:size]
    blobs = list(encode_content([data]))
    assert join(blobs) == data
    assert (blobs[-1].content, blobs[-1].size) == (content_id(data), size)
    chunks = -(-size // CHUNK_BYTES)
    assert len(blobs) == (1 if chunks <= 1 else chunks + 1)
    assert all(blob.size == CHUNK_BYTES for blob in blobs[: chunks - 1])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2 * CHUNK_BYTES + 5), st.lists(st.integers(0, 1 << 22), max_size=5))
def test_the_pieces_a_content_comes_in_make_no_difference(size: int, places: list[int]) -> None:
    data = PATTERN[:size]
    assert list(encode_content(cut(data, places))) == list(encode_content([data]))
    assert list(encode_content(cut(data, places), content_id(data))) == list(encode_content([data]))


def test_no_pieces_are_an_empty_content() -> None:
    assert list(encode_content([])) == list(encode_content([b""])) == [Blob(content_id(b""), "raw", 0, b"")]


def test_small_contents_share_a_batch_and_a_batch_is_bounded_by_what_its_contents_hold() -> None:
    small = [Blob(content_id(bytes([number])), "raw", 30, b"x") for number in range(10)]
    large = Blob(content_id(b"large"), "zstd", 500, b"y")
    names = Blob(content_id(b"names"), "chunks", 5_000_000, b"z" * 64)
    assert [len(batch) for batch in batch_blobs(small, most_bytes=300)] == [10]
    assert [len(batch) for batch in batch_blobs(small, most_bytes=100)] == [3, 3, 3, 1]
    mixed = [small[0], large, names, small[1]]
    assert list(batch_blobs(mixed, most_bytes=100)) == [[small[0]], [large], [names, small[1]]]
    assert list(batch_blobs([])) == []


def test_batches_are_made_as_they_are_asked_for() -> None:
    """A content of any size passes through with one batch of it in memory."""
    made = 0

    def make() -> Iterator[Blob]:
        nonlocal made
        for number in range(1000):
            made += 1
            yield Blob(content_id(bytes([number % 256])), "raw", 50, b"x")

    next(batch_blobs(make(), most_bytes=100))
    assert made == 3
