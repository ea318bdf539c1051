"""One run of a target: started, killed where the plan says, started again until it has finished.

A kill has fired only when the wait status of the process that was started shows signal 9. Everything below this process belongs to the
trial (it is a subreaper), so that the whole tree of a target is known, whatever left its group or session.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from chaos.processes import end_everything, list_descendants, wait_readable
from chaos.results import Action, Fault, OracleVerdict, Verdict
from chaos.stage import wait_until
from chaos.syscalls.calls import format_aim, parse_aim
from chaos.syscalls.enumerate import list_aims
from chaos.syscalls.inject import TraceError
from chaos.syscalls.traced import read_proof, run_traced
from chaos.target.place import TargetPlace, make_environment, short_address
from chaos.target.target import LIVENESS, PROCESSES, Target

DEATH_SECS = 60.0
LINE_SECS = 60.0


@dataclass(slots=True)
class TargetPlayed:
    """What happened: `ends` has the exit code, or minus the signal, of each start. `trouble` is the harness's own, or what kept a
    fault from being tried."""

    faults: list[Fault] = field(default_factory=list)
    findings: list[OracleVerdict] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    trouble: str = ""

    @property
    def has_finished(self) -> bool:
        """Whether the last start ended with 0."""
        return not self.trouble and self.ends[-1:] == [0]


@dataclass(frozen=True, slots=True)
class Announced:
    """A process waits at a step."""

    step: str
    connection: socket.socket

    def release(self) -> None:
        """Let it go on, if it lives."""
        with contextlib.suppress(OSError):  # dead by now
            self.connection.sendall(b"\0")
        self.connection.close()


class TargetPlay:
    """The run in the making. `plan` are kills, in the order in which their steps are passed; no process of `without` is the trial's. With
    `is_recorded` the start after the last kill is traced too, where the target is killed in system calls."""

    def __init__(
        self, target: Target, place: TargetPlace, plan: Sequence[Action], given: Mapping[str, str], without: int = 0, *,
        is_recorded: bool = False,
    ) -> None:  # fmt: skip
        self._target = target
        self._place = place
        self._left = list(plan)
        self._traced = (len(plan) + is_recorded) if target.is_traced else 0
        """The last start that is traced."""
        self._given = given
        self._without = without
        self._reached = ""
        self._played = TargetPlayed()

    def run(self) -> TargetPlayed:
        """Play to the end, and leave no process."""
        try:
            with short_address() as address, socket.socket(socket.AF_UNIX) as listener:
                listener.bind(address)
                listener.listen(64)
                self._start_until_finished(listener, address)
            self._wait_quiet()
        except TimeoutError as error:
            self._played.trouble = str(error)
        except OSError as error:
            self._played.trouble = f"{type(error).__name__}: {error}"
        left = end_everything(os.getpid(), self._without)
        if self._played.has_finished:
            names = f"processes {left} still ran {self._target.quiet_secs:g} s after the target had finished"
            self._played.findings.append(OracleVerdict(PROCESSES, Verdict.FAIL if left else Verdict.PASS, names if left else ""))
        return self._played

    def _start_until_finished(self, listener: socket.socket, address: str) -> None:
        """Start, and start again, until a start ends with 0 or there have been too many since the last kill."""
        starts = 0
        while starts < self._target.starts:
            kills = len(self._played.faults)
            if self._target.kill == "tree":
                end_everything(os.getpid(), self._without)
            try:
                code = self._start(listener, address)
            except TimeoutError as error:
                if self._left:
                    raise  # what was to be killed never came
                self._note_liveness(str(error))
                return
            self._played.ends.append(code)
            starts = 0 if len(self._played.faults) > kills else starts + 1
            if code == 0:
                self._played.findings.append(OracleVerdict(LIVENESS, Verdict.PASS))
                return
        ends = self._played.ends
        self._note_liveness(f"not finished after {len(ends)} starts, which ended with {ends}: {self._last_words()}")

    def _note_liveness(self, detail: str) -> None:
        self._played.findings.append(OracleVerdict(LIVENESS, Verdict.FAIL, detail))

    def _start(self, listener: socket.socket, address: str) -> int:
        """One start to its end; its exit code, or minus its signal. TimeoutError when it does not end."""
        number = len(self._played.ends) + 1
        armed = frozenset(action.at for action in self._left)
        is_traced = self._target.is_traced
        environment = make_environment(
            self._given, self._place, number, self._target.workload, address, armed, is_told=not is_traced
        )
        with self._place.output(number).open("ab") as output, self._place.errors(number).open("ab") as errors:
            if number <= self._traced:
                return self._start_traced(number, environment, output, errors)
            process = subprocess.Popen(
                self._target.command, cwd=self._place.work, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        descriptor = os.pidfd_open(process.pid)
        try:
            self._follow(process.pid, descriptor, listener, time.monotonic() + self._target.patience_secs)
        finally:
            os.close(descriptor)
        code = process.wait()
        if self._reached:
            has_fired = code == -signal.SIGKILL
            note = "" if has_fired else f"the target ended with {code}, not by the kill"
            self._played.faults.append(Fault(self._reached, "kill", True, has_fired, process.pid, max(0, -code), note=note))
            self._reached = ""
        return code

    def _start_traced(self, number: int, environment: Mapping[str, str], output: IO[bytes], errors: IO[bytes]) -> int:
        """A start of which only the started process is traced, and killed in a system call; what the trace proves is its fault."""
        action = self._left[0] if self._left else None
        ran = run_traced(
            self._target.command, self._place.strace(number), parse_aim(action.at, number).target if action else None, cwd=self._place.work,
            environment=environment, output=output, errors=errors, seconds=self._target.patience_secs, own_session=True,
        )  # fmt: skip
        if action is not None:
            self._left.pop(0)
            has_fired = not ran.doubt
            self._played.faults.append(Fault(action.at, "kill", has_fired, has_fired, ran.pid, max(0, -ran.code), note=ran.doubt))
        return ran.code

    def _follow(self, pid: int, descriptor: int, listener: socket.socket, deadline: float) -> None:
        """Until the process has ended: kill it where the plan says, let everybody else go on."""
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ, "announced")
            selector.register(descriptor, selectors.EVENT_READ, "ended")
            while True:
                ready = {key.data for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                if not ready:
                    what = f"start {len(self._played.ends) + 1} of the target to end"
                    where = f", killed at {self._left[0].at}" if self._left else ""
                    raise TimeoutError(f"waited {self._target.patience_secs:g} s for {what}{where}")
                if "announced" in ready:
                    # First: a process may wait at its step while the one that was started has ended.
                    self._deal_with(_accept(listener, len(self._played.ends) + 1), pid, descriptor)
                elif "ended" in ready:
                    return

    def _deal_with(self, announced: Announced, pid: int, descriptor: int) -> None:
        if not self._left or announced.step != self._left[0].at:
            announced.release()
            return
        self._left.pop(0)
        self._reached = announced.step
        self._kill(pid, descriptor)
        announced.release()

    def _kill(self, pid: int, descriptor: int) -> None:
        """SIGKILL the started process, or it and all it has started, and wait for its death."""
        if self._target.kill == "tree":
            self._kill_others(pid)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        wait_readable(descriptor, DEATH_SECS, f"the death of process {pid}")

    def _kill_others(self, pid: int) -> None:
        """SIGKILL everything but the started process. All are stopped first, so that nobody sees another die and does something about it;
        the started one dies after them, as the end of a stopped family's head would wake the others."""
        stopped: set[int] = set()
        while running := set(list_descendants(os.getpid(), self._without)) - stopped:
            for one in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGSTOP)
            stopped |= running
        for one in stopped - {pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)

    def _wait_quiet(self) -> None:
        with contextlib.suppress(TimeoutError):  # whoever is then still there is a finding
            quiet_secs = self._target.quiet_secs
            wait_until(lambda: not list_descendants(os.getpid(), self._without), quiet_secs, "every process of the target to end")

    def _last_words(self) -> str:
        lines = self._place.errors(len(self._played.ends)).read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else "(nothing on stderr)"


def read_passes(place: TargetPlace, start: int = 1, code: int = 0) -> tuple[str, ...]:
    """Where a start that was traced, killed by nobody and ended with `code`, can be killed in its system calls, as steps. TraceError when
    its trace is not whole."""
    passes, doubt = read_proof(place.strace(start), None, code)
    if doubt:
        raise TraceError(doubt)
    return tuple(format_aim(one) for one in list_aims("driver", passes, start))


def name_in_start(step: str, start: int) -> str:
    """A step under the number of its start, also where the process, a driver of this engine that finds its epoch itself, calls that 0."""
    return step if step.startswith("redriver@") else step.replace("@0:", f"@{start}:", 1)


def read_announced(place: TargetPlace, start: int = 1) -> tuple[str, ...]:
    """The steps that one start passed, in the order passed; none when nothing was announced."""
    try:
        lines = place.trace(start).read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(name_in_start(line.rpartition(" ")[0], start) for line in lines)


def _accept(listener: socket.socket, start: int) -> Announced:
    """Who announces itself now, in this start. What sends no whole line is let go."""
    connection, _ = listener.accept()
    connection.settimeout(LINE_SECS)
    text = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while b"\n" not in text and (received := connection.recv(4096)):
            text += received
    return Announced(name_in_start(text.decode("utf-8", "replace").strip().rpartition(" ")[0], start), connection)
