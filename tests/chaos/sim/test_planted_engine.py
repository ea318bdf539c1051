"""The simulation notices known bugs in the engine that it runs, by the oracle that is meant to; and runs a copy of it that is sound."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from chaos.actions import parse_plan
from chaos.planted.bug import BUGS, load_bug
from chaos.planted.plant import plant
from chaos.results import TrialResult, Verdict
from chaos.sim.options import RUNNER
from chaos.zygote_client import ProcessZygote, zygote_command

CUT = "kill shim.1@1:ended:1"
ENDED = "kill driver@1:outcome.commit.before:1"
CAUGHT = {
    "acknowledged-before-commit": ("sim-repeatable", ENDED, "acknowledged"),
    "adopted-without-scan": ("sim-repeatable", ENDED, "laundering"),
    "effect-before-intent": ("sim-commands", "kill driver@1:intent.commit.before:1", "witness"),
    "finished-run-again": ("sim-commands", ENDED, "witness"),
    "interrupted-left-behind": ("sim-commands", CUT, "reference"),
    "interrupted-skipped": ("sim-commands", CUT, "order"),
    "quarantine-unrecorded": ("sim-commands", CUT, "quarantine"),
}
"""The session and the plan that meet each bug, and who must notice."""


def simulate(engine: Path | None, name: str, plan: str, home: Path) -> TrialResult:
    zygote = ProcessZygote([*zygote_command(engine), "--runner", RUNNER], home / "errors.txt")
    try:
        return zygote.simulate({"op": "fixed", "name": name, "plan": list(parse_plan(plan))})[1][0]
    finally:
        zygote.close()


@pytest.mark.parametrize("name", CAUGHT)
def test_a_known_bug_of_the_engine_is_noticed(name: str, tmp_path: Path) -> None:
    bug = load_bug(BUGS / f"{name}.toml")
    plant(name, "engine", (*bug.selection.given, *bug.replace), tmp_path / "engine")
    session, plan, oracle = CAUGHT[name]
    result = simulate(tmp_path / "engine", session, plan, tmp_path)
    assert result.verdict is Verdict.FAIL
    assert oracle in [one.oracle for one in result.oracles if one.verdict is Verdict.FAIL]


@pytest.mark.parametrize("plan", [CUT, ENDED, "kill driver@1:intent.commit.before:1"])
def test_the_sound_engine_passes_the_plans_that_meet_the_bugs(plan: str, tmp_path: Path) -> None:
    results = [simulate(None, session, plan, tmp_path) for session in ("sim-commands",)]
    assert [one.reason for one in results if one.verdict is not Verdict.PASS] == []


def run_chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chaos", "--backend", "sim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_a_campaign_on_a_copy_with_a_bug_fails_and_says_how_to_repeat_the_trial(tmp_path: Path) -> None:
    bug = load_bug(BUGS / "interrupted-skipped.toml")
    plant(bug.name, "engine", bug.replace, tmp_path / "engine")
    chosen = ("--scenario", "sim-commands", "--plan", CUT, "--engine", str(tmp_path / "engine"))
    done = run_chaos(*chosen, "--seed", "4", "--out", str(tmp_path / "run"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL sim-commands" in done.stdout and "order" in done.stdout
    repeat = next(line for line in done.stdout.splitlines() if line.strip().startswith("repeat"))
    assert "--backend sim --mode ci --scenario sim-commands --step shim.1@1:ended:1" in repeat
    assert done.stdout.splitlines()[0] == done.stdout.splitlines()[-1]
    assert "seed 4" in done.stdout.splitlines()[0]
    again = run_chaos(*repeat.split("--backend sim")[1].split(), "--out", str(tmp_path / "again"))
    assert again.returncode == 1, again.stdout + again.stderr


@pytest.mark.parametrize(("runs", "sessions"), [(3, 3), (22, 4)])
def test_a_campaign_has_as_many_trials_as_were_asked_for_beside_the_clean_runs(runs: int, sessions: int, tmp_path: Path) -> None:
    done = run_chaos("--runs", str(runs), "--seed", "3", "--out", str(tmp_path / "run"))
    assert f"SUMMARY runs={runs + sessions} pass={runs + sessions} " in done.stdout, done.stdout + done.stderr
    lines = (tmp_path / "run" / "results.jsonl").read_bytes().splitlines()
    assert sum(one["trial"]["number"] > 0 for one in map(msgspec.json.decode, lines)) == runs
    assert "PRUNED" in done.stdout


def test_a_campaign_counts_trials_that_passed_alike_together(tmp_path: Path) -> None:
    done = run_chaos("--scenario", "sim-3-5", "--seed", "3", "--out", str(tmp_path / "run"), "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUMMARY runs=1 pass=1" in done.stdout
    assert (tmp_path / "run" / "verdict.json").exists() and (tmp_path / "found.json").exists()
    nothing = run_chaos("--scenario", "sim-commands", "--step", "driver:no.such.step:1", "--out", str(tmp_path / "none"))
    assert nothing.returncode == 254 and "no simulated trial has that step" in nothing.stderr
