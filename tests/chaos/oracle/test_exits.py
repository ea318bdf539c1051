"""The oracle `exits`: right ones pass and are counted, and nothing takes a code for a signal or makes up either."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.oracle.log_builder import Trial

ENDS: list[dict[str, Any]] = [
    {"kind": "exited", "code": 0, "signal": None},
    {"kind": "exited", "code": 137, "signal": None},
    {"kind": "signaled", "code": None, "signal": 9},
    {"kind": "timed_out", "code": None, "signal": 15},
    {"kind": "timed_out", "code": 3, "signal": None},
]


def record(trial: Trial, ended: dict[str, Any]) -> None:
    """The second script call ended so, as the engine writes it: without the fields that are null."""
    trial.events[10].payload["exit"] = {name: value for name, value in ended.items() if value is not None}


@pytest.mark.parametrize("ended", ENDS, ids=str)
def test_an_exit_that_is_the_reference_runs_passes(trial: Trial, ended: dict[str, Any]) -> None:
    record(trial, ended)
    trial.request["reference_exits"]["1"] = ended
    trial.write()
    verdict = trial.verdicts()["exits"]
    assert (verdict["verdict"], verdict["detail"]) == ("pass", "2 exits equal")
    assert trial.failing() == set()


@pytest.mark.parametrize("wanted", ENDS, ids=str)
@pytest.mark.parametrize("ended", ENDS, ids=str)
def test_any_other_exit_fails_and_both_are_named(trial: Trial, wanted: dict[str, Any], ended: dict[str, Any]) -> None:
    record(trial, ended)
    trial.request["reference_exits"]["1"] = wanted
    trial.write()
    assert trial.failing() == (set() if wanted == ended else {"exits"})


def test_the_difference_is_told_with_its_event(trial: Trial) -> None:
    record(trial, ENDS[2])
    trial.request["reference_exits"]["1"] = ENDS[1]
    trial.write()
    verdict = trial.verdicts()["exits"]
    assert (verdict["expected"], verdict["found"], verdict["event"]) == ("exited code 137", "signaled signal 9", "11 call_settled call 2")


@pytest.mark.parametrize("invented", [None, {"kind": "exited", "code": 0}], ids=str)
def test_an_interrupted_call_has_no_exit(tmp_path: Path, invented: dict[str, Any] | None) -> None:
    trial = Trial(tmp_path / "trial")
    trial.request |= {"on_interrupted": "continue", "reference_exits": {"0": ENDS[0], "1": ENDS[0]}}
    trial.open()
    trial.drive()
    trial.start(1, note="start end")
    trial.finish(1)
    trial.start(2, policy="never", note="start")
    trial.drive()
    trial.restore(2, 4, [], restored=0)
    trial.interrupt(2)
    trial.events[-1].payload["exit"] = invented
    trial.end()
    trial.write()
    assert trial.failing() == ({"exits"} if invented else set())
    assert trial.verdicts()["exits"]["verdict"] == ("fail" if invented else "pass")


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "exited", "code": 137, "signal": 9},
        {"kind": "signaled", "code": 9, "signal": None},
        {"kind": "exited", "code": None, "signal": None},
        {"kind": "start_failed", "code": None, "signal": None},
        {"kind": "exited"},
        "exited",
    ],
    ids=str,
)
def test_a_reference_that_is_no_end_of_a_plain_run_is_refused(trial: Trial, wrong: Any) -> None:
    trial.write()
    trial.request["reference_exits"]["1"] = wrong
    with pytest.raises(Exception, match="wrong 'reference_exits'"):
        trial.verdicts()
