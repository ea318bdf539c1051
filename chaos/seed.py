"""Put a scenario's seed into an empty workspace, by plain means and without the engine.

A `stdlib` is a source tree that every machine has: the `.py` files of `LIBRARY_PACKAGES` of the running Python, nothing left out of
them but caches, with plain modes. Files and bytes depend on that Python's version alone, and so are the same in each run of a campaign.
"""

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from chaos.scenario import SeedEntry
from eventlog.errors import MisuseError

LIBRARY_PACKAGES = (
    "collections", "concurrent", "ctypes", "curses", "dbm", "email", "encodings", "html", "http", "importlib", "json", "logging",
    "multiprocessing", "re", "sqlite3", "tomllib", "unittest", "urllib", "wsgiref", "xml", "xmlrpc", "zoneinfo",
)  # fmt: skip
"""Packages that every distribution of Python 3.11 and newer has whole."""
LEFT_OUT = (b"__pycache__", b"test", b"tests")
LEAST_LIBRARY_FILES = 300


def plant_seed(seed: Sequence[SeedEntry], root: Path) -> None:
    """Make every entry below `root`, in order; parents are made with 0755. Modes are exact, whatever the umask.

    Directories get their modes last and deepest first, so that one without write permission can still be filled.
    """
    base = os.fsencode(root)
    for entry in seed:
        path = os.path.join(base, entry.path)
        _make_parents(base, entry.path)
        _make_entry(entry, base, path)
    for entry in sorted(seed, key=lambda one: -one.path.count(b"/")):
        if entry.kind == "directory":
            os.chmod(os.path.join(base, entry.path), entry.mode)


def _make_entry(entry: SeedEntry, base: bytes, path: bytes) -> None:
    match entry.kind:
        case "file":
            with open(path, "xb") as file:
                file.write(entry.content)
            os.chmod(path, entry.mode)
        case "directory":
            os.mkdir(path)
        case "symlink":
            os.symlink(entry.target, path)
        case "hardlink":
            os.link(os.path.join(base, entry.target), path)
        case "fifo":
            os.mkfifo(path)
            os.chmod(path, entry.mode)
        case "stdlib":
            _plant_library(find_library(), path)
        case _:
            assert_never(entry.kind)


def find_library() -> bytes:
    """The directory of the running Python's standard library."""
    return os.fsencode(os.path.dirname(os.__file__))


@functools.cache
def list_library(library: bytes) -> tuple[bytes, ...]:
    """The paths, relative to `library`, of the files that make the tree; in order. Raises MisuseError when they are too few to be one."""
    found: list[bytes] = []
    for package in LIBRARY_PACKAGES:
        for directory, below, names in os.walk(os.path.join(library, package.encode())):
            below[:] = [name for name in below if name not in LEFT_OUT]
            found += [os.path.relpath(os.path.join(directory, name), library) for name in names if name.endswith(b".py")]
    if len(found) < LEAST_LIBRARY_FILES:
        raise MisuseError(
            f"the standard library at {os.fsdecode(library)} has {len(found)} of the files that a stdlib seed copies, fewer than "
            f"{LEAST_LIBRARY_FILES}; run chaos with a Python whose standard library is whole and unpacked"
        )
    return tuple(sorted(found))


def _plant_library(library: bytes, path: bytes) -> None:
    os.mkdir(path)
    os.chmod(path, 0o755)
    for name in list_library(library):
        _make_parents(path, name)
        target = os.path.join(path, name)
        with open(os.path.join(library, name), "rb") as source, open(target, "xb") as file:
            file.write(source.read())
        os.chmod(target, 0o644)


def _make_parents(base: bytes, path: bytes) -> None:
    parts = path.split(b"/")[:-1]
    for depth in range(1, len(parts) + 1):
        parent = os.path.join(base, *parts[:depth])
        if not os.path.lexists(parent):
            os.mkdir(parent)
            os.chmod(parent, 0o755)
