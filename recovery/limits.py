"""How large a workspace is, and whether that is more than an image in the log may be (rule C8). Sizes are logical: nothing is read.

A sparse file of 4 GiB counts 4 GiB however little of it is on the disk: that is what a scan would have to hash (case 6).
"""

import errno
import os
import stat

import msgspec

from eventlog.beneath import Beneath
from eventlog.errors import ScanError
from eventlog.events import Limits
from eventlog.image import Image
from eventlog.show import show_path
from recovery.workspace.profile import Profile
from recovery.workspace.side import RESERVED_NAME

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
"""Gone meanwhile, or another file system, which no image holds."""
DEFAULT_LIMITS = Limits(bytes=1 << 30, paths=100_000, file_bytes=256 << 20)
"""Of mode `auto` where the session file has none: from about there on two scans a call, each reading what changed whole, cost more than
a checkpoint (recovery/README, "Change hints")."""


class Measured(msgspec.Struct, frozen=True):
    """Bytes of all files (each inode once), paths with the root, and the largest file."""

    total_bytes: int
    paths: int
    largest: bytes
    largest_bytes: int


def measure(root: str, profile: Profile) -> Measured:
    """Measure a tree by its directories and inodes alone, without what the session leaves out. Names that vanish meanwhile do not count.

    Raises ScanError naming the directory that cannot be listed.
    """
    total, paths, largest, largest_bytes = 0, 1, b"", 0
    seen: set[tuple[int, int]] = set()
    waiting = [b""]
    with Beneath(root) as beneath:
        while waiting:
            above = waiting.pop()
            for name, found in _list(beneath, above):
                path = above + b"/" + name if above else name
                is_directory = stat.S_ISDIR(found.st_mode)
                if path == RESERVED_NAME or profile.matches(path, is_directory):
                    continue
                paths += 1
                if is_directory:
                    waiting.append(path)
                elif stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    total += found.st_size
                    if found.st_size > largest_bytes:
                        largest, largest_bytes = path, found.st_size
    return Measured(total, paths, largest, largest_bytes)


def _list(beneath: Beneath, path: bytes) -> list[tuple[bytes, os.stat_result]]:
    found: list[tuple[bytes, os.stat_result]] = []
    try:
        descriptor = beneath.directory(path)
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    found.append((os.fsencode(entry.name), entry.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue
    except OSError as error:
        if error.errno in _NOT_THERE:
            return found
        raise ScanError(f"cannot list {show_path(path)}: {error.strerror}") from error
    return found


def measure_image(image: Image) -> Measured:
    """The same of an image. Pure."""
    total, largest, largest_bytes = 0, b"", 0
    for path, entry in image.items():
        if entry.kind != "f" or entry.link not in (None, path):
            continue
        total += entry.size
        if entry.size > largest_bytes:
            largest, largest_bytes = path, entry.size
    return Measured(total, len(image), largest, largest_bytes)


def find_crossing(measured: Measured, limits: Limits | None) -> str:
    """Which limit is crossed, in words; "" when none is. Pure."""
    if limits is None:
        return ""
    if limits.file_bytes is not None and measured.largest_bytes > limits.file_bytes:
        return f"{show_path(measured.largest)} has {measured.largest_bytes} bytes, above the limit of {limits.file_bytes} for a file"
    if limits.paths is not None and measured.paths > limits.paths:
        return f"the workspace has {measured.paths} paths, above the limit of {limits.paths}"
    if limits.bytes is not None and measured.total_bytes > limits.bytes:
        return f"the workspace has {measured.total_bytes} bytes, above the limit of {limits.bytes}"
    return ""
