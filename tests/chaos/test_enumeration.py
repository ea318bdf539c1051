"""From a recording to trials: every step is killed or named unreachable, every freeze is planned to its end."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.actions import format_plan, parse_plan
from chaos.enumeration import EXEC_STEP, Enumeration, add_trial, enumerate_trials
from chaos.plan import UNREACHABLE_REASONS
from chaos.results import Action, Recording, Trial, Verdict
from chaos.step import Step, format_step, parse_step, role_of
from chaos.trial_set import ROLES, TrialSet
from eventlog.errors import MisuseError
from tests.chaos.fakes import STEPS, make_result, make_scenario
from tests.chaos.strategies import steps

PREFIX = parse_plan("kill driver@1:decided:1")
FINISH = "driver@1:finish.commit.after:1"
subsets = st.sets(st.sampled_from(ROLES)).map(tuple)


def record(*passed: str, **more: object) -> Recording:
    return Recording("small", passed, make_result(Trial(0, "small", ()), Verdict.PASS), **more)  # type: ignore[arg-type]


def enumerate_set(passed: Iterable[str], first_number: int = 1, **values: object) -> Enumeration:
    """The trials of a set with these values, of a clean run that passed these steps."""
    return enumerate_trials(record(*passed), make_scenario(), TrialSet(**values), first_number)  # type: ignore[arg-type]


def steps_of(made: Enumeration, fault: str) -> list[str]:
    """The steps that the trials of one fault are aimed at, in order."""
    return [trial.plan[0].at for trial in made.trials if trial.fault == fault]


def reasons(made: Enumeration) -> dict[str, str]:
    return {one.step: one.reason for one in made.unreachable}


@settings(deadline=None)
@given(st.lists(steps, max_size=30), subsets, subsets, st.integers(0, 9))
def test_every_step_is_aimed_at_once_or_unreachable(
    passed: list[Step], kill: tuple[str, ...], freeze: tuple[str, ...], sample: int
) -> None:
    made = enumerate_set(map(format_step, passed), kill=kill, freeze=freeze, sample=sample)
    assert sorted(made.steps) == sorted(set(map(format_step, passed)))
    assert sorted([*steps_of(made, "kill"), *reasons(made)]) == sorted(made.steps)
    assert {role_of(parse_step(step)) for step in steps_of(made, "kill")} <= set(kill)
    assert tuple(steps_of(made, "freeze")) == made.frozen
    assert sorted([*made.frozen, *(one.step for one in made.not_frozen)]) == (sorted(made.steps) if freeze else [])
    assert {one.reason for one in (*made.unreachable, *made.not_frozen)} <= set(UNREACHABLE_REASONS)
    assert [trial.number for trial in made.trials] == list(range(1, len(made.trials) + 1))


def test_the_trials_of_a_clean_run_are_kills_and_one_exec() -> None:
    made = enumerate_set((*STEPS, *STEPS, "driver@2:start:1"), first_number=5)
    assert steps_of(made, "kill") == list(STEPS)
    assert made.trials[-1] == Trial(5 + len(STEPS), "small", (Action(EXEC_STEP, "kill"),), "exec", "exec")
    assert [trial.number for trial in made.trials] == list(range(5, 5 + len(STEPS) + 1))
    assert {trial.entry for trial in made.trials[:-1]} == {"fork"}
    assert reasons(made) == {"driver@2:start:1": "not yet"}
    assert (made.frozen, made.not_frozen) == ((), ())


def test_without_the_step_of_the_exec_trial_there_is_none() -> None:
    assert steps_of(enumerate_set(step for step in STEPS if step != EXEC_STEP), "exec") == []
    assert steps_of(enumerate_set(STEPS, kill=("shim",)), "exec") == []


def test_what_is_no_step_is_refused_and_the_recording_named() -> None:
    with pytest.raises(MisuseError, match="^recording of small: 'driver:x' is no step"):
        enumerate_set(("driver:x",))


def test_roles_that_a_set_does_not_kill_are_named() -> None:
    made = enumerate_set(STEPS, kill=("driver", "worker"))
    assert reasons(made) == {"spawner@1:start:1": "not in this scenario", "shim.1@1:start:1": "not in this scenario"}


def test_a_freeze_is_planned_to_the_ends_of_the_old_driver() -> None:
    made = enumerate_set((EXEC_STEP,), kill=(), freeze=("driver",))
    assert [format_plan(trial.plan) for trial in made.trials] == [f"freeze {EXEC_STEP}; start; end driver@2; wake driver@1; end driver@1"]
    assert [(trial.fault, trial.entry) for trial in made.trials] == [("freeze", "fork")]
    assert reasons(made) == {EXEC_STEP: "not in this scenario"}


@pytest.mark.parametrize(("role", "who"), [("shim", "shim.2"), ("worker", "worker"), ("spawner", "spawner")])
def test_the_freeze_of_a_helper_waits_for_its_end_and_its_driver_s(role: str, who: str) -> None:
    made = enumerate_set((f"{who}@1:running:1",), kill=(), freeze=(role,))
    (trial,) = made.trials
    assert format_plan(trial.plan) == (
        f"freeze {who}@1:running:1; start; end driver@2; wake {who}@1; end {who}@1; end driver@1"
    )


HELD = (
    "driver@1:holder.rename.before:1",
    "driver@1:open.commit.locked:1",
    "driver@1:identity.rename.after:1",
    "driver@1:floor.commit.locked:1",
    "driver@1:ledger.prepare.append.unsynced:1",
    "shim.1@1:ledger.start.append.before:1",
    "driver@1:ledger.seal.tail.before:1",
    "driver@1:outcome.commit.locked:1",
)


def test_rule_L4_a_holder_of_a_lock_that_left_its_identity_is_frozen_and_must_be_killed_not_woken() -> None:
    """The registry's lock is no session's own, and a log that is being made has no name yet: those two are named."""
    made = enumerate_set(HELD, kill=(), freeze=("driver", "shim"))
    assert made.frozen == HELD[2:]
    assert {one.step: one.reason for one in made.not_frozen} == {HELD[0]: "lock held", HELD[1]: "lock held"}
    plans = [format_plan(trial.plan) for trial in made.trials if trial.plan[0].at != HELD[2]]
    assert plans == [
        f"freeze {step}; start; end driver@2; killed {who}@1" + ("; end driver@1" if who == "shim.1" else "")
        for step, who in ((step, step.partition("@")[0]) for step in HELD[3:])
    ]


def test_freezes_with_a_lock_held_are_sampled_evenly_and_the_others_are_named() -> None:
    made = enumerate_set((*HELD, EXEC_STEP), kill=(), freeze=("driver", "shim"), held=3)
    assert made.frozen == (HELD[2], HELD[3], HELD[5], HELD[7], EXEC_STEP)
    assert [one.step for one in made.not_frozen if one.reason == "sampled"] == [HELD[4], HELD[6]]


def test_nothing_is_frozen_where_the_holder_of_a_lock_is_not_known_or_the_session_has_ended() -> None:
    locked, after = "driver@1:outcome.commit.locked:1", "driver@1:side.unlink.before:1"
    made = enumerate_set(("shim.1@1:start:1", EXEC_STEP, locked, FINISH, after), freeze=("driver",))
    assert made.frozen == (EXEC_STEP,)
    assert {one.step: one.reason for one in made.not_frozen} == {
        "shim.1@1:start:1": "not in this scenario",
        locked: "lock held",
        FINISH: "process already gone by then",
        after: "process already gone by then",
    }
    assert reasons(made) == {}


CALLS = (
    "driver@1:floor.raised:1",
    "driver@1:intent.commit.before:1",
    "shim.1@1:start:1",
    "driver@1:intent.commit.before:2",
    "shim.2@1:start:1",
    "driver@1:finish.syncfs.before:1",
    "driver@1:finish.commit.before:1",
)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"call": 3}, "call 3: the recorded driver begins no such call"),
        ({"until": "driver@1:nowhere:1"}, "until driver@1:nowhere:1: the clean run passes no such step"),
    ],
)
def test_a_limit_that_the_clean_run_does_not_know_is_refused(limits: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MisuseError, match=sentence):
        enumerate_set(CALLS, **limits)


@pytest.mark.parametrize(
    ("limits", "chosen"),
    [
        ({"call": 1}, CALLS[1:3]),
        ({"call": 2}, CALLS[3:5]),
        ({"until": CALLS[2]}, CALLS[:3]),
        ({"call": 1, "until": CALLS[1]}, CALLS[1:2]),
        ({"call": 2, "until": CALLS[6]}, CALLS[3:5]),
    ],
)
def test_a_set_may_be_limited_to_a_call_and_up_to_a_step(limits: dict[str, Any], chosen: tuple[str, ...]) -> None:
    made = enumerate_set(CALLS, freeze=("driver", "shim"), **limits)
    assert steps_of(made, "kill") == steps_of(made, "freeze") == list(chosen)
    left = dict.fromkeys((step for step in CALLS if step not in chosen), "not in this scenario")
    assert reasons(made) == {one.step: one.reason for one in made.not_frozen} == left


def test_calls_are_counted_in_the_epoch_that_is_recorded() -> None:
    passed = tuple(step.replace("@1:", "@2:") for step in CALLS)
    made = enumerate_trials(record(*passed, prefix=PREFIX), make_scenario(), TrialSet(PREFIX, call=1))
    assert [trial.plan[1].at for trial in made.trials] == list(passed[1:3])


def test_second_kills_end_with_the_recovery() -> None:
    passed = ("driver@2:decided:1", "driver@2:recovered:1", "driver@2:intent.commit.before:1")
    after = {passed[2]: "not in this scenario"}
    made = enumerate_trials(record(*passed, prefix=PREFIX), make_scenario(), TrialSet(PREFIX, label="settled"))
    assert ([trial.plan[1].at for trial in made.trials], reasons(made)) == (list(passed[:2]), after)
    plain = enumerate_trials(record(*passed, prefix=PREFIX), make_scenario(), TrialSet(PREFIX))
    assert ([trial.plan[1].at for trial in plain.trials], reasons(plain)) == (list(passed), {})


def test_a_set_with_a_sample_kills_evenly_with_both_ends() -> None:
    passed = [f"driver@1:decided:{number}" for number in range(1, 8)]
    made = enumerate_set(passed, sample=3)
    assert steps_of(made, "kill") == [passed[0], passed[3], passed[6]]
    assert reasons(made) == {step: "sampled" for step in passed if step not in steps_of(made, "kill")}
    assert steps_of(enumerate_set(passed, sample=1), "kill") == [passed[0]]
    assert steps_of(enumerate_set(passed, sample=7), "kill") == steps_of(enumerate_set(passed, sample=99), "kill") == passed


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(2, 60))
def test_a_sample_has_as_many_as_were_wanted_and_no_gap_twice_another(there: int, wanted: int) -> None:
    passed = [f"driver@1:decided:{number}" for number in range(1, there + 1)]
    chosen = [passed.index(step) for step in steps_of(enumerate_set(passed, sample=wanted), "kill")]
    assert len(chosen) == min(there, wanted)
    assert (chosen[0], chosen[-1]) == (0, there - 1)
    gaps = [later - earlier for earlier, later in zip(chosen, chosen[1:], strict=False)]
    assert 1 <= min(gaps) and max(gaps) - min(gaps) <= 1


def test_a_set_after_a_prefix_kills_in_the_first_epoch_recorded_and_carries_the_prefix_and_what_is_saved() -> None:
    passed = ("driver@2:decided:1", "shim.1@2:running:1", "driver@3:decided:1")
    recording = record(*passed, prefix=PREFIX, saved=1)
    made = enumerate_trials(recording, make_scenario(), TrialSet(PREFIX, freeze=("shim",)))
    assert [format_plan(trial.plan) for trial in made.trials] == [
        "kill driver@1:decided:1; kill driver@2:decided:1",
        "kill driver@1:decided:1; kill shim.1@2:running:1",
        "kill driver@1:decided:1; freeze shim.1@2:running:1; start; end driver@3; wake shim.1@2; end shim.1@2; end driver@2",
    ]
    assert [(trial.fault, trial.saved) for trial in made.trials] == [("kill", 1), ("kill", 1), ("freeze", 1)]
    assert (made.prefix, reasons(made)) == (PREFIX, {"driver@3:decided:1": "not yet"})


def test_kills_inside_the_recovery_that_a_label_names_are_second_kills() -> None:
    recording = record("driver@2:decided:1", prefix=PREFIX, saved=1)
    made = enumerate_trials(recording, make_scenario(), TrialSet(PREFIX, label="settled"))
    assert [(trial.fault, trial.saved) for trial in made.trials] == [("again", 1)]


def test_third_kills_are_counted_as_such_and_begin_with_the_successor_of_the_process_killed_last() -> None:
    """Its driver, which lost a helper, passes steps on its way out: those are of the recovery that was killed, not of the next."""
    recovery = ["driver@3:floor.commit.before:1", "worker@3:start:1", "driver@3:recovered:1"]
    passed = ["driver@2:halt:1", *recovery, "driver@3:finish.commit.after:1"]
    before = parse_plan("kill driver@1:decided:1; kill worker@2:start:1")
    made = enumerate_trials(record(*passed, prefix=before), make_scenario(), TrialSet(before, depth=3))
    assert {trial.fault for trial in made.trials} == {"deeper"}
    assert [trial.plan[-1].at for trial in made.trials] == passed[1:4]
    assert reasons(made) == {passed[0]: "not yet", passed[4]: "not in this scenario"}


def test_a_loss_takes_the_place_of_each_kill_or_follows_it() -> None:
    passed = ["driver@1:decided:1", "worker@1:start:1"]
    lost = enumerate_set(passed, lose="root removed")
    assert [format_plan(trial.plan) for trial in lost.trials] == [f'lose {step} "root removed"' for step in passed]
    then = enumerate_set(passed, then=parse_plan('lose "boot"'))
    assert [format_plan(trial.plan) for trial in then.trials] == [f'kill {step}; lose "boot"' for step in passed]
    assert {trial.fault for trial in (*lost.trials, *then.trials)} == {"lose"} and (lost.does, then.does) == ("lose", "kill")


def test_what_only_the_mode_ci_samples_keeps_its_exec_trial() -> None:
    passed = [EXEC_STEP, "driver@1:decided:1"]
    assert steps_of(enumerate_set(passed, sample=1, ci=1), "exec") == [EXEC_STEP]
    assert steps_of(enumerate_set(passed, sample=1), "exec") == []


def test_after_a_prefix_there_is_no_exec_trial() -> None:
    """An exec trial has no zygote's state to begin from."""
    made = enumerate_trials(record(EXEC_STEP, prefix=PREFIX, saved=1), make_scenario(), TrialSet(PREFIX))
    assert [trial.fault for trial in made.trials] == ["kill"]
    with_saved = enumerate_trials(record(EXEC_STEP, saved=1), make_scenario(), TrialSet())
    assert [(trial.fault, trial.saved) for trial in with_saved.trials] == [("kill", 1), ("exec", 0)]


def test_where_the_death_of_a_command_cannot_be_proved_its_shim_is_not_touched() -> None:
    passed = [f"shim.1@1:{name}:1" for name in ("start", "ledger.start.append.unsynced", "running", "ledger.exit.append.unsynced", "end")]
    recording = record(*passed, EXEC_STEP, kill_mark="environment")
    made = enumerate_trials(recording, make_scenario(), TrialSet(freeze=("shim",)))
    assert reasons(made) == {passed[1]: "platform", passed[2]: "platform"}
    assert made.frozen == (passed[0], passed[4])
    assert {one.step: one.reason for one in made.not_frozen} == {
        passed[1]: "platform",
        passed[2]: "platform",
        passed[3]: "lock held",
        EXEC_STEP: "not in this scenario",
    }
    assert made.kill_mark == "environment"
    assert reasons(enumerate_trials(record(*passed), make_scenario(), TrialSet())) == {}


def test_a_plan_of_its_own_is_one_trial_and_leaves_the_rest_to_others() -> None:
    plan = (Action(STEPS[1], "kill"), Action("driver@2:start:1", "kill"))
    made = enumerate_trials(record(*STEPS), make_scenario(plan=plan), TrialSet(freeze=("driver",)), 3)
    assert made.trials == (Trial(3, "small", plan),)
    assert reasons(made) == {step: "not in this scenario" for step in STEPS if step != STEPS[1]}


def test_a_plan_that_somebody_gave_is_one_trial_more() -> None:
    made = enumerate_set(STEPS, first_number=4)
    more = add_trial(made, PREFIX)
    assert more.trials == (*made.trials, Trial(4 + len(made.trials), "small", PREFIX))
    assert (more.steps, more.unreachable) == (made.steps, made.unreachable)


COMMITS = tuple(f"driver@1:{name}.commit.after:1" for name in ("a", "b", "c", "d"))


def test_a_rollback_keeps_the_log_that_many_commits_of_the_driver_before_the_kill() -> None:
    passed = [step for commit in COMMITS for step in (commit.replace("after", "before"), commit)]
    made = enumerate_set([*passed, "shim.1@1:x.commit.after:1"], kill=("driver",), back=2)
    assert [format_plan(trial.plan) for trial in made.trials] == [
        f'keep {COMMITS[0]} "log"; kill {COMMITS[2]}; lose "log"',
        f'keep {COMMITS[1]} "log"; kill {COMMITS[3]}; lose "log"',
    ]
    assert {trial.fault for trial in made.trials} == {"rollback"}
    assert set(reasons(made)) == {*passed, "shim.1@1:x.commit.after:1"} - {COMMITS[2], COMMITS[3]}


@pytest.mark.parametrize(
    ("each", "fault"), [('edit "a" "b"', "edit"), ('turn "a" "fifo"', "edit"), ('jump "+1h"', "clock"), ('lose "boot"', "lose")]
)
def test_what_is_done_at_each_step_takes_the_place_of_each_kill(each: str, fault: str) -> None:
    made = enumerate_set(STEPS, each=parse_plan(each), kill=("driver",))
    verb, _, rest = each.partition(" ")
    assert [format_plan(trial.plan) for trial in made.trials] == [f"{verb} {step} {rest}" for step in STEPS if step.startswith("driver@")]
    assert {trial.fault for trial in made.trials} == {fault}
    assert made.does == verb


def test_a_jump_after_each_kill_is_counted_as_one_of_the_clock() -> None:
    made = enumerate_set(STEPS, then=parse_plan('jump "-3h"'), kill=("driver",))
    assert {trial.fault for trial in made.trials} == {"clock"}
    assert format_plan(made.trials[0].plan) == f'kill {STEPS[0]}; jump "-3h"'


def test_the_space_is_ended_only_where_it_is() -> None:
    made = enumerate_set(STEPS, lose="space", kill=("driver",))
    assert [trial.plan[0].at for trial in made.trials] == ["driver@1:outcome.commit.before:1", "driver@1:intent.commit.before:2"]


def test_a_race_wakes_the_two_sleepers_in_either_order() -> None:
    before = parse_plan("freeze driver@1:decided:1; start")
    step = "driver@2:decided:1"
    recording = record("spawner@2:start:1", step, "driver@2:x.locked:1", prefix=before)
    made = enumerate_trials(recording, make_scenario(), TrialSet(before=before, kill=(), freeze=("driver",), race=True))
    began = f"freeze driver@1:decided:1; start; freeze {step}; start; end driver@3; "
    assert [format_plan(trial.plan) for trial in made.trials if trial.plan[2].at == step] == [
        began + "wake driver@1; end driver@1; wake driver@2; end driver@2",
        began + "wake driver@2; end driver@2; wake driver@1; end driver@1",
    ]
    assert {trial.fault for trial in made.trials} == {"race"}
    assert [trial.number for trial in made.trials] == list(range(1, len(made.trials) + 1))


def test_a_race_is_not_frozen_where_the_same_pass_may_come_after_the_end() -> None:
    """Whether a driver clears the identity of an older one away depends on whether that has ended: asleep it has not, and the first pass of
    this name is the one after the session's end."""
    before = parse_plan("freeze driver@1:decided:1; start")
    end = ("driver@2:finish.commit.after:1", "driver@2:identity.unlink.before:2")
    recording = record("driver@2:decided:1", "driver@2:identity.unlink.before:1", *end, prefix=before)
    made = enumerate_trials(recording, make_scenario(), TrialSet(before=before, kill=(), freeze=("driver",), race=True))
    assert made.frozen == ("driver@2:decided:1",)
    assert {one.step: one.reason for one in made.not_frozen}["driver@2:identity.unlink.before:1"] == "process already gone by then"
    plain = enumerate_trials(recording, make_scenario(), TrialSet(before=before, kill=(), freeze=("driver",)))
    assert "driver@2:identity.unlink.before:1" in plain.frozen
