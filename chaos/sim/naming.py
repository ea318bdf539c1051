"""What simulated sessions are called, and which trials share one. Pure; opens and imports nothing of a simulation."""

import re
from dataclasses import dataclass

GROUP = 48
"""Drawn trials that share a session: its clean run is made once for all of them."""
_DRAWN = re.compile(r"sim-(?P<seed>[0-9]{1,18})-(?P<number>[1-9][0-9]{0,17})\Z")


@dataclass(frozen=True, slots=True)
class Name:
    """The name of the session of a drawn trial: `sim-SEED-NUMBER`."""

    seed: int
    number: int

    def __str__(self) -> str:
        return f"sim-{self.seed}-{self.number}"

    @property
    def group(self) -> int:
        """Which of the seed's sessions it is."""
        return (self.number - 1) // GROUP


def parse_drawn(name: str) -> Name | None:
    """The seed and number of a drawn session's name; None for another name."""
    match = _DRAWN.match(name)
    return None if match is None else Name(int(match["seed"]), int(match["number"]))
