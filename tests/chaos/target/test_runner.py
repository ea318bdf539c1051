"""One target, one kill: what is done to it, what it is told, and when a trial proves something."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chaos.results import Action, Recording, Trial, TrialResult, Verdict
from chaos.target import play
from chaos.target.client import TargetZygote
from chaos.target.place import TargetPlace
from chaos.target.target import ENTRY, NAME, Target
from tests.chaos.syscalls.support import needs_strace
from tests.chaos.target.support import CHECK, SOUND, TORN, TORN_CHECK, shell

HALF = "driver@1:half:1"
PATIENCE_SECS = 300.0
TARGET = Target(shell(SOUND), shell(CHECK), patience_secs=PATIENCE_SECS)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetZygote]:
    found = TargetZygote(TARGET, tmp_path_factory.mktemp("log") / "log")
    yield found
    found.close()


def record(runner: TargetZygote, target: Target, directory: Path) -> Recording:
    runner.target = target
    directory.mkdir()
    return runner.record_target(directory)


def kill(runner: TargetZygote, target: Target, directory: Path, *steps: str) -> TrialResult:
    runner.target = target
    directory.mkdir()
    return runner.run_target(Trial(1, NAME, tuple(Action(step, "kill") for step in steps), ENTRY), directory)


def of_script(script: str, check: str = CHECK, **more: object) -> Target:
    return msgspec.structs.replace(TARGET, command=shell(script), check=shell(check), **more)


def test_a_clean_run_records_its_steps_in_order(runner: TargetZygote, tmp_path: Path) -> None:
    recording = record(runner, TARGET, tmp_path / "trial")
    assert (recording.result.verdict, recording.result.reason) == (Verdict.PASS, "")
    assert recording.steps == ("driver@1:begin:1", HALF, "driver@1:end:1")


@pytest.mark.parametrize("step", ["driver@1:begin:1", HALF, "driver@1:end:1"])
def test_a_target_is_killed_at_its_step_and_started_again(runner: TargetZygote, tmp_path: Path, step: str) -> None:
    result = kill(runner, TARGET, tmp_path / "trial", step)
    assert (result.verdict, result.reason) == (Verdict.PASS, "")
    assert result.drivers == ((1, -9), (2, 0))
    (fault,) = result.faults
    assert (fault.at, fault.fired, fault.signal) == (step, True, 9)


def test_what_a_kill_leaves_wrong_is_a_failure_in_the_words_of_the_check(runner: TargetZygote, tmp_path: Path) -> None:
    result = kill(runner, of_script(TORN, TORN_CHECK), tmp_path / "trial", HALF)
    assert (result.verdict, result.reason) == (Verdict.FAIL, "check: done holds 3 lines")


def test_kills_follow_each_other(runner: TargetZygote, tmp_path: Path) -> None:
    result = kill(runner, TARGET, tmp_path / "trial", HALF, "driver@2:half:1", "driver@3:begin:1")
    assert (result.verdict, result.drivers) == (Verdict.PASS, ((1, -9), (2, -9), (3, -9), (4, 0)))


@needs_strace
def test_each_start_is_killed_in_a_system_call_of_its_own_and_the_one_after_is_recorded(runner: TargetZygote, tmp_path: Path) -> None:
    traced = msgspec.structs.replace(TARGET, is_traced=True)
    first = record(runner, traced, tmp_path / "first").steps[0]
    (tmp_path / "second").mkdir()
    recording = runner.record_target(tmp_path / "second", (Action(first, "kill"),))
    assert (recording.result.verdict, recording.result.reason) == (Verdict.PASS, "")
    assert recording.steps and all(step.startswith("driver@2:syscall.") for step in recording.steps)
    result = kill(runner, traced, tmp_path / "both", first, recording.steps[0])
    assert (result.verdict, result.drivers) == (Verdict.PASS, ((1, -9), (2, -9), (3, 0)))
    assert [(fault.at, fault.fired, fault.signal) for fault in result.faults] == [(first, True, 9), (recording.steps[0], True, 9)]
    never = kill(runner, traced, tmp_path / "never", first, "driver@2:syscall.fdatasync.before:99")
    assert never.verdict is Verdict.UNKNOWN and never.reason.startswith("did not fire: kill driver@2:syscall.fdatasync.before:99")


def test_a_driver_that_does_not_know_its_epoch_is_that_of_its_start_and_a_redriver_has_none() -> None:
    assert play.name_in_start("driver@0:floor.commit.before:1", 3) == "driver@3:floor.commit.before:1"
    assert play.name_in_start("driver@2:a:1", 3) == "driver@2:a:1" and play.name_in_start("redriver@0:a:1", 3) == "redriver@0:a:1"


def test_a_step_that_is_never_passed_makes_the_trial_unknown(runner: TargetZygote, tmp_path: Path) -> None:
    result = kill(runner, TARGET, tmp_path / "trial", "driver@1:renamed:1")
    assert result.verdict is Verdict.UNKNOWN and "did not fire: kill driver@1:renamed:1" in result.reason


def test_a_target_that_ends_before_its_second_kill_makes_the_trial_unknown(runner: TargetZygote, tmp_path: Path) -> None:
    result = kill(runner, TARGET, tmp_path / "trial", "driver@1:end:1", "driver@2:half:1")
    assert result.verdict is Verdict.UNKNOWN and "did not fire: kill driver@2:half:1" in result.reason


def test_a_tree_is_stopped_before_any_of_it_is_killed_and_with_main_one_process_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So none sees another die and does something about it, not even a child forked while the tree was looked at."""
    looks = iter([[11, 12], [11, 12, 13], [11, 12, 13]])
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(play, "list_descendants", lambda root, without: next(looks))
    monkeypatch.setattr(play.os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(play.signal, "pidfd_send_signal", lambda descriptor, number: sent.append((descriptor, number)))
    monkeypatch.setattr(play, "wait_readable", lambda *_: None)
    descriptor = 99
    play.TargetPlay(TARGET, TargetPlace(tmp_path), (), {})._kill(11, descriptor)
    assert sorted(sent[:3]) == [(11, signal.SIGSTOP), (12, signal.SIGSTOP), (13, signal.SIGSTOP)]
    assert sorted(sent[3:5]) == [(12, signal.SIGKILL), (13, signal.SIGKILL)] and sent[5:] == [(descriptor, signal.SIGKILL)]
    sent.clear()
    play.TargetPlay(msgspec.structs.replace(TARGET, kill="main"), TargetPlace(tmp_path), (), {})._kill(11, descriptor)
    assert sent == [(descriptor, signal.SIGKILL)]


def test_with_main_the_children_live_on(runner: TargetZygote, tmp_path: Path) -> None:
    """The child of the killed start goes on from its step and writes its file, though the second start never makes one."""
    script = '[ "$CHAOS_ATTEMPT" = 1 ] || { echo whole > done; exit 0; }; ("$CHAOS_ANNOUNCE" half; echo whole > late) & wait'
    for kind, lived in (("main", True), ("tree", False)):
        result = kill(runner, of_script(script, kill=kind), tmp_path / kind, HALF)
        assert (result.verdict, result.drivers) == (Verdict.PASS, ((1, -9), (2, 0)))
        assert (tmp_path / kind / "work" / "late").exists() == lived


def test_whoever_outlives_a_finished_target_is_a_failure(runner: TargetZygote, tmp_path: Path) -> None:
    recording = record(runner, of_script("echo whole > done; \"$CHAOS_ANNOUNCE\" end; sleep 3600 &", quiet_secs=0.5), tmp_path / "trial")
    assert recording.result.verdict is Verdict.UNKNOWN
    assert "is not right already: processes: processes [" in recording.result.reason


@pytest.mark.parametrize("kind", ["main", "tree"])
def test_what_a_check_leaves_running_is_no_process_of_the_next_trial(runner: TargetZygote, tmp_path: Path, kind: str) -> None:
    target = of_script(SOUND, "sleep 3600 > rest 2>&1 & " + CHECK, kill=kind, quiet_secs=0.5)
    results = [kill(runner, target, tmp_path / str(number), HALF) for number in range(2)]
    assert [(result.verdict, result.reason) for result in results] == [(Verdict.PASS, "")] * 2


def test_a_target_that_does_not_finish_is_a_failure_by_liveness(runner: TargetZygote, tmp_path: Path) -> None:
    script = '[ ! -e begun ] || { echo "begun before" >&2; exit 3; }; touch begun; "$CHAOS_ANNOUNCE" half; echo whole > done'
    result = kill(runner, of_script(script, starts=2), tmp_path / "trial", HALF)
    assert result.verdict is Verdict.FAIL
    assert result.reason == "liveness: not finished after 3 starts, which ended with [-9, 3, 3]: begun before"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (of_script("exit 7"), "the clean run ended with 7, not 0, so that nothing was killed: (nothing on stderr)"),
        (of_script("echo whole > done"), "the target announced no step; call step(NAME) of chaos.target.announce in it"),
        (of_script('echo half > done; "$CHAOS_ANNOUNCE" end'), "with nothing killed, is not right already: check: done is not whole"),
        (of_script(SOUND, "exit 0"), "the check is content with three empty directories too, so that it proves nothing"),
        (of_script(SOUND, "test -e done"), "the check is content with every file there and empty too, so that it proves nothing"),
        (of_script(SOUND, "grep -q wh done"), "the check is content with every file cut to its first half too, so that it proves nothing"),
        (of_script(SOUND, "exit 2"), "is not right already: check: the check ended with 2: (it said nothing)"),
        (of_script(SOUND, "echo what; exit 9"), "is not right already: check: the check ended with 9: what"),
        (of_script('"$CHAOS_ANNOUNCE" half', "true"), "left nothing in CHAOS_WORK, CHAOS_STATE and CHAOS_OUTSIDE"),
        (of_script('"$CHAOS_ANNOUNCE" "Half Way"; echo whole > done'), "announced 'driver@1:Half Way:1', which is no step"),
        (msgspec.structs.replace(TARGET, check=()), "nobody judges this target: CHAOS_STATE holds no log of this engine; give --check CMD"),
        (msgspec.structs.replace(TARGET, check=(), workload=2), "is not right already: step-lost: step 1 is not in witness"),
    ],
)  # fmt: skip
def test_a_clean_run_that_is_no_beginning_is_unknown_in_one_sentence(
    runner: TargetZygote, tmp_path: Path, target: Target, why: str
) -> None:
    recording = record(runner, target, tmp_path / "trial")
    assert recording.result.verdict is Verdict.UNKNOWN
    assert why in recording.result.reason


def test_what_is_kept_elsewhere_is_noticed_by_a_second_clean_run(runner: TargetZygote, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    script = f'echo whole > done; [ -e {elsewhere} ] || {{ touch {elsewhere}; "$CHAOS_ANNOUNCE" half; }}'
    recording = record(runner, of_script(script), tmp_path / "trial")
    assert recording.result.verdict is Verdict.UNKNOWN
    assert "a second clean run in fresh directories did not announce driver@1:half:1" in recording.result.reason


def test_a_target_is_told_its_directories_and_gets_nothing_else_of_the_harness(runner: TargetZygote, tmp_path: Path) -> None:
    script = f"{sys.executable} -I -S -c 'import json, os; print(json.dumps(dict(os.environ)))' > done"
    runner.target = of_script(script, is_judged=False)
    (tmp_path / "trial").mkdir()
    runner.run_target(Trial(1, NAME, (), ENTRY), tmp_path / "trial")
    place = tmp_path / "trial"
    told = json.loads((place / "work" / "done").read_text())
    names = {"WORK", "STATE", "OUTSIDE", "ATTEMPT", "ANNOUNCE", "STEP_TRACE", "STEP_SOCKET", "STEP_WAIT"}
    assert {name for name in told if name.startswith("CHAOS_")} == {f"CHAOS_{name}" for name in names}
    assert {name for name in told if name.startswith("SESSION_")} == {"SESSION_WORKSPACE", "SESSION_STATE_DIR", "SESSION_HOLDERS_DIR"}
    assert (told["CHAOS_WORK"], told["CHAOS_STATE"], told["CHAOS_ATTEMPT"]) == (str(place / "work"), str(place / "state"), "1")
    assert not {"LD_BIND_NOW", "MALLOC_ARENA_MAX"} & set(told)
