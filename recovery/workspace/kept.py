"""Bytes of small files kept from the scan that hashed them, so that a commit of what was found does not read them again."""

KEPT_BYTES = 64 << 20
"""So much memory at most; what does not fit is read a second time, which is right and slower."""


class KeptContents:
    """Contents by their id: what is kept was hashed to that very id."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._bytes = 0
        self._kept: dict[bytes, bytes] = {}

    def keep(self, content: bytes, data: bytes) -> None:
        """Keep `data`, whose content id is `content`, if there is room."""
        if content not in self._kept and self._bytes + len(data) <= self._limit:
            self._kept[content] = data
            self._bytes += len(data)

    def get(self, content: bytes) -> bytes | None:
        """The bytes of a content, or None."""
        return self._kept.get(content)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._bytes = 0
