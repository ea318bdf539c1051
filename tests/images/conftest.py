"""A sandbox whose workspace the generator makes, and takes away."""

from collections.abc import Iterator

import pytest

from tests.images.stories import remove_trees
from tests.recovery.sessions import Sandbox, sandbox_directory
from tests.recovery.workspace.conftest import open_space

__all__ = ["open_space", "sandbox"]


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A sandbox whose workspace is not there yet."""
    with sandbox_directory() as base:
        made = Sandbox(base)
        made.root.rmdir()
        try:
            yield made
        finally:
            remove_trees(made.root, base / "other")
            made.close()
