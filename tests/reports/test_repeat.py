"""The commands handed out: each runs one trial alone, whatever its plan."""

import shlex

import msgspec
import pytest

from chaos.actions import parse_plan
from chaos.results import Action, Verdict
from reports.repeat import format_action, format_plan, repeat_command, replay_command, shrink_command
from tests.reports.makers import CONFIG, make_clean, make_plan, make_trial

STEP = "driver@1:outcome.commit.before:1"

TEXTS = {
    f"kill {STEP}": Action(STEP, "kill"),
    f"freeze {STEP}": Action(STEP, "freeze"),
    f"wait {STEP}": Action(STEP, "wait"),
    "kill who shim.1@1": Action("", "kill", "shim.1@1"),
    f"freeze {STEP} who driver@1": Action(STEP, "freeze", "driver@1"),
    "start": Action("", "start"),
    "end driver@2": Action("", "end", "driver@2"),
    "wake driver@1": Action("", "wake", "driver@1"),
    "release driver@1": Action("", "release", "driver@1"),
    f'edit {STEP} "a b" "one\\ntwo"': Action(STEP, "edit", "", "a b", "one\ntwo"),
    f'edit {STEP} "caf\\u00e9" ""': Action(STEP, "edit", "", "café", ""),
    f'edit {STEP} "gone"': Action(STEP, "edit", "", "gone"),
    'edit "a" "x"': Action("", "edit", "", "a", "x"),
}


@pytest.mark.parametrize(("text", "action"), TEXTS.items(), ids=TEXTS)
def test_each_action_has_its_text_form(text: str, action: Action) -> None:
    assert format_action(action) == text


def test_a_plan_is_its_actions_in_order() -> None:
    assert format_plan((Action(STEP, "freeze"), Action("", "start"), Action("", "wake", "driver@1"))) == (
        f"freeze {STEP}; start; wake driver@1"
    )
    assert format_plan(()) == ""


def test_one_plain_kill_is_repeated_by_its_step() -> None:
    config = msgspec.structs.replace(CONFIG, arguments={"small": "my dir/small.toml"}, engine="copy", program="python -m chaos")
    assert repeat_command(CONFIG, make_trial(1, Verdict.FAIL).trial) == (
        "chaos --mode ci --scenario small --step driver@1:s:1 --fault kill --seed 7"
    )
    assert repeat_command(config, make_trial(1, Verdict.FAIL, entry="exec").trial) == (
        "python -m chaos --mode ci --scenario 'my dir/small.toml' --step driver@1:s:1 --fault exec --engine copy --seed 7"
    )


def test_a_clean_run_is_repeated_by_its_scenario() -> None:
    assert repeat_command(CONFIG, make_clean(Verdict.FAIL).trial) == "chaos --mode ci --scenario small --seed 7"
    assert repeat_command(CONFIG, make_plan(0, "kill", Action(STEP, "kill")).trial) == "chaos --mode ci --scenario small --seed 7"


@pytest.mark.parametrize(
    "actions",
    [
        (Action(STEP, "kill"), Action("worker@2:restore:1", "kill")),
        (Action(STEP, "freeze"),),
        (Action("", "kill", "shim.1@1"),),
        (Action(STEP, "kill", "shim.1@1"),),
        (Action(STEP, "edit", "", "it's", "a; b\n"), Action(STEP, "kill")),
    ],
    ids=format_plan,
)
def test_any_other_plan_is_repeated_by_its_text(actions: tuple[Action, ...]) -> None:
    command = repeat_command(CONFIG, make_plan(1, "again", *actions).trial)
    assert shlex.split(command) == [*("chaos", "--mode", "ci", "--scenario", "small", "--plan", format_plan(actions), "--seed", "7")]
    assert command.isprintable()


def test_a_kill_under_strace_is_repeated_by_its_step() -> None:
    trial = make_plan(1, "syscall", Action("driver@1:fdatasync:2", "kill"), entry="syscall").trial
    assert repeat_command(CONFIG, trial) == "chaos --mode ci --scenario small --step driver@1:fdatasync:2 --seed 7"


def test_what_an_engine_copy_failed_at_is_replayed_on_that_copy() -> None:
    config = msgspec.structs.replace(CONFIG, engine="/an engine")
    kept = make_trial(1, Verdict.FAIL, kept="runs/1/artifacts/small-1")
    assert replay_command(config, kept).endswith("/small-1/trial.json --explain --engine '/an engine'")  # else it does not fail again


def test_what_failed_and_was_kept_is_shrunk_from_its_directory() -> None:
    assert shrink_command(CONFIG, make_trial(1, Verdict.FAIL, kept="runs/a b")) == "chaos shrink 'runs/a b'"
    assert shrink_command(CONFIG, make_trial(1, Verdict.FAIL)) == shrink_command(CONFIG, make_trial(1, Verdict.UNKNOWN, kept="x")) == ""
    assert shrink_command(CONFIG, make_trial(1, Verdict.FAIL, entry="syscall", kept="x")) == ""


def test_what_was_kept_is_replayed_from_its_file() -> None:
    config = msgspec.structs.replace(CONFIG, program="python -m chaos")
    kept = make_trial(1, Verdict.FAIL, kept="my runs/1/artifacts/small-1")
    assert replay_command(config, kept) == "python -m chaos replay 'my runs/1/artifacts/small-1/trial.json' --explain"
    cut = make_trial(1, Verdict.FAIL, kept="runs/1/artifacts/small-1 (incomplete: No space left on device)")
    assert replay_command(CONFIG, cut) == "chaos replay runs/1/artifacts/small-1/trial.json --explain"
    assert replay_command(CONFIG, make_trial(1, Verdict.FAIL)) == ""
    for entry in ("syscall", "power", "corrupt"):  # what chaos replay refuses, no report hands out
        assert replay_command(CONFIG, make_trial(1, Verdict.FAIL, entry=entry, kept="runs/1/artifacts/small-1")) == ""


@pytest.mark.parametrize(
    "action",
    [
        Action("driver@1:s:1", "lose", "", "root removed"),
        Action("", "lose", "", "boot"),
        Action("driver@1:s:1", "keep", "", "log"),
        Action("", "parked", "driver@2", "a word"),
        Action("", "person", "", "settle --rebuild"),
    ],
)
def test_what_is_lost_or_said_stands_in_the_plan_that_repeats_it(action: Action) -> None:
    assert parse_plan(format_plan((action,))) == (action,)
