"""The bytes of one file of the workspace, in pieces, opened beneath the root without following a link."""

import os
from collections.abc import Iterator

from blake3 import blake3

from eventlog.beneath import OPEN_FILE, Beneath
from eventlog.errors import ScanError
from eventlog.kernel import kind_of, look_through
from eventlog.show import show_path
from recovery.workspace.observe import read_chunks


def read_content(root: str, path: bytes) -> Iterator[bytes]:
    """The bytes of the regular file `path` in pieces of at most 1 MiB. Raises `ScanError` naming the path, at any piece."""
    try:
        yield from _read(root, path)
    except OSError as error:
        raise ScanError(f"cannot read {show_path(path)}: {error.strerror}") from error


def read_verified(root: str, path: bytes, content_id: bytes, size: int) -> Iterator[bytes]:
    """`read_content`, but with a `ScanError` in the end when the bytes are not those of `content_id` and `size`.

    Nothing that was yielded may be used before the iterator ended without an error. Stops at once when there are more than `size` bytes.
    """
    hasher = blake3()
    seen = 0
    for chunk in read_content(root, path):
        seen += len(chunk)
        if seen > size:
            break
        hasher.update(chunk)
        yield chunk
    if seen != size or hasher.digest() != content_id:
        raise ScanError(f"{show_path(path)} changed since it was scanned; scan again")


def _read(root: str, path: bytes) -> Iterator[bytes]:
    with Beneath(root) as beneath:
        directory, name = beneath.parent(path)
        descriptor = os.open(name, OPEN_FILE, dir_fd=directory)
    try:
        if kind_of(look_through(descriptor).mode) != "f":
            raise ScanError(f"{show_path(path)} is no longer a regular file")
        yield from read_chunks(descriptor)
    finally:
        os.close(descriptor)
