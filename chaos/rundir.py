"""The run directory: all that a campaign leaves, in the order in which it is written (chaos/README.md has the fields).

    config.json     first, before any process starts: format, seed, the command that repeats the run, the scenarios themselves
    history.jsonl   one line per operation and per change of a fault (`chaos.history`)
    steps.jsonl     one line per set of trials: the steps of its clean run, the unreachable ones with their reasons, its number of trials
    results.jsonl   one `chaos.results.TrialResult` per line; clean runs are trial 0
    artifacts/      the directories of trials that did not pass, at most `KEPT` of them
    zygotes/        what each zygote wrote to its standard error
    verdict.json    last; a run without it was cut short

Written once, never changed. `chaos.results.RUN_FORMAT` is the version of all of it; readers refuse a newer one by name.
"""

import subprocess
import threading
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from chaos.actions import format_plan
from chaos.enumeration import Enumeration
from chaos.history import Clock, History
from chaos.results import RUN_FORMAT, TrialResult, Verdict
from chaos.scenario import Scenario, to_json
from eventlog.errors import MisuseError

KEPT = 20


class KnownLabel(msgspec.Struct, frozen=True):
    """A decision label of recovery; `acted_on` is false where it ends with a person in this version, `unreachable` says why no fault of a
    campaign leads to it."""

    label: str
    acted_on: bool
    unreachable: str = ""


class Config(msgspec.Struct, frozen=True):
    """What was asked for. `command` repeats the run; `program` is its first words; `arguments` is what `--scenario` takes for each
    scenario by name; `labels` are all decision labels that there are; times are Unix milliseconds."""

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
    labels: tuple[KnownLabel, ...] = ()
    format: int = RUN_FORMAT


class RunDirectory:
    """Writes one run directory. Used by one thread, but for `keep`."""

    def __init__(self, path: Path, config: Config, clock: Clock) -> None:
        """Make `path` and write the configuration; MisuseError when there is something at `path` or it cannot be made."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise MisuseError(f"{path}: is not empty; give --out a new directory, or leave it away")
        except OSError as error:
            raise MisuseError(
                f"{path}: cannot be the run directory: {error.strerror}; give --out a directory that can be written"
            ) from error
        self.path = path
        (path / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)) + b"\n")
        (path / "zygotes").mkdir()
        self.history = History(path / "history.jsonl", clock)
        self._steps = (path / "steps.jsonl").open("xb", buffering=0)
        self._results = (path / "results.jsonl").open("xb", buffering=0)
        self._kept = 0
        self._keeping = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.history.__exit__(kind, error, trace)
        self._steps.close()
        self._results.close()

    def add_steps(self, enumeration: Enumeration) -> None:
        """Record what the clean run of one set of trials passed and what was made of it."""
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
        self._steps.write(msgspec.json.encode(line) + b"\n")

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

    def add_result(self, result: TrialResult) -> None:
        """Record the end of one trial."""
        self._results.write(msgspec.json.encode(result) + b"\n")

    def finish(self, verdict: Verdict, reasons: Sequence[str], summary: Mapping[str, Any]) -> None:
        """Write the verdict: the last file of a run."""
        document = {"format": RUN_FORMAT, "verdict": verdict, "reasons": list(reasons), "summary": summary}
        (self.path / "verdict.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


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
    """The results that a run has so far. A last line without its end was cut by a crash and is left out."""
    file = path / "results.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    try:
        return [msgspec.json.decode(line, type=TrialResult) for line in lines]
    except msgspec.DecodeError as error:
        raise MisuseError(f"{file}: is damaged: {error}; run the campaign again") from error


def name_artifact(result: TrialResult) -> str:
    """The name of a trial's kept directory. Clean runs have no number of their own, but each has its own prefix."""
    number = str(result.trial.number) if result.trial.number else f"clean-{zlib.crc32(format_plan(result.trial.plan).encode()):08x}"
    return f"{result.trial.scenario}-{number}"


def describe_scenarios(scenarios: Sequence[Scenario]) -> tuple[dict[str, Any], ...]:
    """The scenarios as they stand in `config.json`."""
    return tuple(to_json(scenario) for scenario in scenarios)
