"""Coverage: which decisions of recovery the faults of a run led to, and which they never did. Pure.

What must hold: a trial counts only when it has faults and every one of them provably fired, so that a plain run and a fault that
missed cover nothing. What was never reached is named, not left out: the labels that there are come from the run's `config.json`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from chaos.results import TrialResult
from reports.load import KnownLabel, Run, ScenarioSteps
from reports.repeat import format_plan

COMMAND_ROLE = "command"
DECIDED = "driver:decision.commit.after"
"""The step from which on a decision of recovery stands in the log."""
OFF_STEPS = ("fail", "corrupt")
"""What is done to files, and at no step."""

_STEP = re.compile(r"(?P<role>[^@:.]+)[^@:]*@[0-9]+:(?P<name>.+):[0-9]+")


class LabelCoverage(msgspec.Struct, frozen=True):
    """One decision label. `trials` decided it; in `live` of them a command lived at a kill, in `restored` and `quarantined` of them at
    least one path was. `acted_on` is false for what ends with a person in this version; `unreachable`
    says why no fault of a campaign leads to it."""

    label: str
    acted_on: bool
    unreachable: str
    trials: int
    live: int
    restored: int
    quarantined: int


class Zeros(msgspec.Struct, frozen=True):
    """Labels by the count of theirs that is zero; `not_reachable` are those without a trial to which no fault of a
    campaign leads."""

    trials: tuple[str, ...]
    live: tuple[str, ...]
    restored: tuple[str, ...]
    quarantined: tuple[str, ...]
    not_reachable: tuple[str, ...]


class Counts(msgspec.Struct, frozen=True):
    """Of trials: how many, in how many of them a command lived at a kill, at least one path was restored, at least one quarantined."""

    trials: int = 0
    live: int = 0
    restored: int = 0
    quarantined: int = 0


class Cell(msgspec.Struct, frozen=True):
    """One step and fault of the matrix. `step` is `ROLE:NAME`; `trials` of the fault acted there; `labels` tells how many of them
    decided each label, `decided` what is counted of these."""

    step: str
    fault: str
    trials: int
    labels: dict[str, int]
    decided: dict[str, Counts] = {}


class Aimed(msgspec.Struct, frozen=True, order=True):
    """A cell that a run has to reach: `do` (`kill`, `freeze`, `lose`, ...) at the step `ROLE:NAME`, where the decision `label` stands in
    the log by then; "" where none does."""

    step: str
    do: str
    label: str = ""

    def __str__(self) -> str:
        return f"{self.do} at {self.step}" + (f" after {self.label}" if self.label else "")


class FaultCoverage(msgspec.Struct, frozen=True):
    """A fault over all steps: at how many it acted, how often (a trial counts at each step of its plan), and the labels decided then."""

    steps: int
    trials: int
    labels: dict[str, int]


class Coverage(msgspec.Struct, frozen=True):
    """The labels in the order in which recovery judges them, their zeros, and the matrix step x fault x label by step and fault."""

    labels: tuple[LabelCoverage, ...]
    zeros: Zeros
    matrix: tuple[Cell, ...]


def measure_coverage(run: Run) -> Coverage:
    """The coverage of one run."""
    fired = [result for result in run.results if has_all_fired(result)]
    labels = tuple(_measure_label(known, fired) for known in _list_labels(run.config.labels, fired))
    return Coverage(labels, _find_zeros(labels), _make_matrix(fired))


def find_gaps(run: Run) -> list[str]:
    """What keeps the coverage of a run from being whole, in sentences; nothing when each acted-on label was decided in a trial, each cell
    that the clean runs aim at was reached, and of each fault that was tried a trial fired."""
    if not run.config.labels:
        return ["coverage: config.json names no labels, so that none can be required"]
    missing = measure_coverage(run).zeros.trials
    gaps = [f"coverage: no trial decided {', '.join(missing)}"] if missing else []
    aimed, empty = list_aimed(run), find_empty(run)
    if empty:
        gaps.append(f"coverage: {len(empty)} of {len(aimed)} cells (step x fault x label) were not reached, first {empty[0]}")
    fired = {result.trial.fault for result in run.results if has_all_fired(result)}
    missed = sorted({result.trial.fault for result in run.results if result.trial.number and result.trial.plan} - fired)
    return [*gaps, *([f"coverage: no trial of the fault {', '.join(missed)} fired"] if missed else [])]


def count_by_fault(cells: Iterable[Cell]) -> dict[str, FaultCoverage]:
    """The matrix, summed by fault, in order of name."""
    summed: dict[str, FaultCoverage] = {}
    for cell in cells:
        one = summed.get(cell.fault, FaultCoverage(0, 0, {}))
        labels = Counter(one.labels) + Counter(cell.labels)
        summed[cell.fault] = FaultCoverage(one.steps + 1, one.trials + cell.trials, dict(sorted(labels.items())))
    return dict(sorted(summed.items()))


def find_unreached(run: Run, cells: Iterable[Cell]) -> tuple[str, ...]:
    """The steps of the clean runs, without epoch and ordinal, at which no trial of any fault acted."""
    reached = {cell.step for cell in cells}
    passed = dict.fromkeys(name_step(step) for one in run.scenarios for step in one.steps)
    return tuple(step for step in passed if step not in reached)


def list_aimed(run: Run) -> tuple[Aimed, ...]:
    """The cells that the run's own clean runs make it responsible for: each step that is killed (or treated as the set says) or frozen,
    but for those that are unreachable with a reason; under the label that recovery decided in the clean run, from where that stands."""
    aimed = set()
    for one in (one for one in run.scenarios if one.does not in OFF_STEPS):
        left_out, label = {unreachable.step for unreachable in one.unreachable}, _find_label(run, one)
        decided = next((place for place, step in enumerate(one.steps) if name_step(step) == DECIDED), len(one.steps))
        at = {step: label if place >= decided else "" for place, step in enumerate(one.steps)}
        aimed |= {Aimed(name_step(step), one.does, at[step]) for step in one.steps if step not in left_out}
        aimed |= {Aimed(name_step(step), "freeze", at.get(step, "")) for step in one.frozen}
    return tuple(sorted(aimed))


def find_empty(run: Run) -> tuple[Aimed, ...]:
    """Those of these cells that no trial reached whose faults all fired."""
    reached = set()
    for result in (one for one in run.results if has_all_fired(one)):
        labels = ["", *(label for label, count in result.labels.items() if count)]
        reached |= {Aimed(name_step(fault.at), fault.do, label) for fault in result.faults if fault.at for label in labels}
    return tuple(one for one in list_aimed(run) if one not in reached)


def _find_label(run: Run, line: ScenarioSteps) -> str:
    """What recovery decided first in the clean run of a set; "" where there was nothing to decide."""
    clean = (one for one in run.results if not one.trial.number and one.trial.scenario == line.scenario)
    return next((one.decisions[0] for one in clean if one.decisions and format_plan(one.trial.plan) == line.before), "")


def has_all_fired(result: TrialResult) -> bool:
    """Whether there were faults and each of them provably fired."""
    return bool(result.faults) and all(fault.fired for fault in result.faults)


def has_live_command(result: TrialResult) -> bool:
    """Whether a command was alive at a kill that fired."""
    kills = (fault for fault in result.faults if fault.fired and fault.do == "kill")
    return any(alive.role == COMMAND_ROLE for fault in kills for alive in fault.alive)


def name_step(at: str) -> str:
    """`ROLE:NAME` of a full step name: without epoch and ordinal, the shims as one. What is no step name stays as it is."""
    match = _STEP.fullmatch(at)
    return f"{match['role']}:{match['name']}" if match else at


def _list_labels(named: Iterable[KnownLabel], fired: Iterable[TrialResult]) -> list[KnownLabel]:
    """The labels that the run says there are, then those that a trial decided none the less."""
    known = {one.label: one for one in named}
    decided = sorted({label for result in fired for label, count in result.labels.items() if count})
    return [*known.values(), *(KnownLabel(label) for label in decided if label not in known)]


def _measure_label(known: KnownLabel, fired: Iterable[TrialResult]) -> LabelCoverage:
    unreachable = known.unreachable or ("" if known.acted_on else "ends with a person")
    counts = count_trials([result for result in fired if result.labels.get(known.label)])
    return LabelCoverage(
        known.label, known.acted_on, unreachable, counts.trials, counts.live, counts.restored, counts.quarantined
    )


def _find_zeros(labels: Sequence[LabelCoverage]) -> Zeros:
    reachable = [one for one in labels if not one.unreachable or one.trials]

    def name_zeros(count: Callable[[LabelCoverage], int]) -> tuple[str, ...]:
        return tuple(one.label for one in reachable if not count(one))

    return Zeros(
        trials=name_zeros(lambda one: one.trials),
        live=name_zeros(lambda one: one.live),
        restored=name_zeros(lambda one: one.restored),
        quarantined=name_zeros(lambda one: one.quarantined),
        not_reachable=tuple(one.label for one in labels if one not in reachable),
    )


def _make_matrix(fired: Iterable[TrialResult]) -> tuple[Cell, ...]:
    """Each trial counts once in the cell of each step that its plan acted at, whatever it did there. Rows that stand for several trials are
    left out: these acted at other steps each."""
    trials: Counter[tuple[str, str]] = Counter()
    deciding: dict[tuple[str, str], dict[str, list[TrialResult]]] = {}
    for result in (one for one in fired if one.count == 1):
        for step in {name_step(fault.at) for fault in result.faults if fault.at}:
            cell = (step, result.trial.fault)
            trials[cell] += 1
            mine = deciding.setdefault(cell, {})
            for label in (label for label, count in result.labels.items() if count):
                mine.setdefault(label, []).append(result)
    return tuple(
        Cell(
            step, fault, trials[step, fault],
            {label: len(results) for label, results in sorted(deciding[step, fault].items())},
            {label: count_trials(results) for label, results in sorted(deciding[step, fault].items())},
        )
        for step, fault in sorted(trials)
    )  # fmt: skip


def count_trials(results: Sequence[TrialResult]) -> Counts:
    """What is counted of some trials."""
    return Counts(
        trials=sum(result.count for result in results),
        live=sum(result.count for result in results if has_live_command(result)),
        restored=sum(result.count for result in results if result.restored > 0),
        quarantined=sum(result.count for result in results if result.displaced > 0),
    )
