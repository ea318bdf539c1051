"""Sessions in memory: crashed at every step, from saved states and from the beginning, and drawn from a seed."""

import contextlib
import gc
from collections.abc import Iterator

import pytest

from chaos.results import Action, Trial, Verdict
from chaos.sim.bench import Bench
from chaos.sim.draw import run_drawn
from chaos.sim.fixed import enumerate_fixed, make_bench, run_fixed
from chaos.sim.naming import Name
from chaos.sim.process import Table
from chaos.sim.seams import simulated
from chaos.sim.workloads import FIXED
from chaos.sim.world import World, here


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with simulated():
        yield


@pytest.mark.parametrize("name", [one.name for one in FIXED])
def test_a_session_without_a_crash_passes_before_doubting_oracles(name: str) -> None:
    bench = make_bench(name)
    assert bench.clean.verdict is Verdict.PASS, bench.clean.reason
    assert bench.clean.drivers == ((1, 0),)
    assert len(bench.steps) > 100


@pytest.mark.parametrize("name", [one.name for one in FIXED])
def test_a_session_crashed_at_any_step_passes(name: str) -> None:
    bench = make_bench(name)
    trials = enumerate_fixed(bench).trials
    assert {trial.plan[0].at for trial in trials if trial.fault == "kill"} == set(bench.steps)
    sample = trials[:: max(1, len(trials) // 40)]
    results = [run_fixed(bench, trial) for trial in sample]
    assert [(one.trial.plan, one.reason) for one in results if one.verdict is not Verdict.PASS] == []
    assert any(one.labels for one in results)


def test_a_trial_from_a_saved_state_is_the_trial_from_the_beginning() -> None:
    bench = make_bench("sim-repeatable")
    driver = [step for step in bench.steps if step.startswith("driver@1:")][::2]
    for number, step in enumerate(driver, 1):
        plan = (Action(step, "kill"),)
        saved, whole = bench.play(plan), bench.play(plan, from_zero=True)
        assert saved.ends == whole.ends
        assert _rows(saved.world.durable.store) == _rows(whole.world.durable.store), step
        assert bench.judge(saved, Trial(number, "s", plan)).decisions == bench.judge(whole, Trial(number, "s", plan)).decisions


def _rows(store: object) -> list[tuple[object, ...]]:
    return [(row.epoch, row.kind, row.changes) for row in store.rows("simulated")]  # type: ignore[attr-defined]


def test_the_same_seed_makes_the_same_trials_and_another_seed_others() -> None:
    def draw(seed: int) -> list[tuple[object, ...]]:
        found = [run_drawn(Name(seed, number)) for number in range(1, 13)]
        return [(one.trial.plan, one.decisions, one.drivers, one.verdict) for one in found]

    first = draw(3)
    assert first == draw(3)
    assert first != draw(4)
    assert all(verdict is Verdict.PASS for *_, verdict in first)


def test_what_was_drawn_can_be_played_again_by_its_plan() -> None:
    for number in range(1, 25):
        drawn = run_drawn(Name(11, number))
        again = run_drawn(Name(11, number), drawn.trial.plan)
        assert (again.decisions, again.drivers, again.verdict) == (drawn.decisions, drawn.drivers, drawn.verdict), number


def test_what_dead_processes_leave_on_their_stacks_changes_nothing_and_is_given_back() -> None:
    bench = make_bench("sim-files")
    plans = [trial.plan for trial in enumerate_fixed(bench).trials[::25]]
    with monkeypatched_bury() as seen:
        plays = [bench.play(plan) for plan in plans]
    assert [describe(play.world) for play in plays] == seen
    del plays
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, World)]


def describe(world: World) -> tuple[object, ...]:
    durable = world.durable
    return (_rows(durable.store), list(durable.space.records), dict(durable.tree.nodes), bytes(durable.witness), durable.said)


@contextlib.contextmanager
def monkeypatched_bury() -> Iterator[list[tuple[object, ...]]]:
    """Notes what there is just before the stacks of a trial are given up."""
    seen: list[tuple[object, ...]] = []
    bury = Table.bury

    def note(table: Table) -> None:
        seen.append(describe(here()))
        bury(table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "bury", note)
        yield seen


def test_a_bench_saves_states_only_where_nobody_but_the_driver_lives() -> None:
    bench = Bench(FIXED[0], saves=True)
    assert "driver@1:outcome.commit.before:1" in bench.saved_steps
    assert not [step for step in bench.saved_steps if not step.startswith("driver@1:")]
    assert "driver@1:command.wait:1" in bench.steps and "driver@1:command.wait:1" not in bench.saved_steps  # a shim has been started
