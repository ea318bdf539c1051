"""What each test of the suite is given: an empty store, and the way to make one more.

Whoever imports the tests into modules of their own overrides `store_name`.
"""

from pathlib import Path

import pytest

from eventlog.conformance.factory import DEFAULT, find_factory
from eventlog.store import CAPABILITIES, Capability, Store, StoreFactory


@pytest.fixture
def store_name(request: pytest.FixtureRequest) -> str:
    """`module:factory` of the store under test."""
    return chosen_store(request.config)


@pytest.fixture
def make_store(store_name: str) -> StoreFactory:
    """The factory of the store under test."""
    return find_factory(store_name)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory for a store."""
    directory = tmp_path / "store"
    directory.mkdir()
    return directory


@pytest.fixture
def store(make_store: StoreFactory, place: Path) -> Store:
    """A store without a log."""
    return make_store(place)


def require(store: Store, *capabilities: Capability) -> None:
    """Skip a test of what a store does not promise, by name."""
    for capability in capabilities:
        if capability not in store.capabilities:
            pytest.skip(f"the store does not declare {capability!r}: {CAPABILITIES[capability]}")


def chosen_store(config: pytest.Config) -> str:
    """`module:factory` as `--eventlog-store` has it, or the default."""
    return str(config.getoption("--eventlog-store", default="")) or DEFAULT
