"""What a damaged log must still show: what stands before the first byte that is another."""

from pathlib import Path

import pytest

from chaos.corrupt.draw import FRAME_BYTES, WAL_HEADER_BYTES
from chaos.corrupt.own_copy import LOG, WAL, count_sound_bytes, find_first_change, keep_sound

INTACT = bytes(range(1, WAL_HEADER_BYTES + 1)) + b"a" * FRAME_BYTES + b"b" * FRAME_BYTES


def put(at: int) -> bytes:
    return INTACT[:at] + b"!" + INTACT[at + 1 :]


@pytest.mark.parametrize("at", [0, 1, 31, 32, 5000, len(INTACT) - 1])
def test_the_first_change_is_found(at: int) -> None:
    assert find_first_change(INTACT, put(at)) == at
    assert find_first_change(INTACT, INTACT[:at]) == at
    assert find_first_change(INTACT, INTACT + b"more") == len(INTACT)


@pytest.mark.parametrize(
    ("damaged", "sound"),
    [
        (INTACT, len(INTACT)), (INTACT + b"more", len(INTACT)), (b"", 0), (put(3), 0), (put(WAL_HEADER_BYTES), WAL_HEADER_BYTES),
        (put(WAL_HEADER_BYTES + FRAME_BYTES - 1), WAL_HEADER_BYTES), (put(len(INTACT) - 1), WAL_HEADER_BYTES + FRAME_BYTES),
        (INTACT[:-1], WAL_HEADER_BYTES + FRAME_BYTES),
    ],
)  # fmt: skip
def test_frames_before_the_first_one_that_is_another_are_sound(damaged: bytes, sound: int) -> None:
    assert count_sound_bytes(INTACT, damaged) == sound


def test_what_is_sound_is_laid_out(tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    for one in (state, other):
        one.mkdir()
    (state / LOG).write_bytes(b"log")
    (state / WAL).write_bytes(INTACT)
    assert keep_sound(state, 0, other).read_bytes() == b"log" and not (other / WAL).exists()
    keep_sound(state, 40, other)
    assert (other / WAL).read_bytes() == INTACT[:40]
