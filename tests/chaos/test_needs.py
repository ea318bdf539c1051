"""A scenario whose program is missing is unavailable, and says so; it is never compared with a run that failed alike."""

from pathlib import Path

import pytest

from chaos.judging import OracleProcess
from chaos.needs import describe_missing, find_missing
from chaos.reference import make_reference
from eventlog.errors import MisuseError
from tests.chaos.fakes import make_scenario
from tests.chaos.places import SITE_PACKAGES


def find(program: str) -> str | None:
    """A machine that has nothing but sed."""
    return "/usr/bin/sed" if program == "sed" else None


def test_the_missing_programs_are_named_in_order() -> None:
    assert find_missing(("git", "sed", "awk"), find) == ("git", "awk")
    assert find_missing(("sed",), find) == find_missing((), find) == ()


def test_a_scenario_says_why_it_is_unavailable() -> None:
    assert describe_missing(make_scenario(needs=("sed", "git")), find) == "unavailable: it needs git, not found on PATH"
    assert describe_missing(make_scenario(needs=("sed",)), find) == ""


def test_no_reference_is_made_of_commands_that_cannot_run(tmp_path: Path) -> None:
    scenario = make_scenario(needs=("no-such-program",))
    with pytest.raises(MisuseError, match="scenario small is unavailable: it needs no-such-program"):
        make_reference(scenario, tmp_path / "plain", {}, OracleProcess(SITE_PACKAGES))
    assert list(tmp_path.iterdir()) == []
