"""Sessions in memory: crashed at every step, from saved states and from the beginning, and drawn from a seed."""

import contextlib
import gc
from collections.abc import Iterator

import pytest

from chaos.results import Action, Trial, Verdict
from chaos.sim.bench import Bench
from chaos.sim.draw import make_bench as make_drawn_bench
from chaos.sim.draw import run_drawn
from chaos.sim.fixed import enumerate_fixed, make_bench, run_fixed
from chaos.sim.naming import GROUP, Name
from chaos.sim.process import Table
from chaos.sim.seams import simulated
from chaos.sim.workloads import FIXED
from chaos.sim.world import SESSION, World, here
from eventlog.values import StreamId


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
    enumerated = enumerate_fixed(bench)
    trials, equal = enumerated.trials, set(enumerated.recording.equal)
    killed = {trial.plan[0].at for trial in trials if trial.fault == "kill"}
    assert killed | equal == set(bench.steps) and not killed & equal and 20 < len(equal) < len(bench.steps)
    assert {trial.plan[0].at for trial in enumerate_fixed(bench, prunes=False).trials if trial.fault == "kill"} == set(bench.steps)
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


@pytest.mark.parametrize("name", [one.name for one in FIXED])
def test_a_kill_that_is_left_out_leads_where_the_one_that_is_made_leads(name: str) -> None:
    """Event for event with their hashes, and all else that a session leaves; played from the beginning."""
    bench = make_bench(name)
    made: dict[str, tuple[object, ...]] = {}
    for step, first in bench.equal.items():
        play = bench.play((Action(step, "kill"),), from_zero=True)
        left = (play.world.durable.mark(), tuple(play.world.durable.store.rows(StreamId(SESSION))), tuple(play.ends), play.findings)
        assert left == made.setdefault(first, left), (step, first)
    assert len(made) == len(bench.distinct_steps) < len(bench.steps)


def test_states_that_differ_are_not_equal() -> None:
    """A log, a ledger, a workspace that has changed; who holds which epoch; who else is at work."""
    bench = make_bench("sim-commands")
    for one, other in (
        ("driver@1:floor.commit.locked:1", "driver@1:floor.commit.after:1"),
        ("driver@1:ledger.prepare.append.before:1", "driver@1:ledger.prepare.append.unsynced:1"),
        ("shim.1@1:command.act:1", "shim.1@1:command.act:2"),
        ("driver@1:outcome.commit.locked:1", "driver@1:outcome.commit.after:1"),
        ("driver@1:ledger.prepare.append.after:1", "driver@1:command.wait:1"),
        ("driver@1:command.wait:1", "shim.1@1:start:1"),
    ):
        assert bench.equal[one] != bench.equal[other], (one, other)


def test_single_kills_of_one_session_fall_into_different_states() -> None:
    found = [run_drawn(Name(3, number)) for number in range(1, GROUP + 1)]
    kills = [one.trial.plan[0].at for one in found if one.trial.fault == "kill"]
    steps = make_drawn_bench(3, 0).equal
    chosen = [steps[at] for at in kills if at in steps]
    assert len(set(chosen)) > 0.8 * len(chosen) > 10


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
