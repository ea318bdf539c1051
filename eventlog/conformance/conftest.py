"""Makes the fixtures of the suite known to pytest."""

from eventlog.conformance.fixtures import make_store, place, store, store_name

__all__ = ["make_store", "place", "store", "store_name"]
