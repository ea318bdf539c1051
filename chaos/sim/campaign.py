"""A simulated campaign: every fixed session at every step, then trials drawn from the seed, until there are as many as were asked for.

What must hold: nothing of a session is crashed before its clean run has passed; a trial is a pass only if each of its faults fired; trouble
of a runner is unknown. The seed decides the drawn trials and nothing else.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chaos.campaign import CampaignResult, Limits, Watcher, distrust_recording, make_unknown
from chaos.depth import EQUAL
from chaos.enumeration import Enumeration, Unreachable
from chaos.pool import AllLostError, Answered, Lost, Pool
from chaos.results import Action, Recording, Signature, Trial, TrialResult, Verdict, merge_verdicts, signature_of
from chaos.rundir import RunDirectory
from chaos.sim.naming import GROUP, Name, parse_drawn
from chaos.sim.options import DEFAULT_RUNS
from chaos.sim.tally import DRAWN, Tally
from chaos.sim.workloads import FIXED
from chaos.zygote_client import Simulator, Zygote
from eventlog.errors import MisuseError

BATCH = 4 * GROUP
"""Drawn trials that are asked for at once."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed session: its trials with this step and fault ("": all), at most `most` (0: all) drawn by the seed, or one plan."""

    name: str
    step: str = ""
    fault: str = ""
    plan: tuple[Action, ...] = ()
    seed: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Some trials of one seed, from the number `first` on; with `plan` the one of that number, and this plan in place of its own."""

    seed: int
    first: int
    count: int
    plan: tuple[Action, ...] = ()


Ask = Fixed | Drawn


class Simulation:
    """Runs a simulated campaign over a pool of runners and writes a run directory."""

    def __init__(self, pool: Pool, run: RunDirectory, watcher: Watcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._run = run
        self._watcher = watcher
        self._clock = clock
        self._tally = Tally()
        self._results: list[TrialResult] = []
        self._enumerations: list[Enumeration] = []
        self._trouble: list[str] = []
        self._failures: set[Signature] = set()

    def run(self, scenario: str, limits: Limits, seed: int) -> CampaignResult:
        """The whole campaign. Raises MisuseError when `limits` leave no trial."""
        deadline = None if limits.budget_secs is None else self._clock() + limits.budget_secs
        drawn = parse_drawn(scenario)
        wanted = DEFAULT_RUNS if limits.runs is None else limits.runs
        if drawn is not None:
            asks: list[Ask] = [Drawn(drawn.seed, drawn.number, 1, limits.plan)]
        else:
            asks = ask_fixed([one.name for one in FIXED if scenario in ("", one.name)], limits, seed)
        left = self._work("sessions crashed at every step", asks, limits, deadline)
        is_whole = not (scenario or limits.step or limits.fault or limits.plan)
        missing = wanted - sum(result.trial.number > 0 for result in self._results) if is_whole else 0
        if missing > 0:
            batches: list[Ask] = [Drawn(seed, first, min(BATCH, missing - first + 1)) for first in range(1, missing + 1, BATCH)]
            left += self._work(f"batches of {BATCH} drawn trials", batches, limits, deadline)
        return self._conclude(left, limits)

    def _work(self, phase: str, asks: Sequence[Ask], limits: Limits, deadline: float | None) -> int:
        """Have all of it answered; how many trials at least were not begun."""
        if self._is_over(limits, deadline):
            return sum(_size(ask) for ask in asks)
        self._watcher.begin(phase, len(asks))
        begun = 0
        try:
            for news in self._pool.work(asks, _ask):
                match news:
                    case Answered(request=request, value=value, trouble=trouble):
                        begun += _size(request)
                        self._watcher.advance(self._take(request, value, trouble))
                    case Lost(slot=slot, reason=reason):
                        self._run.history.note("zygote lost", slot=slot, reason=reason)
                    case _:
                        pass
                if self._is_over(limits, deadline):
                    self._pool.stop()
        except AllLostError as error:
            self._trouble.append(f"harness: {error}")
        return sum(_size(ask) for ask in asks) - begun

    def _is_over(self, limits: Limits, deadline: float | None) -> bool:
        has_failed = limits.stop_after is not None and len(self._failures) >= limits.stop_after
        return has_failed or (deadline is not None and self._clock() >= deadline)

    def _take(self, ask: Ask, value: "_Value | None", trouble: str) -> TrialResult:
        """Record what came of one request; the worst of it, for who watches."""
        if value is None:
            name = ask.name if isinstance(ask, Fixed) else str(Name(ask.seed, ask.first))
            results: Sequence[TrialResult] = [make_unknown(Trial(0, name, (), fault=""), trouble)]
        elif value.recording is not None:
            results = self._take_fixed(value.recording, value.results)
        else:
            results = value.results
        for result in results:
            if result.verdict is Verdict.FAIL:
                self._failures.add(signature_of(result))
            if isinstance(ask, Fixed) or result.verdict is not Verdict.PASS:
                self._run.history.note_ended(result)
                self._run.add_result(result)
                self._results.append(result)
            else:
                self._tally.add(result)
        worst = merge_verdicts([result.verdict for result in results])
        return next((result for result in results if result.verdict is worst), make_unknown(Trial(0, DRAWN, ()), "nothing was answered"))

    def _take_fixed(self, recording: Recording, results: Sequence[TrialResult]) -> list[TrialResult]:
        recording = distrust_recording(recording, frozenset())
        enumeration = _enumerate(recording, tuple(result.trial for result in results))
        self._run.add_steps(enumeration)
        self._enumerations.append(enumeration)
        return [recording.result, *results]

    def _conclude(self, left: int, limits: Limits) -> CampaignResult:
        for result in self._tally.results:
            self._run.history.note_ended(result)
            self._run.add_result(result)
            self._results.append(result)
        if not any(result.trial.number for result in self._results) and not self._trouble and not left:
            raise MisuseError("no simulated trial has that step, fault or plan; chaos --backend sim --scenario NAME shows the steps")
        reasons = list(self._trouble)
        if left and limits.stop_after is not None and len(self._failures) >= limits.stop_after:
            reasons.append(f"stopped after {len(self._failures)} different failures; at least {left} trials were not begun")
        elif left:
            reasons.append(f"the budget ended before the trials did; at least {left} were not begun")
        verdicts = [result.verdict for result in self._results] + [Verdict.UNKNOWN for _ in reasons]
        return CampaignResult(merge_verdicts(verdicts), tuple(reasons), tuple(self._results), tuple(self._enumerations), left)


def ask_fixed(names: Sequence[str], limits: Limits, seed: int) -> list[Ask]:
    """The fixed sessions, of which none has more trials than its share of those that were asked for: together they are not more."""
    share, rest = divmod(limits.runs or 0, len(names))
    shares = [share + (place < rest) for place in range(len(names))]
    chosen = [(name, most) for name, most in zip(names, shares, strict=True) if most or limits.runs is None]
    return [Fixed(name, limits.step, limits.fault, limits.plan, seed, most) for name, most in chosen]


@dataclass(frozen=True, slots=True)
class _Value:
    recording: Recording | None
    results: tuple[TrialResult, ...]


def _ask(zygote: Zygote, ask: Ask) -> _Value:
    simulator: Simulator = zygote  # type: ignore[assignment]
    return _Value(*simulator.simulate(_encode(ask)))


def _encode(ask: Ask) -> dict[str, object]:
    match ask:
        case Fixed(name=name, step=step, fault=fault, plan=plan, seed=seed, most=most):
            return {"op": "fixed", "name": name, "step": step, "fault": fault, "plan": list(plan), "seed": seed, "count": most}
        case Drawn(seed=seed, first=first, count=count, plan=plan):
            return {"op": "drawn", "seed": seed, "first": first, "count": count, "plan": list(plan)}


def _size(ask: Ask) -> int:
    return ask.count if isinstance(ask, Drawn) else 1


def _enumerate(recording: Recording, trials: tuple[Trial, ...]) -> Enumeration:
    """What the clean run of a fixed session made. Every step is killed, or equal to one that may be, or it is missing and a NOTE says
    so."""
    steps = tuple(dict.fromkeys(recording.steps))
    frozen = tuple(trial.plan[0].at for trial in trials if trial.fault == "freeze" and trial.plan)
    not_frozen = tuple(Unreachable(step, "lock held") for step in steps if step not in frozen)
    equal = tuple(Unreachable(step, EQUAL) for step in recording.equal)
    return Enumeration(recording.scenario, steps, trials, equal, recording.kill_mark, (), frozen, not_frozen)
