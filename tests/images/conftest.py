"""A sandbox whose workspace the generator makes, and takes away."""

from collections.abc import Iterator

import pytest

from tests import helpers
from tests.images.stories import remove_trees
from tests.recovery.sessions import Sandbox, sandbox_directory
from tests.recovery.workspace.conftest import open_space

__all__ = ["open_space", "sandbox"]


SOAK_DEADLINE_SECS = 1800.0


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run waits long for each step: one scan of 100,000 files beside others may take minutes."""
    if request.node.get_closest_marker("soak"):
        monkeypatch.setattr(helpers, "DEADLINE_SECS", SOAK_DEADLINE_SECS)


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
