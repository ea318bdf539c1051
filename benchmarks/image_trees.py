"""Trees of plain files for the image benchmark, and the bare walk over one: names and one stat each, nothing kept."""

import ctypes
import os
import random
from collections.abc import Iterator

FILES_IN_DIRECTORY = 100
LIBRARY = ctypes.CDLL(None, use_errno=True)


def make_tree(root: str, files: int, size: int, seed: int = 1) -> None:
    """`files` files of `size` bytes each, no two alike, a hundred to a directory, two levels of directories."""
    source = random.Random(seed)
    tail = source.randbytes(size)
    for number in range(files):
        bucket = number // FILES_IN_DIRECTORY
        directory = os.path.join(root, f"d{bucket // FILES_IN_DIRECTORY}", f"d{bucket % FILES_IN_DIRECTORY}")
        if number % FILES_IN_DIRECTORY == 0:
            os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, f"f{number}"), "wb") as file:
            file.write((number.to_bytes(8, "big") + source.randbytes(min(size, 64)) + tail)[:size])


def make_large(path: str, size: int) -> None:
    """One file of random bytes, a mebibyte of them again and again with a number in front."""
    piece = random.Random(2).randbytes((1 << 20) - 8)
    with open(path, "wb") as file:
        for number in range(size >> 20):
            file.write(number.to_bytes(8, "big") + piece)


def walk(root: str) -> int:
    """The bare walk: scandir and stat of everything, by directories, without a link followed."""
    count = 0
    waiting = [root]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return count


def write_bare(source: str, target: str) -> None:
    """Every file of `source` written below `target` and one syncfs: what a rebuild cannot be faster than."""
    for above, _, names in os.walk(source):
        into = os.path.join(target, os.path.relpath(above, source))
        os.makedirs(into, exist_ok=True)
        for name in names:
            with open(os.path.join(above, name), "rb") as file:
                data = file.read()
            descriptor = os.open(os.path.join(into, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(descriptor, data)
            os.close(descriptor)
    sync(target)


def read_all(root: str) -> None:
    """Every file of `root` read once: the page cache has it."""
    for path in _files(root):
        with open(path, "rb") as file:
            file.read()


def forget_all(root: str) -> None:
    """Every file of `root`, synced before, taken out of the page cache (names and inodes stay known)."""
    for path in _files(root):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _files(root: str) -> Iterator[str]:
    for above, _, names in os.walk(root):
        yield from (os.path.join(above, name) for name in names)


def sync(root: str) -> None:
    """syncfs of the file system of `root`."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        LIBRARY.syncfs(descriptor)
    finally:
        os.close(descriptor)
