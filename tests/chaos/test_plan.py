"""Which actions and steps a trial carried out, and how trials are selected."""

import msgspec

from chaos.actions import parse_plan
from chaos.enumeration import EXEC_STEP, enumerate_trials
from chaos.plan import describe_trial, find_fired, find_unfired, select_trials
from chaos.results import Action, Fault, Recording, Trial, TrialResult, Verdict
from chaos.trial_set import TrialSet
from tests.chaos.fakes import STEPS, make_result, make_scenario

FIRST = Action(STEPS[0], "kill")
AGAIN = (FIRST, Action("driver@2:decided:1", "kill"))
TWICE = (Action("", "start"), Action("", "start"))


def enumerate_all() -> tuple[Trial, ...]:
    recording = Recording("small", STEPS, make_result(Trial(0, "small", ()), Verdict.PASS))
    return enumerate_trials(recording, make_scenario(), TrialSet(freeze=("driver",))).trials


def test_trials_are_selected_by_step_fault_and_plan() -> None:
    trials = enumerate_all()
    assert [trial.fault for trial in select_trials(trials, step=EXEC_STEP)] == ["kill", "freeze", "exec"]
    assert [trial.entry for trial in select_trials(trials, EXEC_STEP, "exec")] == ["exec"]
    assert select_trials(trials, "driver@1:nowhere:1") == []
    assert [trial.plan for trial in select_trials(trials, plan=(FIRST,))] == [(FIRST,)]
    assert select_trials(trials, plan=AGAIN) == []
    assert select_trials(trials) == list(trials)


def test_only_a_fired_kill_kills_a_step() -> None:
    kill, freeze = Trial(1, "small", (FIRST,)), Trial(2, "small", (Action(STEPS[1], "freeze"),))
    unfired = make_result(kill, Verdict.PASS, fired=False)
    assert find_fired(STEPS, (), "kill", [unfired, make_result(freeze, Verdict.PASS)]) == frozenset()
    assert find_fired(STEPS, (), "kill", [make_result(kill, Verdict.PASS)]) == {STEPS[0]}
    assert find_fired(STEPS, (), "freeze", [make_result(freeze, Verdict.PASS)]) == {STEPS[1]}
    assert find_fired(STEPS[1:], (), "kill", [make_result(kill, Verdict.PASS)]) == frozenset()


def test_a_second_kill_counts_for_its_own_prefix_only_and_when_all_before_it_fired() -> None:
    result = make_result(Trial(1, "small", AGAIN), Verdict.PASS)
    step = AGAIN[1].at
    assert find_fired([step], AGAIN[:1], "kill", [result]) == {step}
    assert find_fired([step], (), "kill", [result]) == {step}
    assert find_fired([step], (Action(STEPS[1], "kill"),), "kill", [result]) == frozenset()
    assert find_fired([step], AGAIN[:1], "freeze", [result]) == frozenset()
    first_missed = (msgspec.structs.replace(result.faults[0], fired=False), result.faults[1])
    assert find_fired([step], AGAIN[:1], "kill", [msgspec.structs.replace(result, faults=first_missed)]) == frozenset()
    assert find_fired([step], AGAIN[:1], "kill", [msgspec.structs.replace(result, faults=result.faults[:1])]) == frozenset()


def test_a_clean_run_carries_out_no_step() -> None:
    result = make_result(Trial(0, "small", AGAIN[:1], fault=""), Verdict.PASS)
    assert find_fired([AGAIN[1].at], AGAIN[:1], "kill", [result]) == frozenset()


def unfired(plan: tuple[Action, ...], *faults: Fault) -> list[Action]:
    """The actions of a plan that did not fire."""
    return find_unfired(Trial(1, "small", plan), faults)


def test_each_action_of_a_plan_is_proved_by_the_fault_in_its_own_place() -> None:
    fired, missed = Fault("", "start", True, True), Fault("", "start", True, False)
    assert unfired(TWICE, fired, fired) == []
    assert unfired(TWICE, fired, missed) == unfired(TWICE, missed, fired) == [TWICE[0]]
    assert unfired(TWICE, fired) == [TWICE[0]]
    assert unfired(TWICE) == list(TWICE)


def test_a_fault_of_another_step_or_verb_proves_nothing() -> None:
    kill = make_result(Trial(1, "small", (FIRST,)), Verdict.PASS).faults
    assert unfired((FIRST,), *kill) == []
    assert unfired((Action(STEPS[1], "kill"),), *kill) == [Action(STEPS[1], "kill")]
    assert unfired((Action(STEPS[0], "freeze"),), *kill) == [Action(STEPS[0], "freeze")]


def test_a_trial_is_described_by_its_plan() -> None:
    assert describe_trial(Trial(0, "small", (), fault="")) == "clean run"
    plan = parse_plan("freeze driver@1:decided:1; start; end driver@2")
    assert describe_trial(Trial(1, "small", plan)) == "freeze driver@1:decided:1; start; end driver@2"


def results_of(*plans: tuple[Action, ...]) -> list[TrialResult]:
    return [make_result(Trial(number, "small", plan), Verdict.PASS) for number, plan in enumerate(plans, 1)]


def test_what_comes_after_the_step_does_not_matter_to_it() -> None:
    (result,) = results_of(parse_plan(f"freeze {STEPS[1]}; start; end driver@2; wake driver@1"))
    late = (*result.faults[:1], *(msgspec.structs.replace(fault, fired=False) for fault in result.faults[1:]))
    assert find_fired(STEPS, (), "freeze", [msgspec.structs.replace(result, faults=late)]) == {STEPS[1]}
