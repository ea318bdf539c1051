"""The JSON document of a run: what `--json` writes. chaos/README.md ("The JSON document") has each field. Pure."""

import msgspec

from chaos.results import RUN_FORMAT, OracleVerdict, Signature, TrialResult, Verdict, find_judge, signature_of
from reports.aggregate import Group, OracleCounts, ScenarioCounts, Summary, count_oracles, count_scenarios, group_troubles, summarise
from reports.coverage import Aimed, Cell, LabelCoverage, Zeros, find_empty, measure_coverage
from reports.load import Audited, Judgement, Run
from reports.repeat import format_plan, repeat_command
from reports.words import describe_trial

CUT_SHORT = Judgement(Verdict.UNKNOWN, ("this run was cut short",))
_NOBODY = OracleVerdict("", Verdict.UNKNOWN)


class Failure(msgspec.Struct, frozen=True):
    """One trial that did not pass. `plan` is in text form, "" for a clean run; what no oracle named is ""."""

    scenario: str
    trial: int
    plan: str
    entry: str
    verdict: Verdict
    reason: str
    oracle: str
    path: str
    expected: str
    found: str
    event: str
    kept: str
    repeat: str
    signature: str


class FailureGroup(msgspec.Struct, frozen=True):
    """Trials that did not pass with one signature: how many, of which scenarios, and the first of them."""

    signature: Signature
    trials: int
    scenarios: tuple[str, ...]
    first: str
    repeat: str


class Document(msgspec.Struct, frozen=True):
    """Everything that a run has to say to a program."""

    verdict: Verdict
    reasons: tuple[str, ...]
    seed: int
    command: str
    summary: Summary
    scenarios: tuple[ScenarioCounts, ...]
    labels: tuple[LabelCoverage, ...]
    zeros: Zeros
    matrix: tuple[Cell, ...]
    unreached: tuple[Aimed, ...]
    oracles: dict[str, OracleCounts]
    failures: tuple[Failure, ...]
    groups: tuple[FailureGroup, ...]
    audit: tuple[Audited, ...]
    format: int = RUN_FORMAT


def make_document(run: Run) -> Document:
    """The document of one run; one that was cut short is unknown."""
    judgement = run.judgement or CUT_SHORT
    coverage = measure_coverage(run)
    groups = group_troubles(run.results)
    return Document(
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        seed=run.config.seed,
        command=run.config.command,
        summary=summarise(run),
        scenarios=count_scenarios(run),
        labels=coverage.labels,
        zeros=coverage.zeros,
        matrix=coverage.matrix,
        unreached=find_empty(run),
        oracles=count_oracles(run),
        failures=tuple(_make_failure(run, result) for group in groups for result in (group.first, *group.others)),
        groups=tuple(_make_group(run, group) for group in groups),
        audit=run.audit,
    )


def encode_document(document: Document) -> str:
    """The document as text, its format first."""
    text = msgspec.json.encode({"format": document.format, **msgspec.structs.asdict(document)})
    return msgspec.json.format(text).decode() + "\n"


def _make_failure(run: Run, result: TrialResult) -> Failure:
    trial, oracle = result.trial, find_judge(result) or _NOBODY
    return Failure(
        scenario=trial.scenario,
        trial=trial.number,
        plan=format_plan(trial.plan),
        entry=trial.entry,
        verdict=result.verdict,
        reason=result.reason,
        oracle=oracle.oracle,
        path=oracle.path,
        expected=oracle.expected,
        found=oracle.found,
        event=oracle.event,
        kept=result.kept,
        repeat=repeat_command(run.config, trial),
        signature=str(signature_of(result)),
    )


def _make_group(run: Run, group: Group) -> FailureGroup:
    members = (group.first, *group.others)
    scenarios = tuple(sorted({one.trial.scenario for one in members}))
    return FailureGroup(
        group.signature, len(members), scenarios, describe_trial(group.first.trial), repeat_command(run.config, group.first.trial)
    )
