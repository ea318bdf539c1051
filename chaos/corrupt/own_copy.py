"""What a damaged log must still show, from the runner's own copy of it: a damaged write-ahead log may lose what stands in the first frame
that is another and after it, nothing before. Pure, but for `keep_sound`.
"""

from pathlib import Path

from chaos.corrupt.draw import FRAME_BYTES, WAL_HEADER_BYTES

LOG = "log.sqlite"
WAL = "log.sqlite-wal"


def find_first_change(intact: bytes, damaged: bytes) -> int:
    """The offset of the first byte that is another, or is not there; the length where none is."""
    if damaged.startswith(intact):
        return len(intact)
    low, high = 0, min(len(intact), len(damaged))
    while low < high:  # everything before `low` is equal
        middle = (low + high + 1) // 2
        if intact[low:middle] == damaged[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def count_sound_bytes(intact: bytes, damaged: bytes) -> int:
    """How much of a WAL holds only frames that are as they were; 0 where its header is another."""
    changed = find_first_change(intact, damaged)
    if changed >= len(intact):
        return len(intact)
    return WAL_HEADER_BYTES + (changed - WAL_HEADER_BYTES) // FRAME_BYTES * FRAME_BYTES if changed >= WAL_HEADER_BYTES else 0


def keep_sound(state: Path, sound: int, directory: Path) -> Path:
    """Lay the log of a state directory out in an empty one, with so many bytes of its WAL; where it is then."""
    (directory / LOG).write_bytes((state / LOG).read_bytes())
    if sound:
        (directory / WAL).write_bytes((state / WAL).read_bytes()[:sound])
    return directory / LOG
