"""Fixtures of the workspace tests."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recovery.workspace.support import Space
from tests.trees import generate


@pytest.fixture
def space(tmp_path: Path) -> Space:
    """An empty workspace."""
    made = Space(str(tmp_path))
    (tmp_path / "w").mkdir()
    return made


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """An empty directory in memory where there is one that keeps attributes, else on the disk: a kill never drops what the kernel has, so
    that a disk adds time to a test of kills and no proof."""
    try:
        base = tempfile.mkdtemp(prefix="crashworthy-test-", dir="/dev/shm")
    except OSError:
        yield tmp_path
        return
    try:
        os.setxattr(base, "user.trial", b"")
    except OSError:
        os.rmdir(base)
        yield tmp_path
        return
    yield Path(base)
    generate.remove(base)


@pytest.fixture
def open_space() -> Iterator[Space]:
    """An empty workspace that every user of the machine can reach."""
    base = tempfile.mkdtemp(prefix="crashworthy-test-")
    Path(base).chmod(0o755)
    made = Space(base)
    Path(made.root).mkdir()
    yield made
    generate.remove(made.root)
    shutil.rmtree(base, ignore_errors=True)
