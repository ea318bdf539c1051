"""One look at one node: its entry, true in itself, or the word that it changed under the look.

Only regular files are ever opened for reading, and the type is checked again after opening.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from blake3 import blake3

from eventlog.attributes import ROOT_IDENTITY_XATTR, TRACKED_PREFIX, open_node, read_acl
from eventlog.beneath import OPEN_DIRECTORY, OPEN_FILE
from eventlog.image import Entry, encode_xattrs
from eventlog.image_values import LINK_MODE, MODE_BITS, MTIME_MAX, MTIME_MIN
from recovery.workspace.listing import Key
from recovery.workspace.values import ACL, ATTRIBUTE, FLAGS

CHUNK_BYTES = 1 << 20
LARGE_BYTES = 8 << 20
"""From here on a file is hashed by as many threads as there are cores: below, starting them costs what they gain."""
_CHANGED = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EINVAL)
_NO_FLAGS = (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM)
_NO_XATTRS = (errno.ENOTSUP, errno.ENODATA)
_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS
_IMMUTABLE_OR_APPEND = 0x10 | 0x20
_ACLS = (b"system.posix_acl_access", b"system.posix_acl_default")
_IGNORED = (b"security.selinux", b"security.SMACK64", b"security.ima", b"security.evm")
"""Labels that a system with them gives every file by itself: to list them would list everything."""
Keep = Callable[[bytes, bytes], None]
Observed = tuple[Entry, Key, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Tracking:
    """What is observed beside the rest."""

    owners: bool = False
    acls: bool = False

    def owner_of(self, found: os.stat_result) -> tuple[int, int] | None:
        """The owner as an entry has it."""
        return (found.st_uid, found.st_gid) if self.owners else None


_NO_TRACKING = Tracking()


class ChangedUnderneath(Exception):
    """What was looked at vanished, became another kind or was written to meanwhile: look again."""


def key_of(found: os.stat_result) -> Key:
    """The version of a node."""
    return found.st_dev, found.st_ino, found.st_mode, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def observe_file(name: bytes, directory: int, keep: Keep | None = None, tracking: Tracking = _NO_TRACKING) -> Observed:
    """The entry of the regular file `name` (its `link` left None), its version, and what of it is not tracked; size and content belong to
    the same bytes. `keep` gets content id and bytes of a small one."""
    descriptor = open_or_changed(name, directory, OPEN_FILE)
    try:
        status = os.fstat(descriptor)
        before = key_of(status)
        if not stat.S_ISREG(before[2]):
            raise ChangedUnderneath
        content, data, size = hash_descriptor(descriptor, before[4])
        xattrs, acl, untracked = read_attributes(descriptor, tracking.acls)
        after = key_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    if size != after[4] or before != after:
        raise ChangedUnderneath
    if keep is not None and data is not None:
        keep(content, data)
    entry = Entry("f", after[2] & MODE_BITS, content, size, None, None, xattrs, bounded_time(after[5]), tracking.owner_of(status), acl)
    return entry, after, untracked


def observe_directory(name: bytes, directory: int, tracking: Tracking = _NO_TRACKING) -> Observed:
    """The entry of the directory `name`."""
    descriptor = open_or_changed(name, directory, OPEN_DIRECTORY)
    try:
        return observe_open_directory(descriptor, tracking)
    finally:
        os.close(descriptor)


def observe_open_directory(descriptor: int, tracking: Tracking = _NO_TRACKING, *, is_root: bool = False) -> Observed:
    """The entry of an open directory; of the root without the attribute that is its identity."""
    status = os.fstat(descriptor)
    before = key_of(status)
    xattrs, acl, untracked = read_attributes(descriptor, tracking.acls, skip=ROOT_IDENTITY_XATTR if is_root else b"")
    if before != key_of(os.fstat(descriptor)) and (tracking.owners or tracking.acls):
        raise ChangedUnderneath  # owner, mode and ACL belong to one moment
    owner = tracking.owner_of(status)
    entry = Entry("d", before[2] & MODE_BITS, xattrs=xattrs, mtime_ns=bounded_time(before[5]), owner=owner, acl=acl)
    return entry, before, untracked


def observe_link(name: bytes, directory: int, key: Key, tracking: Tracking = _NO_TRACKING) -> Entry:
    """The entry of a symlink, never followed."""
    owner = None
    try:
        target = os.readlink(name, dir_fd=directory)
        if tracking.owners:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            owner = tracking.owner_of(status)
            if key_of(status) != key:
                raise ChangedUnderneath
    except OSError as error:
        raise_changed(error)
    return Entry("l", LINK_MODE, target=target, mtime_ns=bounded_time(key[5]), owner=owner)


def observe_pipe(name: bytes, directory: int, key: Key, tracking: Tracking = _NO_TRACKING) -> Observed:
    """The entry of a FIFO, never opened for reading or writing."""
    try:
        with open_node(name, directory, "p") as descriptor:
            status = os.fstat(descriptor)
            acl = read_acl(f"/proc/self/fd/{descriptor}")
    except OSError as error:
        if error.errno == errno.ESTALE:
            raise ChangedUnderneath from error
        raise_changed(error)
    if key_of(status) != key:
        raise ChangedUnderneath
    owner, kept = tracking.owner_of(status), acl if tracking.acls else None
    entry = Entry("p", key[2] & MODE_BITS, mtime_ns=bounded_time(key[5]), owner=owner, acl=kept)
    return entry, key, () if acl == kept else (ACL,)


def read_attributes(descriptor: int, acls: bool = False, *, skip: bytes = b"") -> tuple[bytes | None, bytes | None, tuple[str, ...]]:
    """The encoded `user.*` attributes but `skip` of an open file or directory, its encoded ACLs when they are tracked, and the kinds of
    what it has beside them, untracked."""
    pairs: list[tuple[bytes, bytes]] = []
    lists: list[tuple[bytes, bytes]] = []
    untracked: list[str] = []
    for name in _list_attributes(descriptor):
        if name.startswith(TRACKED_PREFIX):
            if name != skip:
                _read_attribute(descriptor, name, pairs)
        elif name in _ACLS and acls:
            _read_attribute(descriptor, name, lists)
        elif name in _ACLS:
            untracked.append(ACL)
        elif name not in _IGNORED and not name.startswith(b"system."):
            untracked.append(ATTRIBUTE)
    if _has_flags(descriptor):
        untracked.append(FLAGS)
    return encode_xattrs(pairs) if pairs else None, encode_xattrs(lists) if lists else None, tuple(sorted(set(untracked)))


def _list_attributes(descriptor: int) -> list[bytes]:
    try:
        return [os.fsencode(name) for name in os.listxattr(descriptor)]
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return []
        raise


def _read_attribute(descriptor: int, name: bytes, pairs: list[tuple[bytes, bytes]]) -> None:
    try:
        pairs.append((name, os.getxattr(descriptor, name)))
    except OSError as error:
        if error.errno != errno.ENODATA:  # gone since it was listed
            raise


def _has_flags(descriptor: int) -> bool:
    """Whether the inode is immutable or append-only. File systems without such flags have none."""
    try:
        answer = fcntl.ioctl(descriptor, _GET_FLAGS, b"\0" * 8)
    except OSError as error:
        if error.errno in _NO_FLAGS:
            return False
        raise
    return bool(int.from_bytes(answer[:4], "little") & _IMMUTABLE_OR_APPEND)


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
    while chunk := os.read(descriptor, LARGE_BYTES if expected >= LARGE_BYTES else CHUNK_BYTES):
        hasher.update(chunk)
        size += len(chunk)
    return hasher.digest(), None, size


def read_chunks(descriptor: int) -> Iterator[bytes]:
    """All bytes from the descriptor's position in pieces of at most 1 MiB."""
    while chunk := os.read(descriptor, CHUNK_BYTES):
        yield chunk


def bounded_time(mtime_ns: int) -> int:
    """The time as the format can hold it: file systems know years that 64 bits of nanoseconds do not."""
    return min(max(mtime_ns, MTIME_MIN), MTIME_MAX)
