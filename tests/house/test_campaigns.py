"""What the gate's campaigns promise: every decision of recovery is reached in one, and each holds lost work against its bound."""

from pathlib import Path

import pytest

from chaos.catalogue import MODES, SCENARIOS
from chaos.launch import REQUIRED, UNREACHABLE_LABELS
from chaos.required import required_oracles
from chaos.scenario import Scenario, load_scenario
from recovery.labels import NOT_ACTED_ON, Label

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ("transactional", "checkpoint", "auto", "stale", "recovery", "redrive", "lost")
"""The campaigns that say how much work was lost, and how much may be."""


def scenarios_of(mode: str) -> list[Scenario]:
    return [load_scenario(path) for folder in MODES[mode].folders for path in sorted((SCENARIOS / folder).glob("*.toml"))]


def test_the_gate_and_the_release_check_require_that_every_label_is_decided() -> None:
    """A run in which a label that recovery acts on was decided in no trial is no pass (reports/coverage.py)."""
    gates = [line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if line.endswith("chaos --mode ci --require-coverage")]
    assert len(gates) == 1, "make chaos is the gate"
    assert '"--require-coverage"' in (ROOT / ".ci" / "release_check.py").read_text("utf-8")


@pytest.mark.parametrize("label", sorted(NOT_ACTED_ON))
def test_every_label_that_ends_with_a_person_is_that_of_a_set_of_the_gate(label: Label) -> None:
    """The clean run of a set with a label fails where recovery does not decide it first."""
    mode = MODES["ci"]
    assert label in {one.label for scenario in scenarios_of("ci") for one in mode.choose_sets(scenario.trials)}


def test_a_label_that_no_fault_reaches_is_named_with_its_reason() -> None:
    readme = (ROOT / "chaos" / "README.md").read_text("utf-8")
    for label, reason in UNREACHABLE_LABELS.items():
        assert reason and f"`{label.value}`" in readme, label


@pytest.mark.parametrize("mode", MEASURED)
def test_each_campaign_that_loses_something_holds_lost_work_against_its_bound(mode: str) -> None:
    """A trial that the oracle `lost-work` did not judge is unknown, not passed."""
    found = scenarios_of(mode)
    assert found and mode not in REQUIRED
    assert [scenario.name for scenario in found if "lost-work" not in required_oracles(scenario)] == []
