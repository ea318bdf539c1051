"""One trial of the syscall level: an unprepared driver, it or one of its helpers killed in a system call; plain successors; the same judge.

Unprepared: the real command in a process of its own, no step socket, no variable of the harness, and no SESSION_EPOCH either: every
driver finds its epoch itself (rule L1). The first is `recovery run`; while there is no log its successors are that command again,
afterwards `recovery drive`. One process of the first one's is traced: itself from its start, or its spawner, file worker or first shim
from where a command of the scenario waits for its gate. Nothing of the successors is traced.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaos.drivers import Place, base_environment, noting_environment, session_toml
from chaos.judging import OracleProcess
from chaos.played import MOST_DRIVERS, QUIET_SECS, Played
from chaos.processes import end_everything, list_descendants
from chaos.results import Fault, OracleVerdict, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.saved import make_stage
from chaos.scenario import Scenario
from chaos.stage import Ended, left_behind, wait_until
from chaos.syscalls.calls import ROLES, Aim, format_aim, parse_aim
from chaos.syscalls.enumerate import ENTRY, FAULT, list_aims
from chaos.syscalls.inject import Pass
from chaos.syscalls.traced import Attached, run_traced
from chaos.trial import Bench, judge_trial, read_kill_mark, remove_cgroups

DRIVER_SECS = 300.0
"""Far above any driver, traced on a busy machine too: only one that hangs meets it."""
DRIVER = "driver"
KINDS = "kinds"
"""Among the parts of a recording: the kinds of the events of its log in order, so that a trial can name the next one."""
PROOF = "syscall-proof"
"""The name under which a kill that is not proved stands among the oracles: unknown, with the reason."""


def record_syscalls(bench: Bench, scenario: Scenario, directory: Path) -> Recording:
    """A clean traced run for each role that can be traced: the system calls passed in it, in order, and the worst of their verdicts."""
    steps: list[str] = []
    results: list[TrialResult] = []
    parts: dict[str, Any] = {}
    for role in list_roles(scenario):
        place = directory / role
        place.mkdir()
        trial = Trial(0, scenario.name, (), ENTRY, FAULT)
        result, passes, found = _run(bench, scenario, trial, place, role, {})
        steps += [format_aim(aim) for aim in list_aims(role, passes)]
        results.append(result)
        parts = parts or found
    worst = merge_verdicts([one.verdict for one in results])
    result = next(one for one in results if one.verdict is worst)
    mark = read_kill_mark(Place(directory / DRIVER))
    return Recording(scenario.name, tuple(steps), msgspec.structs.replace(result, final=results[0].final), mark, parts=parts)


def list_roles(scenario: Scenario) -> list[str]:
    """Whose calls can be traced: a helper is attached to while a command waits for the scenario's gate."""
    return list(ROLES) if scenario.gate else [DRIVER]


def run_syscall_trial(bench: Bench, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
    """Run and judge one trial of one kill in an empty directory. Never raises for what the engine does."""
    return _run(bench, scenario, trial, directory, parse_aim(trial.plan[0].at).role, converges_to)[0]


def _run(
    bench: Bench, scenario: Scenario, trial: Trial, directory: Path, role: str, converges_to: Mapping[str, Any]
) -> tuple[TrialResult, tuple[Pass, ...], dict[str, Any]]:
    began = time.monotonic()
    bench.reference(scenario, directory)
    place = make_stage(scenario, directory)
    known = dict(converges_to.get("parts") or {})
    played = SyscallPlay(scenario, trial, place, role, bench.oracle, known.pop(KINDS, []))
    played.run()
    done = Played(faults=played.faults, findings=played.findings, ends=played.ends, trouble=played.trouble)
    wanted = {"final": converges_to["final"], "parts": known} if known else {}
    result, judgement = judge_trial(bench, scenario, trial, place, done, began, wanted)
    parts = dict(judgement.final_parts or {})
    return result, played.passes, {**parts, KINDS: played.read_kinds()} if parts else {}


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
    """The trial in the making. `ends` counts drivers from 1 in place of epochs, which nobody but they themselves knows; `passes` are the
    traced calls; `clean` are the kinds of events of the clean run."""

    def __init__(self, scenario: Scenario, trial: Trial, place: Place, role: str, oracle: OracleProcess, clean: Sequence[str]) -> None:
        self._scenario = scenario
        self._aim = parse_aim(trial.plan[0].at) if trial.plan else None
        self._place = place
        self._role = role
        self._oracle = oracle
        self._clean = clean
        self._kinds: list[str] | None = None
        self.passes: tuple[Pass, ...] = ()
        self.faults: list[Fault] = []
        self.findings: list[OracleVerdict] = []
        self.ends: list[Ended] = []
        self.trouble = ""

    def run(self) -> None:
        """Play to the end; trouble of the harness is kept as a sentence."""
        try:
            self._place.session.write_text(session_toml(self._scenario, self._place), "utf-8")
            self._drive()
            with contextlib.suppress(TimeoutError):  # whoever is then still there is a finding
                wait_until(lambda: not left_behind(self._oracle.pid), QUIET_SECS, "every process of the trial to end")
        except TimeoutError as error:
            self.trouble = str(error)
        except OSError as error:
            self.trouble = f"{type(error).__name__}: {error}"
        left = end_everything(os.getpid(), self._oracle.pid)
        if left and not self.trouble:
            self.findings.append(OracleVerdict("processes", Verdict.FAIL, f"processes {left} outlived the session"))
        remove_cgroups(self._place)

    def read_kinds(self) -> list[str]:
        """The kinds of the events in the log, in order; none where it is not one yet. What is written meanwhile may be missing."""
        scratch = self._place.directory / "scratch-kinds"
        scratch.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # cut while it was made: the oracles judge that
            return [kind for _, kind in self._oracle.read_kinds(self._place.state / "log.sqlite", scratch, self._scenario.name)]
        return []

    def _drive(self) -> None:
        code = self._drive_traced() if self._role == DRIVER else self._drive_attached()
        while code == 1 or (code == -9 and len(self.ends) == 1):
            if len(self.ends) == MOST_DRIVERS:
                break
            code = self._run_plain(self._next_command())
        if code != 0:
            number = len(self.ends)
            detail = f"driver {number} ended with {code} and the session is not finished: {self._last_words(number)}"
            self.findings.append(OracleVerdict("liveness", Verdict.FAIL, detail))

    def _drive_traced(self) -> int:
        """The first driver, traced from its start."""
        self._open_gate()  # nobody else would open it for a command that waits
        target = self._aim.target if self._aim else None
        with open(self._place.output(1), "ab") as output, open(self._place.errors(1), "ab") as errors:
            ran = run_traced(
                self._run_command(), trace_of(self._place), target, cwd=self._place.directory,
                environment=unprepared_environment(self._place), output=output, errors=errors, seconds=DRIVER_SECS,
            )  # fmt: skip
        self.ends.append(Ended(1, ran.code))
        self._conclude(ran.pid, ran.passes, ran.doubt)
        return ran.code

    def _drive_attached(self) -> int:
        """The first driver, a helper of which is traced from where a command waits."""
        process = self._start(self._run_command())
        ready = self._place.outside / self._scenario.ready
        wait_until(lambda: ready.exists() or process.poll() is not None, DRIVER_SECS, f"a command to make {ready.name}")
        attached = Attached(self._find_helper(), trace_of(self._place), self._aim.target if self._aim else None)
        try:
            self._open_gate()

            def is_over() -> bool:
                if self._kinds is None and attached.is_held():
                    self._kinds = self.read_kinds()  # before the kill: the driver goes on as soon as it sees it
                has_helper_ended = attached.has_ended()  # asked first, and always: it kills who is held
                if has_helper_ended and self._kinds is None:
                    self._kinds = self.read_kinds()  # killed before its call: at once
                return has_helper_ended and process.poll() is not None

            wait_until(is_over, DRIVER_SECS, f"driver 1 and its {self._role} to end")
            passes, doubt = attached.read_proof()
        finally:
            attached.close()
        code = process.wait()
        self.ends.append(Ended(1, code))
        self._conclude(attached.pid, passes, doubt)
        return code

    def _find_helper(self) -> int:
        found = [pid for pid in list_descendants(os.getpid(), self._oracle.pid) if _read_name(pid) == ROLES[self._role]]
        if len(found) != 1:
            raise ProcessLookupError(f"{len(found)} processes, not one, are called {ROLES[self._role]!r} while the command waits")
        return found[0]

    def _conclude(self, pid: int, passes: tuple[Pass, ...], doubt: str) -> None:
        """What the trace says: a proved kill is a fault, else what is missing is a finding."""
        self.passes = passes
        if doubt:
            self.findings.append(OracleVerdict(PROOF, Verdict.UNKNOWN, doubt))
        elif self._aim is not None:
            self.faults.append(Fault(format_aim(self._aim), "kill", True, True, pid, 9, note=self._describe(self._aim, passes[-1])))

    def _describe(self, aim: Aim, last: Pass) -> str:
        """Where the kill fell: in the call, and in the log."""
        files = f" of {last.what}" if last.what else ""
        kinds = self.read_kinds() if self._kinds is None else self._kinds
        event = f"after event {len(kinds)} {kinds[-1]}" if kinds else "before the first event"
        following = f", before event {len(kinds) + 1} {self._clean[len(kinds)]}" if len(kinds) < len(self._clean) else ""
        return f"({aim.target.moment} {aim.target}{files}, {event}{following})"

    def _open_gate(self) -> None:
        if self._scenario.gate:
            (self._place.outside / self._scenario.gate).touch()

    def _run_command(self) -> list[str]:
        return [sys.executable, "-m", "recovery", "run", str(self._place.session)]

    def _next_command(self) -> list[str]:
        """The session file again while no log was made; else the state directory is all that a successor needs."""
        has_log = (self._place.state / "log.sqlite").exists()
        return [sys.executable, "-m", "recovery", "drive", str(self._place.state)] if has_log else self._run_command()

    def _run_plain(self, command: Sequence[str]) -> int:
        """Run one driver to its end; its exit code, or minus its signal. TimeoutError when it does not end."""
        number = len(self.ends) + 1
        process = self._start(command)
        wait_until(lambda: process.poll() is not None, DRIVER_SECS, f"driver {number} to end")
        self.ends.append(Ended(number, process.wait()))
        return process.wait()

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        number = len(self.ends) + 1
        with open(self._place.output(number), "ab") as output, open(self._place.errors(number), "ab") as errors:
            # The current directory is the trial's: `-m` searches it first, and no copy of the engine may hide another there.
            environment = unprepared_environment(self._place)
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=self._place.directory, env=environment
            )

    def _last_words(self, number: int) -> str:
        lines = self._place.errors(number).read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else "(nothing on stderr)"


def _read_name(pid: int) -> str:
    """The name that a process gives itself; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
