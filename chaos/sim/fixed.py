"""The sessions that are simulated with every seed: killed at every step of the clean run, and frozen at each that holds no lock."""

from dataclasses import dataclass

from chaos.results import Action, Recording, Trial, TrialResult, Verdict
from chaos.sim.bench import Bench
from chaos.sim.workloads import FIXED
from chaos.step import holds_lock, parse_step


@dataclass(frozen=True, slots=True)
class Enumerated:
    """What the clean run of one session makes: trials in order."""

    recording: Recording
    trials: tuple[Trial, ...]


def make_bench(name: str) -> Bench:
    """The bench of one of them."""
    return Bench(next(one for one in FIXED if one.name == name), saves=True)


def enumerate_fixed(bench: Bench) -> Enumerated:
    """A kill at each step, then a freeze at each step without a lock, numbered from 1. None where the clean run did not pass."""
    steps = bench.steps if bench.clean.verdict is Verdict.PASS else []
    frozen = [step for step in steps if not holds_lock(parse_step(step))]
    plans = [((Action(step, "kill"),), "kill") for step in steps] + [(_freeze_plan(step), "freeze") for step in frozen]
    trials = tuple(Trial(number, bench.workload.name, plan, fault=fault) for number, (plan, fault) in enumerate(plans, 1))
    return Enumerated(bench.recording(), trials)


def _freeze_plan(step: str) -> tuple[Action, ...]:
    """Freeze, let a successor run to its end, wake, and let everything old end."""
    who = step.partition(":")[0]
    driver = [] if who == "driver@1" else [Action("", "end", "driver@1")]
    ends = (Action("", "end", "driver@2"), Action("", "wake", who), Action("", "end", who), *driver)
    return (Action(step, "freeze"), Action("", "start"), *ends)


def run_fixed(bench: Bench, trial: Trial) -> TrialResult:
    """One of its trials, or another plan on it."""
    return bench.judge(bench.play(trial.plan), trial)
