"""One look at one node: its entry, true in itself, or the word that it changed under the look.

Only regular files are ever opened for reading, and the type is checked again after opening.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from typing import NoReturn

import msgspec
from blake3 import blake3

from eventlog.attributes import ROOT_IDENTITY_XATTR, TRACKED_PREFIX
from eventlog.beneath import OPEN_DIRECTORY, OPEN_FILE
from eventlog.image import Entry, encode_xattrs
from eventlog.image_values import ACL_ACCESS, ACL_DEFAULT, LINK_MODE, MODE_BITS, MTIME_MAX, MTIME_MIN
from recovery.workspace.listing import Key
from recovery.workspace.values import ACL, ATTRIBUTE, FLAGS

CHUNK_BYTES = 1 << 20
LARGE_BYTES = 64 << 20
"""From here on a file is hashed by as many threads as there are cores: below, they cost what they gain (benchmarks/README)."""
_CHANGED = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EINVAL)
_NO_FLAGS = (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM)
_NO_XATTRS = (errno.ENOTSUP, errno.ENODATA)
_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS
_NO_ANSWER = bytes(8)
_IMMUTABLE_OR_APPEND = 0x10 | 0x20
_ACLS = (ACL_ACCESS, ACL_DEFAULT)
_IGNORED = (b"security.selinux", b"security.SMACK64", b"security.ima", b"security.evm")
"""Labels that a system with them gives every file by itself: to list them would list everything."""
Keep = Callable[[bytes, bytes], None]
Observed = tuple[Entry, Key, tuple[str, ...]]


class ChangedUnderneath(Exception):
    """What was looked at vanished, became another kind or was written to meanwhile: look again."""


def key_of(found: os.stat_result) -> Key:
    """The version of a node."""
    return found.st_dev, found.st_ino, found.st_mode, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class Tracking(msgspec.Struct, frozen=True):
    """What is tracked beside what always is."""

    owners: bool = False
    acls: bool = False


class Attributes(msgspec.Struct, frozen=True):
    """What hangs on a node: its `user.*` attributes and, where they are tracked, its ACLs, encoded; its owner, where that is tracked; and
    the kinds of what it has that is not tracked."""

    xattrs: bytes | None
    acl: bytes | None
    owner: tuple[int, int] | None
    untracked: tuple[str, ...]


def observe_file(
    name: bytes, directory: int, tracking: Tracking, keep: Keep | None = None, known: Entry | None = None
) -> Observed:
    """The entry of the regular file `name` (its `link` left None), its version, and what of it is not tracked; size and content belong to
    the same bytes. `keep` gets content id and bytes of a small one, unless its content is that of `known`."""
    descriptor = open_or_changed(name, directory, OPEN_FILE)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ChangedUnderneath
        content, data, size = hash_descriptor(descriptor, found.st_size)
        has = read_attributes(descriptor, found, tracking)
        after = key_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    if size != after[4] or key_of(found) != after:
        raise ChangedUnderneath
    if keep is not None and data is not None and (known is None or known.content != content):
        keep(content, data)
    entry = Entry("f", after[2] & MODE_BITS, content, size, None, None, has.xattrs, bounded_time(after[5]), has.owner, has.acl)
    return entry, after, has.untracked


def observe_directory(name: bytes, directory: int, tracking: Tracking) -> Observed:
    """The entry of the directory `name`."""
    descriptor = open_or_changed(name, directory, OPEN_DIRECTORY)
    try:
        return observe_open_directory(descriptor, tracking)
    finally:
        os.close(descriptor)


def observe_open_directory(descriptor: int, tracking: Tracking, *, is_root: bool = False) -> Observed:
    """The entry of an open directory; of the root without the attribute that is its identity."""
    found = os.fstat(descriptor)
    before = key_of(found)
    has = read_attributes(descriptor, found, tracking, skip=ROOT_IDENTITY_XATTR if is_root else b"")
    entry = Entry("d", before[2] & MODE_BITS, None, 0, None, None, has.xattrs, bounded_time(before[5]), has.owner, has.acl)
    return entry, before, has.untracked


def observe_link(name: bytes, directory: int, found: os.stat_result, tracking: Tracking) -> Observed:
    """The entry of a symlink, never followed (its `link` left None), its version, and nothing."""
    try:
        target = os.readlink(name, dir_fd=directory)
    except OSError as error:
        raise_changed(error)
    _check_named(name, directory, found)
    entry = Entry("l", LINK_MODE, target=target, mtime_ns=bounded_time(found.st_mtime_ns), owner=_owner_of(found, tracking))
    return entry, key_of(found), ()


def observe_pipe(name: bytes, directory: int, found: os.stat_result, tracking: Tracking) -> Observed:
    """The entry of a FIFO, never opened: what hangs on it is asked for by its name."""
    try:
        has = read_attributes(f"/proc/self/fd/{directory}/".encode() + name, found, tracking)
    except OSError as error:
        raise_changed(error)
    _check_named(name, directory, found)
    mtime_ns = bounded_time(found.st_mtime_ns)
    return Entry("p", found.st_mode & MODE_BITS, None, 0, None, None, None, mtime_ns, has.owner, has.acl), key_of(found), has.untracked


def _check_named(name: bytes, directory: int, found: os.stat_result) -> None:
    """`ChangedUnderneath` when a node with further names, looked at by one of them, is no longer what that name stands for: what was read
    would be given to all its names. Of a node with one name the next scan finds the other version."""
    if found.st_nlink > 1 and key_of(os.stat(name, dir_fd=directory, follow_symlinks=False)) != key_of(found):
        raise ChangedUnderneath


def _owner_of(found: os.stat_result, tracking: Tracking) -> tuple[int, int] | None:
    return (found.st_uid, found.st_gid) if tracking.owners else None


def read_attributes(source: int | bytes, found: os.stat_result, tracking: Tracking, skip: bytes = b"") -> Attributes:
    """What hangs on an open file or directory, or on the node of a path, which is not followed, but for the attribute `skip`."""
    names = _list_attributes(source)
    has_flags = isinstance(source, int) and _has_flags(source)
    if not names and not has_flags and not tracking.owners:
        return _NONE
    pairs: list[tuple[bytes, bytes]] = []
    acls: list[tuple[bytes, bytes]] = []
    untracked: list[str] = []
    for name in names:
        if name.startswith(TRACKED_PREFIX):
            if name != skip:
                _read_attribute(source, name, pairs)
        elif name in _ACLS and tracking.acls:
            _read_attribute(source, name, acls)
        elif name in _ACLS:
            untracked.append(ACL)
        elif name not in _IGNORED and not name.startswith(b"system."):
            untracked.append(ATTRIBUTE)
    if has_flags:
        untracked.append(FLAGS)
    owner = _owner_of(found, tracking)
    xattrs, acl = (encode_xattrs(some) if some else None for some in (pairs, acls))
    return Attributes(xattrs, acl, owner, tuple(sorted(set(untracked))) if untracked else ())


_NONE = Attributes(None, None, None, ())


def _list_attributes(source: int | bytes) -> list[bytes]:
    try:
        names = os.listxattr(source) if isinstance(source, int) else os.listxattr(source, follow_symlinks=False)
        return [os.fsencode(name) for name in names] if names else []  # most have none
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return []
        raise


def _read_attribute(source: int | bytes, name: bytes, pairs: list[tuple[bytes, bytes]]) -> None:
    try:
        value = os.getxattr(source, name) if isinstance(source, int) else os.getxattr(source, name, follow_symlinks=False)
        pairs.append((name, value))
    except OSError as error:
        if error.errno != errno.ENODATA:  # gone since it was listed
            raise


def _has_flags(descriptor: int) -> bool:
    """Whether the inode is immutable or append-only. File systems without such flags have none."""
    try:
        answer = fcntl.ioctl(descriptor, _GET_FLAGS, _NO_ANSWER)
    except OSError as error:
        if error.errno in _NO_FLAGS:
            return False
        raise
    return bool(answer[0] & _IMMUTABLE_OR_APPEND)


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


def hash_descriptor(descriptor: int, expected: int) -> tuple[bytes, bytes | None, int]:
    """The content id of all bytes from the descriptor's position, the bytes where they fit in one piece (else None), and their number.
    `expected` is the size the file should have; it decides only how the work is done."""
    if expected < CHUNK_BYTES:
        data = os.read(descriptor, expected + 1)
        if len(data) == expected:  # short of what was asked for: the end of a regular file
            return blake3(data).digest(), data, expected
        os.lseek(descriptor, 0, os.SEEK_SET)
    hasher = blake3(max_threads=blake3.AUTO) if expected >= LARGE_BYTES else blake3()
    size = 0
    buffer = bytearray(CHUNK_BYTES)  # one for all pieces: a new one for each costs as much as the hashing
    view = memoryview(buffer)
    while count := os.readv(descriptor, [buffer]):
        hasher.update(view[:count])
        size += count
    return hasher.digest(), None, size


def read_chunks(descriptor: int) -> Iterator[bytes]:
    """All bytes from the descriptor's position in pieces of at most 1 MiB."""
    while chunk := os.read(descriptor, CHUNK_BYTES):
        yield chunk


def bounded_time(mtime_ns: int) -> int:
    """The time as the format can hold it: file systems know years that 64 bits of nanoseconds do not."""
    return min(max(mtime_ns, MTIME_MIN), MTIME_MAX)
