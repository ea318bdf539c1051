"""Third kills: from which second ones they go on, and which are drawn; by the seed alone, and nothing is left out in silence."""

from dataclasses import replace

from chaos.actions import parse_plan
from chaos.depth import choose_deeper, draw_trials, make_deeper_set, prune_equal
from chaos.enumeration import Enumeration
from chaos.results import Trial
from chaos.trial_set import TrialSet

MANY = [("one", Trial(number, "small", parse_plan(f"kill driver@2:decided:{number}"), fault="again")) for number in range(1, 9)]
FEW = [("two", Trial(number, "small", parse_plan(f"kill worker@2:start:{number}"), fault="again")) for number in range(9, 11)]


def test_each_set_gets_its_share_of_the_pairs() -> None:
    chosen = choose_deeper([*MANY, *FEW], 6, seed=1)
    assert len(chosen) == len({trial.number for trial in chosen}) == 6
    assert sum(trial.plan[0].at.startswith("worker") for trial in chosen) == len(FEW)


def test_all_of_them_are_chosen_where_no_number_is_given() -> None:
    assert {trial.number for trial in choose_deeper([*MANY, *FEW], 0, seed=1)} == set(range(1, 11))
    assert choose_deeper([], 4, seed=1) == []


def test_the_seed_alone_decides_what_is_drawn() -> None:
    assert choose_deeper(MANY, 3, seed=1) == choose_deeper(MANY, 3, seed=1)
    assert len({tuple(trial.number for trial in choose_deeper(MANY, 3, seed)) for seed in range(8)}) > 1


def test_what_is_drawn_does_not_depend_on_the_order_in_which_steps_were_recorded() -> None:
    """Two processes pass their steps in either order."""
    assert choose_deeper(MANY, 3, seed=1) == choose_deeper(MANY[::-1], 3, seed=1)
    trials = tuple(trial for _, trial in MANY)
    both = [draw_trials(Enumeration("small", (), order, ()), 3, seed=1) for order in (trials, trials[::-1])]
    assert {trial.plan for trial in both[0].trials} == {trial.plan for trial in both[1].trials}


def test_what_is_not_drawn_is_named_and_numbers_have_no_holes() -> None:
    trials = tuple(trial for _, trial in MANY)
    steps = tuple(trial.plan[-1].at for trial in trials)
    drawn = draw_trials(Enumeration("small", steps, trials, ()), 3, seed=1)
    assert [trial.number for trial in drawn.trials] == [1, 2, 3]
    killed = {trial.plan[-1].at for trial in drawn.trials}
    assert {one.step: one.reason for one in drawn.unreachable} == {step: "not drawn" for step in steps if step not in killed}
    assert draw_trials(Enumeration("small", steps, trials, ()), 0, seed=1).trials == trials


def test_a_deeper_set_goes_on_from_the_whole_plan_with_the_roles_of_the_set_above() -> None:
    above = TrialSet(kill=("driver",), label="adopt_exit", converges=False)
    made = make_deeper_set(MANY[0][1], above, 3)
    assert (made.before, made.kill, made.depth, made.converges, made.label) == (MANY[0][1].plan, ("driver",), 3, False, "")


def test_a_first_kill_that_left_the_same_state_as_another_is_not_followed_and_its_steps_say_so() -> None:
    seen: set[tuple[str, str]] = set()
    trials = tuple(trial for _, trial in MANY)
    one = Enumeration("small", tuple(trial.plan[-1].at for trial in trials), trials, ())
    assert prune_equal(one, "", seen) == prune_equal(one, "", seen) == one, "a state that is not known equals none"
    assert prune_equal(one, "aa", seen) == one
    assert prune_equal(one, "bb", seen) == one
    pruned = prune_equal(one, "aa", seen)
    assert pruned.trials == ()
    assert [left.step for left in pruned.unreachable if left.reason == "equal state"] == [trial.plan[-1].at for trial in one.trials]
    assert prune_equal(replace(one, scenario="another"), "aa", seen).trials == one.trials
