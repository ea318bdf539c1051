"""Kill trials: `python -m benchmarks.chaos [--json FILE] [--quick] [--seconds N]`.

Trials of one call, its driver killed by SIGKILL at a step, recovered by a successor and judged by the oracle, from one warm zygote on
tmpfs; in the same run, in turns with them, a bare loop: fork a process that waits, kill it, read its wait status, fork a second one that
runs bash. A trial's CPU is that of the zygote with all it forked and reaped and of the oracle, so that other work on the machine counts
little.
Budgets stand beside what is measured; a missed one is printed as such and fails nothing.
"""

import argparse
import os
import select
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import Report
from chaos.actions import parse_plan
from chaos.area import open_area
from chaos.results import Trial, Verdict
from chaos.scenario import Scenario, load_scenario
from chaos.trees import remove_tree
from chaos.zygote_client import ProcessZygote, zygote_command

SCENARIO = Path(__file__).resolve().parent.parent / "chaos" / "planted" / "scenarios" / "one-kill.toml"
PLANS = ("kill driver@1:outcome.commit.before:1", "kill driver@1:intent.commit.after:1", "kill shim.1@1:ended:1")
GOAL, LEAST, MOST_RATIO = 100.0, 75.0, 7.0
"""Trials per second and core: the goal, the least (DESIGN section 11); the most times a bare loop."""
TICKS = os.sysconf("SC_CLK_TCK")


def run_bare() -> None:
    """Fork, kill, verify; fork, run bash, verify."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        select.select([read], [], [])
        os._exit(1)
    os.kill(pid, signal.SIGKILL)
    killed = os.waitpid(pid, 0)[1]
    os.close(read)
    os.close(write)
    pid = os.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", ":"])
    ended = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(killed) or os.WTERMSIG(killed) != signal.SIGKILL or ended != 0:
        raise RuntimeError(f"the bare loop ended with {killed} and {ended}")


class Trials:
    """Kill trials from one warm zygote, one after the other in one directory."""

    def __init__(self, zygote: ProcessZygote, directory: Path) -> None:
        self._zygote = zygote
        self._directory = directory
        self._scenario: Scenario = load_scenario(SCENARIO)

    def run(self, number: int) -> None:
        """One trial; RuntimeError when it does not pass, since a rate of trials that prove nothing is none."""
        self._directory.mkdir(parents=True)
        trial = Trial(number, self._scenario.name, parse_plan(PLANS[number % len(PLANS)]))
        result = self._zygote.run(self._scenario, trial, self._directory, {})
        remove_tree(self._directory)
        if result.verdict is not Verdict.PASS:
            raise RuntimeError(f"a trial ended {result.verdict}: {result.reason}")


def read_cpu(pid: int) -> float:
    """Seconds of CPU of a process, of all that it reaped, and of its children that live (the oracle)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    own, reaped = _read_times(pid)
    return own + reaped + sum(_read_times(int(child))[0] for child in children)


def _read_times(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS, (int(fields[13]) + int(fields[14])) / TICKS


def bench(report: Report, seconds: float) -> None:
    """Trials and bare loops in turns for some seconds."""
    with open_area() as area, tempfile.TemporaryDirectory(prefix="bench-chaos-") as errors:
        report.note("trials live on", "tmpfs" if str(area).startswith("/dev/shm") else f"{area.parent}, which is no tmpfs")
        zygote = ProcessZygote(zygote_command(None), Path(errors) / "zygote.txt")
        try:
            trials = Trials(zygote, area / "slot-1" / "trial")
            for number in range(len(PLANS)):
                trials.run(number)  # the first makes the reference run and starts the oracle
            trial_seconds: list[float] = []
            bare_seconds: list[float] = []
            before = read_cpu(zygote.pid)
            end = time.monotonic() + seconds
            while time.monotonic() < end or not trial_seconds:
                began = time.perf_counter()
                trials.run(len(trial_seconds))
                between = time.perf_counter()
                run_bare()
                bare_seconds.append(time.perf_counter() - between)
                trial_seconds.append(between - began)
            cpu = read_cpu(zygote.pid) - before
        finally:
            zygote.close()
    count = len(trial_seconds)
    bare = "two forks + one bash"
    found = {bare: bare_seconds, "kill trial": trial_seconds}
    report.compare("one kill trial beside a bare loop (wall)", found, bare, {"kill trial": MOST_RATIO})
    report.head("rates")
    report.figure("trials measured", count, "trials")
    report.figure("trials per second, one zygote (wall)", 1 / statistics.median(trial_seconds), "per s", LEAST, at_least=True)
    report.figure("CPU of one trial", cpu / count * 1e3, "ms")
    report.figure("trials per second and core, by CPU", count / cpu, "per s", LEAST, at_least=True)
    report.note("goal", f"{GOAL:g} trials per second and core")


def main(arguments: Iterable[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos")
    parser.add_argument("--json", default="", help="write the figures to this file too")
    parser.add_argument("--quick", action="store_true", help="five seconds")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to measure")
    options = parser.parse_args(list(arguments))
    report = Report()
    report.note("machine", f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    bench(report, 5.0 if options.quick else options.seconds)
    if options.json:
        report.write(options.json)
        print(f"\nwritten: {options.json}")


if __name__ == "__main__":
    main(sys.argv[1:])
