"""The mode `corrupt` at the command: a small campaign, one trial by its plan, what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.options import Options, check_options
from chaos.planted.plant import INSTALLED
from eventlog.errors import MisuseError
from reports.damage import render_damage
from reports.load import load_run

SMALL = """
name = "small"
on_interrupted = "reissue"
witnessed = [0, 1]
[[trials]]
before = "kill driver@1:outcome.commit.before:2"
[[call]]
tool = "bash"
run = '''
printf '%s start\\n' "$CALL_KEY" >> "$WITNESS"; seq 1 300 > numbers.txt; printf '%s end\\n' "$CALL_KEY" >> "$WITNESS"
'''
[[call]]
tool = "bash"
run = '''
printf '%s start\\n' "$CALL_KEY" >> "$WITNESS"; tac numbers.txt > other.txt; printf '%s end\\n' "$CALL_KEY" >> "$WITNESS"
'''
"""


def run_chaos(cwd: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    inherited = {**os.environ, "PYTHONPATH": str(INSTALLED), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    words = [sys.executable, "-m", "chaos", "--mode", "corrupt", *arguments]
    return subprocess.run(words, cwd=cwd, env=inherited, capture_output=True, text=True, timeout=600, check=False)


def read_results(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]


def test_a_small_campaign_passes_counts_by_file_and_kind_and_repeats_a_trial_by_its_plan(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    done = run_chaos(tmp_path, "--scenario", "./small.toml", "--runs", "12", "--seed", "5", "--jobs", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == "seed 5, repeat with: python -m chaos --mode corrupt --runs 12 --scenario ./small.toml --seed 5"
    results = [one for one in read_results(tmp_path / "run") if one["trial"]["number"]]
    assert len(results) == 12 and all(one["trial"]["fault"] == "corrupt" and one["faults"][-1]["fired"] for one in results)
    damage = [line for line in lines if line.startswith("DAMAGE ")]
    assert damage == render_damage(load_run(tmp_path / "run").results)
    assert sum(int(line.partition("trials=")[2].partition(" ")[0]) for line in damage) == 12

    plan = 'kill driver@1:outcome.commit.before:2; corrupt "ledger" "zero 0 512"'
    again = run_chaos(tmp_path, "--scenario", "./small.toml", "--plan", plan, "--seed", "5", "--jobs", "1", "--out", "again")
    assert again.returncode == 0, again.stdout + again.stderr
    (one,) = [one for one in read_results(tmp_path / "again") if one["trial"]["number"]]
    assert one["labels"] == {"ledger_damaged": 1} or "ledger_damaged" in one["labels"], one
    assert [said["detail"][:8] for said in one["oracles"] if said["oracle"] == "damage"] == ["detected"]

    nothing = run_chaos(tmp_path, "--scenario", "./small.toml", "--plan", plan.replace("zero 0 512", "cut 0"), "--jobs", "1", "--out", "no")
    assert nothing.returncode == 2 and "leaves ledger as it was" in nothing.stdout, nothing.stdout + nothing.stderr


@pytest.mark.parametrize("more", [{"step": "driver:start:1"}, {"depth": 2}, {"level": "syscall"}])
def test_what_the_mode_cannot_do_is_refused_in_one_sentence(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="mode corrupt has its own faults; leave"):
        check_options(Options(mode="corrupt", **more), 1, 1, tmp_path / "out")


@pytest.mark.soak
def test_the_whole_mode_passes(tmp_path: Path) -> None:
    done = run_chaos(tmp_path, "--seed", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
