"""Listing a directory tree as entries that can be compared with an image.

Walks by directory descriptors without following a link; opens regular files only (a FIFO is never opened), never enters a mount.
What vanishes or cannot be read raises OSError: a listing is complete or does not exist.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from blake3 import blake3

from .encoding import digest, encode_pairs, xattrs_digest
from .values import Entry, Listing

READ_SIZE = 1_048_576
ROOT_MARK = b"user.crashworthy.root"
ACLS = (b"system.posix_acl_access", b"system.posix_acl_default")
KINDS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
}
KINDS_IN_GROUPS = ("f", "l", "p")
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOUNTINFO = "/proc/self/mountinfo"
Inode = tuple[int, int]


@dataclass(slots=True)
class Walk:
    """What one listing gathers. `inodes` has the paths of every file, symlink and FIFO with several names, by inode."""

    mounts: frozenset[bytes]
    entries: dict[bytes, Entry] = field(default_factory=dict)
    inodes: dict[Inode, list[bytes]] = field(default_factory=dict)


def list_tree(root: bytes) -> Listing:
    """The entries of the tree at `root` by path, the root itself as the empty path; nothing when there is no such path. A root
    that is no directory is one entry. Raises OSError."""
    try:
        status = os.lstat(root)
    except FileNotFoundError:
        return {}
    if not stat.S_ISDIR(status.st_mode):
        return {b"": Entry(kind_of(status), stat.S_IMODE(status.st_mode), owner=owner_of(status))}
    walk = Walk(mounts_below(root))
    descriptor = os.open(root, OPEN_DIRECTORY)
    try:
        walk.entries[b""] = directory_entry(descriptor, status, is_root=True)
        pending = list_directory(walk, descriptor, b"")
    finally:
        os.close(descriptor)
    while pending:
        pending += list_below(walk, root, pending.pop())
    name_link_groups(walk)
    return walk.entries


def list_below(walk: Walk, root: bytes, path: bytes) -> list[bytes]:
    """List the directory `path` of the tree; returns the directories in it."""
    descriptor = open_below(root, path)
    try:
        return list_directory(walk, descriptor, path)
    finally:
        os.close(descriptor)


def open_below(root: bytes, path: bytes) -> int:
    """A descriptor of a directory, reached one component at a time so that no link is followed and no path is too long."""
    descriptor = os.open(root, OPEN_DIRECTORY)
    for name in path.split(b"/"):
        try:
            below = os.open(name, OPEN_DIRECTORY, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def list_directory(walk: Walk, descriptor: int, path: bytes) -> list[bytes]:
    """Add the entries in one directory; returns the paths of the directories to list next."""
    below = []
    for name in map(os.fsencode, os.listdir(descriptor)):
        child = path + b"/" + name if path else name
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if child in walk.mounts:
            walk.entries[child] = Entry("m", stat.S_IMODE(status.st_mode), owner=owner_of(status))
            continue
        walk.entries[child] = read_entry(descriptor, name, status)
        if stat.S_ISDIR(status.st_mode):
            below.append(child)
        elif walk.entries[child].kind in KINDS_IN_GROUPS and status.st_nlink > 1:
            walk.inodes.setdefault((status.st_dev, status.st_ino), []).append(child)
    return below


def read_entry(directory: int, name: bytes, status: os.stat_result) -> Entry:
    """The entry of one name in an open directory."""
    kind = kind_of(status)
    if kind == "l":
        return Entry("l", 0o777, target=os.readlink(name, dir_fd=directory), owner=owner_of(status))
    if kind == "p":
        return pipe_entry(directory, name)
    if kind not in ("f", "d"):
        return Entry(kind, stat.S_IMODE(status.st_mode), owner=owner_of(status))
    descriptor = os.open(name, OPEN_FILE if kind == "f" else OPEN_DIRECTORY, dir_fd=directory)
    try:
        return file_entry(descriptor) if kind == "f" else directory_entry(descriptor, status, is_root=False)
    finally:
        os.close(descriptor)


def file_entry(descriptor: int) -> Entry:
    """The entry of an open regular file; `link` is filled in later."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ESTALE, "a file became another kind while it was listed")
    hasher = blake3()
    size = 0
    while data := os.read(descriptor, READ_SIZE):
        hasher.update(data)
        size += len(data)
    xattrs, acl = read_xattrs(descriptor, is_root=False)
    return Entry("f", stat.S_IMODE(status.st_mode), hasher.digest(), size, None, None, xattrs, owner_of(status), acl)


def directory_entry(descriptor: int, status: os.stat_result, *, is_root: bool) -> Entry:
    """The entry of an open directory."""
    xattrs, acl = read_xattrs(descriptor, is_root=is_root)
    return Entry("d", stat.S_IMODE(status.st_mode), xattrs=xattrs, owner=owner_of(status), acl=acl)


def pipe_entry(directory: int, name: bytes) -> Entry:
    """The entry of a FIFO, which is not opened for reading or writing."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        _, acl = read_xattrs(f"/proc/self/fd/{descriptor}", is_root=False)
    finally:
        os.close(descriptor)
    return Entry(kind_of(status), stat.S_IMODE(status.st_mode), owner=owner_of(status), acl=acl)


def owner_of(status: os.stat_result) -> tuple[int, int]:
    """User and group."""
    return status.st_uid, status.st_gid


def read_xattrs(descriptor: int | str, *, is_root: bool) -> tuple[bytes | None, bytes | None]:
    """The digests of the `user.*` attributes and of the ACLs, None for none. The root's identity mark is no part of any image."""
    try:
        names = [os.fsencode(name) for name in os.listxattr(descriptor)]
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return None, None  # a file system without attributes has none
        raise
    wanted = [name for name in names if name.startswith(b"user.") and not (is_root and name == ROOT_MARK)]
    acls = encode_pairs((name, os.getxattr(descriptor, name)) for name in names if name in ACLS)
    xattrs = xattrs_digest(encode_pairs((name, os.getxattr(descriptor, name)) for name in wanted))
    return xattrs, None if acls is None else digest(acls)


def kind_of(status: os.stat_result) -> str:
    """The kind letter of an inode."""
    return KINDS[stat.S_IFMT(status.st_mode)]


def name_link_groups(walk: Walk) -> None:
    """Give every path of a hard-link group within the tree the group's first path."""
    for paths in walk.inodes.values():
        if len(paths) > 1:
            leader = min(paths)
            for path in paths:
                walk.entries[path] = replace(walk.entries[path], link=leader)


def mounts_below(root: bytes) -> frozenset[bytes]:
    """The relative paths below `root` at which something is mounted. Device numbers do not tell: a bind mount has its source's."""
    prefix = os.path.realpath(root).rstrip(b"/") + b"/"
    return frozenset(point[len(prefix) :] for point in mount_points() if point.startswith(prefix) and len(point) > len(prefix))


def mount_points() -> Iterator[bytes]:
    """Every mount point this process sees; none where there is no /proc."""
    try:
        with open(MOUNTINFO, "rb") as lines:
            for line in lines:
                yield re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), line.split(b" ")[4])
    except FileNotFoundError:
        return


def paths_below(directory: bytes) -> Iterator[bytes]:
    """The paths, relative to `directory`, of everything below it, directories too; nothing when it is not there."""
    pending = [b""]
    while pending:
        path = pending.pop()
        try:
            with os.scandir(os.path.join(directory, path) if path else directory) as children:
                found = [(path + b"/" + child.name if path else child.name, child.is_dir(follow_symlinks=False)) for child in children]
        except FileNotFoundError:
            if path:
                raise
            return
        yield from (child for child, _ in found)
        pending += [child for child, is_directory in found if is_directory]
