"""Whether two directories are one, or one lies in the other, by whatever way each is reached (rule S1).

Three witnesses, each enough: the real path (links, `..` and slashes resolved); device and inode of one among the other and its ancestors
(another spelling on a file system that knows no case, a bind mount); the place within the mounted file system (a bind mount of a
part of a tree: its ancestors by path are not those of the tree).
"""

import os

import msgspec

from recovery.workspace.mounts import unescape

_TABLE = "/proc/self/mountinfo"


class Place(msgspec.Struct, frozen=True):
    """A directory. `ids` are (device, inode) of it and of its ancestors, None for what is not there; `filesystem` and `inner` are the file
    system it lies on ("" when that is not known) and its path within that."""

    path: bytes
    ids: tuple[tuple[int, int] | None, ...]
    filesystem: bytes
    inner: bytes


def look_at(path: str) -> Place:
    """Where `path` leads now; it need not be there. Changes nothing."""
    real = os.fsencode(os.path.realpath(path))
    filesystem, inner = locate(real, _read_table())
    return Place(real, tuple(map(_identify, _upwards(real))), filesystem, inner)


def overlap(one: Place, other: Place) -> bool:
    """Whether the two are one directory, or one of them lies in the other."""
    return contains(one, other) or contains(other, one)


def contains(outer: Place, inner: Place) -> bool:
    """Whether `inner` is `outer` or lies in it."""
    return (
        _is_within(inner.path, outer.path)
        or (outer.ids[0] is not None and outer.ids[0] in inner.ids)
        or (outer.filesystem == inner.filesystem != b"" and _is_within(inner.inner, outer.inner))
    )


def _is_within(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def _upwards(path: bytes) -> list[bytes]:
    found = [path]
    while (parent := os.path.dirname(found[-1])) != found[-1]:
        found.append(parent)
    return found


def _identify(path: bytes) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read_table() -> list[bytes]:
    try:
        with open(_TABLE, "rb") as file:
            return file.readlines()
    except OSError:
        return []  # no /proc here: paths and inodes have to do


def locate(path: bytes, table: list[bytes]) -> tuple[bytes, bytes]:
    """File system and place in it of a real path, by the lines of the mount table: the mount nearest to it counts, of several at one point
    the last. Pure."""
    nearest, device, root = b"", b"", b""
    for line in table:
        _, _, found, inside, point, _ = line.split(b" ", 5)
        mount = unescape(point)
        if len(mount) >= len(nearest) and _is_within(path, mount):
            nearest, device, root = mount, found, inside
    if not nearest:
        return b"", b""
    return device, os.path.normpath(unescape(root) + b"/" + path[len(nearest.rstrip(b"/")) :])
