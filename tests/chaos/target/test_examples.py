"""The examples: each driver plays the standard workload under the harness, and violates what it says it may, and nothing else."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from chaos.planted.plant import INSTALLED
from chaos.results import Verdict
from chaos.target.peers import OWN, PEERS, Peer
from chaos.target.workload import VIOLATIONS
from tests.chaos.target.support import EXAMPLES, run_chaos
from tests.chaos.target.support import PEERS as PEERS_PYTHON

HALF = "driver:1.half:1"
"""In the middle of a step: what a driver does about that is what is compared."""


def play(peer: Peer, directory: Path, *arguments: str) -> dict[str, set[str]]:
    """The oracles that said pass and fail, of a campaign of few kills."""
    python = [sys.executable] if not peer.packages else [str(PEERS_PYTHON)]
    program = ["sh"] if peer.script.endswith(".sh") else python
    words = ["--target", shlex.join([*program, str(EXAMPLES / peer.script), *peer.arguments]), "--workload", "1", "--seed", "1"]
    done = run_chaos(directory, *words, "--jobs", "1", *arguments, PYTHONPATH=str(INSTALLED))
    assert done.returncode in (0, 1), done.stdout + done.stderr
    results = [json.loads(line) for line in (directory / "run" / "results.jsonl").read_text().splitlines()]
    assert len(results) == 2 and all(one["fired"] for one in results[1]["faults"]), done.stdout
    said = {verdict.value: {one["oracle"] for one in results[1]["oracles"] if one["verdict"] == verdict} for verdict in Verdict}
    assert not said["unknown"] and said["pass"] | said["fail"] == {*VIOLATIONS, "liveness", "processes"}
    return said


@pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])
def test_a_driver_killed_inside_a_step_violates_what_it_admits_and_nothing_else(peer: Peer, tmp_path: Path) -> None:
    if peer.packages and not PEERS_PYTHON.exists():
        pytest.skip(f"{', '.join(peer.packages)}: no environment of the peers here; make peers-target makes it")
    said = play(peer, tmp_path, "--step", HALF)
    assert said["fail"] == ({"ran-twice"} if peer is OWN else {"ran-twice", "half-applied"})
    assert said["fail"] <= set(peer.admits)


def test_the_command_of_a_dead_driver_of_this_engine_goes_on_and_nothing_is_violated(tmp_path: Path) -> None:
    assert play(OWN, tmp_path, "--step", HALF, "--kill", "main")["fail"] == set()


def test_a_driver_of_this_engine_is_judged_by_its_log_and_killed_at_its_own_steps(tmp_path: Path) -> None:
    """No check and no workload: the log oracle judges, and shows that it can fail."""
    (tmp_path / "nightly.toml").write_text(
        'name = "nightly"\nworkspace = "w"\nstate = "s"\non_interrupted = "reissue"\n[[call]]\ntool = "bash"\nrun = "echo one >> log.txt"\n'
    )
    program = shlex.join([sys.executable, "-m", "recovery", "run", "nightly.toml"])
    done = run_chaos(tmp_path, "--target", program, "--step", "driver:outcome.commit.before:1", "--jobs", "1", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(line) for line in (tmp_path / "run" / "results.jsonl").read_text().splitlines()]
    assert [result["verdict"] for result in results] == ["pass", "pass"] and results[1]["drivers"] == [[1, -9], [2, 0]]
    assert {"workspace-equals-log", "chain", "order", "fencing", "laundering"} <= {one["oracle"] for one in results[1]["oracles"]}


def test_the_peers_are_pinned_and_no_dependency_of_the_project() -> None:
    pinned = [line for line in (EXAMPLES / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert pinned and all("==" in line for line in pinned)
    names = {line.partition("==")[0] for line in pinned}
    assert {package for peer in PEERS for package in peer.packages} == names
    project = (INSTALLED / "pyproject.toml").read_text()
    assert [name for name in names if f'"{name}' in project] == []
