"""From one recorded run to the cuts: one trial for each moment at which the power may be lost. Pure."""

from chaos.enumeration import Enumeration
from chaos.results import Action, Recording, Trial

MODE = "powerloss"
ENTRY = "power"
FAULT = "power"
DO = "cut"
RUNNER = "chaos.powerloss.runner"


def enumerate_cuts(recording: Recording, first_number: int, seed: int, without: str = "") -> Enumeration:
    """The trials of one set: a cut at each moment of its recorded run, numbered from `first_number`; `seed` draws their states. With
    `without`, only states that there are not unless the syncs of that point cover nothing."""
    trials = tuple(
        Trial(number, recording.scenario, (*recording.prefix, Action(step, DO, path=without)), ENTRY, FAULT, len(recording.prefix), seed)
        for number, step in enumerate(recording.steps, first_number)
    )
    return Enumeration(recording.scenario, recording.steps, trials, (), recording.kill_mark, recording.prefix, does=DO)
