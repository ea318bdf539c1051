"""One trial of the syscall level: an unprepared driver, killed on entering a system call; plain successors; the same judge.

Unprepared: the real command in a process of its own, no step socket, no variable of the harness, and no SESSION_EPOCH either: every
driver finds its epoch itself (rule L1). The first is `recovery run` under strace; while there is no log its successors are that
command again, afterwards `recovery drive`. None of them is traced.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from chaos.drivers import Place, base_environment, noting_environment, session_toml
from chaos.play import MOST_DRIVERS, QUIET_SECS, Played
from chaos.processes import end_everything, list_descendants, wait_readable
from chaos.results import Fault, OracleVerdict, Recording, Trial, TrialResult, Verdict
from chaos.saved import make_stage
from chaos.scenario import Scenario
from chaos.stage import Ended, left_behind, wait_until
from chaos.syscalls.available import find_tracer
from chaos.syscalls.enumerate import ENTRY, FAULT
from chaos.syscalls.inject import Pass, TraceError, build_command, find_doubt, format_pass, parse_target, parse_trace
from chaos.trial import Bench, judge_trial, read_kill_mark, remove_cgroups

DRIVER_SECS = 60.0
TRACER_SECS = 20.0
PROOF = "syscall-proof"
"""The name under which a kill that is not proved stands among the oracles: unknown, with the reason."""


def record_syscalls(bench: Bench, scenario: Scenario, directory: Path) -> Recording:
    """A clean traced run: the system calls its driver passes, in order, and its own verdict."""
    result = run_syscall_trial(bench, scenario, Trial(0, scenario.name, (), ENTRY, FAULT), directory)
    place = Place(directory)
    with contextlib.suppress(TraceError):  # such a run has been judged unknown
        steps = tuple(format_pass(one) for one in parse_trace(_read(trace_of(place))).passes)
        return Recording(scenario.name, steps, result, read_kill_mark(place))
    return Recording(scenario.name, (), result, read_kill_mark(place))


def run_syscall_trial(bench: Bench, scenario: Scenario, trial: Trial, directory: Path) -> TrialResult:
    """Run and judge one trial (a plan of one kill, or none) in an empty directory. Never raises for what the engine does."""
    began = time.monotonic()
    bench.reference(scenario, directory)
    place = make_stage(scenario, directory)
    played = SyscallPlay(scenario, trial, place, bench.oracle.pid)
    played.run()
    done = Played(faults=played.faults, findings=played.findings, ends=played.ends, trouble=played.trouble)
    return judge_trial(bench, scenario, trial, place, done, began, {})[0]


def trace_of(place: Place) -> Path:
    """The file that strace writes."""
    return place.directory / "strace"


def unprepared_environment(place: Place) -> dict[str, str]:
    """What a driver gets: nothing of the harness but where to import from, and what keeps trials and their commands apart."""
    return base_environment() | noting_environment(place) | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SESSION_HOLDERS_DIR": str(place.directory / "holders"),
    }


class SyscallPlay:
    """The trial in the making. `ends` counts drivers from 1 in place of epochs, which nobody but they themselves knows."""

    def __init__(self, scenario: Scenario, trial: Trial, place: Place, oracle_pid: int) -> None:
        self._scenario = scenario
        self._target = parse_target(trial.plan[0].at) if trial.plan else None
        self._place = place
        self._oracle_pid = oracle_pid
        self._pid = 0
        self.faults: list[Fault] = []
        self.findings: list[OracleVerdict] = []
        self.ends: list[Ended] = []
        self.trouble = ""

    def run(self) -> None:
        """Play to the end; trouble of the harness is kept as a sentence."""
        try:
            self._place.session.write_text(session_toml(self._scenario, self._place), "utf-8")
            if self._scenario.gate:
                (self._place.outside / self._scenario.gate).touch()  # nobody would open it for a command that waits
            self._drive()
            with contextlib.suppress(TimeoutError):  # whoever is then still there is a finding
                wait_until(lambda: not left_behind(self._oracle_pid), QUIET_SECS, "every process of the trial to end")
        except TimeoutError as error:
            self.trouble = str(error)
        except OSError as error:
            self.trouble = f"{type(error).__name__}: {error}"
        left = end_everything(os.getpid(), self._oracle_pid)
        if left and not self.trouble:
            self.findings.append(OracleVerdict("processes", Verdict.FAIL, f"processes {left} outlived the session"))
        remove_cgroups(self._place)

    def _drive(self) -> None:
        code = self._drive_traced()
        while code == 1 or (code == -9 and len(self.ends) == 1):
            if len(self.ends) == MOST_DRIVERS:
                break
            code = self._start(self._next_command(), trace=False)
        if code != 0:
            number = len(self.ends)
            detail = f"driver {number} ended with {code} and the session is not finished: {self._last_words(number)}"
            self.findings.append(OracleVerdict("liveness", Verdict.FAIL, detail))

    def _drive_traced(self) -> int:
        """The first driver: its kill is a fault when wait status and trace prove it, else what is missing is a finding."""
        code = self._start(self._run_command(), trace=True)
        self._wait_tracer()
        doubt = self._find_doubt(code)
        if doubt:
            self.findings.append(OracleVerdict(PROOF, Verdict.UNKNOWN, doubt))
        elif self._target is not None:
            self.faults.append(Fault(format_pass(self._target), "kill", True, True, self._pid, -code))
        return code

    def _find_doubt(self, code: int) -> str:
        try:
            trace = parse_trace(_read(trace_of(self._place)))
        except TraceError as error:
            return str(error)
        if self._target is not None:
            return find_doubt(trace, self._target, code)
        return "" if trace.end == f"exited with {code}" else f"the trace of a clean run ends with {trace.end!r}, its driver with {code}"

    def _run_command(self) -> list[str]:
        return [sys.executable, "-m", "recovery", "run", str(self._place.session)]

    def _next_command(self) -> list[str]:
        """The session file again while no log was made; else the state directory is all that a successor needs."""
        has_log = (self._place.state / "log.sqlite").exists()
        return [sys.executable, "-m", "recovery", "drive", str(self._place.state)] if has_log else self._run_command()

    def _start(self, command: Sequence[str], *, trace: bool) -> int:
        """Run one driver to its end; its exit code, or minus its signal. TimeoutError when it does not end."""
        number = len(self.ends) + 1
        words = _trace(self._place, command, self._target) if trace else list(command)
        with open(self._place.output(number), "ab") as output, open(self._place.errors(number), "ab") as errors:
            # The current directory is the trial's: `-m` searches it first, and no copy of the engine may hide another there.
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=self._place.directory,
                env=unprepared_environment(self._place),
            )
        self._pid = process.pid
        with _open_pidfd(process.pid) as descriptor:
            wait_readable(descriptor, DRIVER_SECS, f"driver {number} to end")
        code = process.wait()
        self.ends.append(Ended(number, code))
        return code

    def _wait_tracer(self) -> None:
        """Wait until strace has ended, and so has written all of its trace."""
        for pid in list_descendants(os.getpid(), self._oracle_pid):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it ended meanwhile
                if Path(f"/proc/{pid}/comm").read_text("utf-8", "replace") == "strace\n":
                    with _open_pidfd(pid) as descriptor:
                        wait_readable(descriptor, TRACER_SECS, "strace to end its trace")

    def _last_words(self, number: int) -> str:
        lines = self._place.errors(number).read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else "(nothing on stderr)"


def _trace(place: Place, command: Sequence[str], target: Pass | None) -> list[str]:
    tracer = find_tracer()
    if tracer is None:
        raise FileNotFoundError("strace is not installed; install the package strace")
    return build_command(tracer, str(trace_of(place)), command, target)


def _read(file: Path) -> str:
    """What a trace holds; "" when strace made none."""
    try:
        return file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def _open_pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
