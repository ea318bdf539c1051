"""The gate end to end, as a person runs it: `chaos` in a process of its own, on a few trials of one scenario.

Each run is a real campaign: real drivers, real kills, the real oracle. What is broken on purpose is broken in a copy.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.planted.bug import BUGS, Replace, load_bug
from chaos.planted.hunt import plant_bug
from chaos.planted.plant import INSTALLED, plant

STEP = "driver:outcome.commit.before:1"
LAST_STEP = "driver@1:outcome.commit.before:2"
# Two commands, killed from nothing at every step: in a copy of the packages and beside it the same file.
SCENARIO = str(INSTALLED / "chaos" / "planted" / "scenarios" / "two-commands.toml")
KILL = ("--scenario", SCENARIO, "--step", STEP, "--fault", "kill", "--seed", "7", "--jobs", "1")

# The last call's outcome is adopted without what the command did, and nobody looks again.
ADOPTED_BLINDLY = (
    Replace(
        "recovery/calls.py",
        "    found = capture_after_call(context, call.number)\n",
        "    found = capture_after_call(context, call.number)\n"
        "    found = Capture(found.scan, context.journal.state.root, (), ()) if label == Label.ADOPT_EXIT else found\n",
    ),
    Replace("recovery/driver/work.py", "    if found.differs:\n        observed", "    if found is None:\n        observed"),
    Replace(
        "recovery/driver/work.py",
        "        if not found.differs:\n            return found.root",
        "        if found is not None:\n            return found.root",
    ),
    Replace("recovery/gather.py", "        difference=difference,", "        difference=DifferenceFact.EQUAL,"),
)


def run_chaos(*arguments: str, cwd: Path, packages: Path = INSTALLED) -> "subprocess.CompletedProcess[str]":
    """`chaos ARGUMENTS` from the packages in a directory."""
    return run_command([sys.executable, "-m", "chaos", *arguments], cwd, packages)


def run_command(command: list[str], cwd: Path, packages: Path = INSTALLED) -> "subprocess.CompletedProcess[str]":
    """A command that finds the packages of a directory."""
    environment = {**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


def read_verdict(run: Path) -> dict[str, Any]:
    """The verdict of a run directory."""
    document: dict[str, Any] = json.loads((run / "verdict.json").read_text())
    return document


def read_lines(run: Path, name: str) -> list[dict[str, Any]]:
    """The lines of one file of a run directory."""
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def field(output: str, name: str) -> str:
    """One field of the trial that is shown in full."""
    found = re.search(rf"^  {name} +(.+)$", output, re.MULTILINE)
    assert found, f"no {name} in:\n{output}"
    return found[1]


def test_the_campaign_passes_on_a_reduced_selection(tmp_path: Path) -> None:
    done = run_chaos("--scenario", SCENARIO, "--step", STEP, "--seed", "7", "--jobs", "2", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == f"seed 7, repeat with: python -m chaos --mode ci --scenario {SCENARIO} --step {STEP} --seed 7"
    assert "PASS" in lines
    verdict = read_verdict(tmp_path / "run")
    assert (verdict["verdict"], verdict["reasons"]) == ("pass", [])
    summary = verdict["summary"]
    assert (summary["runs"], summary["pass"], summary["kills"], summary["exec"], summary["superseded"]) == (3, 3, 2, 1, 0)
    fired = [line for line in read_lines(tmp_path / "run", "history.jsonl") if line["what"] == "fault fired"]
    assert sorted((line["do"], line["signal"]) for line in fired) == [("kill", 9), ("kill", 9)]


def test_with_one_kill_removed_the_gate_turns_unknown(tmp_path: Path) -> None:
    plant_bug(load_bug(BUGS / "kill-removed.toml"), tmp_path)
    done = run_chaos(*KILL, "--out", "run", cwd=tmp_path, packages=tmp_path / "copy")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "UNKNOWN" in done.stdout.splitlines()
    assert "did not fire: kill driver@1:outcome.commit.before:1" in field(done.stdout, "reason")
    assert read_verdict(tmp_path / "run")["verdict"] == "unknown"


def test_a_failure_names_path_digest_event_and_a_command_that_reproduces_it(tmp_path: Path) -> None:
    plant("adopted-blindly", "engine", ADOPTED_BLINDLY, tmp_path / "engine")
    arguments = ("--scenario", SCENARIO, "--step", LAST_STEP, "--engine", str(tmp_path / "engine"), "--seed", "3", "--jobs", "1")
    done = run_chaos(*arguments, "--out", "run", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL" in done.stdout.splitlines()
    assert field(done.stdout, "oracle").startswith("workspace-equals-log: differs in content")
    assert field(done.stdout, "path") == "log.txt"
    expected, found = field(done.stdout, "expected"), field(done.stdout, "found")
    assert re.fullmatch(r"f 0644 size=\d+ content=[0-9a-f]{12,}", expected) and expected != found
    assert field(done.stdout, "event") == "4 call_settled call 1"
    assert (tmp_path / field(done.stdout, "kept") / "work" / "log.txt").is_file()

    repeat = shlex.split(field(done.stdout, "repeat"))
    assert repeat[:3] == ["python", "-m", "chaos"] and LAST_STEP in repeat
    again = run_command([sys.executable, *repeat[1:], "--jobs", "1", "--out", "again"], tmp_path)
    assert again.returncode == 1, again.stdout + again.stderr
    for name in ("path", "expected", "found", "event"):
        assert field(again.stdout, name) == field(done.stdout, name)


def test_misuse_is_one_sentence_and_254_and_leaves_nothing(tmp_path: Path) -> None:
    done = run_chaos("--mode", "nope", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (254, "")
    assert done.stderr.startswith("chaos: unknown mode 'nope'") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_harness_that_cannot_work_is_255_with_its_traceback_in_the_run_directory(tmp_path: Path) -> None:
    broken = (Replace("chaos/runner.py", "    bench = Bench(oracle)\n", "    raise SystemExit(3)\n"),)
    plant("zygote-dies", "harness", broken, tmp_path / "copy")
    done = run_chaos(*KILL, "--out", "run", cwd=tmp_path, packages=tmp_path / "copy")
    assert done.returncode == 255, done.stdout + done.stderr
    assert done.stderr.startswith("chaos: harness error: AllLostError: ")
    assert "AllLostError" in (tmp_path / "run" / "harness-error.txt").read_text()
    assert not (tmp_path / "run" / "verdict.json").exists()
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("seed", [1, 2])
def test_every_seed_runs_the_same_trials(seed: int, tmp_path: Path) -> None:
    arguments = ("--scenario", SCENARIO, "--step", STEP, "--jobs", "1", "--out", "run", "--seed", str(seed))
    assert run_chaos(*arguments, cwd=tmp_path).returncode == 0
    trials = [line["trial"] for line in read_lines(tmp_path / "run", "results.jsonl")]
    assert sorted((trial["entry"], *(action["do"] for action in trial["plan"])) for trial in trials) == [
        ("exec", "kill"),
        ("fork",),
        ("fork", "kill"),
    ]
