"""A checkpoint store's directory, read by its documented format (recovery/README, "Checkpoint stores"): contents that the log gave up to it
are blobs of the same codecs, and whatever asks for a content finds it there."""

import os
import struct
from collections.abc import Iterator, Mapping

from .blobs import Blob
from .paths import bytes_of
from .values import Stream

HEAD = struct.Struct(">BQ")
CODECS = ("raw", "zstd", "chunks")


class StoreObjects(Mapping[bytes, Blob]):
    """The blobs of a log, and behind them the objects of a checkpoint store's directory `contents` or `manifests/<owner>`, each in one file
    or in directories by its first two digits. What is no object is not there."""

    def __init__(self, blobs: Mapping[bytes, Blob], directory: bytes, *, is_split: bool = True) -> None:
        self._blobs = blobs
        self._directory = directory
        self._is_split = is_split

    def __getitem__(self, name: bytes) -> Blob:
        if name in self._blobs:
            return self._blobs[name]
        digits = name.hex().encode()
        try:
            with open(os.path.join(self._directory, *([digits[:2]] if self._is_split else []), digits), "rb") as file:
                stored = file.read()
        except OSError as error:
            raise KeyError(name) from error
        if len(stored) < HEAD.size or stored[0] >= len(CODECS):
            raise KeyError(name)
        codec, size = HEAD.unpack_from(stored)
        return Blob(CODECS[codec], size, stored[HEAD.size :])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


def store_of(stream: Stream) -> bytes | None:
    """The directory of a session's checkpoint store; None when it has none."""
    named = stream.events[0].payload.get("checkpoints") if stream.events else None
    return bytes_of(named["store"]) if named else None
