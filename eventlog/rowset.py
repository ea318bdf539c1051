"""A set of row ids in one bit each, for walks whose memory may not grow with the log."""

_BITS = 1 << 15


class RowSet:
    """Row ids from 0 up. Pieces of 4 KiB are made where ids are: a million neighbours need 128 KiB."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}

    def add(self, row: int) -> None:
        piece, bit = divmod(row, _BITS)
        self._pieces.setdefault(piece, bytearray(_BITS // 8))[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, row: int) -> bool:
        piece, bit = divmod(row, _BITS)
        found = self._pieces.get(piece)
        return found is not None and bool(found[bit >> 3] >> (bit & 7) & 1)
