"""Everything that is run before a release, one after the other, each to its end whatever the others said; a table last.

    python .ci/release_check.py [--out DIR] [--only NAME ...] [--list] [--simulated N]

What each check prints is kept in DIR/NAME.txt. Exit code: 0 when every check passed, 1 when one failed, 2 when none failed but one could
not be concluded (it ended with 2, its time was up, its program is not there), 254 for a mistake. Nothing that was not run counts as passed.
The standard library alone: it must be able to say that the project cannot even be imported.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOURS = 3600.0
PASSED, FAILED, UNKNOWN = "passed", "FAILED", "UNKNOWN"
_USAGE = 254


@dataclass(frozen=True, slots=True)
class Check:
    """One command, by its name in the table, and the seconds after which it is taken to hang."""

    name: str
    command: tuple[str, ...]
    seconds: float = 12 * HOURS


@dataclass(frozen=True, slots=True)
class Ran:
    """A check that was run: how it ended, how long it took, and the last line of figures that it printed."""

    name: str
    end: str
    seconds: float
    figures: str


def list_checks(python: str, simulated: int, modes: Sequence[str]) -> list[Check]:
    """Every check, in the order in which they are run: what is cheap first. Without `modes` there is a check that tells why."""
    chaos = (python, "-m", "chaos")
    whole = {"ci": ("--require-coverage",)}
    campaigns = [Check(f"mode {mode}", (*chaos, "--mode", mode, "--seed", "1", *whole.get(mode, ()))) for mode in modes]
    return [
        Check("modes", (*chaos, "list", "modes")),
        Check("suite", (python, "-m", "pytest", "-q", "-n", "auto")),
        Check("planted", (*chaos, "planted")),
        Check("planted harness", (*chaos, "planted", "--harness")),
        *campaigns,
        Check("level syscall", (*chaos, "--level", "syscall", "--seed", "1", "--require", "syscall")),
        Check("soak-sim", (*chaos, "--backend", "sim", "--seed", "1", "--runs", str(simulated))),
        Check("soak", (python, "-m", "pytest", "-q", "-m", "soak", "-s", "tests")),
    ]


def find_modes(python: str) -> list[str]:
    """The modes of campaigns that this version has; none when it cannot say so."""
    words = [python, "-m", "chaos", "list", "modes", "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", cwd=ROOT, check=False)
    return [row["mode"] for row in json.loads(done.stdout)] if done.returncode == 0 else []


def run_check(check: Check, out: Path) -> Ran:
    """Run one check to its end, its output kept in `out`. Never raises for what the check does."""
    file, began = out / f"{check.name.replace(' ', '-')}.txt", time.monotonic()
    with file.open("wb") as output:
        try:
            process = subprocess.Popen(
                check.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
            )
        except OSError as error:
            return Ran(check.name, UNKNOWN, 0.0, f"it cannot be started: {error}")
        try:
            code = process.wait(check.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nothing else is in it
            process.wait()
            return Ran(check.name, UNKNOWN, check.seconds, f"it did not end within {check.seconds:g} s")
    return Ran(check.name, judge_code(code), time.monotonic() - began, read_figures(file))


def judge_code(code: int) -> str:
    """How a check ended, by its exit code: those of chaos. Everything that is not a plain pass or fail concludes nothing."""
    return {0: PASSED, 1: FAILED}.get(code, UNKNOWN)


def read_figures(file: Path) -> str:
    """The last line of counts in what a check printed, or its last line."""
    lines = [line.strip() for line in file.read_text("utf-8", "replace").splitlines() if line.strip()]
    counts = [line for line in lines if line.startswith(("SUMMARY ", "PLANTED "))]
    return (counts or lines or ["it said nothing"])[-1]


def render_table(checks: Sequence[Check], ran: Mapping[str, Ran]) -> list[str]:
    """A line for each check there is, run or not."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        one = ran.get(check.name, Ran(check.name, "not run", 0.0, ""))
        lines.append(f"{one.end:<8} {check.name:<{width}} {one.seconds:>8.0f} s  {one.figures[:200]}".rstrip())
    return lines


def exit_code_of(ends: Sequence[str]) -> int:
    """0 when all passed, 1 when one failed, else 2; nothing at all is 2."""
    if FAILED in ends:
        return 1
    return 0 if ends and set(ends) == {PASSED} else 2


def main(arguments: Sequence[str], say: Callable[[str], None], checks: Sequence[Check] | None = None) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="release-check", description="Run everything that a release must pass.")
    parser.add_argument("--out", default="release-check", help="where the output of each check is kept")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this check; may be given again")
    parser.add_argument("--list", action="store_true", help="name the checks with their commands, and run none")
    parser.add_argument("--simulated", type=int, default=1_000_000, metavar="N", help="trials of the simulation")
    options = parser.parse_args(arguments)
    checks = list_checks(sys.executable, options.simulated, find_modes(sys.executable)) if checks is None else checks
    for name in options.only:
        if name not in {check.name for check in checks}:
            say(f"release-check: there is no check {name!r}; there are {', '.join(check.name for check in checks)}")
            return _USAGE
    chosen = [check for check in checks if not options.only or check.name in options.only]
    if options.list:
        for check in chosen:
            say(f"{check.name}: {' '.join(check.command)}")
        return 0
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    ran: dict[str, Ran] = {}
    for check in chosen:
        say(f"{check.name}: {' '.join(check.command)}")
        ran[check.name] = run_check(check, out)
        say(f"{ran[check.name].end} after {ran[check.name].seconds:.0f} s")
    for line in render_table(checks, ran):
        say(line)
    ends = [one.end for one in ran.values()]
    say(f"RELEASE passed={ends.count(PASSED)} failed={ends.count(FAILED)} unknown={ends.count(UNKNOWN)} not_run={len(checks) - len(ran)}")
    return exit_code_of(ends)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda line: print(line, flush=True)))
