"""Which oracles must have spoken before a trial may pass: one that was left out proves nothing. Pure."""

from chaos.scenario import Scenario

ALWAYS = frozenset({"workspace-equals-log", "chain", "order", "fencing", "laundering", "acknowledged"})


def required_oracles(scenario: Scenario) -> frozenset[str]:
    """The oracles that must judge every trial of a scenario."""
    asked = {
        "witness": bool(scenario.witnessed),
        "reference": scenario.on_interrupted == "reissue",
        "exits": scenario.on_interrupted == "reissue",
        "output": scenario.compare_output,
    }
    return ALWAYS.union(name for name, is_asked in asked.items() if is_asked)
