"""The pytest plugin: one option. It imports nothing of the project."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Add `--space`."""
    parser.getgroup("recovery").addoption(
        "--space",
        default="",
        metavar="MODULE:FACTORY",
        help="the space that recovery.space.conformance judges (default: local processes)",
    )
