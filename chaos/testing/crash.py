"""Crash tests in a suite of your own: a tool is killed at a step it announces, started again until it has finished, then your test runs.

    from chaos.testing.crash import crash_everywhere, step

    def tool() -> None: ...                      # announces itself: step("half")

    @crash_everywhere(tool)
    def test_the_end_is_whole(crash_workspace): assert ...

A tool is a function of a module, called in a fresh interpreter, or a command. It runs in the workspace, with the environment of a target
(chaos/README, "Targets"). What must hold: a test body runs only after its kill has provably fired and the tool has finished; a tool that
announces nothing, a step that is not passed and a kill that does not fire make the test fail, by that word.
"""

import fcntl
import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from chaos.results import Action, Trial, TrialResult, Verdict
from chaos.step import format_step, parse_short_step
from chaos.target.announce import step
from chaos.target.client import TargetZygote
from chaos.target.options import parse_command
from chaos.target.place import TargetPlace
from chaos.target.target import DEFAULT_PATIENCE_SECS, DEFAULT_STARTS, ENTRY, NAME, Kill, Target
from chaos.testing.log import Log
from chaos.testing.plugin import MARK
from chaos.zygote_client import ZygoteError
from eventlog.errors import MisuseError

__all__ = ["Driver", "Tool", "crash_at", "crash_everywhere", "step"]

Tool = Callable[[], object] | str | Sequence[str]
Test = TypeVar("Test", bound=Callable[..., object])
Prepare = Callable[[Path], object]
CALLER = Path(__file__).resolve().with_name("call.py")
_RUNNER = pytest.StashKey[TargetZygote]()


@dataclass(frozen=True, slots=True)
class Instance:
    """One test's kill: at `at`, a full step; or `refusal`, why there is none. `name` is what the test is called."""

    name: str
    at: str = ""
    refusal: str = ""


def crash_at(
    at: str, tool: Tool, *, prepare: Prepare | None = None, kill: Kill = "tree", starts: int = DEFAULT_STARTS,
    patience_secs: float = DEFAULT_PATIENCE_SECS,
) -> Callable[[Test], Test]:  # fmt: skip
    """Run the test after `tool` was killed at the step `at`, as it announces it (`half`; `half:2` for its second pass).

    `prepare` fills the workspace before the first start. `kill`, `starts` and `patience_secs` mean what the options of `chaos --target` do.
    """
    return _mark(CrashTest(_make_target(tool, kill, starts, patience_secs), prepare, _full_step(at)))


def crash_everywhere(
    tool: Tool, *, prepare: Prepare | None = None, kill: Kill = "tree", starts: int = DEFAULT_STARTS,
    patience_secs: float = DEFAULT_PATIENCE_SECS,
) -> Callable[[Test], Test]:  # fmt: skip
    """Run the test once for each step that a clean run of `tool` announces, after it was killed there. As `crash_at` otherwise.

    The clean runs are made while tests are collected, once for all workers of pytest-xdist.
    """
    return _mark(CrashTest(_make_target(tool, kill, starts, patience_secs), prepare))


class Driver:
    """One tool, killed once: `workspace`, `state` and `outside` are its directories, `starts` how each start ended (exit code, or minus the
    signal), `log` what a tool on this engine has left."""

    def __init__(self, runner: TargetZygote, target: Target, kill: Instance, directory: Path) -> None:
        self._runner = runner
        self._target = target
        self._kill = kill
        self._place = TargetPlace(directory)
        self.starts: tuple[int, ...] = ()

    @property
    def workspace(self) -> Path:
        """Where it works."""
        return self._place.work

    @property
    def state(self) -> Path:
        """Where it keeps what it needs to go on."""
        return self._place.state

    @property
    def outside(self) -> Path:
        """For effects that nothing takes back."""
        return self._place.outside

    @property
    def log(self) -> Log:
        """The log of a tool on this engine."""
        return Log(self._place)

    def play(self) -> str:
        """Start, kill, start again; why nothing may be asserted now, "" when something may."""
        if self._kill.refusal:
            return f"unknown, nothing was killed: {self._kill.refusal}"
        self._place.directory.mkdir(parents=True)
        self._runner.target = self._target
        trial = Trial(1, NAME, (Action(self._kill.at, "kill"),), ENTRY)
        try:
            result = self._runner.run_target(trial, self._place.directory)
        except ZygoteError as error:
            return f"unknown, the harness is in trouble: {error}"
        self.starts = tuple(code for _, code in result.drivers)
        return _describe_trouble(result)

    def describe(self) -> str:
        """What was done, for the report of a test that fails."""
        where = self._kill.at or "no step"
        return f"killed at {where}; its starts ended with {list(self.starts)}; all it left is in {self._place.directory}"


@dataclass(frozen=True)
class CrashTest:
    """What a mark carries: the target, and where it is killed ("" for everywhere)."""

    target: Target
    prepare: Prepare | None
    at: str = ""
    prepared: dict[str, str] = field(default_factory=dict, compare=False)

    def list_kills(self, config: pytest.Config) -> list[Instance]:
        """The kills of a test, one for each of its instances; never none."""
        if self.at:
            return [Instance(_short(self.at), self.at)]
        steps, refusal = _record_once(config, self._prepared(config))
        return [Instance("clean-run", refusal=refusal)] if refusal else [Instance(_short(one), one) for one in steps]

    def make_driver(self, config: pytest.Config, kill: Instance, directory: Path) -> Driver:
        """What plays one instance in `directory`, which is made."""
        return Driver(_find_runner(config), self._prepared(config), kill, directory)

    def _prepared(self, config: pytest.Config) -> Target:
        """The target with its workspace as it is before the first start."""
        if self.prepare is None:
            return self.target
        if "seed" not in self.prepared:
            directory = Path(tempfile.mkdtemp(prefix="crash-seed-"))
            config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
            self.prepare(directory)
            self.prepared["seed"] = str(directory)
        return msgspec.structs.replace(self.target, seed=self.prepared["seed"])


def _mark(test: CrashTest) -> Callable[[Test], Test]:
    def decorate(function: Test) -> Test:
        marked: Test = getattr(pytest.mark, MARK)(test)(pytest.mark.usefixtures("crash_driver")(function))
        return marked

    return decorate


def _make_target(tool: Tool, kill: Kill, starts: int, patience_secs: float) -> Target:
    """The target that a tool is. MisuseError, when the test's module is imported, for what is none."""
    if callable(tool):
        command = _command_of(tool)
    else:
        command = parse_command("tool", tool) if isinstance(tool, str) else tuple(tool)
    return Target(command, kill=kill, starts=starts, patience_secs=patience_secs, is_judged=False)


def _command_of(function: Callable[[], object]) -> tuple[str, ...]:
    name, file = getattr(function, "__qualname__", ""), inspect.getsourcefile(function)
    if not name.isidentifier() or file is None:
        raise MisuseError(f"tool {function!r}: must be a function of a module, so that a fresh interpreter finds it; move it to the top")
    paths = [os.path.abspath(entry or ".") for entry in sys.path]
    return (sys.executable, str(CALLER), json.dumps(paths), os.path.abspath(file), name)


def _full_step(at: str) -> str:
    """The full name of a step: of the first start and the first pass, where it does not say."""
    named = at if "@" in at else f"driver:{at}"
    return format_step(parse_short_step(named if named.rpartition(":")[2].isdecimal() else f"{named}:1", "step"))


def _short(at: str) -> str:
    """A step as its tool announces it, with its pass where it is not the first."""
    _, _, rest = at.partition(":")
    return rest.removesuffix(":1")


def _describe_trouble(result: TrialResult) -> str:
    match result.verdict:
        case Verdict.PASS:
            return ""
        case Verdict.FAIL:
            return f"the tool does not survive a kill: {result.reason}"
        case Verdict.UNKNOWN:
            return f"unknown, nothing was proved: {result.reason}"


def _find_runner(config: pytest.Config) -> TargetZygote:
    """The runner of this pytest process, started when it is needed first; it is ended with the run."""
    if _RUNNER not in config.stash:
        directory = Path(tempfile.mkdtemp(prefix="crash-runner-"))
        runner = TargetZygote(Target(("true",)), directory / "errors")
        config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
        config.add_cleanup(runner.close)
        config.stash[_RUNNER] = runner
    return config.stash[_RUNNER]


def _record_once(config: pytest.Config, target: Target) -> tuple[tuple[str, ...], str]:
    """The steps of clean runs, or why there are none. All workers of a run must list the same tests: one of them records for all."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    if not run:
        return _record(config, target)
    shared = Path(tempfile.gettempdir()) / f"crash-recorded-{run}"
    shared.mkdir(mode=0o700, exist_ok=True)
    config.add_cleanup(lambda: shutil.rmtree(shared, ignore_errors=True))
    # A seed is made by each worker in a directory of its own.
    words = msgspec.json.encode(msgspec.structs.replace(target, seed=""))
    known = shared / hashlib.sha256(words).hexdigest()
    with known.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            steps, refusal = _record(config, target)
            known.write_text(json.dumps([steps, refusal]), "utf-8")
        found = json.loads(known.read_text("utf-8"))
    return tuple(found[0]), found[1]


def _record(config: pytest.Config, target: Target) -> tuple[tuple[str, ...], str]:
    runner = _find_runner(config)
    runner.target = target
    with tempfile.TemporaryDirectory(prefix="crash-clean-", ignore_cleanup_errors=True) as directory:
        try:
            recording = runner.record_target(Path(directory))
        except ZygoteError as error:
            return (), f"the harness is in trouble: {error}"
    if recording.result.verdict is not Verdict.PASS:
        return (), recording.result.reason
    return recording.steps, ""
