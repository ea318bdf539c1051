"""Power losses on real drivers: a recorded run has cuts, each cut has states, and nothing passes where none was tried."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.area import open_area
from chaos.planted.bug import load_bugs
from chaos.powerloss.enumerate import RUNNER, enumerate_cuts
from chaos.powerloss.syncs import find_syncs
from chaos.results import Action, Recording, Trial, TrialResult, Verdict
from chaos.scenario import Scenario
from chaos.zygote_client import ProcessZygote, ZygoteError, zygote_command
from recovery.script import BashCall
from tests.chaos.fakes import make_scenario

ROOT = Path(__file__).resolve().parents[3]
ANSWER_SECS = 900.0
WITNESSED = b"""printf '%s start\\n' "$CALL_KEY" >> "$WITNESS"; echo one >> one.txt; printf '%s end\\n' "$CALL_KEY" >> "$WITNESS" """
SCENARIO = make_scenario(calls=(BashCall(WITNESSED),), witnessed=(0,))


def start_runner(directory: Path, engine: Path | None = None) -> ProcessZygote:
    """A runner of power losses that says its errors in `directory`."""
    return ProcessZygote([*zygote_command(engine), "--runner", RUNNER], directory / "errors.txt", ANSWER_SECS)


def cut_at(step: str, scenario: Scenario = SCENARIO) -> Trial:
    return Trial(1, scenario.name, (Action(step, "cut"),), "power", "power", 0, 1)


class Bench:
    """A runner, and the one directory in which it records and plays."""

    def __init__(self, home: Path, engine: Path | None = None) -> None:
        self.home = home
        self.runner = start_runner(home, engine)

    def record(self) -> Recording:
        return self.runner.record(SCENARIO, (), self.empty())

    def cut(self, step: str) -> TrialResult:
        return self.runner.run(SCENARIO, cut_at(step), self.empty(), {})

    def empty(self) -> Path:
        directory = self.home / "trial"
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir()
        return directory


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_area() as area:  # where campaigns play: a sync of a real disk waits for what neighbours write
        found = Bench(area)
        yield found
        found.runner.close()


@pytest.fixture(scope="module")
def recording(bench: Bench) -> Recording:
    return bench.record()


def test_a_clean_run_passes_and_has_a_cut_at_each_kind_of_operation(recording: Recording) -> None:
    assert recording.result.verdict is Verdict.PASS, recording.result.reason
    kinds = {step.split(":")[1].split(".")[1] for step in recording.steps}
    assert kinds == {"sync", "syncfs", "name", "write", "truncate", "end"}
    who = {step.partition("@")[0] for step in recording.steps}
    assert who == {"driver", "spawner", "shim.1", "worker"}


def test_there_is_one_trial_for_each_cut(recording: Recording) -> None:
    made = enumerate_cuts(recording, 5, 7)
    assert [trial.plan for trial in made.trials] == [(Action(step, "cut"),) for step in recording.steps]
    assert {trial.seed for trial in made.trials} == {7} and made.trials[0].number == 5 and made.unreachable == ()


def test_every_sync_of_the_run_has_a_planted_bug_or_a_reason(recording: Recording) -> None:
    points = find_syncs([recording.steps], [bug.name for bug in load_bugs()])
    assert len(points) > 10
    assert [point.name for point in points if not point.bugs and not point.reason] == []


def find_last(recording: Recording, point: str) -> str:
    """The last cut of the driver at a point."""
    return next(step for step in reversed(recording.steps) if step.startswith(f"driver@1:cut.{point}:"))


def test_at_the_sync_of_an_outcome_every_state_is_recovered_from(bench: Bench, recording: Recording) -> None:
    step = find_last(recording, "sync.ledger")  # the outcome is acknowledged, the files of its command are not on disk
    result = bench.cut(step)
    assert result.verdict is Verdict.PASS, result.reason
    assert result.states > 0 and result.faults[-1].fired and result.faults[-1].at == step


def test_a_cut_that_the_run_does_not_come_by_is_unknown(bench: Bench, recording: Recording) -> None:
    result = bench.cut("driver@1:cut.sync.wal:999")
    assert result.verdict is Verdict.UNKNOWN and "came by driver@1:cut.sync.wal:999" in result.reason


def test_a_trial_of_another_kind_is_refused(bench: Bench, recording: Recording) -> None:
    with pytest.raises(ZygoteError, match="no request of a power loss"):
        bench.runner.run(SCENARIO, Trial(1, SCENARIO.name, ()), bench.empty(), {})


def test_an_engine_that_syncs_no_commit_fails(tmp_path: Path) -> None:
    """SQLite under synchronous=NORMAL does not sync the WAL of a commit: what was acknowledged is lost."""
    for package in ("eventlog", "recovery"):
        shutil.copytree(ROOT / package, tmp_path / "engine" / package, ignore=shutil.ignore_patterns("__pycache__"))
    module = tmp_path / "engine" / "eventlog" / "connection.py"
    sound = module.read_text("utf-8")
    changed = sound.replace('pragma("synchronous", "full")', 'pragma("synchronous", "normal")')
    changed = changed.replace('connection.pragma("synchronous") == 2', "True")
    assert changed != sound
    module.write_text(changed, "utf-8")
    with open_area() as area:
        weak = Bench(area, tmp_path / "engine")
        try:
            recording = weak.record()
            result = weak.cut(find_last(recording, "sync.ledger"))
        finally:
            weak.runner.close()
    assert result.verdict is Verdict.FAIL
    assert {one.oracle for one in result.oracles if one.verdict is Verdict.FAIL} & {"acknowledged", "lost-work"}
