"""The pack: all contents that a restore plan needs, laid one after another in one file, each content once.

    offset of a content = the sizes of all contents before it, in the order in which the plan first needs them

There is no index in it: both who writes and who reads work the offsets out from the plan, which states every size. It is written by the
driver, who has the log open, outside the workspace, and is not synced: after a crash it is written again. Whoever reads verifies
each content by its name, so a torn or foreign pack places nothing. Runs of zeros are holes here too: what is allocated is what a
restore will really take.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator

from eventlog import durable
from eventlog.checkout import cut_runs
from recovery.workspace.actions import PlaceFile, RestorePlan

_PIECE_BYTES = 1 << 20
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def lay_out(plan: RestorePlan) -> dict[bytes, int]:
    """The offset of each content of `plan` in its pack. Pure."""
    offsets: dict[bytes, int] = {}
    end = 0
    for action in plan.actions:
        if isinstance(action, PlaceFile) and action.content not in offsets:
            offsets[action.content] = end
            end += action.size
    return offsets


def write_pack(path: str, plan: RestorePlan, read: Callable[[bytes], Iterable[bytes]], step: str) -> None:
    """Write the pack of `plan` to `path`, over what an earlier round left there; `read` yields the bytes of a content.

    Passes `<step>.write.half` in every piece. Raises `OSError`, and what `read` raises.
    """
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        for content, offset in lay_out(plan).items():
            for piece in read(content):
                write_sparsely(descriptor, offset, piece, step)
                offset += len(piece)
        os.ftruncate(descriptor, _size_of(plan))
    finally:
        os.close(descriptor)


def _size_of(plan: RestorePlan) -> int:
    return sum({action.content: action.size for action in plan.actions if isinstance(action, PlaceFile)}.values())


def read_piecewise(pack: int, offset: int, size: int) -> Iterator[bytes]:
    """`size` bytes of an open pack from `offset`, in pieces of at most 1 MiB; fewer when the pack is shorter."""
    end = offset + size
    while offset < end and (piece := os.pread(pack, min(_PIECE_BYTES, end - offset), offset)):
        yield piece
        offset += len(piece)


def write_sparsely(descriptor: int, offset: int, piece: bytes, step: str) -> None:
    """Write `piece` at `offset`, leaving out whole blocks of zeros; the caller sets the size in the end."""
    position = 0
    for is_hole, part in cut_runs(offset, piece):
        if not is_hole:
            os.lseek(descriptor, offset + position, os.SEEK_SET)
            durable.write_all(descriptor, part, step)
        position += len(part)


def count_holes(pieces: Iterable[bytes]) -> int:
    """How many bytes of a content, given in order, `write_sparsely` leaves out."""
    position, holes = 0, 0
    for piece in pieces:
        holes += sum(len(part) for is_hole, part in cut_runs(position, piece) if is_hole)
        position += len(piece)
    return holes


def count_data(pack: int, offset: int, size: int) -> int:
    """How many of the `size` bytes from `offset` are data and not holes; all of them where the file system does not tell."""
    end = offset + size
    total = 0
    while offset < end:
        try:
            start = os.lseek(pack, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return total
            return size
        offset = min(os.lseek(pack, start, os.SEEK_HOLE), end)
        total += max(offset - start, 0)
    return total
