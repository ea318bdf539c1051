"""Modes, and the scenario files that ship with the package."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chaos.scenario import Scenario, load_scenario
from chaos.trial_set import widen
from eventlog.errors import MisuseError

MODES = {
    "ci": "the gate: every scenario of scenarios/ci and scenarios/regression, each with its sets of trials",
    "soak": "the same scenarios without their limits: every step of every call is killed, in every set",
}
SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
_FOLDERS = {"ci": ("ci", "regression"), "soak": ("ci", "regression")}


def check_mode(mode: str) -> str:
    """The mode, or MisuseError that names those there are."""
    if mode not in MODES:
        raise MisuseError(f"unknown mode {mode!r}; there is {', '.join(MODES)} (chaos list modes tells more)")
    return mode


def find_files(mode: str, root: Path = SCENARIOS) -> list[Path]:
    """The scenario files of a mode, in order of name."""
    return [file for folder in _FOLDERS[check_mode(mode)] for file in sorted((root / folder).glob("*.toml"))]


def load_mode(mode: str, root: Path = SCENARIOS) -> list[Scenario]:
    """All scenarios of a mode; two of one name are refused."""
    loaded: dict[str, Path] = {}
    scenarios = []
    for file in find_files(mode, root):
        scenario = load_scenario(file)
        if scenario.name in loaded:
            raise MisuseError(f"{file}: name {scenario.name!r} is taken by {loaded[scenario.name]}; give it another")
        loaded[scenario.name] = file
        scenarios.append(scenario)
    if not scenarios:
        raise MisuseError(f"{root}: holds no scenario of mode {mode}; put a TOML file into {root / _FOLDERS[mode][0]}")
    return scenarios


def _widen_for(mode: str, scenarios: Sequence[Scenario]) -> Sequence[Scenario]:
    return [replace(one, trials=widen(one.trials)) for one in scenarios] if mode == "soak" else scenarios


def choose(mode: str, wanted: str, root: Path = SCENARIOS) -> Sequence[Scenario]:
    """The scenarios to run: all of the mode for "", the one of that name, or the one in the file `wanted` (ends in .toml or holds a /)."""
    if wanted.endswith(".toml") or "/" in wanted:
        return _widen_for(mode, [load_scenario(Path(wanted))])
    scenarios = _widen_for(mode, load_mode(mode, root))
    chosen = [scenario for scenario in scenarios if wanted in ("", scenario.name)]
    if not chosen:
        names = ", ".join(scenario.name for scenario in scenarios)
        raise MisuseError(f"unknown scenario {wanted!r}; mode {mode} has {names}; a file is given by its path")
    return chosen
