"""The shipped suite of what a session promises (recovery.conformance), run for this project's sessions."""

import pytest

from recovery.conformance import test_sessions

SUITE = {name: test for name, test in vars(test_sessions).items() if name.startswith("test_")}


@pytest.mark.parametrize("name", SUITE)
def test_a_session_keeps_its_promises(name: str) -> None:
    SUITE[name]()
