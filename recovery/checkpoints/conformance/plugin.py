"""The pytest plugin: one option. It imports nothing of the project."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Add `--checkpoints`."""
    parser.getgroup("recovery").addoption(
        "--checkpoints",
        default="",
        metavar="MODULE:FACTORY",
        help="the checkpoint store that recovery.checkpoints.conformance judges (default: the directory store)",
    )
