"""Any command, traced by strace and killed in one of its system calls. What `--level syscall` does to a driver, for programs of any make.

    clean = run_traced(["my-program"], Path("trace"), None, cwd=place)           # lists its calls: clean.passes, clean.doubt == ""
    killed = run_traced(["my-program"], Path("trace-2"), Target("fdatasync", 3, "after"), cwd=other_place)
    killed.doubt == ""                                                            # only then the kill is proved

The program needs to know nothing. One process is traced and killed, the command itself by its first thread; what it started runs on and is
the caller's to end. `chaos.syscalls.available.find_lack` says whether this machine can.
"""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from chaos.processes import read_death, read_stat
from chaos.stage import wait_until
from chaos.syscalls.available import find_tracer
from chaos.syscalls.calls import Target
from chaos.syscalls.inject import HELD, Pass, TraceError, build_attaching, build_command, find_doubt, parse_trace

RUN_SECS = 300.0
TRACER_SECS = 60.0
UNSEEN_SECS = 5.0
"""How long a trace is waited for whose tracer was never seen at work: it is about to write its last line, or it never traced."""


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A command that ended: its pid, its exit code or minus its signal, the calls it made that are killed in, and why its kill is not
    proved (of a run without a target: why its trace is not whole); "" when it is."""

    pid: int
    code: int
    passes: tuple[Pass, ...]
    doubt: str


def run_traced(
    command: Sequence[str],
    trace: Path,
    target: Target | None,
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | int | None = None,
    errors: IO[bytes] | int | None = None,
    seconds: float = RUN_SECS,
    own_session: bool = False,
) -> TracedRun:
    """Run `command` to its end, traced into the new file `trace`, killed at `target` unless that is None. Standard input is empty;
    `own_session` starts it as the head of a session.

    FileNotFoundError without strace, TimeoutError when the command does not end within `seconds` (it is left as it is), OSError when it
    cannot be started.
    """
    words = build_command(require_tracer(), str(trace), command, target)
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=cwd, env=environment, start_new_session=own_session
    )
    with contextlib.ExitStack() as closing:
        descriptor = closing.enter_context(_open_pidfd(process.pid))
        tracers: list[int] = []

        def has_ended() -> bool:
            if not tracers and (pid := _read_tracer(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    tracers.append(closing.enter_context(_open_pidfd(pid)))
            if is_held(trace, target):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                _kill_tracer(process.pid)
            return _is_readable(descriptor)

        wait_until(has_ended, seconds, f"{command[0]} to end")
        code = process.wait()
        _wait_whole(trace, tracers)
    return TracedRun(process.pid, code, *read_proof(trace, target, code))


def read_proof(trace: Path, target: Target | None, code: int | None) -> tuple[tuple[Pass, ...], str]:
    """The passes of an ended process that are killed in, and what is wanting as in `TracedRun.doubt`. `code` as in `find_doubt`."""
    try:
        read = parse_trace(read_text(trace))
    except TraceError as error:
        return (), str(error)
    passes = tuple(one for one in read.passes if one.counts)
    if target is not None:
        return passes, find_doubt(read, target, code)
    is_sound = read.end.startswith("exited with ") if code is None else read.end == f"exited with {code}"
    return passes, "" if is_sound else f"the trace of a clean run ends with {read.end!r}, its process with {code}"


class Attached:
    """strace attached to a process that need not be a child of this one: every call that it makes from now on is traced. The process must
    be idle. TimeoutError when strace does not come to it; ProcessLookupError when there is no such process."""

    def __init__(self, pid: int, trace: Path, target: Target | None) -> None:
        self.pid = pid
        self._trace = trace
        self._target = target
        self._code: int | None = None
        self._descriptor = os.pidfd_open(pid)
        said = trace.with_suffix(".attach")
        with said.open("wb") as errors:
            words = build_attaching(require_tracer(), str(trace), pid, target)
            self._tracer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=errors)
        wait_until(lambda: f"Process {pid} attached" in read_text(said), TRACER_SECS, f"strace to attach to process {pid}")

    def is_held(self) -> bool:
        """Whether strace holds the process after its target: nothing of it goes on, and who waits for it waits."""
        return self._code is None and is_held(self._trace, self._target)

    def has_ended(self) -> bool:
        """Whether the process has ended. Kills it where strace holds it after its target."""
        if self.is_held():
            self._code = self._kill_held()
        return _is_readable(self._descriptor)

    def read_proof(self) -> tuple[tuple[Pass, ...], str]:
        """Of the process, which has ended, what the function `read_proof` says. TimeoutError when strace does not end."""
        wait_until(lambda: self._tracer.poll() is not None, TRACER_SECS, "strace to end its trace")
        return read_proof(self._trace, self._target, self._code)

    def close(self) -> None:
        """Let go of the process, which goes on if it lives."""
        if self._tracer.poll() is None:
            self._tracer.terminate()  # strace then detaches
            self._tracer.wait(TRACER_SECS)
        os.close(self._descriptor)

    def _kill_held(self) -> int | None:
        """Kill the process that is held, then strace; minus the signal it died of, by the status that it left for its parent, which is
        stopped meanwhile so that it cannot take that away. None where somebody did."""
        parent = int((read_stat(self.pid) or ["", "0"])[1])
        stopped = parent if parent not in (0, 1, os.getpid()) else 0
        try:
            if stopped:
                os.kill(stopped, signal.SIGSTOP)
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
            self._tracer.kill()
            wait_until(lambda: _is_readable(self._descriptor), TRACER_SECS, f"the death of process {self.pid}")
            died = read_death(self.pid)
        finally:
            if stopped:
                os.kill(stopped, signal.SIGCONT)
        return -died if died else None


def require_tracer() -> str:
    """The path of strace; FileNotFoundError where there is none."""
    tracer = find_tracer()
    if tracer is None:
        raise FileNotFoundError("strace is not installed; install the package strace")
    return tracer


def read_text(file: Path) -> str:
    """What a file of strace's holds; "" when strace made none."""
    try:
        return file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _wait_whole(trace: Path, tracers: Sequence[int]) -> None:
    """Wait until strace has written all of its trace, or is gone. A process may have ended before its tracer was seen."""
    if tracers:
        wait_until(lambda: _is_readable(tracers[0]), TRACER_SECS, "strace to end its trace")
        return
    with contextlib.suppress(TimeoutError):  # what the trace then lacks is told as a doubt
        wait_until(lambda: read_text(trace).endswith(" +++\n"), UNSEEN_SECS, "strace to end its trace")


def is_held(trace: Path, target: Target | None) -> bool:
    """Whether strace holds the process after its target: it says so in its last line."""
    return target is not None and target.moment == "after" and read_text(trace).endswith(f"{HELD}\n")


def _kill_tracer(pid: int) -> None:
    """End the strace that holds a process for which SIGKILL has come: it would not let it die before the end of the delay."""
    tracer = _read_tracer(pid)
    if tracer:
        os.kill(tracer, signal.SIGKILL)


def _read_tracer(pid: int) -> int:
    """Who traces a process; 0 for nobody, or for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(status.partition("\nTracerPid:")[2].split()[0])


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


@contextlib.contextmanager
def _open_pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
