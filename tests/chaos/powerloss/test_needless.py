"""Syncs of which the list says that no loss of power can show them: without each of them, every state of every cut is recovered from.

Only states are tried that a run with the sync does not have at that cut. Long.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.area import open_area
from chaos.catalogue import choose
from chaos.powerloss.enumerate import MODE, enumerate_cuts
from chaos.powerloss.syncs import NEEDLESS, find_syncs
from chaos.results import Recording, Verdict
from chaos.scenario import Scenario
from chaos.trees import remove_tree
from chaos.zygote_client import ProcessZygote
from tests.chaos.powerloss.test_play import start_runner

SCENARIOS = {one.name: one for one in choose(MODE, "")}
SEED = 1


class Run:
    """One scenario, recorded once, and the runner that has the record."""

    def __init__(self, scenario: Scenario, home: Path) -> None:
        self.scenario, self.directory = scenario, home / scenario.name
        home.joinpath(f"{scenario.name}-errors").mkdir()
        self.runner: ProcessZygote = start_runner(home / f"{scenario.name}-errors")
        self.recording: Recording = self.runner.record(scenario, scenario.trials[0].before, self.empty())

    def empty(self) -> Path:
        remove_tree(self.directory)
        self.directory.mkdir()
        return self.directory

    def try_without(self, point: str, begin: int = 0) -> tuple[int, list[str]]:
        """How many more states there are without the syncs of a point at the cuts from `begin` on, and what failed."""
        states, bad = 0, []
        for trial in enumerate_cuts(self.recording, 1, SEED, point).trials[begin:]:
            result = self.runner.run(self.scenario, trial, self.empty(), self.recording.parts)
            states += result.states
            bad += [f"{trial.plan[-1].at}: {result.reason}"] if result.verdict is not Verdict.PASS else []
        return states, bad


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Run]]:
    with open_area() as area:
        found = {name: Run(scenario, area) for name, scenario in SCENARIOS.items()}
        yield found
        for run in found.values():
            run.runner.close()


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("point", NEEDLESS)
def test_no_cut_shows_that_a_needless_sync_is_missing(runs: dict[str, Run], point: str, name: str) -> None:
    states, bad = runs[name].try_without(point)
    assert bad == []
    print(f"SHOWN {point} {name}: {states} states")


@pytest.mark.soak
def test_every_sync_that_is_called_needless_is_passed_by_a_scenario(runs: dict[str, Run]) -> None:
    """Without one that nobody makes every disk is as it was, and nothing would have been tried."""
    passed = {point.name for point in find_syncs([run.recording.steps for run in runs.values()], ())}
    assert [point for point in NEEDLESS if point not in passed] == []


def test_a_cut_shows_that_a_needed_sync_is_missing(runs: dict[str, Run]) -> None:
    states, bad = runs["power-calls"].try_without("wal", begin=-1)
    assert states and bad
