"""A place for real sessions."""

from collections.abc import Iterator

import pytest

from tests.recovery.sessions import Sandbox, sandbox_directory


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A sandbox; whatever it started is ended afterwards."""
    with sandbox_directory() as base:
        made = Sandbox(base)
        try:
            yield made
        finally:
            made.close()
