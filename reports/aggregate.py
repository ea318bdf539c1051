"""From the results of a run to the numbers and groups that a report shows. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from chaos.results import OracleVerdict, TrialResult, Verdict
from reports.load import Run, ScenarioSteps

COMMAND_ROLE = "command"


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
    seconds: float
    rate: float
    labels: dict[str, int]
    faults: dict[str, int]
    reasons: dict[str, int]
    unkilled: tuple[str, ...]


class Group(msgspec.Struct, frozen=True):
    """Trials that ended alike: of one scenario, by one oracle (or, for unknown, for want of one). `first` is judged by `oracle`."""

    scenario: str
    verdict: Verdict
    oracle: OracleVerdict | None
    first: TrialResult
    others: tuple[TrialResult, ...]


def summarise(run: Run) -> Summary:
    """The counts of one run."""
    results = run.results
    verdicts = Counter(result.verdict for result in results)
    faults = Counter(fault.do for result in results for fault in result.faults if fault.fired)
    labels: Counter[str] = Counter()
    for result in results:
        labels.update(result.labels)
    killed = {one.scenario: _find_killed(one, results) for one in run.scenarios}
    return Summary(
        runs=len(results),
        passed=verdicts[Verdict.PASS],
        unknown=verdicts[Verdict.UNKNOWN],
        fail=verdicts[Verdict.FAIL],
        kills=faults["kill"],
        steps=sum(len(one.steps) for one in run.scenarios),
        killed=sum(map(len, killed.values())),
        unreachable=sum(len(one.unreachable) for one in run.scenarios),
        live=_count(_has_live_command(result) for result in results),
        half_written=_count(any(fault.fired and fault.half_written for fault in result.faults) for result in results),
        restored=_count(result.restored > 0 for result in results),
        quarantined=_count(result.displaced > 0 for result in results),
        exec=_count(result.trial.entry == "exec" and _has_fired(result, "kill") for result in results),
        superseded=_count(_has_fired(result, "supersede") for result in results),
        seconds=round(run.seconds, 2),
        rate=round(len(results) / run.seconds, 1) if run.seconds else 0.0,
        labels=dict(sorted(labels.items())),
        faults={"kill": faults["kill"], "supersede": faults["supersede"]} | dict(sorted(faults.items())),
        reasons=dict(sorted(Counter(step.reason for one in run.scenarios for step in one.unreachable).items())),
        unkilled=tuple(name for one in run.scenarios for name in _find_unkilled(one, killed[one.scenario])),
    )


def group_troubles(results: Sequence[TrialResult]) -> list[Group]:
    """What did not pass, failures first, each group in the order of trial numbers."""
    groups: dict[tuple[str, Verdict, str], list[TrialResult]] = {}
    for result in sorted(results, key=lambda one: (one.trial.scenario, one.trial.number)):
        if result.verdict is not Verdict.PASS:
            oracle = find_judge(result)
            groups.setdefault((result.trial.scenario, result.verdict, oracle.oracle if oracle else ""), []).append(result)
    found = [
        Group(scenario, verdict, find_judge(members[0]), members[0], tuple(members[1:]))
        for (scenario, verdict, _), members in groups.items()
    ]
    return sorted(found, key=lambda group: group.verdict is not Verdict.FAIL)


def find_judge(result: TrialResult) -> OracleVerdict | None:
    """The oracle that made this trial what it is: the first that says the trial's own verdict."""
    return next((oracle for oracle in result.oracles if oracle.verdict is result.verdict), None)


def _find_killed(one: ScenarioSteps, results: Sequence[TrialResult]) -> set[str]:
    mine = (result for result in results if result.trial.scenario == one.scenario)
    return {fault.at for result in mine for fault in result.faults if fault.fired and fault.do == "kill"}.intersection(one.steps)


def _find_unkilled(one: ScenarioSteps, killed: set[str]) -> list[str]:
    known = killed.union(step.step for step in one.unreachable)
    return [f"{one.scenario} {step}" for step in one.steps if step not in known]


def _has_live_command(result: TrialResult) -> bool:
    return any(alive.role == COMMAND_ROLE for fault in result.faults if fault.fired for alive in fault.alive)


def _has_fired(result: TrialResult, do: str) -> bool:
    return any(fault.fired and fault.do == do for fault in result.faults)


def _count(facts: Iterable[bool]) -> int:
    return sum(facts)
