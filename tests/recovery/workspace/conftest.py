"""Fixtures of the workspace tests."""

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
def open_space() -> Iterator[Space]:
    """An empty workspace that every user of the machine can reach."""
    base = tempfile.mkdtemp(prefix="crashworthy-test-")
    Path(base).chmod(0o755)
    made = Space(base)
    Path(made.root).mkdir()
    yield made
    generate.remove(made.root)
    shutil.rmtree(base, ignore_errors=True)
