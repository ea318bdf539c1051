"""Playing cases: each as a campaign on a scenario with this plan would play it, so that what comes back here comes back there.

What must hold: nothing is killed in a scenario whose clean run does not pass, and what a trial must converge to is that clean run's end.
A zygote that is lost is replaced; the case that lost it does not come back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from chaos.campaign import Work, distrust, distrust_recording, expected_parts
from chaos.required import required_oracles
from chaos.results import Action, Recording, Signature, Trial, TrialResult, Verdict, signature_of
from chaos.scenario import Scenario
from chaos.shrink.case import Case
from chaos.trees import remove_tree
from chaos.trial_set import TrialSet
from chaos.zygote_client import Zygote, ZygoteError, ZygoteLostError

Value = TypeVar("Value")
MOST_LOST = 5
"""So many zygotes may be lost to cases of one shrink; then the harness is broken."""


@dataclass(slots=True)
class Bench:
    """Where cases are played: a zygote, started when needed, and the directory of its trials."""

    start: Callable[[], Zygote]
    directory: Path
    _zygote: Zygote | None = None
    _lost: int = 0
    _recordings: dict[tuple[Scenario, tuple[Action, ...]], Recording | None] = field(default_factory=dict)

    def play(self, case: Case) -> TrialResult | None:
        """One trial of a case; None where it cannot be one. Raises ZygoteLostError when too many zygotes were lost."""
        if not case.plan:
            return self._run(case, Trial(0, case.scenario.name, (), fault=""), {})
        recording = self.record(case.scenario, ())
        if recording is None or recording.result.verdict is not Verdict.PASS or not _may_begin(case.plan, recording):
            return None
        trial = Trial(1, case.scenario.name, case.plan, case.entry)
        return self._run(case, trial, expected_parts(Work(case.scenario, TrialSet()), recording, trial))

    def record(self, scenario: Scenario, prefix: tuple[Action, ...]) -> Recording | None:
        """The clean run after some actions; None where there is none."""
        key = (scenario, prefix)
        if key not in self._recordings:
            found = self._ask(lambda zygote, directory: zygote.record(scenario, prefix, directory))
            required = required_oracles(scenario, prefix)
            self._recordings[key] = None if found is None else distrust_recording(found, required, may_end=True)
        return self._recordings[key]

    def _run(self, case: Case, trial: Trial, converges_to: Mapping[str, Any]) -> TrialResult | None:
        result = self._ask(lambda zygote, directory: zygote.run(case.scenario, trial, directory, converges_to))
        return result and distrust(result, required_oracles(case.scenario, case.plan, converges=bool(converges_to)))

    def _ask(self, question: Callable[[Zygote, Path], Value]) -> Value | None:
        """What a zygote answers for an empty directory; None when it was in trouble."""
        if self._zygote is None:
            self._zygote = self.start()
        self.directory.mkdir(parents=True)
        try:
            return question(self._zygote, self.directory)
        except ZygoteLostError:
            self.close()
            self._lost += 1
            if self._lost > MOST_LOST:
                raise
            return None
        except ZygoteError:
            return None
        finally:
            remove_tree(self.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the zygote."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


def count_returns(bench: Bench, case: Case, wanted: Signature, times: int) -> int:
    """In how many of `times` trials of a case its failure has the signature."""
    return sum(_has(bench.play(case), wanted) for _ in range(times))


def comes_back(bench: Bench, case: Case, wanted: Signature, times: int) -> bool:
    """Whether the signature shows in one of up to `times` trials of a case."""
    return any(_has(bench.play(case), wanted) for _ in range(times))


def _has(result: TrialResult | None, wanted: Signature) -> bool:
    return result is not None and result.verdict is wanted.verdict and signature_of(result) == wanted


def _may_begin(plan: tuple[Action, ...], recording: Recording) -> bool:
    """Whether the plan's first step is one that the clean run passes: without that nothing would be done. Steps of an epoch above 1 come
    after something else."""
    first = plan[0].at
    return not first or "@1:" not in first or first in recording.steps
