"""One look at one node: its entry, true in itself, or the word that it changed under the look.

Only regular files are ever opened for reading, and the type is checked again after opening.
"""

import errno
import os
from collections.abc import Iterator
from typing import NoReturn

from blake3 import blake3

from eventlog.attributes import ROOT_IDENTITY_XATTR, read_xattrs
from eventlog.beneath import OPEN_FILE
from eventlog.image import Entry
from eventlog.image_values import LINK_MODE, MODE_BITS, MTIME_MAX, MTIME_MIN
from eventlog.kernel import Status, kind_of, look_again

CHUNK_BYTES = 1 << 20
_CHANGED = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EINVAL)


class ChangedUnderneath(Exception):
    """What was looked at vanished, became another kind or was written to meanwhile: look again."""


def observe_file(name: bytes, directory: int) -> tuple[Entry, Status]:
    """The entry of the regular file `name` (its `link` left None) and its status; size and content belong to the same bytes."""
    descriptor = open_or_changed(name, directory, OPEN_FILE)
    try:
        before = look_again(descriptor)
        if kind_of(before.mode) != "f":
            raise ChangedUnderneath
        content, size = hash_descriptor(descriptor)
        xattrs = read_xattrs(descriptor)
        after = look_again(descriptor)
    finally:
        os.close(descriptor)
    if size != after.size or not before.is_same_version(after):
        raise ChangedUnderneath
    return Entry("f", after.mode & MODE_BITS, content, size, xattrs=xattrs, mtime_ns=bounded_time(after.mtime_ns)), after


def observe_directory(descriptor: int, status: Status, *, is_root: bool = False) -> Entry:
    """The entry of an open directory; of the root without the attribute that is its identity."""
    xattrs = read_xattrs(descriptor, skip=ROOT_IDENTITY_XATTR if is_root else b"")
    return Entry("d", status.mode & MODE_BITS, xattrs=xattrs, mtime_ns=bounded_time(status.mtime_ns))


def observe_link(name: bytes, directory: int, status: Status) -> Entry:
    """The entry of a symlink, never followed."""
    try:
        target = os.readlink(name, dir_fd=directory)
    except OSError as error:
        raise_changed(error)
    return Entry("l", LINK_MODE, target=target, mtime_ns=bounded_time(status.mtime_ns))


def observe_pipe(status: Status) -> Entry:
    """The entry of a FIFO, never opened."""
    return Entry("p", status.mode & MODE_BITS, mtime_ns=bounded_time(status.mtime_ns))


def open_or_changed(name: bytes, directory: int, flags: int) -> int:
    """Open, with the errors of a node that is no longer what it was as `ChangedUnderneath`."""
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        raise_changed(error)


def raise_changed(error: OSError) -> NoReturn:
    """`ChangedUnderneath` when the error only says that the node changed, else the error itself."""
    if error.errno in _CHANGED:
        raise ChangedUnderneath from error
    raise error


def hash_descriptor(descriptor: int) -> tuple[bytes, int]:
    """The content id of all bytes from the descriptor's position, and their number."""
    hasher = blake3()
    size = 0
    for chunk in read_chunks(descriptor):
        hasher.update(chunk)
        size += len(chunk)
    return hasher.digest(), size


def read_chunks(descriptor: int) -> Iterator[bytes]:
    """All bytes from the descriptor's position in pieces of at most 1 MiB."""
    while chunk := os.read(descriptor, CHUNK_BYTES):
        yield chunk


def bounded_time(mtime_ns: int) -> int:
    """The time as the format can hold it: file systems know years that 64 bits of nanoseconds do not."""
    return min(max(mtime_ns, MTIME_MIN), MTIME_MAX)
