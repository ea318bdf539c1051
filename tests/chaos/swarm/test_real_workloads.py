"""Workloads that Hypothesis draws, run for real: the clean run passes, and so does each drawn fault. What fails Hypothesis makes smaller,
and it is kept as a scenario."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.results import Trial, Verdict
from chaos.scenario import Scenario
from chaos.shrink.case import Case
from chaos.shrink.scenario_toml import render_scenario
from chaos.swarm.draws import draw_plans
from chaos.swarm.workloads import draw_workload
from chaos.trees import remove_tree
from chaos.zygote_client import ProcessZygote
from tests.chaos.real import open_zygote

PLANS = 2
DRAWN = {"count": 0}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    with open_zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


def check(zygote: ProcessZygote, drawing: Any) -> None:
    """One workload, its clean run and a few trials."""
    DRAWN["count"] += 1  # a zygote keeps the reference run of a scenario by its name
    scenario = draw_workload(drawing, f"drawn-{DRAWN['count']}", "Drawn by Hypothesis.")
    plan: tuple[Any, ...] = ()
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "trial"
        directory.mkdir()
        recording = zygote.record(scenario, (), directory)
        result = recording.result
        for plan in draw_plans("0", scenario, recording.steps)[:PLANS] if result.verdict is Verdict.PASS else ():
            remove_tree(directory)
            directory.mkdir()
            result = zygote.run(scenario, Trial(1, scenario.name, plan, fault="random"), directory, {})
            if result.verdict is not Verdict.PASS:
                break
        remove_tree(directory)
    assert result.verdict is Verdict.PASS, f"{result.reason}\nkept as {keep(scenario, plan)}"


def keep(scenario: Scenario, plan: tuple[Any, ...]) -> Path:
    """The scenario as a file, with its plan: `chaos --scenario FILE` plays it."""
    file = Path(tempfile.mkdtemp(prefix="drawn-")) / f"{scenario.name}.toml"
    file.write_text(render_scenario(Case(scenario, plan)), "utf-8")
    return file


@settings(deadline=None, max_examples=1, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_a_drawn_workload_survives_drawn_faults(zygote: ProcessZygote, drawing: Any) -> None:
    check(zygote, drawing)


@pytest.mark.soak
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_drawn_workloads_survive_drawn_faults(zygote: ProcessZygote, drawing: Any) -> None:
    check(zygote, drawing)
