"""Kills inside recovery, one inside the other: from the trials of one depth to the sets of trials of the next. Pure.

Which steps recovery passes after a second kill is known only once it was killed there. So each pair of a first and a second crash is
recorded like any other beginning of a set, and third kills are drawn by the seed from the steps that were passed. What is not drawn is
named.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from chaos.actions import format_plan
from chaos.enumeration import Enumeration, Unreachable
from chaos.results import Trial
from chaos.trial_set import TrialSet

EQUAL = "equal state"
"""Why a second kill is not made: another first kill left the same log, image and ledger, and nothing alive."""
SECOND = 2
LEAST = 3
"""The depth from which this module makes the trials: one and two kills are sets of trials in scenarios."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How deep a campaign kills: at most `kills` a trial. From the third kill on it goes on from `pairs` of the trials one kill less deep,
    and draws `draws` of the steps that each passes; 0 means all. With `least` 2 second kills are made so too: after every first one, at
    every step of the recovery from it. `entry` is how the drivers of such trials are started."""

    kills: int = 2
    pairs: int = 0
    draws: int = 0
    least: int = LEAST
    entry: str = "fork"

    def may_follow(self, trial: Trial) -> bool:
        """Whether kills inside its recovery are looked for: from the second kill on they are for plain kills of a driver started so."""
        return self.least > SECOND or (trial.fault in ("kill", "syscall", "again", "deeper") and trial.entry == self.entry)


def choose_deeper(trials: Sequence[tuple[str, Trial]], wanted: int, seed: int) -> list[Trial]:
    """`wanted` (0: all) of the trials, each given with the name of its set: by the seed, and as equally many of each set as can be."""
    groups: dict[str, list[Trial]] = {}
    for name, trial in trials:
        groups.setdefault(name, []).append(trial)
    drawing = random.Random(f"{seed} pairs")
    for members in groups.values():
        members.sort(key=lambda trial: format_plan(trial.plan))  # not as recorded: which process came to its step first is chance
        drawing.shuffle(members)
    rounds = itertools.zip_longest(*groups.values())
    chosen = [trial for one in rounds for trial in one if trial is not None]
    return chosen[:wanted] if wanted else chosen


def make_deeper_set(trial: Trial, above: TrialSet, kills: int) -> TrialSet:
    """The set of trials that go on from `trial`, which is one of the set `above`, with the kill number `kills`."""
    return TrialSet(before=trial.plan, kill=above.kill, depth=kills, converges=above.converges, then=above.then)


def draw_trials(one: Enumeration, wanted: int, seed: int) -> Enumeration:
    """The enumeration with `wanted` (0: all) of its trials, drawn by the seed; the steps of the others are `not drawn`."""
    if not wanted or wanted >= len(one.trials):
        return one
    drawing = random.Random(f"{seed} {one.scenario} {format_plan(one.prefix)}")
    places = sorted(range(len(one.trials)), key=lambda place: format_plan(one.trials[place].plan))
    numbers = sorted(drawing.sample(places, wanted))
    first = one.trials[0].number
    trials = tuple(replace_number(one.trials[number], first + place) for place, number in enumerate(numbers))
    drawn = {trial.plan[-1].at for trial in trials}
    left = tuple(Unreachable(trial.plan[-1].at, "not drawn") for trial in one.trials if trial.plan[-1].at not in drawn)
    return replace(one, trials=trials, unreachable=(*one.unreachable, *left))


def prune_equal(one: Enumeration, state: str, seen: set[tuple[str, str]]) -> Enumeration:
    """The enumeration without its trials where another crash of the same scenario has left the same `state` ("": not known): recovery can
    do nothing there that it was not killed in already. `seen` are the scenarios and states until now."""
    if not state:
        return one
    if (one.scenario, state) not in seen:
        seen.add((one.scenario, state))
        return one
    left = tuple(Unreachable(trial.plan[-1].at, EQUAL) for trial in one.trials)
    return replace(one, trials=(), unreachable=(*one.unreachable, *left))


def replace_number(trial: Trial, number: int) -> Trial:
    """The trial under another number."""
    return Trial(number, trial.scenario, trial.plan, trial.entry, trial.fault, trial.saved)
