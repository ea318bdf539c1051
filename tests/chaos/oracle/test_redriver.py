"""A redriver's starts are judged by its record and by what was begun, read from their documented forms alone."""

import json
from pathlib import Path

import pytest
from blake3 import blake3

from chaos.oracle.redriver_record import read_redriven, record_of
from tests.chaos.oracle.log_builder import Trial

FIRST, SECOND = (1, 2, 100), (2, 3, 200)


def redrive(trial: Trial, *counted: tuple[int, int, int], begun: tuple[int, ...] = (2, 3)) -> None:
    """The record of a redriver, of `number, epoch, pid`, and the output of drivers that were begun."""
    attempts = [
        {"number": number, "epoch": epoch, "driver": {"pid": pid, "start_ticks": 7, "boot_id": "b", "pid_namespace": 1}}
        for number, epoch, pid in counted
    ]
    body = json.dumps({"attempts": attempts}).encode()
    state = trial.log.parent
    (state / "redriver").write_bytes(blake3(body).hexdigest().encode() + b" " + body + b"\n")
    (state / "redrive").mkdir()
    for epoch in begun:
        (state / "redrive" / f"out-{epoch}").write_bytes(b"")


def said(trial: Trial) -> tuple[str, str]:
    trial.write()
    found = trial.verdicts()["redriver"]
    return str(found["verdict"]), str(found["detail"])


def test_starts_that_are_counted_once_pass(trial: Trial) -> None:
    redrive(trial, FIRST, SECOND)
    assert said(trial) == ("pass", "2 starts counted, 2 drivers begun")


def test_a_start_that_was_counted_and_not_made_is_no_fault(trial: Trial) -> None:
    redrive(trial, FIRST, SECOND, begun=(2,))
    assert said(trial)[0] == "pass"


def test_a_driver_that_was_begun_uncounted_fails(trial: Trial) -> None:
    redrive(trial, FIRST)
    assert said(trial) == ("fail", "the driver of epoch 3 was begun and is not counted")


@pytest.mark.parametrize("again", [(2, 2, 200), (3, 3, 200), (1, 3, 200)], ids=["one epoch twice", "a number left out", "a number twice"])
def test_starts_that_are_not_in_order_fail(trial: Trial, again: tuple[int, int, int]) -> None:
    redrive(trial, FIRST, again)
    assert said(trial)[0] == "fail"


def test_a_process_counted_twice_fails(trial: Trial) -> None:
    redrive(trial, FIRST, (2, 3, 100))
    assert said(trial) == ("fail", "the process of epoch 2 is counted as 2 starts")


def test_a_damaged_record_is_unknown(trial: Trial) -> None:
    redrive(trial, FIRST)
    (trial.log.parent / "redriver").write_bytes(b"00 {}\n")
    assert said(trial)[0] == "unknown"


def test_nobody_redrove_where_there_is_no_record(tmp_path: Path) -> None:
    assert read_redriven(record_of(str(tmp_path / "log.sqlite"))) is None
