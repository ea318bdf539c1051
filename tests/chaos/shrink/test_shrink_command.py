"""`chaos shrink` end to end: a campaign finds planted bugs, they are shrunk on the engine copy, and the result fails as a campaign does.

The numbers are upper bounds of what is left: actions and calls, and the step names at which the bug shows.
"""

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.planted.bug import BUGS, load_bug
from chaos.planted.hunt import plant_bug, run_campaign
from tests.chaos.test_gate import run_chaos


@dataclass(frozen=True)
class Minimum:
    """What is left of a planted bug: at most so many actions and calls, with one of these names in the plan."""

    bug: str
    actions: int
    calls: int
    steps: tuple[str, ...]


QUICK = [
    Minimum("adopted-without-scan", 1, 1, ("outcome.commit.before",)),
    Minimum("interrupted-skipped", 1, 2, ("ended",)),
]

SLOW = [
    # Found by clean runs: nothing needs to be done for these to show.
    Minimum("code-for-signal", 0, 1, ()),
    Minimum("deletion-lost", 0, 1, ()),
    Minimum("outcome-before-effect", 0, 1, ()),
    Minimum("contents-lost", 0, 1, ()),
    Minimum("effect-before-intent", 1, 1, ("intent.commit.before",)),
    Minimum("finished-run-again", 1, 1, ("outcome.commit.before",)),
    Minimum("lost-attempt-voided", 2, 1, ("outcome.commit.before",)),
    Minimum("acknowledged-before-commit", 1, 1, ("outcome.commit.before",)),
]
"""With QUICK ten of them; what is left was seen by hand to be no more than the bug needs."""


def shrink_bug(home: Path, one: Minimum, budget: str) -> tuple[dict[str, object], "subprocess.CompletedProcess[str]"]:
    """Find, shrink, and read what came of it."""
    bug = load_bug(BUGS / f"{one.bug}.toml")
    plant_bug(bug, home)
    assert run_campaign(bug.selection, home).code == 1
    done = run_chaos("shrink", "run", "--budget", budget, "--reruns", "2", "--json", "found.json", cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    founds = json.loads((home / "found.json").read_text())
    return min(founds, key=lambda found: (found["actions"], found["calls"])), done


@pytest.mark.parametrize("one", QUICK, ids=lambda one: one.bug)
def test_a_planted_bug_is_shrunk_and_what_is_left_fails_as_a_campaign(one: Minimum, tmp_path: Path) -> None:
    found, done = shrink_bug(tmp_path, one, "600s")
    assert (found["verified"], found["complete"]) == (2, True), done.stdout
    assert found["actions"] <= one.actions and found["calls"] <= one.calls, done.stdout  # type: ignore[operator]
    assert any(f":{step}:" in str(found["plan"]) for step in one.steps), done.stdout
    again = run_chaos(*shlex.split(str(found["command"]))[3:], "--jobs", "1", "--out", "again", cwd=tmp_path)
    assert again.returncode == 1, again.stdout + again.stderr


@pytest.mark.soak
@pytest.mark.parametrize("one", SLOW, ids=lambda one: one.bug)
def test_every_other_planted_bug_is_shrunk_as_far(one: Minimum, tmp_path: Path) -> None:
    found, done = shrink_bug(tmp_path, one, "1800s")
    assert found["complete"], done.stdout
    assert found["actions"] <= one.actions and found["calls"] <= one.calls, done.stdout  # type: ignore[operator]
    assert not one.steps or any(f":{step}:" in str(found["plan"]) for step in one.steps), done.stdout


def test_what_is_no_kept_failure_is_one_sentence_and_254(tmp_path: Path) -> None:
    done = run_chaos("shrink", "nothing", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (254, "")
    assert done.stderr.startswith("chaos: nothing: cannot be read") and done.stderr.count("\n") == 1
