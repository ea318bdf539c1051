"""The mode `disk` at the command: a small campaign on real drivers, and a trial whose fault nothing meets."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.planted.plant import INSTALLED

PLANS = (
    'fail driver@1 "wal" "sync 4 EIO"',
    'fail driver@1 "ledger" "write 3 ENOSPC"',
    'fail driver@1 "state" "create 1 EROFS"',
    'kill shim.1@1:ended:1; fail driver@2 "restore" "write 1 ENOSPC"',
)


def run_chaos(cwd: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    inherited = {**os.environ, "PYTHONPATH": str(INSTALLED), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    words = [sys.executable, "-m", "chaos", "--mode", "disk", *arguments]
    return subprocess.run(words, cwd=cwd, env=inherited, capture_output=True, text=True, timeout=900, check=False)


def read_trials(run: Path) -> list[dict[str, Any]]:
    results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    return [one for one in results if one["trial"]["number"]]


def test_a_sample_of_faults_passes_and_every_one_was_met(tmp_path: Path) -> None:
    done = run_chaos(tmp_path, "--scenario", "disk-filled", "--runs", "12", "--seed", "5", "--jobs", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == "seed 5, repeat with: python -m chaos --mode disk --runs 12 --scenario disk-filled --seed 5"
    trials = read_trials(tmp_path / "run")
    assert len(trials) == 12 and all(one["trial"]["fault"] == "disk" and one["faults"][-1]["fired"] for one in trials)
    assert any(line.startswith("FAULTS ") and " disk=12 " in f"{line} " for line in lines)


def test_a_fault_that_nothing_meets_is_unknown(tmp_path: Path) -> None:
    plan = 'fail driver@1 "output" "write 1000 ENOSPC"'
    done = run_chaos(tmp_path, "--scenario", "disk-filled", "--plan", plan, "--seed", "5", "--jobs", "1", "--out", "run")
    assert done.returncode == 2 and "it came to its end without that operation" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "plan",
    [
        'fail driver@1 "restore" "rename 1 ENOSPC"',  # its change is made and its record is not
        'fail driver@1 "ledger" "write 6 ENOSPC"',  # the file worker cannot say that it is there
        'fail driver@1 "ledger" "write 10 ENOSPC"',  # a shim cannot say that it begins
        'kill shim.1@1:ended:1; fail driver@2 "state" "write 3 ENOSPC"',  # contents cannot be laid ready
    ],
)
def test_a_helper_without_room_for_its_record_says_so(plan: str, tmp_path: Path) -> None:
    """The driver tells of the room, and the next one goes on."""
    done = run_chaos(tmp_path, "--scenario", "disk-filled", "--plan", plan, "--seed", "5", "--jobs", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = read_trials(tmp_path / "run")
    (said,) = [one["detail"] for one in trial["oracles"] if one["oracle"] == "disk"]
    assert "room" in said or "No space" in said, said


@pytest.mark.soak
@pytest.mark.parametrize("plan", PLANS)
def test_one_trial_by_its_plan_passes(plan: str, tmp_path: Path) -> None:
    done = run_chaos(tmp_path, "--scenario", "disk-filled", "--plan", plan, "--seed", "5", "--jobs", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
def test_the_whole_mode_passes(tmp_path: Path) -> None:
    done = run_chaos(tmp_path, "--seed", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
