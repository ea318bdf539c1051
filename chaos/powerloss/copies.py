"""From the instants of recorded runs to the trials of the mode `crosscheck`: a sample of them for each file system, by the seed. Pure."""

import random
from collections.abc import Sequence

from chaos.enumeration import Enumeration, Unreachable
from chaos.powerloss.crosscheck import ORACLE, parse_name
from chaos.powerloss.enumerate import DO
from chaos.powerloss.loops import KINDS
from chaos.required import required_oracles
from chaos.results import Action, Recording, Trial
from chaos.scenario import Scenario

MODE = "crosscheck"
ENTRY = "copy"
FAULT = "copy"
RUNNER = "chaos.powerloss.copies_runner"
COPIES = 12
"""So many instants are drawn for each file system and set; `--step` names any other."""
NOT_DRAWN = "not drawn"


def enumerate_copies(recording: Recording, first_number: int, seed: int, step: str = "") -> Enumeration:
    """The trials of one set: for each file system an instant of each of COPIES equal stretches of its run, or the one that `step` names."""
    by_kind = {kind: [one for one in recording.steps if parse_name(one)[0] == kind] for kind in KINDS}
    draw = random.Random(f"{seed} {recording.scenario}")
    drawn = {one for names in by_kind.values() for one in _draw(names, draw)} if not step else {step}
    chosen = [one for one in recording.steps if one in drawn]
    trials = tuple(
        Trial(number, recording.scenario, (*recording.prefix, Action(one, DO)), ENTRY, FAULT, len(recording.prefix), seed)
        for number, one in enumerate(chosen, first_number)
    )
    left_out = tuple(Unreachable(one, NOT_DRAWN) for one in recording.steps if one not in drawn)
    return Enumeration(recording.scenario, recording.steps, trials, left_out, recording.kill_mark, recording.prefix, does=DO)


def _draw(names: Sequence[str], draw: random.Random) -> list[str]:
    borders = [len(names) * number // COPIES for number in range(COPIES + 1)]
    return [draw.choice(names[begin:end]) for begin, end in zip(borders, borders[1:], strict=False) if begin < end]


def required_of_copies(scenario: Scenario, plan: Sequence[Action] = (), *, converges: bool = False) -> frozenset[str]:
    """The oracles of any trial and, where an image was copied, the one that holds it against the model."""
    is_copied = any(action.do == DO for action in plan)
    return required_oracles(scenario, plan, converges=converges) | ({ORACLE} if is_copied else frozenset())
