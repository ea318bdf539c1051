"""Sets of trials: read from a scenario's tables, written back, and each mistake one sentence."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.results import Action
from chaos.trial_set import ROLES, TrialSet, parse_trial_sets, trial_set_to_json
from eventlog.errors import MisuseError
from tests.chaos.strategies import actions

roles = st.sets(st.sampled_from(ROLES)).map(lambda chosen: tuple(role for role in ROLES if role in chosen))
sets = st.builds(
    TrialSet, st.lists(actions, max_size=3).map(tuple), roles, roles, st.sampled_from(["", "settled", "adopt_exit"]), st.integers(0, 99)
)


@settings(deadline=None)
@given(st.lists(sets, min_size=1, max_size=3))
def test_sets_survive_the_way_through_json(several: list[TrialSet]) -> None:
    assert parse_trial_sets(json.loads(json.dumps([trial_set_to_json(one) for one in several])), "file") == tuple(several)


def test_no_table_is_the_plain_set_and_an_empty_one_too() -> None:
    assert parse_trial_sets([], "file") == parse_trial_sets([{}], "file") == (TrialSet(),)
    assert TrialSet() == TrialSet((), ("driver", "spawner", "shim", "worker"), (), "", 0)


def test_a_set_is_read_with_its_roles_in_order() -> None:
    table = {"before": "kill driver@1:decided:1", "kill": ["worker", "driver"], "freeze": [], "label": "settled", "sample": 2}
    assert parse_trial_sets([table], "file") == (TrialSet((Action("driver@1:decided:1", "kill"),), ("driver", "worker"), (), "settled", 2),)


MISTAKES = {
    "no tables": ({"kill": []}, "file: trials must be [[trials]] tables"),
    "no table": (["kill"], "file: trials 1: expected a table, found str"),
    "unknown key": ([{}, {"kil": []}], "file: trials 2: unknown key 'kil'; a set of trials has before, kill, freeze, label, sample"),
    "unknown role": ([{"kill": ["drivers"]}], "file: trials 1: kill must be a list of driver, spawner, shim, worker; found ['drivers']"),
    "one role": ([{"freeze": "driver"}], "file: trials 1: freeze must be a list of driver, spawner, shim, worker; found 'driver'"),
    "a shim by number": ([{"freeze": ["shim.1"]}], "file: trials 1: freeze must be a list of driver"),
    "before": ([{"before": 3}], 'file: trials 1: before and label are strings; before is a plan, such as before = "kill'),
    "label": ([{"label": ["a"]}], "file: trials 1: before and label are strings"),
    "plan": ([{"before": "kill driver"}], "file: trials 1: before: action 1: 'driver' is no step"),
    "sample": ([{"sample": -1}], "file: trials 1: sample must be a number of trials, 0 for all; found -1"),
    "sample true": ([{"sample": True}], "file: trials 1: sample must be a number of trials, 0 for all; found True"),
}


@pytest.mark.parametrize(("tables", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_set(tables: object, sentence: str) -> None:
    with pytest.raises(MisuseError) as caught:
        parse_trial_sets(tables, "file")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
