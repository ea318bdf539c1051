"""Recovery: `python -m benchmarks.recovery [--json FILE] [--quick] [--where DIR] [--calls N]`.

From a driver's death to the next driver's first step, under a warm and a cold redriver, beside a bare start of Python and a bare fork; the
decision for a session of many calls; a checkpoint of an unchanged tree, where `benchmarks.recovery_checkpoint` is there. Budgets stand
beside what is measured; a missed one is printed as such and fails nothing.
"""

import argparse
import contextlib
import importlib
import importlib.util
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.measure import Report, interleave
from benchmarks.recovery_log import make_session
from eventlog.ports import LinuxHost, SystemClock
from eventlog.reader import Reader
from recovery.fold_cache import FoldCache
from recovery.journal import only_stream, read_state
from recovery.opening import FOLD_CACHE_NAME, fold_cache_of, log_path
from recovery.plan import forecast
from recovery.redrive.record import load_record
from recovery.settings import read_settings
from recovery.space.identity import kill_and_wait

WARM_MS, COLD_MS, DECISION_MS = 10.0, 75.0, 200.0
REST_SECS = 1.0
"""Between looks at whether a warm redriver has its idle process ready."""
WAIT_SECS = 120.0
CALLS = 10_000


@dataclass(frozen=True)
class Place:
    """One session, in a directory of its own."""

    base: str

    @property
    def state(self) -> str:
        return os.path.join(self.base, "state")

    def write_session(self) -> str:
        """A session of one call that runs for as long as it is let; the file."""
        os.makedirs(os.path.join(self.base, "work"))
        file = os.path.join(self.base, "session.toml")
        Path(file).write_text('name = "bench"\nworkspace = "work"\nstate = "state"\n[[call]]\ntool = "bash"\nrun = "exec sleep 100000"\n')
        return file


def wait_for(find: Callable[[], object], what: str) -> None:
    """Until `find()` is true. Raises TimeoutError."""
    deadline = time.monotonic() + WAIT_SECS
    while not find():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_SECS:g} s for {what}")
        time.sleep(0.01)


class Deaths:
    """A redriver over one session, whose drivers are killed one after the other. Their first steps are told over the step socket."""

    def __init__(self, base: str, rounds: int, is_warm: bool) -> None:
        self._is_warm = is_warm
        self._deaths = 0
        self.place = Place(base)
        os.makedirs(base)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.path.join(base, "steps"))
        self._listener.listen(64)
        self._listener.settimeout(WAIT_SECS)
        told = " ".join(f"driver@{epoch}:start:1" for epoch in range(2, rounds + 20))
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SESSION_", "CRASHWORTHY_"))},
            "SESSION_HOLDERS_DIR": os.path.join(base, "holders"),
            "PYTHONPYCACHEPREFIX": os.path.join(base, "compiled"),  # a start is of code that has been compiled, as an installed one is
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._begin()
        watched = {"CRASHWORTHY_STEP_SOCKET": os.path.join(base, "steps"), "CRASHWORTHY_STEP_TELL": told}
        command = [sys.executable, "-m", "recovery", "redrive", self.place.state, "--backoff", "1e-6", "--attempts", "500"]
        self._redriver = subprocess.Popen(
            command + ([] if is_warm else ["--cold"]), env=self._environment | watched, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self._wait_step()

    def _begin(self) -> None:
        """The session, its driver killed in its call."""
        first = subprocess.Popen(
            [sys.executable, "-m", "recovery", "run", self.place.write_session()], env=self._environment, stdout=subprocess.DEVNULL
        )
        wait_for(lambda: _intents(self.place.state) > 0, "the first call")
        first.kill()
        first.wait()

    def _wait_step(self) -> float:
        """When the next driver told of its first step."""
        connection, _ = self._listener.accept()
        arrived = time.perf_counter()
        connection.recv(4096)  # closed before it was told, the step would be a broken pipe
        connection.close()
        return arrived

    def _wait_idle(self, driver: int) -> None:
        """Until whatever the redriver keeps ready has imported all that it will and waits: a busy machine takes its time for that."""
        time.sleep(REST_SECS)
        redriver = psutil.Process(self._redriver.pid)
        spent = -1.0
        while spent != (now := sum(sum(child.cpu_times()[:2]) for child in redriver.children() if child.pid != driver)):
            spent = now
            time.sleep(REST_SECS)

    def die(self) -> float:
        """Kill the driver; seconds until the next one's first step."""
        self._deaths += 1
        wait_for(lambda: len(load_record(self.place.state).attempts) >= self._deaths, "the newest attempt")
        epoch = load_record(self.place.state).attempts[-1].epoch
        wait_for(lambda: _size(os.path.join(self.place.state, "redrive", f"out-{epoch}")), f"the first word of driver {epoch}")
        driver = load_record(self.place.state).attempts[-1].driver
        self._wait_idle(driver.pid)
        if self._is_warm:
            wait_for(lambda: load_record(self.place.state).ready is not None, "the next start to be counted ahead")
        descriptor = os.pidfd_open(driver.pid)
        before = time.perf_counter()
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        passed = self._wait_step() - before
        os.close(descriptor)
        return passed

    def close(self) -> None:
        """End redriver, driver and command."""
        self._redriver.kill()
        self._redriver.wait()
        kill_and_wait(load_record(self.place.state).attempts[-1].driver, LinuxHost(), SystemClock(), 10.0)
        settle = [sys.executable, "-m", "recovery", "settle", self.place.state, "--processes-dead"]  # a takeover that ends the command
        subprocess.run(settle, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self._listener.close()


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _intents(state: str) -> int:
    if not os.path.exists(log_path(state)):
        return 0
    reader = Reader.open(log_path(state))
    try:
        return int(str(reader.rows("SELECT count(*) FROM event WHERE kind = 'attempt_started'")[0][0]))
    finally:
        reader.close()


def fork_bare() -> None:
    """A fork of this process that ends at once."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def start_python() -> None:
    """A Python that does nothing."""
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def bench_deaths(report: Report, base: str, rounds: int) -> None:
    """Warm and cold in turns, beside the bare starts."""
    with contextlib.ExitStack() as held:
        made = {name: _opened(held, os.path.join(base, name), rounds, name == "warm") for name in ("warm", "cold")}
        seconds: dict[str, list[float]] = {name: [] for name in made}
        for number in range(rounds + 1):
            for name, deaths in made.items():
                passed = deaths.die()
                if number:  # the first is not counted
                    seconds[name].append(passed)
        bare = interleave({"python -c pass": start_python, "fork": fork_bare}, max(10, rounds))
        report.compare("from a driver's death to the next one's first step", bare | seconds, "python -c pass", {})
    for name, budget in (("warm", WARM_MS), ("cold", COLD_MS)):
        report.figure(f"death to first step, {name}, p95", percentile(seconds[name], 0.95) * 1e3, "ms", budget)


def _opened(held: contextlib.ExitStack, base: str, rounds: int, is_warm: bool) -> Deaths:
    deaths = Deaths(base, rounds, is_warm)
    held.callback(deaths.close)
    return deaths


def percentile(values: list[float], share: float) -> float:
    """The least value that so many are at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def bench_decision(report: Report, base: str, calls: int, rounds: int) -> None:
    """Open, fold, gather and decide, as `recovery plan` does, which changes nothing."""
    state = os.path.join(base, "state")
    make_session(state, os.path.join(base, "work"), calls)
    found = forecast(state, LinuxHost(), lambda session: None, read_settings({}))
    subjects = {
        "a bare SELECT of the events": lambda: _select(state),
        "events verified": lambda: _events(state),
        "and folded": lambda: _fold(state, None),
        "folded from what the driver kept": lambda: _fold(state, fold_cache_of(state)),
        "decided, nothing kept": lambda: _decide_bare(state),
        "decided": lambda: forecast(state, LinuxHost(), lambda session: None, read_settings({})),
    }
    seconds = interleave(subjects, rounds, warm=1)
    report.compare(f"a session of {calls} calls, {2 * calls} events", seconds, "a bare SELECT of the events", {})
    label = "none" if found.label is None else found.label.value
    report.figure(f"decision ({label}), {calls} calls, least", min(seconds["decided"]) * 1e3, "ms", DECISION_MS)
    report.figure(f"decision ({label}), {calls} calls, p50", statistics.median(seconds["decided"]) * 1e3, "ms", DECISION_MS)
    report.figure(f"decision ({label}), {calls} calls, least, nothing kept", min(seconds["decided, nothing kept"]) * 1e3, "ms")


@contextlib.contextmanager
def _reading(state: str) -> Iterator[Reader]:
    reader = Reader.open(log_path(state))
    try:
        yield reader
    finally:
        reader.close()


def _select(state: str) -> int:
    with _reading(state) as reader:
        return len(reader.rows("SELECT seq, id, epoch, kind, version, payload, prev_hash, hash FROM event ORDER BY seq"))


def _events(state: str) -> int:
    with _reading(state) as reader:
        return sum(1 for _ in reader.events(only_stream(reader)))


def _fold(state: str, cache: FoldCache | None) -> object:
    with _reading(state) as reader:
        return read_state(reader, only_stream(reader), cache=cache)


def _decide_bare(state: str) -> object:
    """As where the kept fold is lost: it is moved away meanwhile."""
    kept = os.path.join(state, FOLD_CACHE_NAME)
    os.rename(kept, kept + ".away")
    try:
        return forecast(state, LinuxHost(), lambda session: None, read_settings({}))
    finally:
        os.rename(kept + ".away", kept)


def bench_checkpoint(report: Report, base: str, is_quick: bool) -> None:
    """What `benchmarks.recovery_checkpoint` measures, where it is there."""
    name = "benchmarks.recovery_checkpoint"
    if importlib.util.find_spec(name) is None:
        report.note("checkpoint of an unchanged tree", "not measured: there are no checkpoint stores in this version")
        return
    importlib.import_module(name).bench(report, base, is_quick)


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery")
    parser.add_argument("--json", default="", help="write the figures to this file too")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--where", default=None, help="the directory whose disk is measured")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of the long session")
    return parser.parse_args(list(arguments))


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    report = Report()
    report.note("machine", f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.where) as base:
        bench_decision(report, os.path.join(base, "long"), options.calls, 5 if options.quick else 15)
        bench_checkpoint(report, base, options.quick)
        bench_deaths(report, os.path.join(base, "deaths"), 5 if options.quick else 40)
    if options.json:
        report.write(options.json)
        print(f"\nwritten: {options.json}")


if __name__ == "__main__":
    main(sys.argv[1:])
