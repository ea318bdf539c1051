"""Which oracles must have spoken before a trial may pass: one that was left out proves nothing. Pure."""

from collections.abc import Sequence
from typing import Protocol

from chaos.results import Action
from chaos.scenario import Scenario

ALWAYS = frozenset({"workspace-equals-log", "chain", "order", "fencing", "laundering", "acknowledged", "lost-work"})


class Require(Protocol):
    """Says which oracles must have judged a trial; `required_oracles` where a campaign has no others."""

    def __call__(self, scenario: Scenario, plan: Sequence[Action] = (), *, converges: bool = False) -> frozenset[str]:
        """Their names."""


def required_oracles(scenario: Scenario, plan: Sequence[Action] = (), *, converges: bool = False) -> frozenset[str]:
    """The oracles that must judge a trial of a scenario with this plan; `converges` when it is known what it must end in."""
    asked = {
        "edits": any(action.do in ("edit", "turn") for action in plan),
        "convergence": converges,
        "witness": bool(scenario.witnessed),
        "reference": scenario.on_interrupted == "reissue",
        "exits": scenario.on_interrupted == "reissue",
        "output": scenario.compare_output,
    }
    return ALWAYS.union(name for name, is_asked in asked.items() if is_asked)
