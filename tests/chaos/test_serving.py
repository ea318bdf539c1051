"""How a runner reads its requests: the same for every kind of trial."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.answering import Answer
from chaos.results import Recording, Trial, TrialResult, Verdict
from chaos.scenario import Scenario, to_json
from chaos.serving import Request, dispatch
from tests.chaos.fakes import make_result, make_scenario

SCENARIO = make_scenario()


def record(scenario: Scenario, request: Request, directory: Path) -> Recording:
    return Recording(scenario.name, (), make_result(Trial(0, scenario.name, ()), Verdict.PASS), str(directory), request.prefix)


def run(scenario: Scenario, request: Request, trial: Trial, directory: Path) -> TrialResult:
    return make_result(trial, Verdict.PASS, digest=f"{scenario.name} {request.op} {request.converges_to}")


def ask(op: str, entry: str = "", **more: Any) -> Answer:
    """What a runner of trials of the kind `entry` answers."""
    request = {"op": op, "scenario": to_json(SCENARIO), "directory": "place", **more}
    return dispatch("this runner", record, run, entry)(msgspec.json.encode(request))


def test_a_clean_run_is_made_of_the_scenario_and_what_comes_before() -> None:
    recording = ask("record").recording
    assert recording is not None and (recording.scenario, recording.kill_mark) == (SCENARIO.name, "place")


def test_a_trial_is_played_with_what_it_converges_to() -> None:
    trial = Trial(3, SCENARIO.name, (), "power")
    result = ask("trial", "power", trial=trial, converges_to={"log": "x"}).result
    assert result is not None and (result.trial, result.digest) == (trial, f"{SCENARIO.name} trial {{'log': 'x'}}")


@pytest.mark.parametrize(
    ("op", "entry", "what"),
    [
        ("trial", "power", "'trial' for a trial of the kind 'fork' is no request of this runner"),
        ("replay", "", "'replay' for a trial of the kind 'fork' is no request of this runner"),
        ("strange", "", "'strange' for a trial of the kind 'fork' is no request of this runner"),
    ],
)
def test_what_a_runner_does_not_play_it_refuses_by_name(op: str, entry: str, what: str) -> None:
    assert ask(op, entry, trial=Trial(1, SCENARIO.name, ())) == Answer(error=what)


def test_a_request_for_a_trial_without_one_is_refused() -> None:
    assert ask("trial").error == "'trial' is no request of this runner"
