"""Steps and trials: names round-trip, every step of a clean run is aimed at or named unreachable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.plan import (
    EXEC_STEP,
    SUPERSEDE_STEPS,
    UNREACHABLE_REASONS,
    Step,
    enumerate_trials,
    fault_of,
    find_killed,
    find_unfired,
    format_step,
    parse_short_step,
    parse_step,
    select_trials,
)
from chaos.results import Action, Recording, Trial, Verdict
from eventlog.errors import MisuseError
from tests.chaos.fakes import STEPS, make_result

roles = st.one_of(st.sampled_from(["driver", "spawner", "worker"]), st.integers(1, 99).map("shim.{}".format))
names = st.from_regex(r"[a-z][a-z0-9_-]{0,5}(\.[a-z]{1,5}){0,3}", fullmatch=True)
numbers = st.integers(1, 10**6)
steps = st.builds(Step, roles, numbers, names, numbers)


def record(*passed: str) -> Recording:
    return Recording("small", passed, make_result(Trial(0, "small", ()), Verdict.PASS))


@given(steps)
def test_a_step_survives_being_written_and_read(step: Step) -> None:
    assert parse_step(format_step(step)) == step


def test_shim_alone_is_the_first_shim() -> None:
    assert format_step(parse_step("shim@2:start:1")) == "shim.1@2:start:1"


def test_a_person_may_leave_the_epoch_away() -> None:
    assert format_step(parse_short_step("shim:start:3")) == "shim.1@1:start:3"
    assert format_step(parse_short_step("driver@2:start:3")) == "driver@2:start:3"


@pytest.mark.parametrize(
    "text", ["", "driver", "driver@0:a:1", "driver@1:a:0", "driver@1::1", "command@1:a:1", "shim.0@1:a:1", "driver@1:a:1 ", "driver@1:A:1"]
)
def test_what_is_no_step_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(MisuseError, match="write ROLE@EPOCH:NAME:N"):
        parse_step(text)


@given(st.lists(steps, max_size=30))
def test_every_step_is_aimed_at_once_or_unreachable(passed: list[Step]) -> None:
    made = enumerate_trials(record(*map(format_step, passed)))
    aimed = [trial.plan[0].at for trial in made.trials if fault_of(trial) == "kill"]
    unreachable = [one.step for one in made.unreachable]
    assert sorted(aimed + unreachable) == sorted(made.steps) == sorted(set(map(format_step, passed)))
    assert {one.reason for one in made.unreachable} <= set(UNREACHABLE_REASONS)


def test_the_trials_of_a_clean_run_are_kills_one_exec_and_the_supersedes() -> None:
    made = enumerate_trials(record(*STEPS, "driver@2:start:1"), first_number=5)
    assert [trial.plan[0].at for trial in made.trials if fault_of(trial) == "kill"] == list(STEPS)
    assert [trial.plan for trial in made.trials if fault_of(trial) == "exec"] == [(Action(EXEC_STEP, "kill"),)]
    assert [trial.plan[0].at for trial in made.trials if fault_of(trial) == "supersede"] == list(SUPERSEDE_STEPS)
    assert [trial.number for trial in made.trials] == list(range(5, 5 + len(STEPS) + 3))
    assert [(one.step, one.reason) for one in made.unreachable] == [("driver@2:start:1", "not yet")]


def test_a_plan_of_its_own_is_one_trial_and_leaves_the_rest_to_others() -> None:
    made = enumerate_trials(record(*STEPS), plan=[Action(STEPS[1], "kill"), Action("driver@2:start:1", "kill")])
    assert len(made.trials) == 1
    assert {one.reason for one in made.unreachable} == {"not in this scenario"}
    assert len(made.unreachable) == len(STEPS) - 1


def test_trials_are_selected_by_step_and_fault() -> None:
    trials = enumerate_trials(record(*STEPS)).trials
    assert [fault_of(trial) for trial in select_trials(trials, step=EXEC_STEP)] == ["kill", "exec", "supersede"]
    assert [trial.entry for trial in select_trials(trials, EXEC_STEP, "exec")] == ["exec"]
    assert select_trials(trials, "driver@1:nowhere:1") == []


def test_only_a_fired_kill_kills_a_step() -> None:
    kill, supersede = Trial(1, "small", (Action(STEPS[0], "kill"),)), Trial(2, "small", (Action(STEPS[1], "supersede"),))
    results = [make_result(kill, Verdict.PASS, fired=False), make_result(supersede, Verdict.PASS)]
    assert find_killed(STEPS, results) == frozenset()
    assert find_killed(STEPS, [make_result(kill, Verdict.PASS)]) == {STEPS[0]}
    assert find_unfired(kill, results[0].faults) == [Action(STEPS[0], "kill")]
