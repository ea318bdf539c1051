"""The place for real sessions, as in tests/recovery."""

from tests.recovery.conftest import sandbox

__all__ = ["sandbox"]
