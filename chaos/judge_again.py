"""`chaos judge`: the oracle asked again about a trial that was kept: log, ledger, witness and workspace as the trial left them.

Nothing of the trial is touched: the oracle copies the log elsewhere and reads the rest. What the runner alone saw while the trial was
played (`liveness`, `processes`, what did not fire) cannot be judged from what is left, and is taken over as it was recorded.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from chaos.console import exit_code_of, write_json
from chaos.judging import Judgement, OracleProcess
from chaos.results import RUN_FORMAT, OracleVerdict, TrialResult, Verdict, merge_verdicts
from chaos.target.target import read_target
from chaos.transcript import Transcript, place_question, read_transcript
from eventlog.errors import MisuseError

TROUBLE = {"oracle-process", "request"}
"""Who speaks when no oracle did."""


class Judged(msgspec.Struct, frozen=True):
    """What `--json` writes. `oracles` were asked now, `recorded` are the runner's own of then; `digest` is the history's, `then` what the
    trial had when it was played."""

    directory: str
    scenario: str
    verdict: Verdict
    digest: str
    final: str
    oracles: tuple[OracleVerdict, ...]
    recorded: tuple[OracleVerdict, ...]
    labels: dict[str, int]
    decisions: tuple[str, ...]
    then: dict[str, str]
    format: int = RUN_FORMAT


def judge(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="the directory of a kept trial")],
    json: Annotated[str, typer.Option(metavar="F", help="also write verdicts and digest to F as JSON; - prints only that")] = "",
) -> int:
    """Judge a kept trial again. Ends with the exit code of its verdict."""
    place = Path(directory)
    transcript = read_transcript(place)
    place = place if place.is_dir() else place.parent
    if read_target(transcript.scenario, directory) is not None:
        raise MisuseError(f"{directory}: is of a target, whose check is run with its trial only; use chaos replay {directory} --explain")
    if not transcript.question:
        raise MisuseError(f"{directory}: was kept without what the oracle was asked, by an older version; use chaos replay {directory}")
    judged = conclude(place, transcript, ask_oracle(place, transcript.question))
    if json != "-":
        print("\n".join(describe(judged)))
    if json:
        write_json(msgspec.json.format(msgspec.json.encode(judged)).decode() + "\n", json)
    return exit_code_of(judged.verdict)


def ask_oracle(place: Path, question: Mapping[str, Any]) -> Judgement:
    """What a fresh oracle process says of the trial in `place`."""
    oracle = OracleProcess([entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")])
    with tempfile.TemporaryDirectory(prefix="chaos-judge-") as scratch:
        try:
            return oracle.judge({**place_question(question, place), "scratch": scratch})
        finally:
            oracle.close()


def conclude(place: Path, transcript: Transcript, judgement: Judgement) -> Judged:
    """The verdict of what was judged now and of what only the runner saw then. Pure."""
    then = transcript.result
    asked = {one.oracle for one in judgement.verdicts}
    # Where no oracle judged, everything recorded would pass for the runner's own.
    recorded = tuple(one for one in then.oracles if one.oracle not in asked) if asked - TROUBLE else ()
    verdicts = [one.verdict for one in (*judgement.verdicts, *recorded)]
    if _was_hindered(then):
        verdicts.append(Verdict.UNKNOWN)
    return Judged(
        directory=str(place),
        scenario=then.trial.scenario,
        verdict=merge_verdicts(verdicts),
        digest=judgement.digest or "",
        final=judgement.final or "",
        oracles=judgement.verdicts,
        recorded=recorded,
        labels=judgement.labels,
        decisions=judgement.decisions,
        then={"verdict": then.verdict.value, "digest": then.digest},
    )


def describe(judged: Judged) -> list[str]:
    """Lines for a person."""
    lines = [f"JUDGED {judged.scenario} in {judged.directory}"]
    for word, oracles in (("oracle", judged.oracles), ("recorded", judged.recorded)):
        for one in oracles:
            where = "".join(f"; {name} {value}" for name, value in (("path", one.path), ("event", one.event)) if value)
            lines.append(f"  {word:<9}{one.oracle:<22}{one.verdict:<8}{one.detail}{where}".rstrip())
    before = judged.then["digest"]
    same = "as when it was played" if judged.digest == before else f"not that of the trial, {before or 'none'}"
    return [*lines, f"DIGEST {judged.digest or 'none'}, {same}", f"VERDICT {judged.verdict}, then {judged.then['verdict']}"]


def _was_hindered(then: TrialResult) -> bool:
    """Whether something that was meant to be done was not, or the harness had trouble: then nobody can call it a pass later."""
    worst = merge_verdicts([one.verdict for one in then.oracles])
    return not all(fault.fired for fault in then.faults) or (then.verdict is Verdict.UNKNOWN and worst is not Verdict.UNKNOWN)
