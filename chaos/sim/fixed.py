"""The sessions that are simulated with every seed: killed at every step of the clean run that is not equal to another, and frozen at each
that holds no lock."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from chaos.results import Action, Recording, Trial, TrialResult, Verdict
from chaos.sim.bench import Bench
from chaos.sim.workloads import FIXED
from chaos.step import holds_lock, parse_step


@dataclass(frozen=True, slots=True)
class Enumerated:
    """What the clean run of one session makes: trials in order. `recording.equal` are the steps without a kill of their own."""

    recording: Recording
    trials: tuple[Trial, ...]


def make_bench(name: str) -> Bench:
    """The bench of one of them."""
    return Bench(next(one for one in FIXED if one.name == name), saves=True)


def enumerate_fixed(bench: Bench, *, prunes: bool = True) -> Enumerated:
    """A kill at each step (with `prunes` at one of those that are equal), then a freeze at each step without a lock, numbered from 1. None
    where the clean run did not pass."""
    steps = bench.steps if bench.clean.verdict is Verdict.PASS else []
    frozen = [step for step in steps if not holds_lock(parse_step(step))]
    equal = [step for step in steps if prunes and bench.equal[step] != step]
    plans = [((Action(step, "kill"),), "kill") for step in steps if step not in equal] + [(_freeze_plan(step), "freeze") for step in frozen]
    trials = tuple(Trial(number, bench.workload.name, plan, fault=fault) for number, (plan, fault) in enumerate(plans, 1))
    return Enumerated(bench.recording(equal), trials)


def draw_fixed(trials: Sequence[Trial], most: int, seed: int) -> list[Trial]:
    """`most` (0: all) of a session's trials, drawn by the seed."""
    if not most or most >= len(trials):
        return list(trials)
    drawing = Random(f"{seed}/{trials[0].scenario}")
    return [trials[place] for place in sorted(drawing.sample(range(len(trials)), most))]


def _freeze_plan(step: str) -> tuple[Action, ...]:
    """Freeze, let a successor run to its end, wake, and let everything old end."""
    who = step.partition(":")[0]
    driver = [] if who == "driver@1" else [Action("", "end", "driver@1")]
    ends = (Action("", "end", "driver@2"), Action("", "wake", who), Action("", "end", who), *driver)
    return (Action(step, "freeze"), Action("", "start"), *ends)


def run_fixed(bench: Bench, trial: Trial) -> TrialResult:
    """One of its trials, or another plan on it."""
    return bench.judge(bench.play(trial.plan), trial)
