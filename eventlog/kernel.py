"""What the kernel tells about a path beyond os.stat: birth time and mount id, by statx(2) through ctypes.

Fallback, where the C library or kernel has no statx or leaves a field out: `birth_ns` and `mount_id` are None; everything else comes from
fstatat. A None mount id means "compare the device number", which misses bind mounts of the same file system.
"""

import ctypes
import errno
import os
import stat
import struct

import msgspec

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_NO_AUTOMOUNT = 0x800
_AT_EMPTY_PATH = 0x1000
_BASIC_STATS = 0x7FF
_BIRTH_TIME = 0x800
_MOUNT_ID = 0x1000
_MOUNT_ROOT = 0x2000
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_BILLION = 10**9
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EPERM)

# struct statx up to stx_mnt_id, linux/stat.h: mask, blksize, attributes, nlink, uid, gid, mode, ino, size, blocks, attributes_mask,
# four times (s64, u32, pad) in the order accessed, born, changed, modified, rdev and dev as u32 pairs, mnt_id.
_LAYOUT = struct.Struct("=IIQIIIH2xQQQQ" + "qI4x" * 4 + "IIII" + "Q")
_Buffer = ctypes.c_char * 256
_WANTED = ctypes.c_uint(_BASIC_STATS | _BIRTH_TIME | _MOUNT_ID)
_library = ctypes.CDLL(None, use_errno=True)
_call = getattr(_library, "statx", None)


class Status(msgspec.Struct, frozen=True):
    """One inode as seen through one path. Times in nanoseconds since 1970; `mode` has the type bits too."""

    device: int
    inode: int
    mode: int
    links: int
    size: int
    mtime_ns: int
    ctime_ns: int
    birth_ns: int | None
    mount_id: int | None
    mount_root: bool

    def is_same_version(self, other: "Status") -> bool:
        """Whether nothing was written to, put in the place of, or changed on the inode between the two looks."""
        return (self.device, self.inode, self.mode, self.size, self.mtime_ns, self.ctime_ns) == (
            other.device, other.inode, other.mode, other.size, other.mtime_ns, other.ctime_ns,
        )  # fmt: skip

    def is_on_mount_of(self, root: "Status") -> bool:
        """Whether this path lies on the same mount as `root`: by mount id, else by mount-root flag and device number."""
        if self.mount_id is not None and root.mount_id is not None:
            return self.mount_id == root.mount_id
        return self.device == root.device and not self.mount_root


def look_at(name: bytes | str, directory: int | None = None) -> Status:
    """The status of `name`, not following a link. Raises `OSError`."""
    return _look(_AT_FDCWD if directory is None else directory, os.fsencode(name), _AT_SYMLINK_NOFOLLOW)


def look_through(descriptor: int) -> Status:
    """The status of what an open descriptor holds. Raises `OSError`."""
    return _look(descriptor, b"", _AT_EMPTY_PATH)


def look_again(descriptor: int) -> Status:
    """The status of what an open descriptor holds, without birth time and mount: cheaper, enough to tell versions apart."""
    return _look_plainly(descriptor, b"")


def is_fixed(name: bytes, directory: int) -> bool:
    """Whether `name`, not following a link, is immutable or append-only. False where the kernel or the file system does not tell."""
    if _call is None:
        return False
    buffer = _Buffer()
    if _call(directory, name, _AT_SYMLINK_NOFOLLOW | _AT_NO_AUTOMOUNT, ctypes.c_uint(0), buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(name))
    return bool(_LAYOUT.unpack_from(buffer)[2] & (_IMMUTABLE | _APPEND_ONLY))


def _look(directory: int, name: bytes, flags: int) -> Status:
    if _call is None:
        return _look_plainly(directory, name)
    buffer = _Buffer()
    if _call(directory, name, flags | _AT_NO_AUTOMOUNT, _WANTED, buffer) == 0:
        return _decode(buffer)
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return _look_plainly(directory, name)
    raise OSError(number, os.strerror(number), os.fsdecode(name))


def _decode(buffer: ctypes.Array[ctypes.c_char]) -> Status:
    fields = _LAYOUT.unpack_from(buffer)
    mask, _, attributes, links, _, _, mode, inode, size = fields[:9]
    return Status(
        device=os.makedev(fields[21], fields[22]),
        inode=inode,
        mode=mode,
        links=links,
        size=size,
        mtime_ns=fields[17] * _BILLION + fields[18],
        ctime_ns=fields[15] * _BILLION + fields[16],
        birth_ns=fields[13] * _BILLION + fields[14] if mask & _BIRTH_TIME else None,
        mount_id=fields[23] if mask & _MOUNT_ID else None,
        mount_root=bool(attributes & _MOUNT_ROOT),
    )


def _look_plainly(directory: int, name: bytes) -> Status:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False) if name else os.fstat(directory)
    return Status(
        found.st_dev, found.st_ino, found.st_mode, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns, None, None, False
    )


def kind_of(mode: int) -> str:
    """The one-letter kind of an image for a mode with type bits (`f`, `d`, `l`, `p`), or what it is in words."""
    return _KINDS.get(stat.S_IFMT(mode), "unknown node")


_KINDS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
