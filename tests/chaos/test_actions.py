"""Plans as data: text and JSON are round trips, and each mistake is one sentence that names the action and what to write instead."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import actions as module
from chaos.actions import VERBS, action_from_json, action_to_json, check_action, format_action, format_plan, parse_plan, parse_who
from chaos.results import Action
from eventlog.errors import MisuseError
from tests.chaos.strategies import actions, whos

STEP = "driver@1:decided:1"


@settings(deadline=None)
@given(st.lists(actions, max_size=6))
def test_a_plan_survives_being_written_and_read(plan: list[Action]) -> None:
    text = format_plan(plan)
    assert parse_plan(text) == tuple(plan)
    assert "\n" not in text and text.isascii()


@settings(deadline=None)
@given(actions)
def test_an_action_survives_the_way_through_json(action: Action) -> None:
    table = action_to_json(action)
    assert action_from_json(json.loads(json.dumps(table)), "plan 1") == action
    assert "" not in (table["do"], table.get("at"), table.get("who"), table.get("path"))


@settings(deadline=None)
@given(actions)
def test_every_action_that_can_be_meant_is_let_through(action: Action) -> None:
    assert check_action(action) == action


def test_each_verb_has_a_text_of_its_own() -> None:
    plan = (
        Action("shim.1@1:running:1", "wait"),
        Action(STEP, "kill"),
        Action("", "kill", "command@1"),
        Action(STEP, "freeze"),
        Action("", "freeze", "driver@1"),
        Action("", "wake", "driver@1"),
        Action("", "killed", "driver@1"),
        Action("", "release", "shim.1@1"),
        Action("", "start"),
        Action("", "end", "driver@2"),
        Action(STEP, "edit", path="a b;c", content='say "x"\n'),
        Action(STEP, "edit", path="a"),
        Action("", "edit", path="a", content=""),
        Action(STEP, "lose", path="root moved"),
        Action("", "lose", path="files"),
        Action(STEP, "keep", path="log"),
        Action("", "parked", "driver@2", path="root_replaced"),
        Action("", "person", path="settle --rebuild"),
        Action(STEP, "turn", path="a", content="symlink b c"),
        Action("", "turn", path="a", content="fifo"),
        Action(STEP, "jump", path="+10y"),
        Action("", "jump", path="-3h"),
        Action("", "corrupt", path="log", content="flip 7 of 0"),
        Action(STEP, "cut"),
        Action("", "fail", "driver@2", path="wal", content="sync 1 EIO"),
    )
    assert format_plan(plan) == (
        f"wait shim.1@1:running:1; kill {STEP}; kill who command@1; freeze {STEP}; freeze who driver@1; wake driver@1; "
        f'killed driver@1; release shim.1@1; start; end driver@2; edit {STEP} "a b;c" "say \\"x\\"\\n"; edit {STEP} "a"; edit "a" ""; '
        f'lose {STEP} "root moved"; lose "files"; keep {STEP} "log"; parked driver@2 "root_replaced"; person "settle --rebuild"; '
        f'turn {STEP} "a" "symlink b c"; turn "a" "fifo"; jump {STEP} "+10y"; jump "-3h"; '
        f'corrupt "log" "flip 7 of 0"; cut {STEP}; fail driver@2 "wal" "sync 1 EIO"'
    )
    assert {action.do for action in plan} == set(VERBS)


def test_the_description_of_plans_names_every_verb() -> None:
    forms = re.findall(r"^    ([a-z]+) ", module.__doc__ or "", re.MULTILINE)
    assert set(forms) == set(VERBS)


def test_no_text_is_no_plan_and_blanks_do_not_count() -> None:
    assert parse_plan("") == parse_plan("  \n ") == ()
    plan = parse_plan(f"  kill   {STEP} ;start;\n\tend  driver@2 ")
    assert plan == (Action(STEP, "kill"), Action("", "start"), Action("", "end", "driver@2"))


def test_shim_alone_is_the_first_shim_in_steps_and_processes() -> None:
    assert parse_plan("wait shim@1:running:1; release shim@1; kill who shim@2") == (
        Action("shim.1@1:running:1", "wait"),
        Action("", "release", "shim.1@1"),
        Action("", "kill", "shim.1@2"),
    )


@settings(deadline=None)
@given(whos)
def test_a_process_is_its_role_and_epoch(who: str) -> None:
    role, epoch = parse_who(who)
    assert f"{role}@{epoch}" == who


MISTAKES = {
    "unknown verb": ("hug driver@1", "plan: action 1: unknown do 'hug'; use wait, kill, freeze, wake, killed, release, start, end, edit"),
    "kill of nothing": ("kill", "plan: action 1: kill takes a step (at) or a process (who); found at = '', who = ''"),
    "no step": ("kill driver", "plan: action 1: 'driver' is no step; write ROLE@EPOCH:NAME:N"),
    "step of epoch 0": (f"kill {STEP}; kill driver@0:x:1", "plan: action 2: 'driver@0:x:1' is no step; write ROLE@EPOCH:NAME:N"),
    "no process": ("kill who driver", "plan: action 1: 'driver' is no process; write ROLE@EPOCH with ROLE driver, spawner, shim.K, worker"),
    "process of epoch 0": ("freeze who command@0", "plan: action 1: 'command@0' is no process"),
    "step of a command": ("kill command@1:x:1", "plan: action 1: 'command@1:x:1' is no step"),
    "wait for a process": ("wait who driver@1", "plan: action 1: wait takes a step (at); found at = '', who = 'driver@1'"),
    "wake at a step": (f"wake {STEP}", f"plan: action 1: {STEP!r} is no process"),
    "end of nothing": ("end", "plan: action 1: end takes a process (who); found at = '', who = ''"),
    "start of something": ("start driver@2", "plan: action 1: start takes nothing; found at = '', who = 'driver@2'"),
    "two steps": (f"kill {STEP} {STEP}", f"plan: action 1: 'kill {STEP} {STEP}' is too much; a step is ROLE@EPOCH:NAME:N"),
    "path of a kill": (f'kill {STEP} "a"', "plan: action 1: kill takes no path or content"),
    "edit without a path": (f"edit {STEP}", "plan: action 1: edit needs a path"),
    "edit of an empty path": ('edit "" "x"', "plan: action 1: edit needs a path"),
    "edit in a process": ('edit who driver@1 "a"', "plan: action 1: edit takes a step (at) or nothing; found at = '', who = 'driver@1'"),
    "turn into nothing": ('turn "a"', 'plan: action 1: turn makes a "directory", a "fifo" or a "symlink TARGET" of a path, found None'),
    "turn into a file": ('turn "a" "file"', 'plan: action 1: turn makes a "directory"'),
    "turn into a link to nothing": ('turn "a" "symlink "', 'plan: action 1: turn makes a "directory"'),
    "jump by no time": ('jump "3h"', "plan: action 1: jump '3h' is no time; write \"+3h\""),
    "jump by nothing": ('jump "+0s"', "plan: action 1: jump '+0s' is no time"),
    "jump with a content": ('jump "+1s" "a"', "plan: action 1: jump needs a time in quotes"),
    "two contents": ('edit "a" "b" "c"', "plan: action 1: edit takes a path and at most one content"),
    "open string": ('edit "a', "plan: '\"a' cannot be read; paths and contents stand in double quotes"),
    "no JSON string": (r'edit "\x"', r'plan: "\x" is no string as in JSON'),
    "empty first": (f"; kill {STEP}", "plan: action 1: has no verb; use wait, kill"),
    "empty last": (f"kill {STEP};", "plan: action 2: has no verb; use wait, kill"),
    "quoted verb": (f'"kill" {STEP}', "plan: action 1: has no verb; use wait, kill"),
}


@pytest.mark.parametrize(("text", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_plan_that_is_wrong_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        parse_plan(text)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_string_over_two_lines_is_refused_in_one() -> None:
    with pytest.raises(MisuseError, match="is no string as in JSON") as caught:
        parse_plan('edit "a\nb"')
    assert "\n" not in str(caught.value)


TABLES = {
    "no table": (3, "an action is a table of strings, such as at ="),
    "no do": ({"at": STEP}, "an action is a table of strings, such as at ="),
    "a number": ({"at": STEP, "do": "kill", "who": 1}, "an action is a table of strings, such as at ="),
    "no content": ({"do": "edit", "path": "a", "content": None}, "an action is a table of strings, such as at ="),
    "unknown key": ({"do": "start", "hard": "x"}, "unknown key 'hard'; an action has at, do, who, path, content"),
    "unknown verb": ({"do": "hug"}, "unknown do 'hug'; use wait"),
    "both": ({"do": "kill", "at": STEP, "who": "driver@1"}, f"kill takes a step (at) or a process (who); found at = {STEP!r}, who = '"),
    "no step": ({"do": "kill", "at": "driver"}, "'driver' is no step; write ROLE@EPOCH:NAME:N"),
    "content alone": ({"do": "start", "content": ""}, "start takes no path or content"),
}


@pytest.mark.parametrize(("table", "sentence"), TABLES.values(), ids=TABLES)
def test_a_table_that_is_wrong_is_refused_in_one_sentence(table: object, sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        action_from_json(table, "file: plan 2")
    assert str(caught.value).startswith(f"file: plan 2: {sentence}")
    assert "\n" not in str(caught.value)


def test_an_action_is_shown_with_what_it_is_aimed_at() -> None:
    assert format_action(Action(STEP, "kill")) == f"kill {STEP}"
    assert format_action(Action("", "kill", "shim.2@1")) == "kill who shim.2@1"
    assert format_action(Action("", "wake", "shim.2@1")) == "wake shim.2@1"
