"""Makes the fixtures of the suite known to pytest, and refuses a store that cannot be found before the first test."""

import pytest

from eventlog.conformance.factory import find_factory
from eventlog.conformance.fixtures import chosen_store, make_store, place, store, store_name
from eventlog.errors import MisuseError

__all__ = ["make_store", "place", "store", "store_name"]


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """One sentence for a mistake in the name, not an error for each test."""
    try:
        find_factory(chosen_store(config))
    except MisuseError as error:
        raise pytest.UsageError(str(error)) from error
