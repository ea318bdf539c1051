"""Hunting a planted bug: the sound copy must pass, then the same campaign, or test of the suite, runs on the copy with the bug.

What must hold:
- Caught means that an oracle named in the bug file said fail; unknown is not caught, nor is the fail of an oracle that is not named.
- A harness bug is caught when its campaign ends unknown or fail, as the file says; a pass is a miss.
- Where a driver ended by an internal error, and the bug file does not say that it `halts`, the outcome says so.
- Nothing is concluded when the sound copy does not pass, or when a campaign ended otherwise than with a verdict.
- Campaigns are processes of their own: the copy is imported there and nowhere else.
- A bug with a conformance test is judged by that test alone (`chaos.planted.suite`).
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chaos.actions import format_action
from chaos.console import ExitCode
from chaos.options import write_command
from chaos.planted.bug import Bug, Selection, campaign_options
from chaos.planted.plant import INSTALLED, plant
from chaos.planted.suite import SuiteRan, describe_missing, find_trouble, run_test
from chaos.results import TrialResult, Verdict

INTERNAL_ERROR = 70
HALTED = "a driver ended by an internal error, look at it: "
"""How a driver ends that met what cannot be (recovery/README), and how that is told: a bug that only broke the engine's code, as text does
that no longer fits its surroundings, would be "caught" by it."""
CAMPAIGN_SECS = 600.0
"""Far above any campaign of a selection: only one that hangs meets it."""
_VERDICTS = {int(ExitCode.PASS): Verdict.PASS, int(ExitCode.FAIL): Verdict.FAIL, int(ExitCode.UNKNOWN): Verdict.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Caught:
    """Who noticed, where, and how long after the campaign began."""

    by: str
    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class Missed:
    """Nobody who was named noticed."""

    detail: str


@dataclass(frozen=True, slots=True)
class Unproved:
    """Nothing can be concluded about the bug."""

    detail: str


Outcome = Caught | Missed | Unproved


@dataclass(frozen=True, slots=True)
class Ran:
    """A campaign that ended: its exit code, its trials in the order of their ends, when the first ended that did not pass, its last
    words."""

    code: int
    results: tuple[TrialResult, ...]
    noticed_secs: float
    words: str

    @property
    def verdict(self) -> Verdict | None:
        """None when it ended without one."""
        return _VERDICTS.get(self.code)


class _Line(msgspec.Struct, frozen=True):
    """What is read of a line of a history."""

    at_ms: int
    what: str
    end: str = ""


def run_sound(selection: Selection, directory: Path) -> str:
    """Run what a selection says on a sound copy made in `directory`; "" when it passed, else why nothing can be concluded."""
    plant("(the sound copy)", selection.target, selection.given, directory / "copy")
    if selection.conformance:
        return describe_missing() or find_trouble(selection.conformance, run_test(selection.conformance, directory, selection.suite))
    ran = run_campaign(selection, directory)
    if ran.verdict is Verdict.PASS:
        return ""
    worst = [f"{_place(result)}: {result.reason}" for result in ran.results if result.verdict is not Verdict.PASS]
    return f"the sound copy does not pass (exit {ran.code}): {worst[0] if worst else ran.words}"


def plant_bug(bug: Bug, directory: Path) -> None:
    """Make the copy with the bug, `directory`/copy. Raises MisuseError when the bug no longer fits the project."""
    plant(bug.name, bug.selection.target, (*bug.selection.given, *bug.replace), directory / "copy")


def hunt(bug: Bug, directory: Path) -> Outcome:
    """Run what the bug's selection says on the copy in `directory`. The sound copy has passed."""
    if bug.selection.conformance:
        return judge_tested(bug.selection.conformance, run_test(bug.selection.conformance, directory, bug.selection.suite))
    return judge(bug, run_campaign(bug.selection, directory))


def judge(bug: Bug, ran: Ran) -> Outcome:
    """What a campaign on the copy with the bug says. Pure."""
    if ran.verdict is None:
        return Unproved(f"the campaign ended with {ran.code}: {ran.words}")
    if bug.selection.target == "harness":
        return _judge_harness(bug, ran, ran.verdict)
    # A trial in which the harness had trouble is unknown, whatever its oracles say of the session it cut short.
    trials = [result for result in ran.results if result.verdict is Verdict.FAIL]
    failed = [(result, oracle) for result in trials for oracle in result.oracles if oracle.verdict is Verdict.FAIL]
    for result, oracle in failed:
        if oracle.oracle in bug.expect:
            halted = HALTED if not bug.may_halt and any(code == INTERNAL_ERROR for _, code in result.drivers) else ""
            return Caught(oracle.oracle, ran.noticed_secs, f"{halted}{_place(result)}: {oracle.detail}")
    if failed:
        return Missed(f"only {failed[0][1].oracle} said fail, which is none of {', '.join(bug.expect)}: {failed[0][1].detail}")
    return Missed(f"the campaign ended {ran.verdict}; no oracle said fail{_first_reason(ran)}")


def judge_tested(name: str, ran: SuiteRan) -> Outcome:
    """What the test called `name` says of the copy with the bug. Pure."""
    asserted = [test for test in ran.tests if test.is_asserted]
    if asserted:
        return Caught(name, ran.seconds, f"{asserted[0].name.removeprefix(name)} {asserted[0].message}".strip())
    broken = [test for test in ran.tests if test.end != "passed"]
    if broken:
        return Unproved(f"{broken[0].name} ended otherwise than by its own assertion ({broken[0].end}): {broken[0].message}")
    return Missed(f"{name} passed") if ran.tests else Unproved(f"{name} did not run: {ran.words}")


def _judge_harness(bug: Bug, ran: Ran, verdict: Verdict) -> Outcome:
    if verdict.value in bug.expect:
        return Caught(verdict.value, ran.noticed_secs, _first_reason(ran).removeprefix(": ") or ran.words)
    return Missed(f"the campaign ended {verdict}, not {' or '.join(bug.expect)}{_first_reason(ran)}")


def _first_reason(ran: Ran) -> str:
    return next((f": {_place(result)}: {result.reason}" for result in ran.results if result.verdict is not Verdict.PASS), "")


def _place(result: TrialResult) -> str:
    """Which trial it was: its fault, or the clean run."""
    done = (f"{action.do} at {action.at}" if action.at else format_action(action) for action in result.trial.plan)
    where = ", ".join(done) or "clean run"
    return f"{result.trial.scenario}, {where}"


def run_campaign(selection: Selection, directory: Path) -> Ran:
    """Run the campaign of a selection on `directory`/copy; its run directory is `directory`/run."""
    run, copy = directory / "run", directory / "copy"
    command = campaign_command(selection, copy, run)
    # -P: what is imported is the copy or the installed packages, never what lies where this command was typed.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(copy if selection.target == "harness" else INSTALLED), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, errors="replace", timeout=CAMPAIGN_SECS, check=False
    )
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    words = lines[-1][:400] if lines else "it said nothing"
    return Ran(done.returncode, _read_results(run), _read_noticed(run), words)


def campaign_command(selection: Selection, copy: Path, run: Path) -> Sequence[str]:
    """The command of a campaign: the installed chaos on an engine copy, or a copied chaos. One job: others run beside it."""
    options = campaign_options(selection)
    words = shlex.split(write_command("chaos", options, 1))[1:]
    engine = ["--engine", str(copy)] if selection.target == "engine" else []
    return [sys.executable, "-P", "-m", "chaos", *words, *engine, "--jobs", "1", "--stop-after", "1", "--out", str(run)]


def _read_results(run: Path) -> tuple[TrialResult, ...]:
    file = run / "results.jsonl"
    return tuple(msgspec.json.decode(line, type=TrialResult) for line in file.read_bytes().splitlines()) if file.exists() else ()


def _read_noticed(run: Path) -> float:
    """Seconds from the campaign's begin to the end of the first trial that did not pass, or of the campaign; 0 when there is no history."""
    file = run / "history.jsonl"
    lines = [msgspec.json.decode(line, type=_Line) for line in file.read_bytes().splitlines()] if file.exists() else []
    noticed = [line.at_ms for line in lines if line.what == "trial ended" and line.end != "ok"]
    return (noticed or [line.at_ms for line in lines[-1:]] or [0])[0] / 1000
