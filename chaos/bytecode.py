"""Bytecode for the commands of trials: where drivers are started as real commands, each would compile the engine's sources for itself.

Drivers get PYTHONDONTWRITEBYTECODE, as commands of scenarios run Python too and must leave nothing of it in a workspace; so what they may
read is written before. A tree that cannot be written is left as it is: trials then take longer, and end alike.
"""

import compileall
from collections.abc import Sequence
from pathlib import Path

from chaos.fingerprint import ENGINE, HOME
from chaos.scenario import Scenario

_COMMANDS = ("person", "parked")


def compile_engine(scenarios: Sequence[Scenario], engine: Path | None) -> None:
    """Compile the engine copy (None: the installed one) where one of the scenarios starts commands of it again and again."""
    if any(map(starts_commands, scenarios)):
        for package in ENGINE:
            compileall.compile_dir((engine or HOME) / package, quiet=2)


def starts_commands(scenario: Scenario) -> bool:
    """Whether trials of a scenario start drivers as real commands: a redriver's, or those of a person."""
    plans = [scenario.plan, *(one.before for one in scenario.trials), *(one.then for one in scenario.trials)]
    return scenario.redriven or bool(scenario.answers) or any(action.do in _COMMANDS for plan in plans for action in plan)
