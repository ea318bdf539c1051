"""One trial of the syscall level through its real runner: a pass needs a kill that status and trace prove; all else is unknown."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.drivers import Place
from chaos.results import Action, Trial, Verdict
from chaos.scenario import load_scenario
from chaos.syscalls.calls import KIND_OF, KINDS, parse_aim
from chaos.syscalls.level import DEFAULT_SCENARIO
from chaos.syscalls.play import PROOF, unprepared_environment
from chaos.zygote_client import ProcessZygote, ZygoteError
from tests.chaos.syscalls.support import kill_at, needs_strace, put_first, start_runner, witnessed_scenario

STEP = "driver@1:syscall.pwrite64.before:2"
FIND_TRACE = 'while [ "$1" != -o ]; do shift; done; trace=$2; while [ "$1" != -- ]; do shift; done; shift'


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcessZygote]:
    runner = start_runner(tmp_path / "errors.txt")
    yield runner
    runner.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial"


def test_an_unprepared_driver_knows_nothing_of_the_harness(directory: Path) -> None:
    names = set(unprepared_environment(Place(directory)))
    assert not [name for name in names if name.startswith("CRASHWORTHY_")]
    assert {name for name in names if name.startswith("SESSION_")} <= {"SESSION_HOLDERS_DIR", "SESSION_KILL_MARK"}


@needs_strace
def test_a_clean_run_lists_the_calls_of_every_kind(runner: ProcessZygote, directory: Path) -> None:
    recording = runner.record(witnessed_scenario(), (), directory)
    assert recording.result.verdict is Verdict.PASS, recording.result.reason
    assert recording.result.drivers == ((1, 0),)
    assert {aim.role for aim in map(parse_aim, recording.steps)} == {"driver"}  # it has no gate, at which others could be attached to
    kinds = {KIND_OF[aim.target.name] for aim in map(parse_aim, recording.steps)}
    assert kinds == set(KINDS) - {"kill"}  # a driver whose commands end by themselves kills nobody
    assert len(set(recording.steps)) == len(recording.steps)
    assert not Place(directory / "driver").trace.exists()  # no step of the engine was traced
    assert recording.parts["kinds"][:2] == ["session_opened", "driver_started"] and recording.parts["kinds"][-1] == "session_finished"


@needs_strace
def test_a_kill_that_is_proved_passes_with_a_successor(runner: ProcessZygote, directory: Path) -> None:
    result = kill_at(runner, directory, STEP)
    assert result.verdict is Verdict.PASS, result.reason
    assert [(fault.at, fault.do, fault.fired, fault.signal) for fault in result.faults] == [(STEP, "kill", True, 9)]
    assert result.drivers == ((1, -9), (2, 0))
    assert {"workspace-equals-log", "chain", "order", "witness", "fencing", "reference"} <= {one.oracle for one in result.oracles}


@needs_strace
@pytest.mark.parametrize("step", ["shim.1@1:syscall.pwrite64.after:1", "worker@1:syscall.pwrite64.before:1"])
def test_a_helper_is_attached_to_at_the_gate_and_killed_and_the_place_in_the_log_is_told(
    step: str, runner: ProcessZygote, directory: Path
) -> None:
    trial = Trial(1, "all-roles", (Action(step, "kill"),), "syscall", "syscall")
    result = runner.run(load_scenario(DEFAULT_SCENARIO), trial, directory, {})
    assert result.verdict is Verdict.PASS, result.reason
    (fault,) = result.faults
    assert (fault.at, fault.fired, fault.signal) == (step, True, 9)
    assert fault.note.endswith(" attempt_started)") and parse_aim(step).target.moment in fault.note and " of ledger" in fault.note
    assert result.drivers[-1][1] == 0


@needs_strace
@pytest.mark.parametrize("count", [60000, 100000])  # strace takes ordinals up to 65535
def test_a_kill_that_did_not_happen_is_unknown_although_every_oracle_says_pass(count: int, runner: ProcessZygote, directory: Path) -> None:
    step = f"driver@1:syscall.pwrite64.before:{count}"
    result = kill_at(runner, directory, step)
    assert result.verdict is Verdict.UNKNOWN
    assert f"did not fire: kill {step}" in result.reason
    assert {one.verdict for one in result.oracles if one.oracle != PROOF} == {Verdict.PASS}
    assert [(fault.at, fault.fired) for fault in result.faults] == [(step, False)]


DIES_ELSEWHERE = (
    'printf \'pwrite64(6, ""..., 1, 0) = 1\\npwrite64(6, ""..., 1, 0) = 1\\n+++ killed by SIGKILL +++\\n\' > "$trace"; kill -9 $$'
)
DIES_EARLIER = "printf 'pwrite64(6) = ?\\n+++ killed by SIGKILL +++\\n' > \"$trace\"; kill -9 $$"
WRITES_NOTHING = "kill -9 $$"
CLAIMS_A_KILL = 'printf \'pwrite64(6) = 1\\npwrite64(6) = ?\\n+++ killed by SIGKILL +++\\n\' > "$trace"; exec "$@"'


@pytest.mark.parametrize(
    ("script", "first", "why"),
    [
        (DIES_ELSEWHERE, -9, "the trace ends outside of any call"),
        (DIES_EARLIER, -9, "the process died in its pwrite64 1, not in its pwrite64 2"),
        (WRITES_NOTHING, -9, "the trace does not say how the process ended"),
        (CLAIMS_A_KILL, 0, "the wait status is 0"),
    ],
    ids=["dies elsewhere", "dies earlier", "writes nothing", "claims a kill"],
)
def test_a_death_that_the_trace_does_not_show_in_the_call_is_unknown(
    script: str, first: int, why: str, tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", put_first(tmp_path / "fake", f"{FIND_TRACE}; {script}"))
    runner = start_runner(tmp_path / "errors.txt")
    result = kill_at(runner, directory, STEP)
    runner.close()
    assert result.verdict is Verdict.UNKNOWN
    assert why in result.reason and f"did not fire: kill {STEP}" in result.reason
    assert result.drivers[0] == (1, first) and result.drivers[-1][1] == 0
    assert {one.oracle for one in result.oracles if one.verdict is not Verdict.PASS} == {PROOF}


def test_without_strace_nothing_is_said_of_the_engine(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", link_tools(tmp_path / "bin"))
    runner = start_runner(tmp_path / "errors.txt")
    result = kill_at(runner, directory, STEP)
    runner.close()
    assert result.verdict is Verdict.UNKNOWN
    assert "strace is not installed; install the package strace" in result.reason


def test_a_trial_of_another_level_is_refused(runner: ProcessZygote, directory: Path) -> None:
    with pytest.raises(ZygoteError, match="'trial' for a trial of the kind 'fork' is no request of the syscall level"):
        runner.run(witnessed_scenario(), Trial(1, "small", ()), directory, {})


def link_tools(directory: Path) -> str:
    """A PATH of one directory with what scenarios need, and without strace."""
    directory.mkdir()
    for tool in ("bash", "sh"):
        (directory / tool).symlink_to(f"/bin/{tool}")
    return str(directory)
