"""Mode `random`: workloads, and for each of them plans, drawn from the seed. Pure.

What must hold: the same seed draws the same, on any machine and whatever else is asked for: a workload is drawn from the seed and its own
number alone, its plans from these and the steps of its clean run, in whatever order they were recorded. Nothing else of the world is asked.
"""

import random
from collections.abc import Callable, Sequence

from blake3 import blake3

from chaos.actions import format_plan
from chaos.enumeration import Enumeration, Unreachable, find_distinct
from chaos.results import Action, Recording, Trial
from chaos.scenario import Scenario
from chaos.swarm.kinds import KINDS, can_follow, find_first_steps, plan_two
from chaos.swarm.workloads import PREFIX, draw_workload
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError

FAULT = "random"
RUNS = 100
PER_WORKLOAD = 10
"""How many trials one workload has: its clean run costs as much as two of them."""


def draw_scenarios(seed: int, runs: int | None, wanted: str = "") -> list[Scenario]:
    """As many workloads as `runs` trials need, or only the one named `wanted`. Raises MisuseError for a name that none has."""
    if wanted:
        number = wanted.removeprefix(PREFIX)
        if not number.isdecimal() or number != str(int(number)):
            raise MisuseError(f"unknown scenario {wanted!r}; mode random draws its own from the seed: {PREFIX}0, {PREFIX}1, ...")
        return [draw_one(seed, int(number))]
    count = -(-(RUNS if runs is None else runs) // PER_WORKLOAD)
    return [draw_one(seed, number) for number in range(count)]


def draw_one(seed: int, number: int) -> Scenario:
    """The workload of this number; which kinds of faults its trials have stands in its `about`."""
    drawing = random.Random(f"{seed} workload {number}")
    enabled = sorted(drawing.sample(range(len(KINDS)), drawing.randint(2, len(KINDS))))
    about = f"{NAMED}{', '.join(KINDS[place].name for place in enabled)}"
    return draw_workload(drawing, f"{PREFIX}{number}", about)


NAMED = "Drawn from the seed. Faults: "


def enumerate_drawn(seed: int) -> Callable[[Recording, Scenario, TrialSet, int], Enumeration]:
    """What draws the plans of one workload from its clean run."""

    def enumerate_one(recording: Recording, scenario: Scenario, trial_set: TrialSet, first_number: int = 1) -> Enumeration:
        steps = find_distinct(recording)
        plans = draw_plans(f"{seed} plans {scenario.name}", scenario, steps)
        trials = tuple(Trial(number, scenario.name, plan, fault=FAULT) for number, plan in enumerate(plans, first_number))
        killed = {action.at for plan in plans for action in plan if action.at and action.do == "kill"}
        left = tuple(Unreachable(step, "not drawn") for step in steps if step not in killed)
        return Enumeration(recording.scenario, steps, trials, left, recording.kill_mark)

    return enumerate_one


def draw_plans(chance: str, scenario: Scenario, steps: tuple[str, ...]) -> list[tuple[Action, ...]]:
    """`PER_WORKLOAD` different plans of one fault or two, of the kinds that the scenario has enabled; `chance` decides."""
    drawing = random.Random(chance)
    is_drawn = scenario.about.startswith(NAMED)
    names = scenario.about.removeprefix(NAMED).split(", ")
    enabled = [kind for kind in KINDS if kind.name in names or not is_drawn]
    places = [step for one in find_first_steps(steps).values() for step in one]
    if not places:
        raise MisuseError(f"{scenario.name}: its clean run passes no step at which a fault could be drawn")
    drawn: dict[str, tuple[Action, ...]] = {}
    for number in range(PER_WORKLOAD * 10):
        first, second = drawing.choice(enabled), drawing.choice([None, *enabled])
        if second is None or can_follow(first, second):
            plan = plan_two(first, draw_step(f"{chance} {number}", places), second, drawing.randrange(4))
            drawn.setdefault(format_plan(plan), plan)
        if len(drawn) == PER_WORKLOAD:
            break
    return list(drawn.values())


def draw_step(chance: str, steps: Sequence[str]) -> str:
    """One of the steps. Each has a number drawn for it alone and the lowest is taken: neither their order nor one more of them, which a
    recording may or may not have, changes what else is drawn."""
    return min(steps, key=lambda step: blake3(f"{chance} {step}".encode()).digest())
