"""The shrinker and what it is made of: a value and a predicate, proposals, rates."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from chaos.actions import parse_plan
from chaos.catalogue import find_files
from chaos.results import OracleVerdict, Trial, Verdict, classify_detail, signature_of
from chaos.scenario import SeedEntry, load_scenario
from chaos.shrink import passes
from chaos.shrink.case import Case, measure
from chaos.shrink.reruns import MOST_TRIES, choose_tries, describe_rate
from chaos.shrink.scenario_toml import render_scenario
from chaos.shrink.shrinker import Shrinker
from chaos.shrink.work import make_case
from recovery.script import BashCall, WriteCall
from tests.chaos.fakes import make_result, make_scenario

KILL = parse_plan("kill driver@1:outcome.commit.before:3")
CALLS = (BashCall(b"one"), BashCall(b"two"), BashCall(b"three"))


def drop_one(value: str) -> Iterator[str]:
    """The text without one of its characters."""
    return (value[:place] + value[place + 1 :] for place in range(len(value)))


def make_shrinker(wanted: str, left: int = 1000) -> Shrinker[str]:
    """One for texts that are the same as long as they hold each character of `wanted`; its time is up after `left` looks at the clock."""
    looks = count()
    return Shrinker(lambda value: set(wanted) <= set(value), len, lambda: next(looks) >= left)


def test_the_smallest_value_is_found_and_no_value_is_asked_about_twice() -> None:
    asked: list[str] = []

    def is_same(value: str) -> bool:
        asked.append(value)
        return "x" in value and "y" in value

    shrinker = Shrinker(is_same, len, lambda: False)
    assert sorted(shrinker.shrink("axbyaxb", [drop_one])) == ["x", "y"]
    assert shrinker.is_complete and len(asked) == len(set(asked)) == shrinker.asked


def test_what_is_not_smaller_is_never_asked_about() -> None:
    looks = count()
    shrinker = Shrinker(lambda value: True, len, lambda: next(looks) > 9)
    assert shrinker.shrink("ab", [lambda value: iter([value + "c", "cd"])]) == "ab"
    assert shrinker.asked == 0


def test_when_the_time_is_up_the_smallest_so_far_is_the_result() -> None:
    shrinker = make_shrinker("z", left=2)
    assert shrinker.shrink("abcz", [drop_one]) == "cz"
    assert not shrinker.is_complete


@pytest.mark.parametrize(("returned", "reruns", "tries"), [(5, 5, 1), (4, 5, 2), (1, 2, 5), (1, 100, MOST_TRIES)])
def test_a_flaky_failure_gets_as_many_trials_as_its_rate_asks_for(returned: int, reruns: int, tries: int) -> None:
    assert choose_tries(returned, reruns) == tries
    assert f"{returned} of {reruns} reruns" in describe_rate("before", returned, reruns)
    assert ("flaky" in describe_rate("before", returned, reruns)) == (returned < reruns)


def test_actions_are_left_out_and_the_epochs_after_them_counted_down() -> None:
    case = Case(make_scenario(), parse_plan("kill driver@1:start:1; kill driver@2:decided:1"))
    plans = [one.plan for one in passes.fewer_actions(case)]
    assert plans[0] == ()
    assert parse_plan("kill driver@1:decided:1") in plans and parse_plan("kill driver@1:start:1") in plans


def test_calls_are_left_out_with_their_witness_and_steps_bound_again() -> None:
    case = Case(make_scenario(calls=CALLS, witnessed=(0, 2)), KILL)
    proposed = list(passes.fewer_calls(case))
    alone = [one for one in proposed if one.scenario.calls == (CALLS[2],)]
    assert alone and all(one.scenario.witnessed == (0,) for one in alone)
    assert {one.plan for one in alone} == {parse_plan(f"kill driver@1:outcome.commit.before:{number}") for number in (1, 2, 3)}


def test_every_proposal_of_a_pass_but_rebinding_is_smaller_or_left_aside() -> None:
    seed = (SeedEntry(b"a", "file", b"content", 0o600), SeedEntry(b"b", "directory"))
    case = Case(make_scenario(seed=seed, calls=(BashCall(b"one\ntwo"), WriteCall(b"p", b"x" * 40)), ready="r", gate="g"), KILL)
    for propose in (passes.smaller_tree, passes.shorter_calls, passes.plainer_scenario):
        sizes = [measure(one) for one in propose(case)]
        assert sizes and min(sizes) < measure(case)


def test_an_action_moves_back_through_the_steps_that_are_the_same_and_no_further() -> None:
    steps = [f"driver@1:s{number}:1" for number in range(9)]
    case = Case(make_scenario(), parse_plan(f"kill {steps[8]}"))
    same = {steps[number] for number in (8, 7, 4)}
    moved = passes.move_to_earliest(case, lambda one, place: steps, lambda one: one.plan[0].at in same)
    assert moved.plan[0].at == steps[4]


@pytest.mark.parametrize("file", sorted(set(find_files("ci"))), ids=lambda file: file.stem)
def test_a_scenario_survives_being_written_as_toml(file: Path, tmp_path: Path) -> None:
    case = make_case(load_scenario(file), "fork")
    written = tmp_path / "written.toml"
    written.write_text(render_scenario(Case(case.scenario, KILL), ("a comment\nof two lines",)), "utf-8")
    assert make_case(load_scenario(written), "fork") == Case(case.scenario, KILL)


def test_a_signature_leaves_out_the_values_of_a_trial_and_tells_failures_apart() -> None:
    def sign(detail: str, path: str = "a", label: str = "adopt", oracle: str = "order") -> object:
        oracles = (OracleVerdict("chain", Verdict.PASS), OracleVerdict(oracle, Verdict.FAIL, detail, path))
        return signature_of(make_result(Trial(3, "small", KILL), Verdict.FAIL, oracles=oracles, decisions=("void", label)))

    one = sign("call 3 attempt 1 at driver@1:outcome.commit.before:3 has 'log.txt' of 0a1b2c3d4e5f, see /dev/shm/x/log [1, 2]")
    other = sign("call 12 attempt 4 at shim.2@1:start:1 has \"b\" of 99aabbccddee1122, see /var/y [7, 8, 9]", "other")
    assert one == other
    assert len({one, sign("differs"), sign("differs", ""), sign("differs", label="void"), sign("differs", oracle="witness")}) == 5
    assert classify_detail("driver 2 ended with 75") == "driver N ended with N"
