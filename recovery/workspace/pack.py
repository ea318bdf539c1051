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
_GATHERED_BYTES = 1 << 18
"""Small contents are written so many bytes at a time: of more the memory goes back to the kernel between two writes, and is asked for and
cleared again, which costs more than the calls that it saves."""
WHOLE_BYTES = 1 << 18
"""What is no larger is taken out of the pack in one piece; the piece that is read holds several of them."""
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


def write_pack(path: str, plan: RestorePlan, read: Callable[[Iterable[bytes]], Iterable[bytes]], step: str) -> None:
    """Write the pack of `plan` to `path`, over what an earlier round left there; `read` yields the bytes of the contents it is given,
    one after another.

    Passes `<step>.write.half` in every write. Raises `OSError`, and what `read` raises.
    """
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        offset = 0
        for pieces in _gather(read(lay_out(plan))):
            offset = _write_pieces(descriptor, offset, pieces, step)
        os.ftruncate(descriptor, _size_of(plan))
    finally:
        os.close(descriptor)


def _gather(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The pieces in lists of _GATHERED_BYTES: small contents are written many at a time."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _GATHERED_BYTES or len(held) == durable.MOST_PIECES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _write_pieces(descriptor: int, offset: int, pieces: Iterable[bytes], step: str) -> int:
    """Write them from `offset` on, where the descriptor stands, leaving out whole blocks of zeros; where the descriptor stands then."""
    waiting: list[bytes] = []
    for piece in pieces:
        for is_hole, part in cut_runs(offset, piece):
            if is_hole:
                durable.write_pieces(descriptor, waiting, step)
                waiting.clear()
                os.lseek(descriptor, len(part), os.SEEK_CUR)
            else:
                waiting.append(part)
            offset += len(part)
    durable.write_pieces(descriptor, waiting, step)
    return offset


def _size_of(plan: RestorePlan) -> int:
    return sum({action.content: action.size for action in plan.actions if isinstance(action, PlaceFile)}.values())


class PackReading:
    """An open pack. Small contents are taken out of a piece that holds many of them: a plan places them in the order of the pack."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._start = 0
        self._length = 0
        self._held = memoryview(b"")

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """`size` bytes from `offset`, in pieces of at most 1 MiB; fewer when the pack is shorter."""
        end = offset + size
        while offset < end and (piece := os.pread(self.descriptor, min(_PIECE_BYTES, end - offset), offset)):
            yield piece
            offset += len(piece)

    def take(self, offset: int, size: int) -> bytes:
        """`size` bytes, at most WHOLE_BYTES, from `offset`; fewer when the pack is shorter."""
        begin = offset - self._start
        if not 0 <= begin <= self._length - size:
            if not self._held:
                self._held = memoryview(bytearray(_PIECE_BYTES))  # one for all pieces: a new one each costs as much as the reading
            self._length = os.preadv(self.descriptor, [self._held], offset)
            self._start, begin = offset, 0
        return bytes(self._held[begin : min(begin + size, self._length)])


def write_sparsely(descriptor: int, offset: int, piece: bytes, step: str) -> bool:
    """Write `piece` at `offset`, where the descriptor stands and will stand behind it, leaving out whole blocks of zeros. Whether the last
    of it was left out: at the end of a file the caller then sets its size."""
    is_hole = False
    for is_hole, part in cut_runs(offset, piece):
        if is_hole:
            os.lseek(descriptor, len(part), os.SEEK_CUR)
        else:
            durable.write_all(descriptor, part, step)
    return is_hole


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
