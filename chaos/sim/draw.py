"""Trials drawn from a seed: what the session does, what is done to it, when, and which process goes on at each step.

A trial is its seed and its number, and nothing else. Where it strikes is drawn as a count of steps passed; the plan that comes of it names
the steps, so that it can be printed, and played again on the same session.
"""

from functools import lru_cache
from random import Random
from typing import Literal

import msgspec

from chaos.results import Action, Trial, TrialResult, Verdict
from chaos.sim.bench import Bench
from chaos.sim.naming import Name
from chaos.sim.play import Play, Schedule
from chaos.sim.process import Process
from chaos.sim.workloads import draw_workload

SCHEDULED = 0.6
"""The share of trials in which the seed decides who goes on; in the others each process goes on until it waits."""
SCHEDULED_KILLS = 0.25
"""The same of single kills: whoever is killed while nobody else lives meets no other order."""
Kind = Literal["kill", "again", "deeper", "freeze", "race"]
KINDS: tuple[tuple[Kind, float], ...] = (("kill", 0.5), ("again", 0.2), ("deeper", 0.05), ("freeze", 0.15), ("race", 0.1))
_KILLS = {"kill": 1, "again": 2, "deeper": 3}
_BY_KILLS: tuple[Kind, ...] = ("kill", "again", "deeper")
WITHIN = 50
"""A further strike comes within so many steps of the one before: recovery and the begin of what follows."""


@lru_cache(maxsize=2)
def make_bench(seed: int, group: int) -> Bench:
    """The bench of the trials of one group."""
    return Bench(draw_workload(Random(f"{seed}/session/{group}"), f"sim-{seed}"), saves=True)


def run_drawn(name: Name, plan: tuple[Action, ...] = ()) -> TrialResult:
    """One drawn trial, or another plan played on its session under its schedule. Where the clean run of its session does not pass, that is
    the result."""
    bench = make_bench(name.seed, name.group)
    if bench.clean.verdict is not Verdict.PASS:
        return _rename(bench.clean, name)
    random = Random(f"{name.seed}/{name.number}")
    kind = _draw_kind(random)
    is_scheduled = random.random() < (SCHEDULED_KILLS if kind == "kill" else SCHEDULED)
    schedule = Schedule(Random(f"{name.seed}/{name.number}/schedule")) if is_scheduled else None
    if plan:
        return bench.judge(bench.play(plan, schedule), Trial(name.number, str(name), plan, fault=name_fault(plan)))
    if kind == "kill" and schedule is None:
        play = bench.play((Action(_choose_step(bench, name), "kill"),))
    else:
        striker = _Striker(kind, random, len(bench.steps))
        play = bench.run(bench.start(schedule, striker.note))
    result = bench.judge(play, Trial(name.number, str(name), play.plan, fault=name_fault(play.plan)))
    return result if play.plan else msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason="nothing was done to the session")


def name_fault(plan: tuple[Action, ...]) -> Kind:
    """The fault under which a plan is counted."""
    verbs = [action.do for action in plan]
    if "freeze" in verbs:
        return "freeze"
    return "race" if "wait" in verbs else _BY_KILLS[min(max(verbs.count("kill"), 1), len(_BY_KILLS)) - 1]


def _choose_step(bench: Bench, name: Name) -> str:
    """Where a single kill falls: trials of one session fall into different states, as far as there are so many."""
    steps = bench.distinct_steps
    Random(f"{name.seed}/kills/{name.group}").shuffle(steps)
    return steps[(name.number - 1) % len(steps)]


def _rename(clean: TrialResult, name: Name) -> TrialResult:
    return TrialResult(
        Trial(0, str(name), (), fault=""), clean.verdict, clean.reason, clean.faults, clean.oracles, clean.drivers, clean.labels,
        clean.restored, clean.displaced, clean.seconds, decisions=clean.decisions, digest=clean.digest, final=clean.final,
    )  # fmt: skip


def _draw_kind(random: Random) -> Kind:
    return random.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]


class _Striker:
    """Counts the steps of a play and arms what was drawn where its count has come."""

    def __init__(self, kind: Kind, random: Random, length: int) -> None:
        self._kind = kind
        self._random = random
        self._left = random.randrange(length)
        self._kills = _KILLS.get(kind, 0)
        self._frozen = ""

    def note(self, play: Play, process: Process, step: str) -> None:
        """Told of every step."""
        self._left -= 1
        if self._left >= 0:
            return
        if self._kills:
            self._kills -= 1
            self._left = self._random.randrange(WITHIN)
            play.arm(Action(step, "kill"))
        elif self._kind in ("freeze", "race") and not process.holds:
            self._strike_driver(play, process, step)

    def _strike_driver(self, play: Play, process: Process, step: str) -> None:
        """Freeze and later wake, or hold until another driver has been started."""
        if self._kind == "race":
            if process.role == "driver":
                self._kind = "kill"  # nothing more
                for action in (Action(step, "wait"), Action("", "start"), Action("", "release", process.name)):
                    play.arm(action)
        elif not self._frozen:
            self._frozen, self._left = process.name, self._random.randrange(2 * WITHIN)
            play.is_open = True
            play.arm(Action(step, "freeze"))
            play.arm(Action("", "start"))
        elif process.role == "driver" and process.name != self._frozen:
            self._kind, play.is_open = "kill", False
            for action in (Action(step, "wait"), Action("", "wake", self._frozen), Action("", "release", process.name)):
                play.arm(action)
