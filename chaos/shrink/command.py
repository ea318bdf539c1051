"""`chaos shrink`: a failed trial made as small as it can be and still fail alike. The result is a scenario file and the command that
runs it."""

import os
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from chaos.console import ExitCode, check_target, write_json
from chaos.options import check_engine, name_environment, parse_duration
from chaos.program import name_program
from chaos.results import Signature, Verdict, signature_of
from chaos.rundir import find_run, is_run, read_config, read_results
from chaos.shrink.work import ENTRIES, Order, shrink_one
from eventlog.errors import MisuseError

DEFAULT_BUDGET = "120s"
DEFAULT_RERUNS = 5
NAME = "shrunk.toml"


def shrink(
    file: Annotated[str, typer.Argument(metavar="FILE|DIR", help="a kept trial (trial.json or its directory), or a run directory")],
    budget: Annotated[str, typer.Option(metavar="TIME", help="end after this time with the smallest so far")] = DEFAULT_BUDGET,
    reruns: Annotated[int, typer.Option(metavar="K", help="trials to measure flakiness with, before and after")] = DEFAULT_RERUNS,
    engine: Annotated[str, typer.Option(metavar="DIR", help="an engine copy; when absent the one on which the trial ran")] = "",
    out: Annotated[str, typer.Option(metavar="F", help="the scenario file to write; shrunk.toml beside the trial when absent")] = "",
    json: Annotated[str, typer.Option(metavar="F", help="also write the outcome to F as JSON; - prints only that")] = "",
) -> int:
    """Make a failed trial smaller: fewer actions and calls, a smaller tree, earlier steps. Ends with 0 when that fails alike, else 2."""
    if reruns < 1:
        raise MisuseError(f"--reruns {reruns} must be at least 1")
    targets = [check_target(option, text) for option, text in (("--out", out), ("--json", json.removeprefix("-"))) if text]
    kept = find_kept(Path(file))
    if out and len(kept) > 1:
        raise MisuseError(f"{file}: holds {len(kept)} different failures; leave --out away, or give one of its kept trials")
    program = name_environment(os.environ) + name_program()
    deadline = time.monotonic() + parse_duration(budget)
    ends = []
    for number, place in enumerate(kept):
        now = time.monotonic()
        share = now + max(0.0, deadline - now) / (len(kept) - number)
        target = targets[0] if out else (place if place.is_dir() else place.parent) / NAME
        order = Order(check_engine(engine or find_engine(place)), reruns, share, target, program)
        ends.append(shrink_one(place, order, _stay_silent if json == "-" else _say))
        if ends[-1].is_proved and json != "-":
            _say(f"scenario {ends[-1].file}")
            _say(f"run it with: {ends[-1].command}")
    if json:
        write_json(msgspec.json.format(msgspec.json.encode(ends)).decode() + "\n", json)
    return ExitCode.PASS if all(end.is_proved for end in ends) else ExitCode.UNKNOWN


def find_kept(place: Path) -> list[Path]:
    """The kept trials meant: the one given, or of a run directory the first of each signature that failed. MisuseError when none did."""
    if not is_run(place):
        return [place]
    chosen: dict[Signature, Path] = {}
    results = read_results(place)
    # Where a clean run fails by itself, what failed after something was done is no failure of its own.
    broken = {one.trial.scenario for one in results if not one.trial.plan and one.verdict is Verdict.FAIL}
    results = [one for one in results if not one.trial.plan or one.trial.scenario not in broken]
    for result in sorted(results, key=lambda one: (len(one.trial.plan), one.trial.scenario, one.trial.number)):
        kept = place / "artifacts" / Path(result.kept).name
        if result.verdict is Verdict.FAIL and result.trial.entry in ENTRIES and result.kept and kept.is_dir():
            chosen.setdefault(signature_of(result), kept)
    if not chosen:
        raise MisuseError(f"{place}: kept no failed trial that can be shrunk; chaos report {place} shows what it holds")
    return list(chosen.values())


def find_engine(place: Path) -> str:
    """The engine copy on which the run ran that kept a trial; "" for the installed one, and for a trial that lies in no run directory."""
    run = find_run(place)
    return read_config(run).engine if run is not None else ""


def _say(line: str) -> None:
    print(line, flush=True)


def _stay_silent(line: str) -> None:
    """Nothing but the JSON is wanted."""
