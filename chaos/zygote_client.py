"""A zygote seen from the campaign: ask it for a clean run or a trial, and learn when it is in trouble.

The protocol: one JSON object per line each way over the zygote's standard input and output, one answer per request, in order.

    {"op": "record", "scenario": S, "prefix": [Action ...], "directory": D}         -> {"recording": Recording}
    {"op": "trial", "scenario": S, "trial": T, "directory": D, "converges_to": {}}  -> {"result": TrialResult}
    {"op": "replay", ... as for a trial, "from_zero": false}                        -> {"result": TrialResult}, and D/trial.json
    anything that went wrong in the harness                                         -> {"error": "one sentence"}

D exists and is empty. Saved states are kept beside it, in D-saved, and are of use only for requests with the same D. A zygote ends
when its standard input does. Trouble is never a verdict on the engine: an answer `error` is ZygoteError (the zygote lives on), and
death, silence beyond the deadline or a line that is none of the above is ZygoteLostError.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from chaos.results import Action, Recording, Trial, TrialResult
from chaos.scenario import Scenario, to_json
from eventlog.errors import required

ANSWER_SECS = 120.0
"""Far above any trial (each has deadlines of its own in the zygote): only a zygote that hangs itself meets it."""


SHARED_BY_FORKS = {"LD_BIND_NOW": "1", "MALLOC_ARENA_MAX": "1"}
"""For the zygote's own start: symbols are bound and one arena is made before it forks, instead of by every fork for itself. Its drivers and
their commands get an environment of their own."""


class ZygoteError(Exception):
    """The harness could not do what was asked; the zygote lives."""


class ZygoteLostError(ZygoteError):
    """The zygote is gone, or no longer understood and therefore killed."""


class Zygote(Protocol):
    """What runs clean runs and trials. One request at a time; any of the two may raise ZygoteError or ZygoteLostError."""

    slot: int
    """Which of the zygotes at work it is, from 1."""

    def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
        """A run with nothing but `prefix` done to it in `directory`, which exists and is empty."""

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        """One trial in `directory`; `converges_to` are the parts of the final state it must end in, empty when not known."""

    def close(self) -> None:
        """End it and all it holds. Safe to repeat; never raises."""


class Simulator(Protocol):
    """What runs simulated trials (chaos/sim/runner.py has the requests); raises ZygoteError, ZygoteLostError."""

    def simulate(self, request: Mapping[str, Any]) -> tuple[Recording | None, tuple[TrialResult, ...]]:
        """The recording, where one was asked for, and results."""


class _Answer(msgspec.Struct, frozen=True):
    recording: Recording | None = None
    result: TrialResult | None = None
    results: tuple[TrialResult, ...] | None = None
    error: str | None = None


class ProcessZygote:
    """The zygote as a process that speaks the protocol. `log` is the file its standard error goes to."""

    def __init__(self, command: Sequence[str], log: Path, answer_secs: float = ANSWER_SECS, slot: int = 1) -> None:
        self.slot = slot
        self._log = log
        self._answer_secs = answer_secs
        self._pending = b""
        with log.open("ab") as errors:
            # A group of its own: Ctrl-C reaches the campaign only, which then ends its zygotes in order. No session of its own: its share
            # of the processor stays that of the campaign (sched(7), autogroup).
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,
                env={**os.environ, **SHARED_BY_FORKS},
            )

    def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
        request = {"op": "record", "scenario": to_json(scenario), "prefix": list(prefix), "directory": str(directory)}
        answer = self._ask(request)
        if answer.recording is None or answer.recording.prefix != tuple(prefix):
            raise self._lose("it answered a request for a clean run with something else")
        return answer.recording

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        request = {"op": "trial", "scenario": to_json(scenario), "trial": trial, "directory": str(directory), "converges_to": converges_to}
        answer = self._ask(request)
        if answer.result is None or answer.result.trial != trial:
            raise self._lose(f"it answered a request for trial {trial.number} with something else")
        return answer.result

    def replay(
        self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any], from_zero: bool = False
    ) -> TrialResult:
        """As `run`, and the transcript is written into `directory` whatever the verdict."""
        request = {"op": "replay", "scenario": to_json(scenario), "trial": trial, "directory": str(directory), "converges_to": converges_to}
        answer = self._ask(request | {"from_zero": from_zero})
        if answer.result is None:
            raise self._lose("it answered a request for a replay with something else")
        return answer.result

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def simulate(self, request: Mapping[str, Any]) -> tuple[Recording | None, tuple[TrialResult, ...]]:
        answer = self._ask(request)
        if answer.results is None:
            raise self._lose("it answered a request for simulated trials with something else")
        return answer.recording, answer.results

    def close(self) -> None:
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what could not be flushed has no reader any more
                    stream.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._kill()

    def _ask(self, request: Mapping[str, Any]) -> _Answer:
        requests = required(self._process.stdin, "a zygote was started without a pipe for its requests")
        try:
            requests.write(msgspec.json.encode(request) + b"\n")
            requests.flush()
        except (OSError, ValueError) as error:
            raise self._lose("it does not read its requests") from error
        line = self._read_line(time.monotonic() + self._answer_secs)
        try:
            answer = msgspec.json.decode(line, type=_Answer)
        except msgspec.DecodeError as error:
            raise self._lose(f"its answer is not understood: {error}") from error
        if answer.error is not None:
            raise ZygoteError(answer.error)
        return answer

    def _read_line(self, deadline: float) -> bytes:
        answers = required(self._process.stdout, "a zygote was started without a pipe for its answers")
        with selectors.DefaultSelector() as selector:
            selector.register(answers, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._lose(f"it did not answer within {self._answer_secs:g} s")
                received = os.read(answers.fileno(), 1 << 16)
                if not received:
                    raise self._lose("it ended")
                self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _lose(self, reason: str) -> ZygoteLostError:
        ended = self._wait_briefly() if reason == "it ended" else None
        if ended is None:
            self._kill()
        status = f" with status {ended}" if ended is not None else ""
        return ZygoteLostError(f"zygote {self._process.pid} is lost: {reason}{status}; {self._last_words()}")

    def _wait_briefly(self) -> int | None:
        try:
            return self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return None

    def _kill(self) -> None:
        if self._process.poll() is None:
            # Its group as well: what it forked and did not move elsewhere must not outlive it.
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended between the two calls
            self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return f"its last words: {lines[-1][:300]} ({self._log})" if lines else "it said nothing"


def zygote_command(engine: Path | None) -> list[str]:
    """The command of a zygote: isolated, without site, with every import directory given. `engine` is searched first."""
    home = Path(__file__).resolve().parent
    places = [str(engine)] if engine is not None else []
    places += [str(home.parent)]
    places += [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    command = [sys.executable, "-I", "-S", str(home / "zygote.py")]
    for place in dict.fromkeys(places):
        command += ["--path", place]
    return command
