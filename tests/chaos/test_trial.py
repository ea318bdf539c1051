"""One trial through a real zygote: a pass needs a fault that fired and every oracle; everything short of that is unknown."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.actions import parse_plan
from chaos.drivers import Place
from chaos.results import Trial, Verdict
from chaos.trial import remove_cgroups
from chaos.zygote_client import ProcessZygote
from tests.chaos.real import TWO_CALLS, open_zygote, play

OUTCOME = "driver@1:outcome.commit.before:1"


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    with open_zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the trial will be."""
    return tmp_path / "trial"


def test_a_clean_run_passes_and_lists_its_steps(zygote: ProcessZygote, directory: Path) -> None:
    directory.mkdir()
    recording = zygote.record(TWO_CALLS, (), directory)
    assert recording.result.verdict is Verdict.PASS, recording.result.reason
    assert OUTCOME in recording.steps
    assert recording.result.drivers == ((1, 0),)
    assert (recording.prefix, recording.saved, recording.result.trial.fault) == ((), 0, "")


@pytest.mark.parametrize(
    ("prefix", "epoch", "saved"),
    [
        ("kill driver@1:intent.commit.before:2", 2, 1),
        ("kill shim.1@1:ended:1", 2, 1),
        (f"kill {OUTCOME}; kill driver@2:decided:1", 3, 2),
        (f"wait {OUTCOME}; kill who driver@1; kill driver@2:decided:1", 3, 3),
    ],
)
def test_a_clean_run_after_a_prefix_lists_the_steps_that_come_after_it(
    prefix: str, epoch: int, saved: int, zygote: ProcessZygote, directory: Path
) -> None:
    directory.mkdir()
    plan = parse_plan(prefix)
    recording = zygote.record(TWO_CALLS, plan, directory)
    assert recording.result.verdict is Verdict.PASS, recording.result.reason
    assert [fault.fired for fault in recording.result.faults] == [True] * len(plan)
    assert f"driver@{epoch}:decided:1" in recording.steps
    assert {step.partition("@")[2].partition(":")[0] for step in recording.steps} == {str(epoch)}
    assert (recording.prefix, recording.saved) == (plan, saved)


def test_a_clean_run_after_a_prefix_that_cannot_be_carried_out_is_unknown(zygote: ProcessZygote, directory: Path) -> None:
    directory.mkdir()
    recording = zygote.record(TWO_CALLS, parse_plan("kill driver@1:nowhere:1"), directory)
    assert recording.result.verdict is Verdict.UNKNOWN
    assert recording.saved == 0


def test_a_kill_that_fired_passes_with_its_signal_and_a_successor(zygote: ProcessZygote, directory: Path) -> None:
    result = play(zygote, TWO_CALLS, directory, f"kill {OUTCOME}")
    assert result.verdict is Verdict.PASS, result.reason
    assert [(fault.at, fault.fired, fault.signal) for fault in result.faults] == [(OUTCOME, True, 9)]
    assert result.drivers == ((1, -9), (2, 0))
    assert {"workspace-equals-log", "chain", "order", "witness", "fencing", "laundering"} <= {one.oracle for one in result.oracles}


def test_a_trial_of_the_real_command_passes(zygote: ProcessZygote, directory: Path) -> None:
    directory.mkdir()
    result = zygote.run(TWO_CALLS, Trial(1, "small", parse_plan(f"kill {OUTCOME}"), entry="exec", fault="exec"), directory, {})
    assert result.verdict is Verdict.PASS, result.reason
    assert [(fault.fired, fault.signal) for fault in result.faults] == [(True, 9)]
    assert (directory / "session.toml").exists()


def test_a_fault_that_did_not_fire_is_unknown_although_every_oracle_says_pass(zygote: ProcessZygote, directory: Path) -> None:
    result = play(zygote, TWO_CALLS, directory, "kill driver@1:nowhere:1")
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == "did not fire: kill driver@1:nowhere:1; the step was not reached"
    assert {one.verdict for one in result.oracles} == {Verdict.PASS}
    assert [(fault.reached, fault.fired) for fault in result.faults] == [(False, False)]


def test_one_fault_of_several_that_did_not_fire_is_enough_to_be_unknown(zygote: ProcessZygote, directory: Path) -> None:
    result = play(zygote, TWO_CALLS, directory, f"kill {OUTCOME}; kill driver@1:nowhere:1; start")
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason.startswith("did not fire: kill driver@1:nowhere:1 and 1 more; the step was not reached")
    assert [(fault.do, fault.fired) for fault in result.faults] == [("kill", True), ("kill", False), ("start", False)]


def test_a_superseded_driver_ends_with_75(zygote: ProcessZygote, directory: Path) -> None:
    result = play(zygote, TWO_CALLS, directory, f"freeze {OUTCOME}; start; end driver@2; wake driver@1; end driver@1")
    assert result.verdict is Verdict.PASS, result.reason
    assert result.drivers == ((2, 0), (1, 75))


def test_the_kill_of_a_shim_is_proved_by_its_own_status(zygote: ProcessZygote, directory: Path) -> None:
    result = play(zygote, TWO_CALLS, directory, "kill shim.1@1:ended:1")
    assert result.verdict is Verdict.PASS, result.reason
    assert result.faults[0].signal == 9
    assert {"driver", "shim.1"} <= {one.role for one in result.faults[0].alive}
    assert result.displaced == 1


def test_a_trial_in_a_directory_that_is_not_empty_is_trouble_and_no_verdict(zygote: ProcessZygote, directory: Path) -> None:
    (directory / "work").mkdir(parents=True)
    with pytest.raises(Exception, match="FileExistsError"):
        zygote.run(TWO_CALLS, Trial(1, "small", parse_plan(f"kill {OUTCOME}")), directory, {})


@pytest.mark.parametrize(
    "first",
    [b"", bytes(80), b"00 {", b'00 {"op":"ledger","ledGer_id":"ab"}', b'00 {"op":"ledger","ledger_id":"../a"}'],
    ids=["empty", "zeros", "cut", "no id", "no hex"],
)
def test_a_damaged_ledger_that_does_not_name_its_cgroups_is_no_trouble_of_the_harness(first: bytes, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.ledger.parent.mkdir(parents=True)
    place.ledger.write_bytes(first + b"\nmore\n")
    remove_cgroups(place)
    assert place.ledger.read_bytes() == first + b"\nmore\n"
