"""What is drawn by chance and what is combined in pairs: the same for the same seed, aimed where it must fire, and nothing left out."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.actions import check_action, format_plan
from chaos.campaign import Campaign, CampaignResult, Limits
from chaos.catalogue import choose
from chaos.launch import Silent, open_pool
from chaos.plan import FAULTS
from chaos.results import Recording, Trial, Verdict
from chaos.rundir import Config, RunDirectory
from chaos.scenario import from_json, load_scenario, to_json
from chaos.swarm import draws, pairs
from chaos.swarm.draws import PER_WORKLOAD, draw_one, draw_scenarios, enumerate_drawn
from chaos.swarm.keep import keep_scenarios
from chaos.swarm.kinds import KINDS, TAKEOVER, can_follow, find_first_steps, plan_two
from chaos.swarm.pairs import enumerate_pairs, list_pairs
from chaos.swarm.workloads import draw_workload
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError
from tests.chaos.fakes import FakeZygote, make_result

CALLS = (
    "driver@1:intent.commit.before:1", "shim.1@1:start:1", "driver@1:intent.commit.after:1",
    "driver@1:command.wait:1", "driver@1:scan.begin:1", "driver@1:outcome.commit.before:1", "driver@1:outcome.commit.locked:1",
    "driver@1:outcome.commit.after:1", "driver@1:intent.commit.before:2", "worker@1:start:1", "driver@1:outcome.commit.after:2",
    "driver@1:intent.commit.before:3", "driver@1:outcome.commit.after:3", "driver@1:intent.commit.before:4",
)  # fmt: skip
FIRST = find_first_steps(CALLS)
PAIRS = load_scenario(Path("scenarios/search/pairs.toml"))


def record(*steps: str) -> Recording:
    return Recording("pairs", steps, make_result(Trial(0, "pairs", ()), Verdict.PASS))


def test_a_first_fault_falls_into_the_first_two_calls_once_the_space_is_there_and_where_no_lock_is_held() -> None:
    steps = [step for one in FIRST.values() for step in one]
    assert sorted(steps) == sorted(
        step for step in CALLS[4:11] if step.startswith("driver@1:") and ".locked:" not in step
    )


def test_each_pair_of_kinds_that_can_follow_one_another_is_a_trial_in_either_order() -> None:
    made = {(first.name, second.name) for first, _, second, _ in list_pairs(FIRST)}
    assert made == {(a.name, b.name) for a, b in itertools.product(KINDS, repeat=2) if can_follow(a, b)}
    assert len(made) > len(KINDS) ** 2 - len(KINDS)


def test_each_kind_falls_into_each_class_of_steps_and_follows_at_each_place() -> None:
    listed = list(list_pairs(FIRST))
    classes = {step: name for name, steps in FIRST.items() for step in steps}
    assert {(first.name, classes[step]) for first, step, _, _ in listed} == set(itertools.product([kind.name for kind in KINDS], FIRST))
    places = {(second.name, place % 4) for _, _, second, place in listed}
    assert places == {(kind.name, place) for kind in KINDS for place in range(4)}


def test_every_plan_can_be_written_read_and_is_told_apart() -> None:
    one = enumerate_pairs(record(*CALLS), PAIRS, TrialSet(), 5)
    assert [trial.number for trial in one.trials] == list(range(5, 5 + len(one.trials)))
    assert len({format_plan(trial.plan) for trial in one.trials}) == len(one.trials)
    for trial in one.trials:
        assert trial.fault == "pair" and trial.fault in FAULTS
        assert [check_action(action) for action in trial.plan] == list(trial.plan)


def test_who_is_frozen_is_woken_at_last_and_after_the_newest_driver_s_end() -> None:
    freeze = next(kind for kind in KINDS if kind.name == "freeze")
    both = format_plan(plan_two(freeze, "driver@1:a:1", freeze, 1))
    assert both == (
        "freeze driver@1:a:1; start; freeze driver@2:floor.commit.before:1; start; end driver@3; "
        "wake driver@2; end driver@2; wake driver@1; end driver@1"
    )
    kill = next(kind for kind in KINDS if kind.name == "kill")
    assert format_plan(plan_two(freeze, "driver@1:a:1", kill, 0)).endswith(
        "kill driver@2:start:1; start; end driver@3; wake driver@1; end driver@1"
    )


def test_what_was_taken_is_taken_again_only_once_recovery_has_made_it_anew() -> None:
    ledger = next(kind for kind in KINDS if kind.name == "ledger")
    kill = next(kind for kind in KINDS if kind.name == "kill")
    for place in range(4):
        assert format_plan(plan_two(ledger, "driver@1:a:1", ledger, place)) == (
            'kill driver@1:a:1; lose "ledger removed"; kill driver@2:recovered:1; lose "ledger removed"'
        )
    assert {plan_two(kill, "driver@1:a:1", ledger, place)[1].at for place in range(4)} == {f"driver@2:{name}" for name in TAKEOVER}


def test_a_clean_run_without_such_steps_makes_no_pairs_and_no_draws() -> None:
    for enumerate_one in (enumerate_pairs, enumerate_drawn(1)):
        with pytest.raises(MisuseError):
            enumerate_one(record("driver@1:start:1"), PAIRS, TrialSet(), 1)


def test_the_same_seed_draws_the_same_and_another_seed_something_else() -> None:
    assert draw_scenarios(7, 30) == draw_scenarios(7, 30)
    assert draw_scenarios(7, 30) != draw_scenarios(8, 30)
    assert len(draw_scenarios(7, 30)) == 30 / PER_WORKLOAD
    plans = [enumerate_drawn(7)(record(*CALLS), draw_one(7, 0), TrialSet(), 1) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0].trials != enumerate_drawn(8)(record(*CALLS), draw_one(7, 0), TrialSet(), 1).trials


@pytest.mark.parametrize("place", range(len(CALLS) - 1))
def test_what_is_drawn_does_not_depend_on_which_process_came_first_when_steps_were_recorded(place: int) -> None:
    """Beside the driver a shim and a worker pass their steps, at any time."""
    others = [step for step in CALLS if not step.startswith("driver")]
    driver = [step for step in CALLS if step.startswith("driver")]
    other = (*driver[:place], *others, *driver[place:])
    for enumerate_one in (enumerate_drawn(7), enumerate_pairs):
        made = [enumerate_one(record(*steps), draw_one(7, 0), TrialSet(), 1) for steps in (CALLS, other)]
        assert made[0].trials == made[1].trials


def test_a_step_that_is_recorded_or_not_changes_no_draw_but_its_own() -> None:
    steps = [f"driver@1:scan.begin:{number}" for number in range(20)]
    drawn = [draws.draw_step(f"7 {number}", steps) for number in range(50)]
    gone = steps[3]
    again = [draws.draw_step(f"7 {number}", [step for step in steps if step != gone]) for number in range(50)]
    assert gone in drawn and len(set(drawn)) > 10
    assert [one for one, step in zip(again, drawn, strict=True) if step != gone] == [step for step in drawn if step != gone]


def test_a_workload_is_drawn_alone_by_its_name_whatever_else_is_asked_for() -> None:
    assert choose("random", "random-2", seed=7) == [draw_scenarios(7, 100)[2]]
    for wrong in ("random-x", "random-02", "append"):
        with pytest.raises(MisuseError, match="mode random draws its own"):
            choose("random", wrong, seed=7)


def test_only_enabled_kinds_are_drawn_and_the_workload_names_them() -> None:
    scenario = draw_one(3, 1)
    named = scenario.about.removeprefix(draws.NAMED).split(", ")
    made = enumerate_drawn(3)(record(*CALLS), scenario, TrialSet(), 1)
    verbs = {kind.name: {action.do for action in kind.actions} for kind in KINDS}
    allowed = set().union(*(verbs[name] for name in named)) | {"start", "wake", "end"}
    assert {action.do for trial in made.trials for action in trial.plan} <= allowed
    assert 0 < len(made.trials) <= PER_WORKLOAD


@settings(deadline=None, max_examples=50)
@given(st.randoms(use_true_random=False))
def test_a_workload_of_any_chance_is_a_scenario_that_can_be_kept(drawing: Any) -> None:
    scenario = draw_workload(drawing, "random-0", "about")
    assert from_json(to_json(scenario)) == scenario
    assert len(scenario.calls) >= 4 and len(scenario.witnessed) >= 3


SCRIPTS = {"the kill removed": "unfired", "the driver ends before its kill": "unfired", "the oracle's input emptied": "unjudged"}


def run(home: Path, what: str, enumerate_one: Any) -> CampaignResult:
    """A campaign over a zygote that answers every trial so."""

    class Broken(FakeZygote):
        def _act(self, trial: Trial, key: str, *more: Any) -> Any:
            return super()._act(trial, key if key == "clean" else "broken", *more)

    (home / "area").mkdir()
    config = Config(0, "random", "chaos", 1, 0, ())
    with RunDirectory(home / "run", config, lambda: 0.0) as run, open_pool(lambda slot: Broken({"broken": what}, CALLS, slot), 1) as pool:
        campaign = Campaign(pool, run, home / "area", Silent(), enumerate_one=enumerate_one)
        return campaign.run([PAIRS], Limits(runs=3), 1)


@pytest.mark.parametrize("enumerate_one", [enumerate_pairs, enumerate_drawn(1)], ids=["pairwise", "random"])
@pytest.mark.parametrize("what", SCRIPTS.values(), ids=SCRIPTS)
def test_a_broken_harness_never_passes(what: str, enumerate_one: Any, tmp_path: Path) -> None:
    result = run(tmp_path, what, enumerate_one)
    trials = [one for one in result.results if one.trial.number]
    assert len(trials) == 3 and {one.verdict for one in trials} == {Verdict.UNKNOWN}
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("enumerate_one", [enumerate_pairs, enumerate_drawn(1)], ids=["pairwise", "random"])
def test_with_a_sound_harness_they_pass(enumerate_one: Any, tmp_path: Path) -> None:
    assert run(tmp_path, "pass", enumerate_one).verdict is Verdict.PASS


@pytest.mark.parametrize("module", [pairs, draws])
def test_a_step_that_is_renamed_leaves_no_trial_to_pass(module: Any) -> None:
    renamed = [step.replace("intent.commit.before:3", "intention.commit.before:3") for step in CALLS]
    enumerate_one = enumerate_pairs if module is pairs else enumerate_drawn(1)
    with pytest.raises(MisuseError):
        enumerate_one(record(*renamed), PAIRS, TrialSet(), 1)


def test_what_failed_is_kept_as_a_scenario_that_says_what_was_done(tmp_path: Path) -> None:
    scenario = draw_one(3, 1)
    plan = enumerate_drawn(3)(record(*CALLS), scenario, TrialSet(), 1).trials[0].plan
    trial = Trial(1, scenario.name, plan, fault="random")
    kept = msgspec.structs.replace(make_result(trial, Verdict.FAIL), kept=str(tmp_path))
    [file] = keep_scenarios([kept, make_result(trial, Verdict.PASS)], {scenario.name: scenario})
    again = load_scenario(file)
    assert (again.calls, again.seed, again.plan) == (scenario.calls, scenario.seed, plan)
