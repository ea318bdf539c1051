"""`chaos planted`: does the gate notice? Sound copies first, then each bug; one line per bug as it ends, the counts last."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any, assert_never

import msgspec
import typer

from chaos.console import ExitCode, write_json
from chaos.planted.bug import AREAS, Bug, choose_bugs, load_bugs
from chaos.planted.hunt import Caught, Missed, Outcome, Unproved, hunt, plant_bug, run_sound
from chaos.trees import remove_tree
from eventlog.errors import MisuseError

PLANTED_FORMAT = 1


def planted(
    bug: Annotated[list[str] | None, typer.Option(metavar="NAME", help="only this bug; may be given again")] = None,
    harness: Annotated[bool, typer.Option("--harness", help="the bugs of the harness itself instead of the engine's")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="only the few that a gate hunts each time")] = False,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="bugs at a time; one per core when absent")] = None,
    json: Annotated[str, typer.Option(metavar="F", help="also write the outcomes to F as JSON; - prints only that")] = "",
) -> int:
    """Plant known bugs into copies of the packages and tell which are caught: by a campaign, or by a test of a shipped suite."""
    if jobs is not None and jobs < 1:
        raise MisuseError(f"--jobs {jobs} must be at least 1")
    chosen = choose_bugs(load_bugs(), "harness" if harness else "engine", bug or [], fast=fast)
    say = _stay_silent if json == "-" else _say
    outcomes = dict(run_all(chosen, jobs or os.cpu_count() or 1, say))
    caught = sum(isinstance(outcome, Caught) for outcome in outcomes.values())
    for line in count_areas(chosen, outcomes):
        say(line)
    say(f"PLANTED caught={caught} total={len(chosen)}")
    if json:
        write_json(msgspec.json.format(msgspec.json.encode(_document(chosen, outcomes))).decode() + "\n", json)
    return exit_code_of(list(outcomes.values()))


def count_areas(bugs: Sequence[Bug], outcomes: Mapping[str, Outcome]) -> list[str]:
    """A line for each part of the engine that a bug breaks: how many of its bugs were caught, how long that took at most, who spoke."""
    lines = []
    for area in AREAS:
        mine = [outcomes[bug.name] for bug in bugs if bug.area == area and bug.selection.target == "engine"]
        caught = [outcome for outcome in mine if isinstance(outcome, Caught)]
        if mine:
            slowest = max((outcome.seconds for outcome in caught), default=0.0)
            by = ", ".join(sorted({outcome.by for outcome in caught})) or "nobody"
            lines.append(f"AREA {area} caught={len(caught)} total={len(mine)} slowest={slowest:.1f} s by {by}")
    return lines


def exit_code_of(outcomes: Sequence[Outcome]) -> ExitCode:
    """0 all caught, 1 one was missed, 2 nothing was missed but something could not be concluded."""
    if any(isinstance(outcome, Missed) for outcome in outcomes):
        return ExitCode.FAIL
    return ExitCode.PASS if all(isinstance(outcome, Caught) for outcome in outcomes) else ExitCode.UNKNOWN


def run_all(bugs: Sequence[Bug], jobs: int, say: Callable[[str], None]) -> Iterator[tuple[str, Outcome]]:
    """The outcome of each bug by name, as they end. Bugs of one selection share its sound run."""
    directory = Path(tempfile.mkdtemp(prefix="chaos-planted-"))
    try:
        with ThreadPoolExecutor(jobs) as pool:
            # All are planted before any runs: a bug that no longer fits the project is a mistake to be told at once.
            for bug in bugs:
                plant_bug(bug, _make(directory / bug.name))
            selections = list(dict.fromkeys(bug.selection for bug in bugs))
            say(f"{len(bugs)} bugs, {len(selections)} sound runs first, {jobs} at a time")
            places = [_make(directory / f"sound {number}") for number, _ in enumerate(selections, 1)]
            sound = dict(zip(selections, pool.map(run_sound, selections, places), strict=True))
            width = max(len(bug.name) for bug in bugs)
            futures = {pool.submit(_hunt, bug, sound[bug.selection], directory / bug.name): bug for bug in bugs}
            for future in as_completed(futures):
                bug, outcome = futures[future], future.result()
                say(describe(bug.name.ljust(width), outcome))
                yield bug.name, outcome
    finally:
        remove_tree(directory)


def _make(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _hunt(bug: Bug, trouble: str, directory: Path) -> Outcome:
    return Unproved(trouble) if trouble else hunt(bug, directory)


def describe(name: str, outcome: Outcome) -> str:
    """One line for people."""
    match outcome:
        case Caught(by, seconds, detail):
            return f"caught   {name}  by {by} after {seconds:.1f} s: {detail}"
        case Missed(detail):
            return f"MISSED   {name}  {detail}"
        case Unproved(detail):
            return f"UNKNOWN  {name}  {detail}"
        case _:
            assert_never(outcome)


def _document(bugs: Sequence[Bug], outcomes: dict[str, Outcome]) -> dict[str, Any]:
    rows = [_row(bug, outcomes[bug.name]) for bug in bugs]
    return {"format": PLANTED_FORMAT, "caught": sum(row["end"] == "caught" for row in rows), "total": len(rows), "bugs": rows}


def _row(bug: Bug, outcome: Outcome) -> dict[str, Any]:
    row = {"name": bug.name, "target": bug.selection.target, "area": bug.area, "about": bug.about, "detail": outcome.detail}
    match outcome:
        case Caught(by, seconds):
            return row | {"end": "caught", "by": by, "seconds": seconds}
        case Missed():
            return row | {"end": "missed"}
        case Unproved():
            return row | {"end": "unknown"}
        case _:
            assert_never(outcome)


def _say(line: str) -> None:
    print(line, flush=True)


def _stay_silent(line: str) -> None:
    """Nothing but the JSON is wanted."""
