"""The command: a campaign against somebody's program end to end, what it leaves behind, and what a mistake leads to."""

import ast
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import __main__ as command
from chaos import console
from chaos.options import Options, write_target_words
from chaos.planted.bug import Replace
from chaos.planted.plant import INSTALLED, plant
from chaos.target.place import make_environment, make_place
from chaos.target.target import CHECK as CHECK_ORACLE
from chaos.target.target import LIVENESS, PROCESSES
from chaos.target.workload import VIOLATIONS
from tests.chaos.syscalls.support import needs_strace
from tests.chaos.target.support import BAD_RECOVERY, CHECK, EXAMPLES, SOUND, TORN, TORN_CHECK, check, run_chaos, shell, target


def test_a_sound_target_is_killed_at_each_of_its_steps_and_passes(tmp_path: Path) -> None:
    done = run_chaos(tmp_path, *target(SOUND), *check(CHECK), "--seed", "3", "--depth", "1", "--json", "found.json")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    named = ["--target", shlex.join(shell(SOUND)), "--check", shlex.join(shell(CHECK))]
    repeat = shlex.join(["python", "-m", "chaos", "--depth", "1", *named, "--seed", "3"])
    text = done.stdout.strip()
    assert text.startswith(f"seed 3, repeat with: {repeat}") and text.endswith(f"seed 3, repeat with: {repeat}")
    assert "PASS" in lines
    summary = json.loads((tmp_path / "found.json").read_text())["summary"]
    assert (summary["runs"], summary["pass"], summary["kills"], summary["steps"], summary["killed"]) == (4, 4, 3, 3, 3)
    run = tmp_path / "run"
    files = {"config.json", "history.jsonl", "results.jsonl", "steps.jsonl", "verdict.json", "zygotes"}
    assert files <= {path.name for path in run.iterdir()}
    told = json.loads((run / "config.json").read_text())
    assert told["mode"] == "target" and told["scenarios"][0]["check"][1:] == ["-c", CHECK]


def test_a_torn_one_fails_with_the_command_that_repeats_that_kill(tmp_path: Path) -> None:
    done = run_chaos(tmp_path, *target(TORN), *check(TORN_CHECK), "--seed", "1", "--depth", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL target kill at driver@1:half:1" in done.stdout and "check: done holds 3 lines" in done.stdout
    start = done.stdout.index("  repeat    ") + len("  repeat    ")
    words = shlex.split(done.stdout[start : done.stdout.index("SCENARIO target")])
    assert words[:3] == ["python", "-m", "chaos"] and words[-6:] == ["--step", "driver@1:half:1", "--fault", "kill", "--seed", "1"]
    (tmp_path / "again").mkdir()
    assert run_chaos(tmp_path / "again", *words[3:]).returncode == 1
    report = subprocess.run(
        [sys.executable, "-m", "chaos", "report", "run"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(INSTALLED), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert report.returncode == 1 and "check: done holds 3 lines" in report.stdout


def test_a_campaign_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    words = [*target(SOUND), *check(CHECK), "--depth", "1"]
    assert run_chaos(tmp_path, *words, "--seed", "1", "--jobs", "1").returncode == 0
    run = tmp_path / "run"
    (run / "verdict.json").unlink()
    results = (run / "results.jsonl").read_text().splitlines(keepends=True)
    (run / "results.jsonl").write_text("".join(results[:-1]))
    refused = run_chaos(tmp_path, "--resume", "run", out="")
    assert refused.returncode == 254 and "of target, and no result says the same: lines are gone" in refused.stderr
    history = (run / "history.jsonl").read_text().splitlines(keepends=True)
    (run / "history.jsonl").write_text("".join(history[: max(at for at, line in enumerate(history) if '"trial ended"' in line)]))
    done = run_chaos(tmp_path, "--resume", "run", out="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"goes on: 1 clean runs and {len(results) - 2} trials have results" in done.stdout
    assert len((run / "results.jsonl").read_text().splitlines()) == len(results)


def test_the_start_after_a_kill_is_killed_too_and_what_breaks_only_then_is_found(tmp_path: Path) -> None:
    """One kill at any step is survived; a second one, inside the recovery from it, leaves the file twice as long."""
    whole = run_chaos(tmp_path, *target(BAD_RECOVERY), *check(CHECK), "--seed", "1", "--depth", "1")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    (tmp_path / "deep").mkdir()
    done = run_chaos(tmp_path / "deep", *target(BAD_RECOVERY), *check(CHECK), "--seed", "1", "--depth", "2", "--json", "found.json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads((tmp_path / "deep" / "found.json").read_text())
    plans = {one["plan"] for one in found["failures"]}
    assert plans == {"kill driver@1:end:1; kill driver@2:mended:1"}
    # After a kill at `begin` the next start passes both steps again, after one at `end` it passes `mended` alone.
    assert (found["summary"]["again"], found["summary"]["unreachable"]) == (3, 0)
    repeat = shlex.split(found["failures"][0]["repeat"])
    (tmp_path / "again").mkdir()
    assert run_chaos(tmp_path / "again", *repeat[3:]).returncode == 1


@needs_strace
def test_the_start_after_a_kill_is_killed_in_its_system_calls_too_and_what_breaks_only_then_is_found(tmp_path: Path) -> None:
    arguments = (*target(BAD_RECOVERY), *check(CHECK), "--level", "syscall", "--seed", "2", "--jobs", "2", "--runs", "8")
    for place in ("deep", "again", "once"):
        (tmp_path / place).mkdir()
    done = run_chaos(tmp_path / "deep", *arguments, "--json", "found.json")
    found = json.loads((tmp_path / "deep" / "found.json").read_text())
    assert done.returncode == 1, done.stdout + done.stderr
    plans = [one["plan"] for one in found["failures"]]
    assert plans and all("; kill driver@2:syscall." in plan for plan in plans)
    assert found["summary"]["again"] > len(plans), "others in the second start pass"
    repeated = run_chaos(tmp_path / "again", *shlex.split(found["failures"][0]["repeat"])[3:])
    assert repeated.returncode == 1 and plans[0].replace("; kill", ", kill at").removeprefix("kill ") in repeated.stdout, repeated.stdout
    once = run_chaos(tmp_path / "once", *arguments, "--depth", "1")
    assert once.returncode == 0, once.stdout + once.stderr


def test_a_kept_trial_is_replayed_and_told(tmp_path: Path) -> None:
    assert run_chaos(tmp_path, *target(TORN), *check(TORN_CHECK), "--seed", "1", "--depth", "1", "--json", "found.json").returncode == 1
    (failure,) = json.loads((tmp_path / "found.json").read_text())["failures"]
    done = run_chaos(tmp_path, "replay", failure["kept"], "--explain", out="")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DONE kill driver@1:half:1" in done.stdout and "STARTED 2: ended with 0, announced driver@2:half:1" in done.stdout
    assert "DIFFERS check (fail): done holds 3 lines" in done.stdout
    assert done.stdout.endswith("REPLAYED the same 2 starts; verdict then fail, now fail\n")
    kept = tmp_path / failure["kept"] / "trial.json"
    kept.write_text(kept.read_text().replace('"driver@2:half:1"', '"driver@2:other:1"'))
    done = run_chaos(tmp_path, "replay", failure["kept"], out="")
    assert (done.returncode, done.stdout.partition(":")[0]) == (1, "DIVERGED seq 2 target_started")
    for words in (("replay", failure["kept"], "--from-zero"), ("judge", failure["kept"]), ("shrink", failure["kept"])):
        refused = run_chaos(tmp_path, *words, out="")
        assert refused.returncode == 254 and refused.stderr.count("\n") == 1, refused.stdout + refused.stderr


def test_a_step_that_is_not_announced_is_refused_with_those_that_are(tmp_path: Path) -> None:
    done = run_chaos(tmp_path, *target(SOUND), *check(CHECK), "--step", "driver:haft:1", "--seed", "1", "--jobs", "1")
    assert done.returncode == 254
    those = "driver@1:begin:1, driver@1:half:1, driver@1:end:1"
    assert done.stderr == f"chaos: --step driver@1:haft:1: the clean run announces no such step; it announces {those}\n"


VACUOUS = {
    "the kill is removed": ("chaos/target/play.py", "        self._kill(pid, descriptor)\n", "", "not by the kill"),
    "the step is renamed": ("chaos/target/launch.py", 'Action(step, "kill")', 'Action(f"{step}7", "kill")', "did not fire"),
    "nobody judges": (
        "chaos/target/trial.py",
        "judged = checker.judge(place, len(played.ends), suspect=not trial.plan) if played.has_finished else ()",
        "judged = ()",
        "not judged by check",
    ),
}


@pytest.mark.parametrize(("file", "old", "new", "why"), VACUOUS.values(), ids=VACUOUS)
def test_a_harness_that_does_nothing_never_passes(tmp_path: Path, file: str, old: str, new: str, why: str) -> None:
    plant("vacuous", "harness", [Replace(file, old, new)], tmp_path / "copy")
    done = run_chaos(tmp_path, *target(SOUND), *check(CHECK), "--seed", "1", source=tmp_path / "copy")
    assert done.returncode == 2, done.stdout + done.stderr
    assert why in done.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--target", "no-such-program x"], "--target 'no-such-program x': there is no program 'no-such-program'; give its path"),
        (["--target", " "], "--target is empty"),
        (["--target", "sh 'x"], "no closing quotation; quote it as for a shell"),
        (["--target", "true", "--check", "no-such-check"], "--check 'no-such-check': there is no program"),
        (["--target", "true", "--kill", "half"], "--kill 'half' is neither of tree, main"),
        (["--target", "true", "--workload", "0"], "--workload 0 must be a number of steps from 1 to 1000"),
        (["--target", "true", "--workload", "2", "--check", "true"], "--workload has a judge of its own"),
        (["--target", "true", "--starts", "0"], "--starts 0 must be at least 1"),
        (["--target", "true", "--patience", "soon"], "--patience 'soon' is no duration"),
        (["--target", "true", "--mode", "soak"], "--mode belongs to campaigns against the engine"),
        (["--target", "true", "--fault", "freeze"], "--fault belongs to campaigns against the engine"),
        (["--target", "true", "--plan", "kill driver@1:a:1", "--level", "syscall"], "driver@1:a:1 is no system call of the first driver"),
        (
            ["--target", "true", "--plan", "kill driver@1:syscall.write:1; kill driver@2:syscall.read:1", "--level", "syscall"],
            "driver@2:syscall.read:1 is no system call of start 2 or one of its helpers; write ROLE@2:syscall.NAME.before:N",
        ),
        (["--target", "true", "--plan", "kill driver@2:a:1"], "'kill driver@2:a:1' is no kill at a step of start 1; a plan of a target is"),
        (["--target", "true", "--plan", "freeze driver@1:a:1"], "is no kill at a step of start 1"),
        (["--target", "true", "--plan", "kill driver@1:a:1", "--step", "driver:a:1"], "--plan is one whole trial and --step chooses"),
        (["--target", "true", "--audit", "2"], "--audit belongs to campaigns against the engine"),
        (["--target", "true", "--backend", "sim"], "--backend belongs to campaigns against the engine"),
        (["--check", "true"], "--check belongs to a program of somebody else's; name it with --target CMD"),
        (["--workload", "3"], "--workload belongs to a program of somebody else's"),
    ],
)
def test_a_mistake_is_one_sentence_and_254(
    arguments: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console.run(command.app, arguments) == 254
    said = capsys.readouterr()
    assert why in said.err and said.err.count("\n") == 1 and not said.out
    assert list(tmp_path.iterdir()) == []


def test_the_words_of_a_target_stand_before_what_chooses_a_trial() -> None:
    options = Options(target="sh 'a b'", check="true", kill="main", starts=2, patience="9s", runs=3)
    assert write_target_words("chaos --level syscall", options) == (
        "chaos --level syscall --target 'sh '\"'\"'a b'\"'\"'' --check true --kill main --starts 2 --patience 9s"
    )


def test_what_a_target_is_told_stands_in_the_readme(tmp_path: Path) -> None:
    readme = (INSTALLED / "chaos" / "README.md").read_text("utf-8")
    told = make_environment({}, make_place(tmp_path / "place"), 1, 3, "socket", frozenset({"driver@1:a:1"}))
    names = [name for name in told if not name.startswith("CRASHWORTHY_")]
    assert len(names) == 12 and [name for name in names if f"`{name}`" not in readme] == []
    assert [kind for kind in (*VIOLATIONS, LIVENESS, PROCESSES, CHECK_ORACLE) if f"`{kind}`" not in readme] == []


def test_the_helper_is_as_short_as_it_says_and_needs_nothing() -> None:
    helper = INSTALLED / "chaos" / "target" / "announce.py"
    tree = ast.parse(helper.read_text("utf-8"))
    assert {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names} == {"os", "socket", "sys"}
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert function.end_lineno is not None and function.end_lineno - function.lineno < 20
    assert (EXAMPLES / "crash_steps.py").read_bytes() == helper.read_bytes()
