"""One trial through a real zygote: a pass needs a fault that fired and every oracle; everything short of that is unknown."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.results import Action, Trial, TrialResult, Verdict
from chaos.scenario import Scenario
from chaos.zygote_client import ProcessZygote, zygote_command
from recovery.script import BashCall
from tests.chaos.fakes import make_scenario

WITNESSED = b"""printf '%s start\\n' "$CALL_KEY" >> "$WITNESS"; echo one >> one.txt; printf '%s end\\n' "$CALL_KEY" >> "$WITNESS" """
OUTCOME = "driver@1:outcome.commit.before:1"


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    zygote = ProcessZygote(zygote_command(None), tmp_path_factory.mktemp("zygote") / "errors.txt")
    yield zygote
    zygote.close()


@pytest.fixture
def scenario() -> Scenario:
    return make_scenario(calls=(BashCall(WITNESSED),), witnessed=(0,))


def play(zygote: ProcessZygote, scenario: Scenario, directory: Path, *plan: Action) -> TrialResult:
    """The result of one trial with this plan."""
    return zygote.run(scenario, Trial(1, scenario.name, plan), directory, ())


def test_a_clean_run_passes_and_lists_its_steps(zygote: ProcessZygote, scenario: Scenario, tmp_path: Path) -> None:
    recording = zygote.record(scenario, tmp_path)
    assert recording.result.verdict is Verdict.PASS, recording.result.reason
    assert OUTCOME in recording.steps
    assert recording.result.drivers == ((1, 0),)


def test_a_kill_that_fired_passes_with_its_signal_and_a_successor(zygote: ProcessZygote, scenario: Scenario, tmp_path: Path) -> None:
    result = play(zygote, scenario, tmp_path, Action(OUTCOME, "kill"))
    assert result.verdict is Verdict.PASS, result.reason
    assert [(fault.at, fault.fired, fault.signal) for fault in result.faults] == [(OUTCOME, True, 9)]
    assert result.drivers == ((1, -9), (2, 0))
    assert {"workspace-equals-log", "chain", "order", "witness", "fencing", "laundering"} <= {one.oracle for one in result.oracles}


def test_a_fault_that_did_not_fire_is_unknown_although_every_oracle_says_pass(
    zygote: ProcessZygote, scenario: Scenario, tmp_path: Path
) -> None:
    result = play(zygote, scenario, tmp_path, Action("driver@1:nowhere:1", "kill"))
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == "did not fire: kill at driver@1:nowhere:1"
    assert {one.verdict for one in result.oracles} == {Verdict.PASS}
    assert [(fault.reached, fault.fired) for fault in result.faults] == [(False, False)]


def test_one_fault_of_two_that_did_not_fire_is_enough_to_be_unknown(zygote: ProcessZygote, scenario: Scenario, tmp_path: Path) -> None:
    result = play(zygote, scenario, tmp_path, Action(OUTCOME, "kill"), Action("driver@1:nowhere:1", "kill"))
    assert result.verdict is Verdict.UNKNOWN
    assert [fault.fired for fault in result.faults] == [True, False]


def test_a_superseded_driver_ends_with_75(zygote: ProcessZygote, scenario: Scenario, tmp_path: Path) -> None:
    result = play(zygote, scenario, tmp_path, Action(OUTCOME, "supersede"))
    assert result.verdict is Verdict.PASS, result.reason
    assert sorted(result.drivers) == [(1, 75), (2, 0)]


def test_the_kill_of_a_shim_is_proved_by_its_own_status(zygote: ProcessZygote, scenario: Scenario, tmp_path: Path) -> None:
    result = play(zygote, scenario, tmp_path, Action("shim.1@1:ended:1", "kill"))
    assert result.verdict is Verdict.PASS, result.reason
    assert result.faults[0].signal == 9
    assert {"driver", "shim.1"} <= {one.role for one in result.faults[0].alive}
    assert result.displaced == 1


def test_a_trial_in_a_directory_that_is_not_empty_is_trouble_and_no_verdict(
    zygote: ProcessZygote, scenario: Scenario, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(Exception, match="FileExistsError"):
        play(zygote, scenario, tmp_path, Action(OUTCOME, "kill"))
