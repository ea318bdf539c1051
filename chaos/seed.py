"""Put a scenario's seed into an empty workspace, by plain means and without the engine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from chaos.scenario import SeedEntry


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
        case _:
            assert_never(entry.kind)


def _make_parents(base: bytes, path: bytes) -> None:
    parts = path.split(b"/")[:-1]
    for depth in range(1, len(parts) + 1):
        parent = os.path.join(base, *parts[:depth])
        if not os.path.lexists(parent):
            os.mkdir(parent)
            os.chmod(parent, 0o755)
