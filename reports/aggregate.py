"""From the results of a run to the numbers and groups that a report shows. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from chaos.results import OracleVerdict, Signature, TrialResult, Verdict, find_judge, signature_of
from reports.coverage import has_all_fired, has_live_command
from reports.load import Run, ScenarioSteps

FAULTS = (
    "kill", "exec", "freeze", "again", "deeper", "edit", "lose", "rollback", "clock", "race", "pair", "random",
    "syscall", "corrupt", "disk", "power", "copy",
)  # fmt: skip
"""Counted by name also when there was none, so that zeros are seen."""


EQUAL = "equal state"
STALE = 75
"""The exit code of a driver that a newer one has superseded."""


class Summary(msgspec.Struct, frozen=True, rename={"passed": "pass"}):
    """The counts of a run; `chaos/README.md` says what each counts. `rate` is trials per second."""

    runs: int
    passed: int
    unknown: int
    fail: int
    kills: int
    steps: int
    killed: int
    unreachable: int
    live: int
    half_written: int
    restored: int
    quarantined: int
    exec: int
    superseded: int
    freezes: int
    held: int
    again: int
    deeper: int
    syscall: int
    edits: int
    losses: int
    lost_calls: int
    bound: int
    pruned: int
    seconds: float
    rate: float
    labels: dict[str, int]
    faults: dict[str, int]
    reasons: dict[str, int]
    unkilled: tuple[str, ...]
    sampled: int = 0
    states: int = 0
    states_rate: float = 0.0


class ScenarioCounts(msgspec.Struct, frozen=True):
    """One scenario: its trials with the clean run, the SIGKILLs and freezes that fired in them, the sum of their seconds."""

    scenario: str
    trials: int
    kills: int
    freezes: int
    seconds: float


class OracleCounts(msgspec.Struct, frozen=True, rename={"passed": "pass"}):
    """How often one oracle said what."""

    passed: int
    unknown: int
    fail: int


class Group(msgspec.Struct, frozen=True):
    """Trials that ended alike: of one signature, in whatever scenario. `first`, of `scenario`, is judged by `oracle`."""

    signature: Signature
    scenario: str
    verdict: Verdict
    oracle: OracleVerdict | None
    first: TrialResult
    others: tuple[TrialResult, ...]


def summarise(run: Run) -> Summary:
    """The counts of one run."""
    results = run.results
    verdicts: Counter[Verdict] = Counter()
    labels: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for result in results:
        verdicts[result.verdict] += result.count
        labels.update({label: result.count * times for label, times in result.labels.items()})
        if result.trial.fault and has_all_fired(result):
            faults[result.trial.fault] += result.count
    killed = [_find_killed(one, results) for one in run.scenarios]
    return Summary(
        runs=_count(results),
        passed=verdicts[Verdict.PASS],
        unknown=verdicts[Verdict.UNKNOWN],
        fail=verdicts[Verdict.FAIL],
        kills=_count_fired(results, "kill"),
        steps=sum(len(one.steps) for one in run.scenarios),
        killed=sum(map(len, killed)),
        unreachable=sum(len(one.unreachable) for one in run.scenarios),
        live=_count(result for result in results if has_live_command(result)),
        half_written=_count(result for result in results if any(fault.fired and fault.half_written for fault in result.faults)),
        restored=_count(result for result in results if result.restored > 0),
        quarantined=_count(result for result in results if result.displaced > 0),
        exec=_count(result for result in results if result.trial.entry == "exec" and _count_fired([result], "kill") > 0),
        superseded=_count(result for result in results if any(code == STALE for _, code in result.drivers)),
        freezes=_count_fired(results, "freeze"),
        held=_count_fired(results, "killed"),
        again=_count(result for result in results if result.trial.fault == "again" and _count_fired([result], "kill") > 1),
        deeper=_count(result for result in results if result.trial.fault == "deeper" and _count_fired([result], "kill") > 2),
        syscall=_count(result for result in results if result.trial.entry == "syscall" and _count_fired([result], "kill") > 0),
        edits=_count_fired(results, "edit") + _count_fired(results, "turn"),
        lost_calls=max((result.lost_calls for result in results), default=0),
        bound=max((result.bound for result in results), default=0),
        losses=_count_fired(results, "lose"),
        pruned=sum(step.reason == EQUAL for one in run.scenarios for step in one.unreachable) + sum(result.pruned for result in results),
        seconds=round(run.seconds, 2),
        rate=round(_count(results) / run.seconds, 1) if run.seconds else 0.0,
        labels=dict(sorted(labels.items())),
        faults=dict.fromkeys(FAULTS, 0) | dict(sorted(faults.items())),
        reasons=dict(sorted(Counter(step.reason for one in run.scenarios for step in one.unreachable).items())),
        unkilled=tuple(name for one, mine in zip(run.scenarios, killed, strict=True) for name in _find_unkilled(one, mine)),
        sampled=sum(step.reason == "sampled" for one in run.scenarios for step in one.not_frozen),
        states=(states := sum(result.states for result in results)),
        states_rate=round(states / run.seconds, 1) if run.seconds else 0.0,
    )


def count_scenarios(run: Run) -> tuple[ScenarioCounts, ...]:
    """The counts by scenario, those of which nothing ran too; in the order of the configuration."""
    names = dict.fromkeys([*run.config.arguments, *sorted(result.trial.scenario for result in run.results)])
    mine: dict[str, list[TrialResult]] = {name: [] for name in names}
    for result in run.results:
        mine[result.trial.scenario].append(result)
    return tuple(
        ScenarioCounts(
            scenario=name,
            trials=_count(results),
            kills=_count_fired(results, "kill"),
            freezes=_count_fired(results, "freeze"),
            seconds=round(sum((result.seconds for result in results), 0.0), 2),
        )
        for name, results in mine.items()
    )


def count_oracles(run: Run) -> dict[str, OracleCounts]:
    """What each oracle said, by its name."""
    said: Counter[tuple[str, Verdict]] = Counter()
    for result in run.results:
        said.update({(one.oracle, one.verdict): result.count for one in result.oracles})
    return {
        name: OracleCounts(said[name, Verdict.PASS], said[name, Verdict.UNKNOWN], said[name, Verdict.FAIL])
        for name in sorted({name for name, _ in said})
    }


def group_troubles(results: Sequence[TrialResult]) -> list[Group]:
    """What did not pass by its signature, failures first, then those of most trials; each group in the order of scenarios and numbers."""
    groups: dict[Signature, list[TrialResult]] = {}
    for result in sorted(results, key=lambda one: (one.trial.scenario, one.trial.number)):
        if result.verdict is not Verdict.PASS:
            groups.setdefault(signature_of(result), []).append(result)
    found = [
        Group(signature, members[0].trial.scenario, signature.verdict, find_judge(members[0]), members[0], tuple(members[1:]))
        for signature, members in groups.items()
    ]
    return sorted(found, key=lambda group: (group.verdict is not Verdict.FAIL, -len(group.others)))


def _find_killed(one: ScenarioSteps, results: Sequence[TrialResult]) -> set[str]:
    numbers = range(one.first, one.first + one.trials)
    mine = (result for result in results if result.trial.scenario == one.scenario and result.trial.number in numbers)
    return {fault.at for result in mine for fault in result.faults if fault.fired and fault.do == one.does}.intersection(one.steps)


def _find_unkilled(one: ScenarioSteps, killed: set[str]) -> list[str]:
    known = killed.union(step.step for step in one.unreachable)
    return [f"{one.scenario} {step}" for step in one.steps if step not in known]


def _count_fired(results: Iterable[TrialResult], do: str) -> int:
    return sum(result.count for result in results for fault in result.faults if fault.fired and fault.do == do)


def _count(results: Iterable[TrialResult]) -> int:
    """How many trials these are: a row may stand for several."""
    return sum(result.count for result in results)
