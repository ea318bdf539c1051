"""What a file worker has made in a restore, told to the driver's scanner, so that it is not read again only to be hashed again.

    <pack>.made      MessagePack: Made, one after another in an array

Only files that were filled in staging, where nobody else works, are in it: written from bytes that were verified by their name, with the
version they had when they were closed. The scan that ends the restore still looks at each of them, and reads every one whose version is not
that one; what was too young when its directory got its place, to be told from a later version, is left out (file_clock.py). The file
is not synced: lost, damaged or foreign, it costs time only.
"""

import os
from collections.abc import Sequence

import msgspec

from recovery.workspace.listing import Key

SUFFIX = ".made"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Made(msgspec.Struct, frozen=True, array_like=True):
    """A regular file at `path` without attributes, its version, and the content that was written into it."""

    path: bytes
    key: Key
    content: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Made, ...])


def write_made(path: str, made: Sequence[Made]) -> None:
    """Write the file. Raises OSError."""
    descriptor = os.open(path, _FLAGS, 0o600)
    with open(descriptor, "wb") as file:
        file.write(_encoder.encode(made))


def read_made(path: str) -> tuple[Made, ...]:
    """What stands in the file; nothing when that is not to be had."""
    try:
        with open(path, "rb") as file:
            return _decoder.decode(file.read())
    except (OSError, msgspec.DecodeError):
        return ()
