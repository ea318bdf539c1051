"""A simulated trial in which something of the harness is broken is never a pass: the crash removed, the step renamed, the oracle's input
emptied, the session over before its crash."""

from collections.abc import Callable, Iterator

import pytest

from chaos.actions import parse_plan
from chaos.results import Trial, Verdict
from chaos.sim.bench import Bench
from chaos.sim.fixed import make_bench
from chaos.sim.play import Play
from chaos.sim.process import Process, Table
from chaos.sim.seams import simulated

PLAN = "kill driver@1:outcome.commit.before:2"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with simulated():
        yield make_bench("sim-commands")


def judge(bench: Bench, text: str, spoil: Callable[[Play], None] = lambda play: None) -> Verdict:
    trial = Trial(1, bench.workload.name, parse_plan(text))
    play = bench.play(trial.plan)
    spoil(play)
    return bench.judge(play, trial).verdict


def test_the_trial_that_is_spoiled_here_passes(bench: Bench) -> None:
    assert judge(bench, PLAN) is Verdict.PASS


def test_a_crash_that_was_removed_is_unknown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def spare(table: Table, process: Process) -> None:
        """Kill nobody."""

    monkeypatch.setattr(Table, "kill", spare)
    assert judge(bench, "kill shim.1@1:running:1") is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "text", ["kill driver@1:outcome.commit.renamed:1", "kill driver@1:outcome.commit.before:9", "kill worker@1:file.rename.before:1"]
)
def test_a_step_that_is_not_passed_is_unknown(text: str, bench: Bench) -> None:
    assert judge(bench, text) is Verdict.UNKNOWN


def test_a_session_that_is_over_before_its_crash_is_unknown(bench: Bench) -> None:
    assert judge(bench, f"{PLAN}; kill driver@2:finish.commit.after:2") is Verdict.UNKNOWN


def test_a_process_that_does_not_live_cannot_be_woken(bench: Bench) -> None:
    assert judge(bench, f"{PLAN}; wake driver@1") is Verdict.UNKNOWN


def empty_witness(play: Play) -> None:
    play.world.durable.witness.clear()


def empty_log(play: Play) -> None:
    play.world.durable.store.rows("simulated").clear()  # type: ignore[attr-defined]


def empty_blobs(play: Play) -> None:
    play.world.durable.store.blobs.clear()  # type: ignore[attr-defined]


def forget_acknowledged(play: Play) -> None:
    play.world.durable.said.clear()


def empty_tree(play: Play) -> None:
    play.world.durable.tree.nodes.clear()


def forget_ends(play: Play) -> None:
    play.faults.clear()


@pytest.mark.parametrize("spoil", [empty_witness, empty_log, empty_blobs, forget_acknowledged, empty_tree, forget_ends])
def test_an_oracle_without_its_input_lets_nothing_pass(spoil: Callable[[Play], None], bench: Bench) -> None:
    assert judge(bench, PLAN, spoil) in (Verdict.UNKNOWN, Verdict.FAIL)
