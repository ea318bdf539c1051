"""Which passes are killed: a sample that the seed decides, spread over the run, with a share for every kind."""

import random
from collections import Counter

import pytest

from chaos.results import Recording, Trial, Verdict
from chaos.step import parse_step
from chaos.syscalls.calls import KIND_OF, KINDS, Aim, Target, format_aim
from chaos.syscalls.enumerate import DEFAULT_KILLS, NOT_DRAWN, draw_aims, enumerate_kills, list_aims, share_kills
from chaos.syscalls.inject import Pass
from eventlog.errors import MisuseError
from tests.chaos.fakes import make_result

SIZES = {"clone": 1, "fsync": 10, "rename": 3, "pwrite64": 196, "fdatasync": 43, "clone3": 1}
OF_SHIMS = {"fdatasync": 3, "pwrite64": 3, "write": 1}
AIMS = [
    aim
    for role, sizes in (("driver", SIZES), ("shim.1", OF_SHIMS))
    for name, size in sizes.items()
    for aim in list_aims(role, [Pass(name, count, finished=True) for count in range(1, size + 1)])
]


def recording() -> Recording:
    return Recording("small", tuple(map(format_aim, AIMS)), make_result(Trial(0, "small", ()), Verdict.PASS), "environment")


def draw(kills: int, seed: int = 1) -> list[Aim]:
    return draw_aims(AIMS, kills, random.Random(seed))


@pytest.mark.parametrize(
    ("kills", "shares"),
    [
        (50, {"pwrite64": 19, "write": 2, "fdatasync": 19, "rename": 6, "clone": 4}),
        (5, {"pwrite64": 1, "write": 1, "fdatasync": 1, "rename": 1, "clone": 1}),
        (1, {"pwrite64": 1}),
        (1000, {"pwrite64": 398, "write": 2, "fdatasync": 112, "rename": 6, "clone": 4}),
    ],
)
def test_every_kind_gets_an_equal_share_as_far_as_it_has_calls(kills: int, shares: dict[str, int]) -> None:
    assert Counter(KIND_OF[one.target.name] for one in draw(kills)) == Counter(shares)
    sizes = {kind: sum(KIND_OF[one.target.name] == kind for one in AIMS) for kind in KINDS}
    assert share_kills(sizes, kills) == dict.fromkeys(KINDS, 0) | shares


def test_within_a_kind_every_role_gets_an_equal_share() -> None:
    drawn = Counter((one.role, one.target.name) for one in draw(50))
    assert (drawn["shim.1", "pwrite64"], drawn["shim.1", "fdatasync"], drawn["shim.1", "write"]) == (6, 6, 2)
    assert drawn["driver", "pwrite64"] == 13


def test_there_is_a_kill_for_each_drawn_pass_and_a_reason_for_every_other() -> None:
    made = enumerate_kills(recording(), 11, DEFAULT_KILLS, seed=3)
    assert [trial.number for trial in made.trials] == list(range(11, 11 + DEFAULT_KILLS))
    assert {(trial.entry, trial.fault, len(trial.plan), trial.plan[0].do) for trial in made.trials} == {("syscall", "syscall", 1, "kill")}
    aimed = {trial.plan[0].at for trial in made.trials}
    assert len(aimed) == DEFAULT_KILLS
    assert aimed | {one.step for one in made.unreachable} == set(made.steps) and {one.reason for one in made.unreachable} == {NOT_DRAWN}
    assert made.kill_mark == "environment"


def test_a_process_is_killed_before_and_after_each_of_its_calls() -> None:
    assert list_aims("shim.1", [Pass("write", 1, finished=True)]) == [
        Aim("shim.1", Target("write", 1, "before")), Aim("shim.1", Target("write", 1, "after")),
    ]  # fmt: skip


def test_the_ends_of_each_call_are_killed_before_and_after() -> None:
    drawn = set(draw(60))
    ends = {Aim("driver", Target(name, count, moment)) for name in SIZES for count in (1, SIZES[name]) for moment in ("before", "after")}
    assert ends <= drawn


def test_the_kills_are_spread_over_the_whole_run() -> None:
    for seed in range(20):
        counts = sorted(one.target.count for one in draw(60, seed) if (one.role, one.target.name) == ("driver", "pwrite64"))
        assert max(after - before for before, after in zip(counts, counts[1:], strict=False)) <= 2 * -(-196 // (len(counts) - 4))


def test_the_seed_decides_which() -> None:
    assert draw(50, 1) == draw(50, 1) != draw(50, 2)
    assert len({tuple(draw(6, seed)) for seed in range(10)}) > 1


def test_one_step_is_that_step_whatever_the_seed() -> None:
    for seed in (1, 2):
        made = enumerate_kills(recording(), 1, 50, seed, "driver@1:syscall.pwrite64.after:148")
        assert [trial.plan[0].at for trial in made.trials] == ["driver@1:syscall.pwrite64.after:148"]
    # Without a moment it is the one before the call.
    made = enumerate_kills(recording(), 1, 50, 1, "driver@1:syscall.pwrite64:148")
    assert [trial.plan[0].at for trial in made.trials] == ["driver@1:syscall.pwrite64.before:148"]
    with pytest.raises(MisuseError, match=r"passes no such call; the last ones it passes are .*driver@1:syscall.pwrite64.after:196"):
        enumerate_kills(recording(), 1, 50, 1, "driver@1:syscall.pwrite64.before:197")
    with pytest.raises(MisuseError, match="the last ones it passes are none of that process"):
        enumerate_kills(recording(), 1, 50, 1, "worker@1:syscall.write.before:1")


def test_a_run_without_calls_makes_no_trial() -> None:
    assert draw_aims([], 50, random.Random(1)) == []


def test_the_names_are_steps() -> None:
    assert parse_step(format_aim(AIMS[0])).name == "syscall.clone.before"
