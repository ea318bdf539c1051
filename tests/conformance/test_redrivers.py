"""The shipped suite of the redriver's rules (recovery.redrive.conformance), run for this project's redriver."""

import pytest

from recovery.redrive.conformance import test_redrivers

SUITE = {name: test for name, test in vars(test_redrivers).items() if name.startswith("test_")}


@pytest.mark.parametrize("name", SUITE)
def test_the_redriver_keeps_its_rules(name: str) -> None:
    SUITE[name]()
