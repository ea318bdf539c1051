"""Sets of trials: read from a scenario's tables, written back, and each mistake one sentence."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.actions import parse_plan
from chaos.results import Action
from chaos.step import format_step
from chaos.trial_set import ROLES, TrialSet, parse_trial_sets, trial_set_to_json, widen
from eventlog.errors import MisuseError
from tests.chaos.strategies import actions, steps

roles = st.sets(st.sampled_from(ROLES)).map(lambda chosen: tuple(role for role in ROLES if role in chosen))
sets = st.builds(
    TrialSet,
    st.lists(actions, max_size=3).map(tuple),
    roles,
    roles,
    st.sampled_from(["", "settled", "adopt_exit"]),
    st.integers(0, 99),
    st.integers(0, 9),
    st.one_of(st.just(""), steps.map(format_step)),
    st.booleans(),
    st.integers(0, 9),
)


@settings(deadline=None)
@given(st.lists(sets, min_size=1, max_size=3))
def test_sets_survive_the_way_through_json(several: list[TrialSet]) -> None:
    assert parse_trial_sets(json.loads(json.dumps([trial_set_to_json(one) for one in several])), "file") == tuple(several)


def test_no_table_is_the_plain_set_and_an_empty_one_too() -> None:
    assert parse_trial_sets([], "file") == parse_trial_sets([{}], "file") == (TrialSet(),)
    assert TrialSet() == TrialSet((), ("driver", "spawner", "shim", "worker", "filler"), (), "", 0, 0, "")


def test_a_set_is_read_with_its_roles_in_order() -> None:
    table = {"before": "kill driver@1:decided:1", "kill": ["worker", "driver"], "freeze": [], "label": "settled", "sample": 2, "call": 3}
    (found,) = parse_trial_sets([table | {"until": "shim@2:running:1"}], "file")
    assert found == TrialSet((Action("driver@1:decided:1", "kill"),), ("driver", "worker"), (), "settled", 2, 3, "shim.1@2:running:1")


def test_a_soak_has_no_limits_and_begins_from_nothing_too() -> None:
    prefix = (Action("driver@1:decided:1", "kill"),)
    limited = TrialSet(prefix, label="settled", sample=3, call=2, until="driver@2:decided:1", held=4)
    assert widen((limited,)) == (TrialSet(), TrialSet(prefix, label="settled"))
    assert widen((TrialSet(call=1), TrialSet(call=2), limited)) == (TrialSet(), TrialSet(prefix, label="settled"))
    assert widen((TrialSet(),)) == (TrialSet(),)


MISTAKES = {
    "no tables": ({"kill": []}, "file: trials must be [[trials]] tables"),
    "no table": (["kill"], "file: trials 1: expected a table, found str"),
    "unknown key": ([{}, {"kil": []}], "file: trials 2: unknown key 'kil'; a set of trials has before, call, until, kill, freeze"),
    "unknown role": (
        [{"kill": ["drivers"]}], "file: trials 1: kill must be a list of driver, spawner, shim, worker, filler, redriver; found ['drivers']"
    ),
    "one role": (
        [{"freeze": "driver"}], "file: trials 1: freeze must be a list of driver, spawner, shim, worker, filler, redriver; found 'driver'"
    ),
    "a shim by number": ([{"freeze": ["shim.1"]}], "file: trials 1: freeze must be a list of driver"),
    "before": (
        [{"before": 3}], 'file: trials 1: before, then, each, lose, label and until are strings; before is a plan, such as before = "kill'
    ),
    "label": ([{"label": ["a"]}], "file: trials 1: before, then, each, lose, label and until are strings"),
    "until": ([{"until": 2}], "file: trials 1: before, then, each, lose, label and until are strings"),
    "until no step": ([{"until": "driver"}], "file: trials 1: until: 'driver' is no step"),
    "call": ([{"call": -1}], "file: trials 1: call must be the number of a call, from 1, or 0 for all; found -1"),
    "plan": ([{"before": "kill driver"}], "file: trials 1: before: action 1: 'driver' is no step"),
    "sample": ([{"sample": -1}], "file: trials 1: sample must be a number of trials, 0 for all; found -1"),
    "held": ([{"held": "all"}], "file: trials 1: held must be a number of freezes with a lock held, 0 for all; found 'all'"),
    "sample true": ([{"sample": True}], "file: trials 1: sample must be a number of trials, 0 for all; found True"),
}


@pytest.mark.parametrize(("tables", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_set(tables: object, sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        parse_trial_sets(tables, "file")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_soak_edits_at_no_step_after_the_last_scan() -> None:
    """An edit after the session's end is in no log and in no quarantine, rightly."""
    edits = TrialSet(before=parse_plan("kill driver@1:decided:1"), call=1, sample=2, each=parse_plan('edit "a" "b"'))
    assert [(one.call, one.sample) for one in widen((edits,)) if one.each] == [(1, 0)]
