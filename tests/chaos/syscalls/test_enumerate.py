"""Which passes are killed: a sample that the seed decides, spread over the run, with a share for every kind."""

import random
from collections import Counter

import pytest

from chaos.results import Recording, Trial, Verdict
from chaos.step import parse_step
from chaos.syscalls.enumerate import DEFAULT_KILLS, NOT_DRAWN, draw_passes, enumerate_kills, share_kills
from chaos.syscalls.inject import KINDS, Pass, format_pass
from eventlog.errors import MisuseError
from tests.chaos.fakes import make_result

SIZES = {"clone": 1, "fsync": 10, "rename": 3, "pwrite64": 196, "fdatasync": 43, "clone3": 1}
PASSES = [Pass(name, count, finished=True) for name, size in SIZES.items() for count in range(1, size + 1)]
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


def recording() -> Recording:
    return Recording("small", tuple(format_pass(one) for one in PASSES), make_result(Trial(0, "small", ()), Verdict.PASS), "environment")


def draw(kills: int, seed: int = 1) -> list[Pass]:
    return draw_passes(PASSES, kills, random.Random(seed))


@pytest.mark.parametrize(
    ("kills", "shares"),
    [
        (50, {"pwrite64": 23, "fdatasync": 22, "rename": 3, "clone": 2}),
        (6, {"pwrite64": 2, "fdatasync": 2, "rename": 1, "clone": 1}),
        (1, {"pwrite64": 1, "fdatasync": 0, "rename": 0, "clone": 0}),
        (1000, {"pwrite64": 196, "fdatasync": 53, "rename": 3, "clone": 2}),
    ],
)
def test_every_kind_gets_an_equal_share_as_far_as_it_has_calls(kills: int, shares: dict[str, int]) -> None:
    assert share_kills({"pwrite64": 196, "fdatasync": 53, "rename": 3, "clone": 2}, kills) == shares
    drawn = Counter(KIND_OF[one.name] for one in draw(kills))
    assert drawn == Counter({kind: share for kind, share in shares.items() if share})


def test_there_is_a_kill_for_each_drawn_pass_and_a_reason_for_every_other() -> None:
    made = enumerate_kills(recording(), 11, DEFAULT_KILLS, seed=3)
    assert len(made.trials) == DEFAULT_KILLS == 50
    assert [trial.number for trial in made.trials] == list(range(11, 61))
    assert {(trial.entry, trial.fault, len(trial.plan), trial.plan[0].do) for trial in made.trials} == {("syscall", "syscall", 1, "kill")}
    aimed = {trial.plan[0].at for trial in made.trials}
    assert len(aimed) == 50
    assert aimed | {one.step for one in made.unreachable} == set(made.steps) and {one.reason for one in made.unreachable} == {NOT_DRAWN}
    assert made.kill_mark == "environment"


def test_the_ends_of_each_call_are_killed() -> None:
    drawn = set(draw(50))
    assert {Pass(name, count, finished=True) for name, size in SIZES.items() for count in (1, size)} <= drawn


def test_the_kills_are_spread_over_the_whole_run() -> None:
    for seed in range(20):
        counts = sorted(one.count for one in draw(50, seed) if one.name == "pwrite64")
        assert max(after - before for before, after in zip(counts, counts[1:], strict=False)) <= 2 * -(-196 // 21)


def test_the_seed_decides_which() -> None:
    assert draw(50, 1) == draw(50, 1) != draw(50, 2)
    assert len({tuple(draw(6, seed)) for seed in range(10)}) > 1


def test_one_step_is_that_step_whatever_the_seed() -> None:
    for seed in (1, 2):
        made = enumerate_kills(recording(), 1, 50, seed, "driver@1:syscall.pwrite64:148")
        assert [trial.plan[0].at for trial in made.trials] == ["driver@1:syscall.pwrite64:148"]
    with pytest.raises(MisuseError, match=r"passes no such call; the last ones it passes are .*driver@1:syscall.pwrite64:196"):
        enumerate_kills(recording(), 1, 50, 1, "driver@1:syscall.pwrite64:197")


def test_a_run_without_calls_makes_no_trial() -> None:
    assert draw_passes([], 50, random.Random(1)) == []


def test_the_names_are_steps() -> None:
    assert parse_step(format_pass(PASSES[0])).name == "syscall.clone"
