"""What a drawn workload failed with, kept as a scenario file beside what its trial left: it can be run again without the seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.results import TrialResult
from chaos.scenario import Scenario
from chaos.shrink.case import Case
from chaos.shrink.scenario_toml import render_scenario

NAME = "scenario.toml"
INCOMPLETE = " (incomplete: "


def keep_scenarios(results: Sequence[TrialResult], scenarios: Mapping[str, Scenario]) -> list[Path]:
    """Write `scenario.toml`, the workload with the trial's plan, into the directory of each trial that was kept; the files."""
    files = []
    for result in results:
        directory = Path(result.kept.partition(INCOMPLETE)[0])
        if result.kept and directory.is_dir():
            file = directory / NAME
            file.write_text(render_scenario(Case(scenarios[result.trial.scenario], result.trial.plan), (result.reason,)), "utf-8")
            files.append(file)
    return files
