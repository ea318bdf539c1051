"""Drawn trials that passed alike are one row, what did not pass stands alone, and one to which nothing was done proves nothing."""

from collections.abc import Iterator

import pytest

from chaos.results import Action, Fault, Trial, TrialResult, Verdict
from chaos.sim import draw
from chaos.sim.draw import run_drawn
from chaos.sim.naming import GROUP, Name, parse_drawn
from chaos.sim.seams import simulated
from chaos.sim.tally import DRAWN, Tally


def result(number: int, verdict: Verdict = Verdict.PASS, decisions: tuple[str, ...] = ("adopt_exit",)) -> TrialResult:
    step = f"driver@1:decided:{number}"
    trial = Trial(number, f"sim-1-{number}", (Action(step, "kill"),))
    return TrialResult(trial, verdict, "", (Fault(step, "kill", True, True),), (), ((1, -9), (2, 0)), {}, 0, 0, 0.5, decisions=decisions)


def test_what_passed_alike_is_counted_in_one_row() -> None:
    tally = Tally()
    tally.add_all([result(1), result(2), result(3, decisions=("reattach",)), result(4, Verdict.FAIL), result(5, Verdict.FAIL)])
    rows = [(one.trial.scenario, one.trial.number, one.count, one.verdict.value) for one in tally.results]
    assert rows == [(DRAWN, 1, 2, "pass"), (DRAWN, 3, 1, "pass"), ("sim-1-4", 4, 1, "fail"), ("sim-1-5", 5, 1, "fail")]
    again = Tally()
    again.add_all([*tally.results, result(6)])
    assert sorted((one.trial.number, one.count) for one in again.results) == [(1, 3), (3, 1), (4, 1), (5, 1)]
    assert again.results[0].seconds == 1.5


def test_a_drawn_session_is_known_by_its_name() -> None:
    assert parse_drawn("sim-7-33") == Name(7, 33)
    assert [Name(7, number).group for number in (1, GROUP, GROUP + 1)] == [0, 0, 1]
    assert [parse_drawn(name) for name in ("sim-7-0", "sim-commands", "sim-7", "sim-x-1")] == [None] * 4


@pytest.fixture
def in_memory() -> Iterator[None]:
    with simulated():
        yield


def test_a_drawn_trial_to_which_nothing_was_done_is_unknown(in_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw._Striker, "note", lambda *told: None)
    found = [run_drawn(Name(1, number)) for number in range(1, 6)]
    idle = [one for one in found if not one.trial.plan]
    assert idle and {one.verdict for one in idle} == {Verdict.UNKNOWN}


def test_a_session_whose_every_command_was_cut_before_it_began_needs_no_witness(in_memory: None) -> None:
    found = run_drawn(Name(1, 573))
    assert found.verdict is Verdict.PASS and "witness" not in {one.oracle for one in found.oracles}
    assert "witness" in {one.oracle for one in run_drawn(Name(1, 574)).oracles}
