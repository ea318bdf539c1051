"""Mode twice: after each kill a second one at each step of the recovery from it, but where an equal state was followed already."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.campaign import Campaign, CampaignResult, Limits
from chaos.catalogue import MODES
from chaos.launch import Silent, open_pool
from chaos.results import Action, Recording, Verdict
from chaos.rundir import Config, RunDirectory
from chaos.scenario import Scenario
from chaos.trial_set import TrialSet
from tests.chaos.fakes import STEPS, FakeZygote, make_scenario

DEPTH = MODES["twice"].depth
DRIVER = [step for step in STEPS if step.startswith("driver@")]
SCENARIO = make_scenario(trials=(TrialSet(kill=("driver",)),))


class Leaves(FakeZygote):
    """Each first kill leaves a state of its own, or all the same one."""

    def __init__(self, script: dict[str, str], slot: int, state: str) -> None:
        super().__init__(script, slot=slot)
        self._state = state

    def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
        state = self._state or (prefix[-1].at if prefix else "")
        return msgspec.structs.replace(super().record(scenario, prefix, directory), state=state)


def run(home: Path, script: dict[str, str], state: str = "", limits: Limits | None = None) -> CampaignResult:
    (home / "area").mkdir()
    config = Config(0, "twice", "chaos", 1, 0, ())
    with RunDirectory(home / "run", config, lambda: 0.0) as run, open_pool(lambda slot: Leaves(script, slot, state), 1) as pool:
        return Campaign(pool, run, home / "area", Silent()).run([SCENARIO], limits or Limits(depth=DEPTH), 1)


def seconds_of(result: CampaignResult) -> list[tuple[str, str]]:
    """The steps of first and second kills."""
    return [(one.trial.plan[0].at, one.trial.plan[1].at) for one in result.results if one.trial.number and len(one.trial.plan) == 2]


def test_each_step_of_the_recovery_from_each_kill_is_killed(tmp_path: Path) -> None:
    result = run(tmp_path, {})
    again = [step.replace("@1:", "@2:") for step in DRIVER]
    made = {one.scenario: one for one in result.enumerations if one.prefix}["small"]
    inside = {trial.plan[-1].at for trial in made.trials}
    assert inside and inside <= set(again)
    assert sorted(seconds_of(result)) == sorted((first, second) for first in DRIVER for second in inside)
    assert {one.trial.fault for one in result.results if len(one.trial.plan) == 2 and one.trial.number} == {"again"}
    assert result.verdict is Verdict.PASS


def test_of_kills_that_left_equal_states_one_is_followed_and_the_others_are_named(tmp_path: Path) -> None:
    result = run(tmp_path, {}, state="same")
    assert len({first for first, _ in seconds_of(result)}) == 1
    left = [one.reason for enumeration in result.enumerations for one in enumeration.unreachable if one.reason == "equal state"]
    assert len(left) == len(seconds_of(result)) * (len(DRIVER) - 1)
    assert result.verdict is Verdict.PASS


BROKEN: dict[str, Any] = {"the kill removed": "unfired", "the oracle's input emptied": "unjudged", "harness trouble": "error"}


@pytest.mark.parametrize("what", BROKEN.values(), ids=BROKEN)
def test_second_kills_by_a_broken_harness_never_pass(what: str, tmp_path: Path) -> None:
    second = "driver@2:intent.commit.before:1"
    result = run(tmp_path, {second: what})
    mine = [one for one in result.results if one.trial.number and one.trial.plan[-1].at == second]
    assert mine and {one.verdict for one in mine} == {Verdict.UNKNOWN}
    assert result.verdict is Verdict.UNKNOWN


def test_a_step_that_was_chosen_is_not_followed(tmp_path: Path) -> None:
    assert seconds_of(run(tmp_path, {}, limits=Limits(depth=DEPTH, step=DRIVER[0]))) == []
