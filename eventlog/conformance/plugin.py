"""The pytest plugin: one option. It is loaded in every pytest run beside an installed crashworthy, so it imports nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Add `--eventlog-store`."""
    parser.getgroup("eventlog").addoption(
        "--eventlog-store",
        default="",
        metavar="MODULE:FACTORY",
        help="the store that eventlog.conformance judges (default: the SQLite store of eventlog)",
    )
