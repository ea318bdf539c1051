"""A campaign: a clean run of each scenario, the trials these make, one result each, a verdict.

What must hold:
- Nothing of a scenario is killed before its clean run has passed.
- A trial is a pass only if each of its faults fired (`distrust`): the zygote says so, and it is checked here again.
- Trouble in the harness is unknown, never a pass and never a failure; when all zygotes are lost the campaign ends (`AllLostError`).
- A complete campaign has steps = killed + unreachable, or it is unknown.
- The seed decides the order of the trials and which third kills are drawn, and nothing else.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from chaos.actions import format_action, format_plan
from chaos.audit import Key, choose_audited, compare, judge_audit, key_of
from chaos.depth import LEAST, SECOND, Depth, choose_deeper, draw_trials, make_deeper_set, prune_equal
from chaos.done import NOTHING, Done
from chaos.enumeration import Enumeration, add_trial, enumerate_trials
from chaos.plan import find_fired, find_unfired, select_trials
from chaos.pool import AllLostError, Answered, Began, Lost, Pool
from chaos.required import Require, required_oracles
from chaos.results import Action, Recording, Trial, TrialResult, Verdict, merge_verdicts, signature_of
from chaos.rundir import RunDirectory
from chaos.scenario import Scenario
from chaos.transcript import Transcript
from chaos.trees import remove_tree
from chaos.trial_set import TrialSet
from chaos.zygote_client import Zygote, ZygoteError
from eventlog.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Limits:
    """Which trials run. None and "" mean no limit; `stop_after` counts failures of different signatures; `step` is a full step name, `plan`
    a whole plan."""

    runs: int | None = None
    budget_secs: float | None = None
    stop_after: int | None = None
    step: str = ""
    fault: str = ""
    plan: tuple[Action, ...] = ()
    depth: Depth = Depth()

    @property
    def kills(self) -> int:
        """How many kills a trial may have. Where trials are chosen otherwise, third ones are not looked for."""
        named = ("", "again", "deeper") if self.depth.least < LEAST else ("", "deeper")
        return self.depth.least - 1 if self.step or self.plan or self.fault not in named else self.depth.kills

    @property
    def deeper_sets(self) -> int:
        """How many sets of kills inside recovery are made at each depth, each of which takes a clean run (0: all): never more than trials
        will run."""
        return min((number for number in (self.depth.pairs, self.runs) if number), default=0)


@dataclass(frozen=True, slots=True)
class Work:
    """One set of trials of one scenario. `origin` is the clean run in whose end its trials must end, None for its own."""

    scenario: Scenario
    trial_set: TrialSet
    origin: Recording | None = None

    @property
    def group(self) -> str:
        """What names it."""
        return f"{self.scenario.name} after {format_plan(self.trial_set.before)}"


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


@dataclass(frozen=True, slots=True)
class _Task:
    """One trial to run, with the final state that it must converge to."""

    work: Work
    trial: Trial
    converges_to: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Made:
    """What was made of the clean run of one set."""

    work: Work
    recording: Recording
    enumeration: Enumeration
    tasks: tuple[_Task, ...]


Transcribe = Callable[[Zygote, Scenario, Trial, Path, Mapping[str, Any]], Transcript]
"""Plays a trial in an empty directory, whatever its verdict, to its transcript."""


@dataclass(frozen=True, slots=True)
class Audit:
    """How many trials are played twice, and by whom."""

    wanted: int = 0
    transcribe: Transcribe | None = None


NO_AUDIT = Audit()
Enumerate = Callable[[Recording, Scenario, TrialSet, int], Enumeration]
"""Makes trials of a recording of a scenario's set, numbered from the last argument."""


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
        done: Done = NOTHING,
        audit: Audit = NO_AUDIT,
        require: Require = required_oracles,
    ) -> None:
        self._pool = pool
        self._run = run
        self._area = area
        self._watcher = watcher
        self._clock = clock
        self._kept_in_trouble: dict[Trial, str] = {}
        self._enumerate_one = enumerate_one
        self._require = require
        self._numbers: dict[str, int] = {}
        self._done = done
        self._known_recordings = done.group_recordings()
        self._audit = audit
        self._first: dict[Key, Transcript] = {}

    def run(self, scenarios: Sequence[Scenario], limits: Limits, seed: int) -> CampaignResult:
        """The whole campaign. Raises MisuseError when `limits` leave no trial although every clean run passed, AllLostError when no zygote
        is left."""
        deadline = None if limits.budget_secs is None else self._clock() + limits.budget_secs - self._done.seconds
        works = [Work(scenario, trial_set) for scenario in scenarios for trial_set in scenario.trials]
        works = [work for work in works if limits.depth.kills > 1 or not work.trial_set.label]
        recordings = self.record(works)
        made = self._enumerate(works, recordings, limits.plan)
        # Half of what is left: clean runs alone would be no campaign.
        half = None if deadline is None else (self._clock() + deadline) / 2
        deeper, unrecorded = self._go_deeper(made, limits, seed, half)
        recordings += deeper
        tasks = [task for one in made for task in one.tasks]
        enumerations = tuple(one.enumeration for one in made)
        chosen_trials = select_trials([task.trial for task in tasks], limits.step, limits.fault, limits.plan)
        is_hidden = tasks and not chosen_trials and any(one.result.verdict is not Verdict.PASS for one in recordings)
        if tasks and not chosen_trials and not is_hidden:
            raise MisuseError(f"{_nothing_chosen(limits)}; chaos list steps shows the steps of each scenario's clean run")
        numbers = {(trial.scenario, trial.number) for trial in chosen_trials}
        chosen = [task for task in tasks if (task.trial.scenario, task.trial.number) in numbers]
        # Which of two processes passes its step first is chance, and so are the numbers of trials: the seed draws from what they are.
        chosen.sort(key=lambda task: (task.trial.scenario, format_plan(task.trial.plan), task.trial.entry, task.trial.number))
        random.Random(seed).shuffle(chosen)
        chosen = chosen if limits.runs is None else chosen[: limits.runs]
        audited = choose_audited([task.trial for task in chosen], self._audit.wanted, seed)
        results = [one.result for one in recordings]
        results += self._run_trials(chosen, limits.stop_after, deadline, audited)
        left = len(tasks) - (len(results) - len(recordings))
        reasons = _find_gaps(enumerations, results) if not left else []
        # It may be a trial of the set whose clean run did not pass: that is what must be told, not that there is no such trial.
        reasons += [f"{_nothing_chosen(limits)}, and a clean run that might make it did not pass"] if is_hidden else []
        digests = {key_of(one.trial): one.digest for one in results if one.trial.number}
        reasons += self._play_again([task for task in chosen if key_of(task.trial) in audited & digests.keys()], digests)
        unbegun = len(chosen) - (len(results) - len(recordings))
        if unrecorded:
            reasons.append(f"the budget of {limits.budget_secs:g} s ended before {unrecorded} clean runs of kills inside recovery began")
        if unbegun and limits.budget_secs is not None:
            reasons.append(f"the budget of {limits.budget_secs:g} s ended before {unbegun} trials began")
        verdict = merge_verdicts([*(one.verdict for one in results), *(Verdict.UNKNOWN for _ in reasons)])
        if not reasons and len(results) == len(recordings):
            verdict, reasons = merge_verdicts([verdict, Verdict.UNKNOWN]), ["no trial ran"]
        return CampaignResult(verdict, tuple(reasons), tuple(results), enumerations, left)

    def record(self, works: Sequence[Work]) -> list[Recording]:
        """A clean run of each set, in the order given; trouble makes it unknown. Raises AllLostError when each one cost a zygote."""
        recordings = self._record(works, None)
        return [recordings[number] for number, _ in enumerate(works)]

    def _record(self, works: Sequence[Work], deadline: float | None) -> dict[int, Recording]:
        """The same by the numbers of the sets; after `deadline` none is begun."""
        recordings: dict[int, Recording] = {}
        for number, work in enumerate(works):
            known = self._known_recordings.get((work.scenario.name, work.trial_set.before))
            if known:
                recordings[number] = known.pop(0)
        wanted = [(number, work) for number, work in enumerate(works) if number not in recordings]
        self._watcher.begin("clean runs", len(wanted))

        def ask(zygote: Zygote, numbered: tuple[int, Work]) -> Recording:
            work = numbered[1]
            with self._directory(zygote, _clean_trial(work)) as directory:
                recording = zygote.record(work.scenario, work.trial_set.before, directory)
                required = self._require(work.scenario, work.trial_set.before)
                # A kill that the session went on after needs no recovery, so that none is left to be killed again.
                checked = distrust_recording(recording, required, work.trial_set.label, may_end=work.trial_set.depth >= SECOND)
                return msgspec.structs.replace(checked, result=self._keep(checked.result, directory))

        lost: list[str] = []
        for news in self._pool.work(wanted, ask, lambda numbered: numbered[1].group):
            if deadline is not None and self._clock() >= deadline:
                self._pool.stop()
            match news:
                case Began((_, work)):
                    self._run.history.note_started(_clean_trial(work))
                case Lost(slot, reason):
                    lost.append(reason)
                    self._run.history.note("zygote lost", slot=slot, reason=reason)
                case Answered((number, work), value, trouble):
                    recording = value or Recording(work.scenario.name, (), make_unknown(_clean_trial(work), trouble))
                    recordings[number] = self._settle_recording(recording)
        if wanted and len(lost) == len(wanted):
            raise AllLostError(f"every clean run lost its zygote: {lost[-1]}")
        return recordings

    def _enumerate(self, works: Sequence[Work], recordings: Sequence[Recording], plan: tuple[Action, ...]) -> list[_Made]:
        made: list[_Made] = []
        passed = [pair for pair in zip(works, recordings, strict=True) if pair[1].result.verdict is Verdict.PASS]
        nearest = _find_nearest(plan, passed) if plan else None
        for work, recording in passed:
            one = self._enumerate_one(recording, work.scenario, work.trial_set, self._number(work))
            if work is nearest and not _has_trial(work.scenario, plan, recordings, works, self._enumerate_one):
                one = add_trial(one, plan)
            made.append(self._make(work, recording, one))
        return made

    def _go_deeper(self, made: list[_Made], limits: Limits, seed: int, deadline: float | None) -> tuple[list[Recording], int]:
        """Add what is made of third kills and deeper ones to `made`; the clean runs that this took, and how many more it would have taken
        by the `deadline`."""
        recordings: list[Recording] = []
        unrecorded = 0
        seen: set[tuple[str, str]] = set()
        above = [one for one in made if one.work.trial_set.label or limits.depth.least < LEAST]
        for kills in range(limits.depth.least, limits.kills + 1):
            sets = {id(trial): one for one in above for trial in one.enumeration.trials}
            named = [(one.work.group, trial) for one in above for trial in one.enumeration.trials if limits.depth.may_follow(trial)]
            chosen = choose_deeper(named, limits.deeper_sets, seed)
            if not chosen:
                break
            works = [
                Work(one.work.scenario, make_deeper_set(trial, one.work.trial_set, kills), one.work.origin or one.recording)
                for trial in chosen
                for one in (sets[id(trial)],)
            ]
            numbered = self._record(works, deadline)
            found = [numbered[number] for number in sorted(numbered)]
            unrecorded += len(works) - len(found)
            above = []
            for work, recording in ((works[number], numbered[number]) for number in sorted(numbered)):
                if recording.result.verdict is Verdict.PASS:
                    one = self._enumerate_one(recording, work.scenario, work.trial_set, self._number(work))
                    one = prune_equal(one, recording.state if kills == SECOND else "", seen)
                    above.append(self._make(work, recording, draw_trials(one, limits.depth.draws, seed)))
            made += above
            recordings += found
        return recordings, unrecorded

    def _number(self, work: Work) -> int:
        """The number of the first trial that is made of a set now."""
        return self._numbers.get(work.scenario.name, 0) + 1

    def _make(self, work: Work, recording: Recording, one: Enumeration) -> _Made:
        """Record what is made of one set."""
        self._numbers[work.scenario.name] = max((trial.number for trial in one.trials), default=self._number(work) - 1)
        self._run.add_steps(one)
        return _Made(work, recording, one, tuple(_Task(work, trial, expected_parts(work, recording, trial)) for trial in one.trials))

    def _run_trials(
        self, tasks: Sequence[_Task], stop_after: int | None, deadline: float | None, audited: frozenset[Key]
    ) -> list[TrialResult]:
        results = self._find_done(tasks)
        failures = {signature_of(one) for one in results if one.verdict is Verdict.FAIL}
        known = {key_of(one.trial) for one in results}
        left = [task for task in tasks if key_of(task.trial) not in known]
        self._watcher.begin("trials", len(left))

        def is_enough() -> bool:
            return (stop_after is not None and len(failures) >= stop_after) or (deadline is not None and self._clock() >= deadline)

        def ask(zygote: Zygote, task: _Task) -> TrialResult:
            with self._directory(zygote, task.trial) as directory:
                result = self._play(zygote, task, directory, key_of(task.trial) in audited)
                required = self._require(task.work.scenario, task.trial.plan, converges=bool(task.converges_to))
                return self._keep(distrust(result, required), directory)

        for news in self._pool.work([] if results and is_enough() else left, ask, lambda task: task.work.group):
            match news:
                case Began(task):
                    self._run.history.note_started(task.trial)
                case Lost(slot, reason):
                    self._run.history.note("zygote lost", slot=slot, reason=reason)
                case Answered(task, value, trouble):
                    results.append(self._settle(value or make_unknown(task.trial, trouble)))
                    failures |= {signature_of(one) for one in results[-1:] if one.verdict is Verdict.FAIL}
            if is_enough():
                self._pool.stop()
        return results

    def _find_done(self, tasks: Sequence[_Task]) -> list[TrialResult]:
        """The results that there are already. Raises MisuseError when one is of another trial than this campaign has under its number."""
        known = self._done.find_trials()
        found = [(task, known[key_of(task.trial)]) for task in tasks if key_of(task.trial) in known]
        for task, result in found:
            if result.trial != task.trial:
                raise MisuseError(f"trial {task.trial.number} of {task.trial.scenario} is another one now; begin a new campaign")
        return [result for _, result in found]

    def _play(self, zygote: Zygote, task: _Task, directory: Path, is_audited: bool) -> TrialResult:
        if not is_audited or self._audit.transcribe is None:
            return zygote.run(task.work.scenario, task.trial, directory, task.converges_to)
        transcript = self._audit.transcribe(zygote, task.work.scenario, task.trial, directory, task.converges_to)
        self._first[key_of(task.trial)] = transcript
        return transcript.result

    def _play_again(self, tasks: Sequence[_Task], digests: Mapping[Key, str]) -> list[str]:
        """Play the audited trials once more and compare: what makes the run less than a pass, a sentence each. Of a trial that was played
        before the campaign was resumed only the digest is known."""
        transcribe = self._audit.transcribe
        if transcribe is None:
            return []
        self._watcher.begin("audit", len(tasks))

        def ask(zygote: Zygote, task: _Task) -> Transcript:
            with self._directory(zygote, task.trial) as directory:
                return transcribe(zygote, task.work.scenario, task.trial, directory, task.converges_to)

        compared = []
        for news in self._pool.work(tasks, ask, lambda task: task.work.group):
            if isinstance(news, Answered) and news.value is not None:
                key = key_of(news.request.trial)
                compared.append(compare(self._first.get(key, digests[key]), news.value))
                self._run.add_compared(compared[-1])
                self._watcher.advance(news.value.result)
        return judge_audit(sorted(compared, key=lambda one: (one.scenario, one.trial)), self._audit.wanted)

    @contextlib.contextmanager
    def _directory(self, zygote: Zygote, trial: Trial) -> Iterator[Path]:
        """The directory of a zygote's trials, the same for all of them, empty. What a trial in trouble left in it is kept."""
        directory = self._area / f"slot-{zygote.slot}" / "trial"
        directory.mkdir(parents=True)
        try:
            yield directory
        except ZygoteError as error:
            self._kept_in_trouble[trial] = self._run.keep(make_unknown(trial, str(error)), directory).kept
            raise
        finally:
            remove_tree(directory)

    def _keep(self, result: TrialResult, directory: Path) -> TrialResult:
        return result if result.verdict is Verdict.PASS else self._run.keep(result, directory)

    def _settle_recording(self, recording: Recording) -> Recording:
        """Record a clean run, and the end of it."""
        kept = self._kept_in_trouble.pop(recording.result.trial, recording.result.kept)
        recording = msgspec.structs.replace(recording, result=msgspec.structs.replace(recording.result, kept=kept))
        self._run.add_recording(recording)
        self._settle(recording.result)
        return recording

    def _settle(self, result: TrialResult) -> TrialResult:
        """Record the end of a trial."""
        if result.trial in self._kept_in_trouble:
            result = msgspec.structs.replace(result, kept=self._kept_in_trouble.pop(result.trial))
        self._run.add_result(result)
        self._run.history.note_ended(result)  # after it: an end that stands there without a result is a result that was taken away
        self._watcher.advance(result)
        return result


def _find_nearest(plan: tuple[Action, ...], passed: Sequence[tuple[Work, Recording]]) -> Work | None:
    """The set of whose beginning a plan that somebody gave has the most; the first one when it has nothing of any."""
    beginnings = [(len(work.trial_set.before), work) for work, _ in passed if plan[: len(work.trial_set.before)] == work.trial_set.before]
    first = [(0, work) for work, _ in passed[:1]]
    return max([*first, *beginnings], key=lambda one: one[0], default=(0, None))[1]


def _has_trial(
    scenario: Scenario, plan: tuple[Action, ...], recordings: Sequence[Recording], works: Sequence[Work], enumerate_one: Enumerate
) -> bool:
    """Whether a plan that somebody gave is that of a trial of the scenario already."""
    pairs = [(work, recording) for work, recording in zip(works, recordings, strict=True) if work.scenario.name == scenario.name]
    made = [enumerate_one(recording, work.scenario, work.trial_set, 1).trials for work, recording in pairs]
    return any(trial.plan == plan for trials in made for trial in trials)


def expected_parts(work: Work, recording: Recording, trial: Trial) -> Mapping[str, Any]:
    """What a trial of a set must end in: where interrupted calls are issued again and nothing else changes the end, what the set's clean
    run ended in."""
    later = trial.plan[len(work.trial_set.before) :]
    if any(action.do in ("edit", "turn") or action.who.startswith("command@") for action in later):
        return {}
    may_differ = work.scenario.on_interrupted != "reissue" and not work.trial_set.is_inside_recovery
    origin = work.origin or recording
    if not origin.parts or may_differ or not work.trial_set.converges:
        return {}
    return {"final": origin.result.final, "parts": origin.parts}


def distrust(result: TrialResult, required: frozenset[str]) -> TrialResult:
    """The result, unknown instead of a pass when a fault of its plan did not fire or one of the `required` oracles did not judge it."""
    if result.verdict is not Verdict.PASS:
        return result
    unfired = find_unfired(result.trial, result.faults)
    if unfired:
        reason = f"{format_action(unfired[0])} did not fire, so nothing was proved"
    elif missing := sorted(required - {one.oracle for one in result.oracles}):
        reason = f"not judged by {', '.join(missing)}"
    elif merge_verdicts([one.verdict for one in result.oracles]) is not Verdict.PASS:
        reason = "an oracle did not say pass"
    else:
        return result
    return msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason=reason)


def distrust_recording(recording: Recording, required: frozenset[str], label: str = "", *, may_end: bool = False) -> Recording:
    """The recording, unknown instead of a pass when it passed no step (but where the session `may_end` before), nothing was judged, or
    recovery's first decision was not `label`."""
    result = distrust(recording.result, required)
    if result.verdict is Verdict.PASS and not recording.steps and not may_end:
        result = msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason="the clean run passed no step")
    if result.verdict is Verdict.PASS and label and result.decisions[:1] != (label,):
        reason = f"recovery decided {', '.join(result.decisions) or 'nothing'} first, not {label}"
        result = msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason=reason)
    return msgspec.structs.replace(recording, result=result)


def make_unknown(trial: Trial, trouble: str) -> TrialResult:
    """The result of a trial of which only the harness's trouble is known."""
    return TrialResult(trial, Verdict.UNKNOWN, f"harness: {trouble}", (), (), (), {}, 0, 0, 0.0)


def _clean_trial(work: Work) -> Trial:
    return Trial(0, work.scenario.name, work.trial_set.before, fault="")


def _find_gaps(enumerations: Sequence[Enumeration], results: Sequence[TrialResult]) -> list[str]:
    """Sets whose steps are not all killed or unreachable, or not all frozen that should be, although every trial ran."""
    gaps = []
    for one in enumerations:
        numbers = {trial.number for trial in one.trials}
        mine = [result for result in results if result.trial.scenario == one.scenario and result.trial.number in numbers]
        killed = find_fired(one.steps, one.prefix, one.does, mine).union(unreachable.step for unreachable in one.unreachable)
        frozen = find_fired(one.frozen, one.prefix, "freeze", mine)
        for steps, known, what in ((one.steps, killed, "killed nor unreachable"), (one.frozen, frozen, "frozen nor named as not to be")):
            missing = [step for step in steps if step not in known]
            if missing:
                gaps.append(f"{one.scenario}: {len(missing)} steps are neither {what}, first {missing[0]}")
    return gaps


def _nothing_chosen(limits: Limits) -> str:
    wanted = " and ".join(
        [f"step {limits.step}"] * bool(limits.step) + [f"fault {limits.fault}"] * bool(limits.fault)
        + ["that plan"] * bool(limits.plan)
    )
    return f"no trial has {wanted}"
