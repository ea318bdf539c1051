"""A campaign: a clean run of each scenario, the trials these make, one result each, a verdict.

What must hold:
- Nothing of a scenario is killed before its clean run has passed.
- A trial is a pass only if each of its faults fired (`distrust`): the zygote says so, and it is checked here again.
- Trouble in the harness is unknown, never a pass and never a failure; when all zygotes are lost the campaign ends (`AllLostError`).
- A complete campaign has steps = killed + unreachable, or it is unknown.
- The seed decides the order of the trials and nothing else: every order runs the same trials.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from chaos.area import remove_tree
from chaos.plan import Enumeration, enumerate_trials, find_killed, find_unfired, select_trials
from chaos.pool import AllLostError, Answered, Began, Lost, Pool
from chaos.required import required_oracles
from chaos.results import Action, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.rundir import RunDirectory
from chaos.scenario import Scenario
from chaos.zygote_client import Zygote
from eventlog.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Limits:
    """Which trials run. None and "" mean no limit; `stop_after` counts failed trials; `step` is a full step name."""

    runs: int | None = None
    budget_secs: float | None = None
    stop_after: int | None = None
    step: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """How it ended. `reasons` says what made it less than a pass beyond single trials; `left` trials were not begun."""

    verdict: Verdict
    reasons: tuple[str, ...]
    results: tuple[TrialResult, ...]
    enumerations: tuple[Enumeration, ...]
    left: int


class Watcher(Protocol):
    """Is told of progress. `phase` names what is counted."""

    def begin(self, phase: str, total: int) -> None:
        """A phase of `total` operations begins."""

    def advance(self, result: TrialResult) -> None:
        """One of them ended."""


Enumerate = Callable[[Recording, Sequence[Action], int], Enumeration]
"""Makes trials of a recording, a scenario's plan and the first number to give."""


class Campaign:
    """Runs scenarios over a pool of zygotes and writes a run directory. `area` is where trials live while they run."""

    def __init__(
        self,
        pool: Pool,
        run: RunDirectory,
        area: Path,
        watcher: Watcher,
        clock: Callable[[], float] = time.monotonic,
        enumerate_one: Enumerate = enumerate_trials,
    ) -> None:
        self._pool = pool
        self._run = run
        self._area = area
        self._watcher = watcher
        self._clock = clock
        self._enumerate_one = enumerate_one

    def run(self, scenarios: Sequence[Scenario], limits: Limits, seed: int) -> CampaignResult:
        """The whole campaign. Raises MisuseError when `limits` leave no trial, AllLostError when no zygote is left."""
        deadline = None if limits.budget_secs is None else self._clock() + limits.budget_secs
        by_name = {scenario.name: scenario for scenario in scenarios}
        recordings = self.record(scenarios)
        enumerations = self._enumerate(recordings, by_name)
        trials = [trial for one in enumerations for trial in one.trials]
        chosen = select_trials(trials, limits.step, limits.fault)
        if trials and not chosen:
            raise MisuseError(_nothing_chosen(limits))
        random.Random(seed).shuffle(chosen)
        chosen = chosen if limits.runs is None else chosen[: limits.runs]
        results = [one.result for one in recordings]
        results += self._run_trials(chosen, by_name, {one.scenario: one.steps for one in enumerations}, limits.stop_after, deadline)
        left = len(trials) - (len(results) - len(recordings))
        reasons = _find_gaps(enumerations, results) if not left else []
        unbegun = len(chosen) - (len(results) - len(recordings))
        if unbegun and limits.budget_secs is not None:
            reasons.append(f"the budget of {limits.budget_secs:g} s ended before {unbegun} trials began")
        verdict = merge_verdicts([*(one.verdict for one in results), *(Verdict.UNKNOWN for _ in reasons)])
        if not reasons and len(results) == len(recordings):
            verdict, reasons = merge_verdicts([verdict, Verdict.UNKNOWN]), ["no trial ran"]
        return CampaignResult(verdict, tuple(reasons), tuple(results), enumerations, left)

    def record(self, scenarios: Sequence[Scenario]) -> list[Recording]:
        """A clean run of each scenario, in the order given; trouble makes it unknown. Raises AllLostError when each one cost a zygote."""
        self._watcher.begin("clean runs", len(scenarios))

        def ask(zygote: Zygote, scenario: Scenario) -> Recording:
            return zygote.record(scenario, self._make_directory(f"{scenario.name}-clean"))

        recordings: dict[str, Recording] = {}
        lost: list[str] = []
        for news in self._pool.work(scenarios, ask):
            match news:
                case Began(scenario):
                    self._run.history.note_started(_clean_trial(scenario.name))
                case Lost(slot, reason):
                    lost.append(reason)
                    self._run.history.note("zygote lost", slot=slot, reason=reason)
                case Answered(scenario, value, trouble):
                    recording = value or Recording(scenario.name, (), make_unknown(_clean_trial(scenario.name), trouble))
                    result = self._settle(distrust_recording(recording, required_oracles(scenario)).result, f"{scenario.name}-clean")
                    recordings[scenario.name] = msgspec.structs.replace(recording, result=result)
        if len(lost) == len(scenarios):
            raise AllLostError(f"every clean run lost its zygote: {lost[-1]}")
        return [recordings[scenario.name] for scenario in scenarios]

    def _enumerate(self, recordings: Sequence[Recording], by_name: dict[str, Scenario]) -> tuple[Enumeration, ...]:
        enumerations: list[Enumeration] = []
        number = 1
        for recording in recordings:
            if recording.result.verdict is Verdict.PASS:
                one = self._enumerate_one(recording, by_name[recording.scenario].plan, number)
                number += len(one.trials)
                self._run.add_steps(one)
                enumerations.append(one)
        return tuple(enumerations)

    def _run_trials(
        self,
        trials: Sequence[Trial],
        by_name: dict[str, Scenario],
        steps: dict[str, tuple[str, ...]],
        stop_after: int | None,
        deadline: float | None,
    ) -> list[TrialResult]:
        self._watcher.begin("trials", len(trials))

        def ask(zygote: Zygote, trial: Trial) -> TrialResult:
            return zygote.run(by_name[trial.scenario], trial, self._make_directory(_directory_name(trial)), steps[trial.scenario])

        results: list[TrialResult] = []
        failed = 0
        for news in self._pool.work(trials, ask):
            match news:
                case Began(trial):
                    self._run.history.note_started(trial)
                case Lost(slot, reason):
                    self._run.history.note("zygote lost", slot=slot, reason=reason)
                case Answered(trial, value, trouble):
                    required = required_oracles(by_name[trial.scenario])
                    results.append(self._settle(distrust(value or make_unknown(trial, trouble), required), _directory_name(trial)))
                    failed += results[-1].verdict is Verdict.FAIL
            if (stop_after is not None and failed >= stop_after) or (deadline is not None and self._clock() >= deadline):
                self._pool.stop()
        return results

    def _make_directory(self, name: str) -> Path:
        directory = self._area / name
        directory.mkdir()
        return directory

    def _settle(self, result: TrialResult, name: str) -> TrialResult:
        """Keep what a trial that did not pass left, remove its directory, record its end."""
        directory = self._area / name
        if result.verdict is not Verdict.PASS:
            result = self._run.keep(result, directory)
        remove_tree(directory)
        self._run.history.note_ended(result)
        self._run.add_result(result)
        self._watcher.advance(result)
        return result


def distrust(result: TrialResult, required: frozenset[str]) -> TrialResult:
    """The result, unknown instead of a pass when a fault of its plan did not fire or one of the `required` oracles did not judge it."""
    if result.verdict is not Verdict.PASS:
        return result
    unfired = find_unfired(result.trial, result.faults)
    if unfired:
        reason = f"the {unfired[0].do} at {unfired[0].at} did not fire, so nothing was proved"
    elif missing := sorted(required - {one.oracle for one in result.oracles}):
        reason = f"not judged by {', '.join(missing)}"
    elif merge_verdicts([one.verdict for one in result.oracles]) is not Verdict.PASS:
        reason = "an oracle did not say pass"
    else:
        return result
    return msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason=reason)


def distrust_recording(recording: Recording, required: frozenset[str]) -> Recording:
    """The recording, unknown instead of a pass when it passed no step or nothing was judged."""
    result = distrust(recording.result, required)
    if result.verdict is Verdict.PASS and not recording.steps:
        result = msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason="the clean run passed no step")
    return msgspec.structs.replace(recording, result=result)


def make_unknown(trial: Trial, trouble: str) -> TrialResult:
    """The result of a trial of which only the harness's trouble is known."""
    return TrialResult(trial, Verdict.UNKNOWN, f"harness: {trouble}", (), (), (), {}, 0, 0, 0.0)


def _clean_trial(name: str) -> Trial:
    return Trial(0, name, ())


def _directory_name(trial: Trial) -> str:
    return f"{trial.scenario}-{trial.number}"


def _find_gaps(enumerations: Sequence[Enumeration], results: Sequence[TrialResult]) -> list[str]:
    """Scenarios whose steps are not all killed or unreachable although every trial ran."""
    gaps = []
    for one in enumerations:
        mine = [result for result in results if result.trial.scenario == one.scenario]
        known = find_killed(one.steps, mine).union(unreachable.step for unreachable in one.unreachable)
        missing = [step for step in one.steps if step not in known]
        if missing:
            gaps.append(f"{one.scenario}: {len(missing)} steps are neither killed nor unreachable, first {missing[0]}")
    return gaps


def _nothing_chosen(limits: Limits) -> str:
    wanted = " and ".join([f"step {limits.step}"] * bool(limits.step) + [f"fault {limits.fault}"] * bool(limits.fault))
    return f"no trial has {wanted}; chaos list steps shows the steps of each scenario's clean run"
