"""What a change of files is, as one value: described by whoever asks, remembered by its digest, done by the file worker. Pure.

The digest is what a key stands for (rule S3); its domain is another than that of commands, so that no key is ever both.
"""

from typing import assert_never

import msgspec
from blake3 import blake3

from recovery.space.protocol import DeletePath, EditFile, WriteFile

_DIGEST_DOMAIN = b"crashworthy file request 1\n"
_encoder = msgspec.json.Encoder()


class Write(msgspec.Struct, frozen=True, tag="write"):
    """Make or replace the file `path` (bytes, relative to the space's workspace). `mode` None keeps the mode of what is there and gives a
    new file 0644."""

    path: bytes
    content: bytes
    mode: int | None = None


class Edit(msgspec.Struct, frozen=True, tag="edit"):
    """Replace the one occurrence of `old` in the file `path` by `new`."""

    path: bytes
    old: bytes
    new: bytes


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Remove the file, symlink (itself, not what it leads to), FIFO or empty directory `path`."""

    path: bytes


class FileRequest(msgspec.Struct, frozen=True):
    """One change under one key."""

    key: str
    act: Write | Edit | Delete


def digest_files(request: FileRequest) -> str:
    """64 hex digits of BLAKE3 over everything that makes the change, but for its key."""
    return blake3(_DIGEST_DOMAIN + _encoder.encode(request.act)).hexdigest()


def to_message(request: FileRequest, epoch: int) -> WriteFile | EditFile | DeletePath:
    """The change as the file worker is asked for it."""
    match request.act:
        case Write(path, content, mode):
            return WriteFile(epoch, request.key, path, content, mode)
        case Edit(path, old, new):
            return EditFile(epoch, request.key, path, old, new)
        case Delete(path):
            return DeletePath(epoch, request.key, path)
        case other:
            assert_never(other)
