"""Kept output: the head and the tail, whatever the pieces; case 35."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.space.output import HEAD_BYTES, TAIL_BYTES, OutputKeeper


def keep(*pieces: bytes) -> OutputKeeper:
    keeper = OutputKeeper()
    for piece in pieces:
        keeper.add(piece)
    return keeper


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50)))
def test_case_35_short_output_is_kept_whole_across_pieces(pieces: list[bytes]) -> None:
    kept = keep(*pieces).kept()
    assert (kept.data, kept.total, kept.is_cut) == (b"".join(pieces), len(b"".join(pieces)), False)


@settings(deadline=None)
@given(st.integers(0, 3 * (HEAD_BYTES + TAIL_BYTES)), st.integers(1, 1 << 20))
def test_case_35_long_output_keeps_head_and_tail_and_says_what_is_missing(size: int, piece: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    kept = keep(*(data[at : at + piece] for at in range(0, size, max(piece, 4096)))).kept() if piece >= 4096 else keep(data).kept()
    missing = size - HEAD_BYTES - TAIL_BYTES
    assert (kept.total, kept.is_cut) == (size, missing > 0)
    expected = data if missing <= 0 else data[:HEAD_BYTES] + b"\n[%d bytes not kept]\n" % missing + data[-TAIL_BYTES:]
    assert kept.data == expected
