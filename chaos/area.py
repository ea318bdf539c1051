"""Where trials live while they run: a directory on a tmpfs where there is one (SIGKILL needs no disk), removed at the end."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from chaos.trees import remove_tree

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "chaos-"
NEEDED_BYTES = 2 << 30
"""Above what the trials of a few jobs hold at a time (scenario `big`: thrice 200 MiB each); containers often give /dev/shm 64 MiB only."""


@contextlib.contextmanager
def open_area(memory: Path = SHARED_MEMORY, mounts: Path = Path("/proc/mounts")) -> Iterator[Path]:
    """An empty directory, on `memory` when `mounts` calls it a tmpfs with room that can be written, else where temporary files go."""
    parent = memory if _is_roomy_tmpfs(memory, mounts) else Path(tempfile.gettempdir())
    _sweep(parent)
    area = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield area
    finally:
        remove_tree(area)


def _sweep(parent: Path) -> None:
    """Remove areas of this user whose campaign was killed: its pid stands in the name and is nobody's now."""
    for area in parent.glob(f"{PREFIX}*-*"):
        pid = area.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and area.is_dir() and area.stat().st_uid == os.geteuid():
            remove_tree(area)


def _is_roomy_tmpfs(memory: Path, mounts: Path) -> bool:
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
        free = shutil.disk_usage(memory).free
    except OSError:
        return False
    kinds = [fields[2] for fields in map(str.split, lines) if len(fields) > 2 and fields[1] == str(memory)]
    return kinds[-1:] == ["tmpfs"] and free >= NEEDED_BYTES and os.access(memory, os.W_OK | os.X_OK)
