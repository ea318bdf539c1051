"""Faults of a disk as values, what is aimed at from two counts, and which file has which role."""

import os

import pytest

from chaos.actions import format_plan, parse_plan
from chaos.disk.device import find_role
from chaos.disk.enumerate import UNSTEADY, enumerate_faults, find_next_epoch, format_counts, required_of_disk
from chaos.disk.fault import INODES, OPERATIONS, DiskFault, format_fault, parse_fault
from chaos.results import Recording, Trial, TrialResult, Verdict
from eventlog.errors import MisuseError
from tests.chaos.fakes import make_scenario

RESULT = TrialResult(Trial(0, "small", ()), Verdict.PASS, "", (), (), (), {}, 0, 0, 0.0)


def test_a_fault_is_read_back_from_its_text_in_a_plan_too() -> None:
    for operation, errors in OPERATIONS.items():
        for error in errors:
            role = INODES if operation == "take" else "ledger"
            fault = DiskFault(role, operation, 3, error)
            assert parse_fault(role, format_fault(fault)) == fault
    text = 'kill shim.1@1:ended:1; fail driver@2 "wal" "sync 2 EIO"'
    assert format_plan(parse_plan(text)) == text


@pytest.mark.parametrize(
    ("role", "text"),
    [("wal", "sync 1 ENOSPC"), ("wal", "sync 0 EIO"), ("wal", "sync EIO"), ("wal", ""), ("clock", "sync 1 EIO"), ("wal", "melt 1 EIO")],
)
def test_what_no_disk_does_is_refused_with_what_there_is(role: str, text: str) -> None:
    with pytest.raises(MisuseError, match="is no fault of a disk; use one of|are no files that can fail; use log, wal"):
        parse_fault(role, text)


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("state/log.sqlite", "log"),
        ("state/log.sqlite.new-1-ab", "log"),
        ("state/log.sqlite-wal", "wal"),
        ("state/log.sqlite.new-1-ab-wal", "wal"),
        ("state/space/ledger", "ledger"),
        ("state/space/output/1", "output"),
        ("state/checkpoints/contents/ab/cd", "checkpoint"),
        ("state/identities/1", "state"),
        ("work/a", "restore"),
        (".crashworthy-1/staging/x", "restore"),
        ("holders/1", "holders"),
        ("witness", ""),
        ("/elsewhere/a", ""),
    ],
)
def test_each_file_of_a_session_has_its_role_and_no_other_file_is_touched(path: str, role: str) -> None:
    assert find_role(os.path.join("/t", path), "/t") == role


def test_everything_that_both_clean_runs_did_is_failed_with_every_error_it_can_meet() -> None:
    lines = format_counts({("wal", "sync"): 2, ("ledger", "write"): 1}, {("wal", "sync"): 3, ("ledger", "write"): 1})
    made = enumerate_faults(Recording("small", lines, RESULT, prefix=parse_plan("kill shim.1@1:ended:1")), 7)
    assert [(trial.number, format_plan(trial.plan[1:])) for trial in made.trials] == [
        (7, 'fail driver@2 "wal" "sync 1 EIO"'),
        (8, 'fail driver@2 "wal" "sync 2 EIO"'),
        (9, 'fail driver@2 "ledger" "write 1 ENOSPC"'),
        (10, 'fail driver@2 "ledger" "write 1 EIO"'),
    ]
    assert [(one.step, one.reason) for one in made.unreachable] == [("wal sync 3", UNSTEADY)]
    assert {trial.fault for trial in made.trials} == {"disk"} and find_next_epoch(()) == 1
    assert "disk" in required_of_disk(make_scenario(), made.trials[0].plan)
