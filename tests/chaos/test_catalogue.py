"""Modes: each has scenarios, and those of its sets of trials that it is about."""

from pathlib import Path

import pytest

from chaos.catalogue import MODES, choose
from eventlog.errors import MisuseError

README = (Path(__file__).resolve().parents[2] / "chaos" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_scenarios_and_stands_in_the_readme(mode: str) -> None:
    assert choose(mode, "") and f"`{mode}`" in README


def test_recovery_has_only_sets_that_name_their_label() -> None:
    assert all(one.label for scenario in choose("recovery", "") for one in scenario.trials)


def test_a_scenario_without_such_a_set_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="unknown scenario 'big'; mode recovery has "):
        choose("recovery", "big")
    file = tmp_path / "one.toml"
    file.write_text('name = "one"\n[[call]]\ntool = "bash"\nrun = "true"\n')
    with pytest.raises(MisuseError, match="has no set of trials for mode recovery"):
        choose("recovery", str(file))


def test_ci_takes_its_own_sample_and_no_other_mode_does() -> None:
    samples = {mode: [one.sample for one in choose(mode, "source-tree")[0].trials] for mode in ("ci", "transactional", "soak")}
    assert samples["ci"] == [10] and samples["transactional"] == [0] and set(samples["soak"]) == {0}
