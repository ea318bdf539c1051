"""Replay: a kept trial is played again, what differs is named, what happened is told."""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.actions import parse_plan
from chaos.divergence import find_divergence
from chaos.explain import explain
from chaos.judge_again import conclude
from chaos.judging import Judgement
from chaos.planted.bug import BUGS, load_bug
from chaos.planted.hunt import plant_bug
from chaos.results import RUN_FORMAT, Alive, Fault, OracleVerdict, Trial, Verdict
from chaos.transcript import Transcript, read_transcript, write_transcript
from eventlog.errors import MisuseError
from tests.chaos.fakes import make_result
from tests.chaos.test_gate import SCENARIO, run_chaos

PLAN = parse_plan("kill driver@1:outcome.commit.before:1")


def make_transcript(events: list[dict[str, Any]], **more: Any) -> Transcript:
    """A transcript of one killed trial."""
    trial = Trial(1, "small", PLAN)
    return Transcript({"name": "small"}, make_result(trial, Verdict.FAIL, **more), events)


def event(seq: int, kind: str, **payload: Any) -> dict[str, Any]:
    """A readable event, as the oracle gives it."""
    return {"seq": seq, "epoch": 1, "kind": kind, "version": 1, "payload": payload, "changes": []}


def test_two_that_did_the_same_do_not_diverge() -> None:
    events = [event(1, "session_opened"), event(2, "driver_started")]
    assert find_divergence(make_transcript(events), make_transcript(events)) == ""


def test_the_first_differing_event_is_named_with_both_values() -> None:
    recorded = make_transcript([event(1, "call_settled", call=1, ended="finished")])
    replayed = make_transcript([event(1, "call_settled", call=1, ended="interrupted")])
    found = find_divergence(recorded, replayed)
    assert found.startswith("seq 1 call_settled: payload.ended") and "finished" in found and "interrupted" in found


def test_an_action_that_fired_in_one_only_is_named_before_any_event() -> None:
    replayed = make_transcript([event(1, "other")], fired=False)
    found = find_divergence(make_transcript([event(1, "session_opened")]), replayed)
    assert found == "action 1, kill driver@1:outcome.commit.before:1, fired when recorded, not now"


def test_an_explanation_tells_what_was_killed_known_decided_and_what_differs() -> None:
    differs = OracleVerdict("reference", Verdict.FAIL, "differs in content", "a.txt", "one", "two", "4 call_settled")
    decided = event(5, "recovery_decided", label="adopt_exit", call=1, attempt=1, facts={"attempt": "exit_clean"})
    lines = explain(make_transcript([event(2, "driver_started"), decided], oracles=(differs,), alive=(Alive(8, "shim.1", "shim"),)))
    text = "\n".join(lines)
    assert "DONE kill driver@1:outcome.commit.before:1 (pid 7, signal 9); alive then: shim.1 8" in text
    assert "KNEW attempt exit_clean" in text and "DECIDED adopt_exit for call 1 attempt 1 (seq 5)" in text
    assert "DIFFERS reference (fail): differs in content" in text and "a.txt" in text


def test_an_action_that_was_not_done_is_told_as_not_done() -> None:
    undone = make_transcript([])
    faults = (Fault(PLAN[0].at, "kill", False, False, note="the step was not reached"),)
    undone = msgspec.structs.replace(undone, result=msgspec.structs.replace(undone.result, faults=faults))
    assert "  NOT DONE kill driver@1:outcome.commit.before:1: the step was not reached" in explain(undone)


def test_a_transcript_survives_being_written_and_read(tmp_path: Path) -> None:
    transcript = make_transcript([event(1, "session_opened")])
    write_transcript(tmp_path, transcript)
    assert read_transcript(tmp_path) == read_transcript(tmp_path / "trial.json") == transcript


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read: No such file or directory; give the trial.json of a kept trial"),
        ("{}", "is no transcript of a trial"),
        ("not JSON", "is no transcript of a trial"),
        (f'{{"format": {RUN_FORMAT + 1}}}', f"has format {RUN_FORMAT + 1}, this version reads up to {RUN_FORMAT}"),
    ],
)
def test_what_is_no_transcript_is_refused_in_one_sentence(text: str | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "trial.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(MisuseError, match=sentence):
        read_transcript(file)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `engine`, a copy with a bug, and `run`, in which a trial on it failed and was kept."""
    home = tmp_path_factory.mktemp("failed")
    plant_bug(load_bug(BUGS / "adopted-without-scan.toml"), home)
    arguments = ("--scenario", SCENARIO, "--step", "driver:outcome.commit.before:1", "--fault", "kill", "--seed", "1", "--jobs", "1")
    done = run_chaos(*arguments, "--engine", "copy", "--out", "run", cwd=home)
    assert done.returncode == 1, done.stdout + done.stderr
    return home


def find_kept(home: Path) -> str:
    """The one kept trial."""
    (kept,) = (home / "run" / "artifacts").glob("*/trial.json")
    return str(kept)


def replay(home: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """`chaos replay` of the kept trial."""
    return run_chaos("replay", find_kept(home), *options, cwd=home)


@pytest.mark.parametrize("options", [(), ("--from-zero",)])
def test_a_failed_trial_fails_again_on_the_same_engine(options: tuple[str, ...], failed: Path) -> None:
    done = replay(failed, "--engine", "copy", "--explain", *options)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("REPLAYED the same ") and lines[-1].endswith("verdict then fail, now fail")
    assert any(line.startswith("DIFFERS laundering (fail)") for line in lines)
    assert any("DONE kill driver@1:outcome.commit.before:1 (pid " in line for line in lines)
    assert any("DECIDED adopt_exit for call 1 attempt 1" in line for line in lines)


def test_a_kept_trial_is_judged_again_wherever_it_lies_and_nothing_of_it_is_changed(failed: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    subprocess.run(["cp", "-a", str(Path(find_kept(failed)).parent), str(moved)], check=True)
    before = list_times(moved)
    done = run_chaos("judge", str(moved), "--json", "-", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    judged, then = json.loads(done.stdout), read_transcript(moved).result
    assert (judged["verdict"], judged["digest"], judged["final"]) == ("fail", then.digest, then.final)
    said = [(one["oracle"], one["verdict"]) for one in (*judged["oracles"], *judged["recorded"])]
    assert said == [(one.oracle, one.verdict.value) for one in then.oracles] and ("liveness", "pass") in said
    assert list_times(moved) == before
    (moved / "work" / "log.txt").write_text("other")
    again = run_chaos("judge", str(moved), cwd=tmp_path)
    assert again.returncode == 1 and "workspace-equals-log  fail" in again.stdout
    assert "DIGEST " + then.digest + ", as when it was played" in again.stdout


def list_times(directory: Path) -> dict[str, int]:
    """When each file was changed last."""
    return {str(file): file.lstat().st_mtime_ns for file in directory.rglob("*")}


def test_what_the_runner_alone_saw_is_no_pass_when_it_is_judged_again() -> None:
    passed = Judgement((OracleVerdict("chain", Verdict.PASS),), digest="d")
    dead = make_transcript([], oracles=(OracleVerdict("chain", Verdict.PASS), OracleVerdict("liveness", Verdict.FAIL)))
    assert conclude(Path("x"), dead, passed).verdict is Verdict.FAIL
    unfired = make_transcript([], oracles=(OracleVerdict("chain", Verdict.PASS),), fired=False)
    assert conclude(Path("x"), unfired, passed).verdict is Verdict.UNKNOWN
    sound = make_transcript([], oracles=(OracleVerdict("chain", Verdict.FAIL),))
    assert conclude(Path("x"), sound, passed).verdict is Verdict.PASS
    assert conclude(Path("x"), sound, Judgement()).verdict is Verdict.UNKNOWN


def test_on_a_sound_engine_it_diverges_and_says_where(failed: Path) -> None:
    done = replay(failed)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].startswith("DIVERGED seq ")
    assert "verdict then fail, now pass" in done.stdout


def test_a_file_that_is_not_there_is_one_sentence_and_254(tmp_path: Path) -> None:
    done = run_chaos("replay", "nothing.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (254, "")
    assert done.stderr.startswith("chaos: nothing.json: cannot be read") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("entry", "plan", "command"),
    [
        ("syscall", "kill driver@1:syscall.pwrite64:7", "chaos --level syscall --scenario small --step driver@1:syscall.pwrite64:7"),
        ("power", "cut driver@1:cut.sync.wal:3", "chaos --mode powerloss --seed 5 --scenario small --step driver@1:cut.sync.wal:3"),
        ("copy", "cut driver@1:copy.ext4.sync.wal:3", "chaos --mode crosscheck --scenario small --step driver@1:copy.ext4.sync.wal:3"),
    ],
)
def test_a_trial_that_only_its_campaign_can_play_is_refused_with_the_command_that_repeats_it(
    tmp_path: Path, entry: str, plan: str, command: str
) -> None:
    transcript = make_transcript([])
    trial = Trial(1, "small", parse_plan(plan), entry, entry, seed=5)
    result = msgspec.structs.replace(transcript.result, trial=trial)
    write_transcript(tmp_path, msgspec.structs.replace(transcript, result=result))
    done = run_chaos("replay", "trial.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (254, "")
    assert f"repeat it with `{command}`" in done.stderr
