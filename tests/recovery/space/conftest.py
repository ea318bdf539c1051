"""What every test of the space gives back."""

from collections.abc import Iterator

import pytest

from eventlog import steps
from tests.recovery.space.ledgers import OPENED


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No ledger that a test opened stays open, and no hook installed."""
    yield
    steps.install(None)
    while OPENED:
        OPENED.pop().close()
