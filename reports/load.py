"""Read a run directory (chaos/README.md has its fields). A run that was cut short is read as far as it goes and says so."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from chaos.results import RUN_FORMAT, TrialResult, Verdict, merge_verdicts

Line = TypeVar("Line")


class LoadError(Exception):
    """It is no run directory, or not one that this version reads. One sentence for a person."""


class KnownLabel(msgspec.Struct, frozen=True):
    """A decision label that there is. `acted_on` is false where it ends with a person in the version that ran; `unreachable` says why no
    fault of a campaign leads to it, "" where one may."""

    label: str
    acted_on: bool = True
    unreachable: str = ""


class RunConfig(msgspec.Struct, frozen=True):
    """What of `config.json` reports use."""

    format: int
    seed: int
    mode: str
    command: str
    program: str = "chaos"
    arguments: dict[str, str] = {}
    engine: str = ""
    labels: tuple[KnownLabel, ...] = ()
    unavailable: dict[str, str] = {}


class UnreachableStep(msgspec.Struct, frozen=True):
    """A step that no trial aims at, and why."""

    step: str
    reason: str


class ScenarioSteps(msgspec.Struct, frozen=True):
    """One line of `steps.jsonl`: one set of trials of a scenario, numbered from `first`."""

    scenario: str
    steps: tuple[str, ...]
    unreachable: tuple[UnreachableStep, ...]
    trials: int
    kill_mark: str = "cgroup"
    before: str = ""
    first: int = 1
    frozen: tuple[str, ...] = ()
    not_frozen: tuple[UnreachableStep, ...] = ()
    does: str = "kill"


class Counted(msgspec.Struct, frozen=True, rename={"passed": "pass"}):
    """What of the summary in `verdict.json` is held against the results; -1 where it says nothing."""

    runs: int = -1
    passed: int = -1
    unknown: int = -1
    fail: int = -1


class Judgement(msgspec.Struct, frozen=True):
    """What of `verdict.json` reports use."""

    verdict: Verdict
    reasons: tuple[str, ...]
    summary: Counted = Counted()


class Audited(msgspec.Struct, frozen=True):
    """One line of `audit.jsonl`: a trial that was played twice, and the first difference, "" for none."""

    scenario: str
    trial: int
    difference: str = ""


class Run(msgspec.Struct, frozen=True):
    """One run. `judgement` is None when it was cut short; `seconds` runs from its first line of history to its last."""

    path: str
    config: RunConfig
    scenarios: tuple[ScenarioSteps, ...]
    results: tuple[TrialResult, ...]
    judgement: Judgement | None
    seconds: float
    audit: tuple[Audited, ...] = ()


class _Format(msgspec.Struct):
    format: int


class _Moment(msgspec.Struct):
    at_ms: int


def load_run(directory: Path) -> Run:
    """The run in `directory`. Raises LoadError."""
    file = directory / "config.json"
    try:
        text = file.read_bytes()
    except OSError as error:
        trouble = f"{file.name}: {error.strerror}"
        raise LoadError(f"{directory}: is no run directory ({trouble}); give the directory that chaos printed") from error
    version = _decode(text, _Format, file).format
    if version > RUN_FORMAT:
        raise LoadError(f"{directory}: has run format {version}, this version reads up to {RUN_FORMAT}; use the version that wrote it")
    moments = _read_lines(directory / "history.jsonl", _Moment)
    results = tuple(_read_lines(directory / "results.jsonl", TrialResult))
    judgement = _read_judgement(directory / "verdict.json")
    return Run(
        path=str(directory),
        config=_decode(text, RunConfig, file),
        scenarios=tuple(_read_lines(directory / "steps.jsonl", ScenarioSteps)),
        results=results,
        judgement=_hold_against(judgement, results) if judgement is not None else None,
        seconds=moments[-1].at_ms / 1000 if moments else 0.0,
        audit=tuple(_read_lines(directory / "audit.jsonl", Audited)),
    )


def _read_judgement(file: Path) -> Judgement | None:
    try:
        return _decode(file.read_bytes(), Judgement, file)
    except FileNotFoundError:
        return None


def _hold_against(judgement: Judgement, results: Sequence[TrialResult]) -> Judgement:
    """The judgement, less than a pass where the results are not those it was given for: lines that are gone, or say something else now."""
    counts = {verdict: sum(one.count for one in results if one.verdict is verdict) for verdict in Verdict}
    found = Counted(sum(counts.values()), counts[Verdict.PASS], counts[Verdict.UNKNOWN], counts[Verdict.FAIL])
    told = judgement.summary
    if told in (found, Counted()) and (results or judgement.verdict is not Verdict.PASS):
        return judgement
    given = "" if told == Counted() else f", and the verdict was given for {_say(told)}"
    reason = f"results.jsonl holds {_say(found)}{given}: run the campaign again"
    return Judgement(merge_verdicts([judgement.verdict, Verdict.UNKNOWN]), (*judgement.reasons, reason), told)


def _say(counted: Counted) -> str:
    return f"{counted.runs} trials (pass {counted.passed}, unknown {counted.unknown}, fail {counted.fail})"


def _read_lines(file: Path, kind: type[Line]) -> list[Line]:
    """The whole lines of a file; none when it is not there. A last line without its end was cut by a crash and is left out."""
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [_decode(line, kind, file, number) for number, line in enumerate(lines, 1)]


def _decode(text: bytes, kind: type[Line], file: Path, line: int = 0) -> Line:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise LoadError(f"{file}{f' line {line}' if line else ''}: is damaged: {error}; run the campaign again") from error
