"""The level at the command: a small campaign end to end, a bug it finds, and what it says where it is unavailable."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chaos import __main__ as command
from chaos import console
from chaos.options import Options, check_options, write_command
from chaos.planted.bug import Replace
from chaos.planted.plant import INSTALLED, plant
from chaos.syscalls import level as module
from chaos.syscalls.available import find_lack
from chaos.syscalls.calls import KIND_OF, KINDS, parse_aim
from chaos.syscalls.enumerate import DEFAULT_KILLS, NOT_DRAWN
from tests.chaos.syscalls.support import chaos_command, needs_strace, put_first

# Only a driver that finds its epoch itself meets this: the successor takes the epoch of the killed one, and is fenced for ever.
EPOCH_USED_TWICE = (Replace("recovery/driver/epoch.py", "issued_epoch(state)) + 1", "issued_epoch(state)) or 1"),)


def run_chaos(cwd: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    inherited = {**os.environ, "PYTHONPATH": str(INSTALLED), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    words = chaos_command("--level", "syscall", *arguments, "--out", "run")
    return subprocess.run(words, cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=1500, check=False)


def read_lines(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


@needs_strace
def test_a_small_campaign_kills_in_every_kind_of_call_and_passes(tmp_path: Path) -> None:
    done = run_chaos(tmp_path, "--runs", "6", "--seed", "7", "--jobs", "2", "--json", "verdict.json")
    assert done.returncode == 0, done.stdout + done.stderr
    repeat = "python -m chaos --mode ci --level syscall --runs 6 --seed 7"
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == f"seed 7, repeat with: {repeat}"
    assert "PASS" in lines and any(line.startswith("SUMMARY runs=7 pass=7 unknown=0 fail=0 kills=6 ") for line in lines)

    run = tmp_path / "run"
    summary = json.loads((tmp_path / "verdict.json").read_text())["summary"]
    assert (summary["runs"], summary["kills"], summary["killed"], summary["unkilled"]) == (7, 6, 6, [])
    assert summary["steps"] == summary["killed"] + summary["reasons"][NOT_DRAWN]
    (steps,) = read_lines(run, "steps.jsonl")
    assert (steps["trials"], len(steps["steps"])) == (6, summary["steps"])
    fired = [line["at"] for line in read_lines(run, "history.jsonl") if line["what"] == "fault fired" and line["signal"] == 9]
    assert len({KIND_OF[parse_aim(at).target.name] for at in fired}) == 6


@needs_strace
def test_a_bug_that_only_unprepared_drivers_meet_is_a_failure_with_a_command_that_repeats_it(tmp_path: Path) -> None:
    plant("epoch-used-twice", "engine", EPOCH_USED_TWICE, tmp_path / "engine")
    done = run_chaos(tmp_path, "--runs", "6", "--seed", "7", "--stop-after", "1", "--engine", "engine")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line for line in read_lines(tmp_path / "run", "results.jsonl") if line["verdict"] == "fail"]
    assert failed and all(line["trial"]["plan"] for line in failed)  # its clean run passes
    assert {(one["oracle"], one["verdict"]) for line in failed for one in line["oracles"]} >= {("liveness", "fail"), ("order", "fail")}
    step = min(failed, key=lambda line: line["trial"]["number"])["trial"]["plan"][0]["at"]
    repeats = [line for line in done.stdout.splitlines() if line.split()[:1] == ["repeat"]]
    assert any(f" --step {step} " in line and " --level syscall " in line and " --scenario append " in line for line in repeats), repeats


def test_where_it_is_unavailable_only_the_clean_run_is_made_and_the_lack_is_named(tmp_path: Path) -> None:
    path = put_first(tmp_path / "fake", "echo 'strace: ptrace(PTRACE_SEIZE, 1): Operation not permitted' >&2; exit 1")
    done = run_chaos(tmp_path, PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOTE syscall is unavailable here, no kill was made in a system call: strace cannot trace here" in done.stdout
    assert "Operation not permitted" in done.stdout and "SUMMARY runs=1 pass=1 unknown=0 fail=0 kills=0 " in done.stdout


def test_where_it_is_required_its_absence_is_unknown(tmp_path: Path) -> None:
    path = put_first(tmp_path / "fake", "exit 1")
    done = run_chaos(tmp_path, "--require", "syscall", PATH=path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "UNKNOWN" in done.stdout.splitlines()
    assert json.loads((tmp_path / "run" / "verdict.json").read_text())["verdict"] == "unknown"


def test_what_is_missing_is_named_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_lack() == "strace is not installed; install the package strace"


def test_a_strace_that_cannot_trace_is_named_by_its_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", put_first(tmp_path / "fake", "echo 'strace: invalid filter' >&2; exit 1"))
    assert "(strace: invalid filter); allow ptrace" in find_lack()


def test_levels_are_listed_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert console.run(command.app, ["list", "levels"]) == 0
    assert "(unavailable here: strace is not installed; install the package strace)" in capsys.readouterr().out
    assert console.run(command.app, ["list", "levels", "--json", "-"]) == 0
    assert [(row["level"], bool(row["unavailable"])) for row in json.loads(capsys.readouterr().out)] == [("step", False), ("syscall", True)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--level", "atom"], "unknown level 'atom'; there are step, syscall (chaos list levels tells more)"),
        (["--level", "syscall", "--fault", "freeze"], "--fault freeze: the level syscall only kills"),
        (["--level", "syscall", "--step", "driver:start:1"], "--step: driver@1:start:1 is no system call of the first driver"),
        (["--require", "hug"], "--require 'hug' is no fault; there are kill, exec, freeze"),
    ],
)
def test_a_mistake_is_one_sentence_and_254(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console.run(command.app, arguments) == 254
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_scenario_with_a_plan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = INSTALLED / "chaos" / "planted" / "scenarios" / "one-kill.toml"
    assert console.run(command.app, ["--level", "syscall", "--scenario", str(scenario)]) == 254
    assert "has a [[plan]], which the level syscall cannot play" in capsys.readouterr().err


def test_one_small_scenario_and_fifty_kills_are_the_default(tmp_path: Path) -> None:
    request = check_options(Options(level="syscall"), 1, 2, tmp_path)
    assert [scenario.name for scenario in request.scenarios] == ["all-roles"]
    assert (request.kills, request.limits.runs, request.is_traced) == (DEFAULT_KILLS, None, True)
    assert check_options(Options(level="syscall", runs=6), 1, 2, tmp_path).kills == 6
    assert not check_options(Options(), 1, 2, tmp_path).is_traced


def test_the_repeat_command_holds_level_and_requirement() -> None:
    options = Options(level="syscall", require="syscall", runs=6)
    assert write_command("chaos", options, 9) == "chaos --mode ci --level syscall --runs 6 --require syscall --seed 9"


@pytest.mark.parametrize("word", [*module.LEVELS, *KINDS, NOT_DRAWN, "--level", "--require F"])
def test_what_the_level_knows_by_name_stands_in_the_readme(word: str) -> None:
    text = (INSTALLED / "chaos" / "README.md").read_text("utf-8")
    assert f"`{word}" in text and "## Syscall level" in text
