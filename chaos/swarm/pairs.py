"""Pairwise combinations: each pair of two kinds of faults occurs in a trial, in either order. Pure.

It is a covering array of strength two over four factors: the kind of the first fault, the class of the step at which it falls, the kind of
the second, the step at which that falls. With fewer classes than kinds the two sums below pass through all of them for each kind.
"""

from collections.abc import Iterator

from chaos.enumeration import Enumeration, Unreachable, find_distinct
from chaos.results import Recording, Trial
from chaos.scenario import Scenario
from chaos.swarm.kinds import KINDS, Kind, can_follow, find_first_steps, plan_two
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError

FAULT = "pair"


def enumerate_pairs(recording: Recording, scenario: Scenario, trial_set: TrialSet, first_number: int = 1) -> Enumeration:
    """One trial for each pair of kinds that can follow one another, numbered from `first_number`. Raises MisuseError where the clean run
    passes no step at which a first fault may fall."""
    steps = find_distinct(recording)
    classes = find_first_steps(steps)
    if not classes:
        raise MisuseError(f"{scenario.name}: pairs of faults need a scenario of at least four calls, three of them by bash")
    plans = [plan_two(*pair) for pair in list_pairs(classes)]
    trials = tuple(Trial(number, scenario.name, plan, fault=FAULT) for number, plan in enumerate(plans, first_number))
    killed = {action.at for plan in plans for action in plan if action.at and action.do == "kill"}
    left = tuple(Unreachable(step, "not in this scenario") for step in steps if step not in killed)
    return Enumeration(recording.scenario, steps, trials, left, recording.kill_mark)


def list_pairs(classes: dict[str, list[str]]) -> Iterator[tuple[Kind, str, Kind, int]]:
    """The first kind and its step, the second kind and the number of its place."""
    names = list(classes)
    for number, first in enumerate(KINDS):
        for other, second in enumerate(KINDS):
            if can_follow(first, second):
                steps = classes[names[(number + other) % len(names)]]
                yield first, steps[number % len(steps)], second, number
