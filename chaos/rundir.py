"""The run directory: all that a campaign leaves, in the order in which it is written (chaos/README.md has the fields).

    config.json     first, before any process starts: format, seed, the command that repeats the run, the scenarios themselves
    history.jsonl   one line per operation and per change of a fault (`chaos.history`)
    steps.jsonl     one line per set of trials: the steps of its clean run, the unreachable ones with their reasons, its number of trials
    recordings.jsonl one `chaos.results.Recording` per line: the clean runs whole, for a campaign that goes on
    results.jsonl   one `chaos.results.TrialResult` per line; clean runs are trial 0. The lines of these three are sealed (`chaos.seal`)
    audit.jsonl     one `chaos.audit.Compared` per trial that was played twice
    artifacts/      the directories of trials that did not pass, at most `KEPT` of them
    zygotes/        what each zygote wrote to its standard error
    verdict.json    last; a run without it was cut short

Written once, never changed. `chaos.results.RUN_FORMAT` is the version of all of it; readers refuse a newer one by name.
"""

import contextlib
import fcntl
import os
import subprocess
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from chaos.actions import format_plan
from chaos.audit import Compared
from chaos.done import Done
from chaos.enumeration import Enumeration
from chaos.history import Clock, History
from chaos.results import RUN_FORMAT, Recording, TrialResult, Verdict
from chaos.scenario import Scenario, to_json
from chaos.seal import check_chain, seal_line
from eventlog.errors import MisuseError

KEPT = 20
Line = TypeVar("Line")


class KnownLabel(msgspec.Struct, frozen=True):
    """A decision label of recovery; `acted_on` is false where it ends with a person in this version, `unreachable` says why no fault of a
    campaign leads to it."""

    label: str
    acted_on: bool
    unreachable: str = ""


class Config(msgspec.Struct, frozen=True):
    """What was asked for. `command` repeats the run; `program` is its first words; `arguments` is what `--scenario` takes for each
    scenario by name; `options` are those that were typed; the digests are of the code that runs (`chaos.fingerprint`); `labels` are all
    decision labels that there are; times are Unix milliseconds."""

    seed: int
    mode: str
    command: str
    jobs: int
    started_ms: int
    scenarios: tuple[dict[str, Any], ...]
    program: str = "chaos"
    arguments: dict[str, str] = {}
    engine: str = ""
    project: str = ""
    python: str = ""
    unavailable: dict[str, str] = {}
    options: dict[str, Any] = {}
    engine_digest: str = ""
    harness_digest: str = ""
    labels: tuple[KnownLabel, ...] = ()
    format: int = RUN_FORMAT


class SealedFile:
    """Appends sealed lines (`chaos.seal`) to a file of a run directory, from its last one on. Used by one thread."""

    def __init__(self, directory: Path, name: str) -> None:
        self._seal = check_chain(directory, name)
        self._file = (directory / name).open("ab", buffering=0)

    def add(self, line: object) -> None:
        """One line: a struct or a mapping."""
        sealed, self._seal = seal_line(msgspec.json.encode(line), self._seal)
        self._file.write(sealed)

    def close(self) -> None:
        """Nothing is buffered."""
        self._file.close()


class RunDirectory:
    """Writes one run directory. Used by one thread, but for `keep`."""

    def __init__(self, path: Path, config: Config, clock: Clock, *, goes_on: Done | None = None) -> None:
        """Make `path` and write the configuration; MisuseError when there is something at `path`, it cannot be made, or another process
        writes there.

        With `goes_on` the run in `path`, which holds that much (`chaos.resume` has read it), is written on. The caller has it locked
        since before that was read (`lock_run`), and keeps it so.
        """
        self.path = path
        self._held = contextlib.ExitStack()
        if goes_on is None:
            with contextlib.ExitStack() as held:
                _make_new(path, config, held)
                self._held = held.pop_all()
        self.history = History(path / "history.jsonl", clock, goes_on.seconds if goes_on else 0.0)
        self._steps = SealedFile(path, "steps.jsonl")
        self._recordings = SealedFile(path, "recordings.jsonl")
        self._results = SealedFile(path, "results.jsonl")
        self._known_sets = goes_on.sets if goes_on else 0
        self._kept = len(list((path / "artifacts").iterdir())) if (path / "artifacts").is_dir() else 0
        self._keeping = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.history.__exit__(kind, error, trace)
        for file in (self._steps, self._recordings, self._results):
            file.close()
        self._held.close()

    def add_steps(self, enumeration: Enumeration) -> None:
        """Record what the clean run of one set of trials passed and what was made of it, once."""
        if self._known_sets:
            self._known_sets -= 1
            return
        line = {
            "scenario": enumeration.scenario,
            "steps": enumeration.steps,
            "unreachable": [{"step": one.step, "reason": one.reason} for one in enumeration.unreachable],
            "trials": len(enumeration.trials),
            "first": min((trial.number for trial in enumeration.trials), default=1),
            "kill_mark": enumeration.kill_mark,
            "before": format_plan(enumeration.prefix),
            "does": enumeration.does,
            "frozen": enumeration.frozen,
            "not_frozen": [{"step": one.step, "reason": one.reason} for one in enumeration.not_frozen],
        }
        self._steps.add(line)

    def keep(self, result: TrialResult, directory: Path) -> TrialResult:
        """Copy the directory of a trial that did not pass; returns the result with `kept` set. The first `KEPT` are kept.

        The processes of the trial are dead by now, so that its log may be copied by plain means. `cp -a` because it alone keeps hard links,
        FIFOs and every name; a copy that fails leaves its reason in `kept`.
        """
        with self._keeping:
            if self._kept >= KEPT or not directory.is_dir():
                return result
            self._kept += 1
        target = self.path / "artifacts" / name_artifact(result)
        target.parent.mkdir(exist_ok=True)
        done = subprocess.run(
            ["cp", "-a", "--", str(directory), str(target)], capture_output=True, text=True, errors="replace", check=False
        )
        kept = str(target) if done.returncode == 0 else f"{target} (incomplete: {done.stderr.strip()[:200]})"
        return msgspec.structs.replace(result, kept=kept)

    def add_recording(self, recording: Recording) -> None:
        """Record a clean run whole, so that a campaign that goes on need not make it again. Before its result."""
        self._recordings.add(recording)

    def add_compared(self, compared: Compared) -> None:
        """Record one comparison of the audit."""
        with (self.path / "audit.jsonl").open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(compared) + b"\n")

    def add_result(self, result: TrialResult) -> None:
        """Record the end of one trial."""
        self._results.add(result)

    def finish(self, verdict: Verdict, reasons: Sequence[str], summary: Mapping[str, Any]) -> None:
        """Write the verdict: the last file of a run."""
        document = {"format": RUN_FORMAT, "verdict": verdict, "reasons": list(reasons), "summary": summary}
        (self.path / "verdict.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def _make_new(path: Path, config: Config, held: contextlib.ExitStack) -> None:
    """Make the directory with its configuration, locked from before the first file stands in it on."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        held.enter_context(lock_run(path))
        if any(path.iterdir()):
            raise MisuseError(f"{path}: is not empty; give --out a new directory, or leave it away (--resume {path} goes on with a run)")
    except OSError as error:
        raise MisuseError(f"{path}: cannot be the run directory: {error.strerror}; give --out a directory that can be written") from error
    (path / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)) + b"\n")
    (path / "zygotes").mkdir()


@contextlib.contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """Hold the run directory: two campaigns that wrote one would be none. MisuseError names the process that has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _find_holder(descriptor)
            who = f"process {holder}" if holder else "another process"
            raise MisuseError(f"{path}: {who} runs a campaign there; wait for its end, or give another directory") from error
        yield
    finally:
        os.close(descriptor)


def _find_holder(descriptor: int) -> int:
    """The process that has the lock of an open directory, as the kernel lists it; 0 where that cannot be seen from here."""
    found = os.fstat(descriptor)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        lines = Path("/proc/locks").read_text("ascii").splitlines()
    except OSError:
        return 0
    held = (line.split()[1:6] for line in lines if " FLOCK " in line)
    return max(0, next((int(pid) for _, _, _, pid, where in held if where == place), 0))


def is_run(path: Path) -> bool:
    """Whether there is a run directory at `path`, whole or not."""
    return (path / "config.json").is_file()


def find_run(kept: Path) -> Path | None:
    """The run directory that holds a kept trial (its directory or its trial.json); None when it lies elsewhere."""
    return next((parent for parent in list(kept.resolve().parents)[:3] if is_run(parent)), None)


def read_config(path: Path) -> Config:
    """What was asked for. MisuseError when the run is of a newer format or damaged."""
    try:
        return msgspec.json.decode((path / "config.json").read_bytes(), type=Config)
    except (OSError, msgspec.DecodeError) as error:
        raise MisuseError(f"{path}: config.json cannot be read: {error}; give the directory that chaos printed") from error


def read_results(path: Path) -> list[TrialResult]:
    """The results that a run has so far."""
    return read_lines(path / "results.jsonl", TrialResult)


def read_lines(file: Path, kind: type[Line]) -> list[Line]:
    """The whole lines of a file; none when it is not there. A last line without its end was cut by a crash and is left out."""
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    try:
        return [msgspec.json.decode(line, type=kind) for line in lines]
    except msgspec.DecodeError as error:
        raise MisuseError(f"{file}: is damaged: {error}; run the campaign again") from error


def name_artifact(result: TrialResult) -> str:
    """The name of a trial's kept directory. Clean runs have no number of their own, but each has its own prefix."""
    number = str(result.trial.number) if result.trial.number else f"clean-{zlib.crc32(format_plan(result.trial.plan).encode()):08x}"
    return f"{result.trial.scenario}-{number}"


def describe_scenarios(scenarios: Sequence[Scenario]) -> tuple[dict[str, Any], ...]:
    """The scenarios as they stand in `config.json`."""
    return tuple(to_json(scenario) for scenario in scenarios)
