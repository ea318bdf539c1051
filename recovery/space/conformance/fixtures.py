"""What each test of the suite is given: a new space and its commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.space.conformance.subject import DEFAULT, Subject, find_subject
from recovery.space.port import CAPABILITIES, Capability, Space
from recovery.space.request import CommandRequest


@pytest.fixture
def space_name(request: pytest.FixtureRequest) -> str:
    """`module:factory` of the space under test; whoever imports the tests overrides it."""
    return str(request.config.getoption("--space", default="")) or DEFAULT


@pytest.fixture
def subject(space_name: str, tmp_path: Path) -> Iterator[Subject]:
    """The space under test, with nothing in it."""
    made = find_subject(space_name)(tmp_path)
    yield made
    made.close()


@pytest.fixture
def space(subject: Subject) -> Iterator[Space]:
    """A handle on the space at floor 1."""
    handle = subject.open()
    handle.advance(1)
    yield handle
    handle.close()


def require(space: Space, *capabilities: Capability) -> None:
    """Skip a test of what a space does not promise, by name."""
    for capability in capabilities:
        if capability not in space.capabilities:
            pytest.skip(f"the space does not declare {capability!r}: {CAPABILITIES[capability]}")


def command(
    key: str, arguments: list[bytes], *, stdin: bytes | None = None, separate: bool = False, timeout_secs: float | None = None
) -> CommandRequest:
    """A request with everything else as it usually is."""
    return CommandRequest(key, arguments, b"/", [(b"PATH", b"/usr/local/bin:/usr/bin:/bin")], stdin, separate, timeout_secs, "kill")
