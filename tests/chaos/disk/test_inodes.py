"""Inodes that run out, on a real ext4: a driver says that there is no room, and the session goes on when there is."""

from pathlib import Path

import pytest

from chaos.disk.enumerate import INODE_STEPS, enumerate_faults, format_counts
from chaos.disk.fault import INODES, OPERATIONS, parse_fault
from chaos.disk.inodes import KIND
from chaos.powerloss.loops import find_lack
from chaos.results import Recording
from eventlog.errors import MisuseError
from tests.chaos.disk.test_campaign import read_trials, run_chaos
from tests.chaos.disk.test_fault import RESULT


def numbers_of(taken: int) -> list[int]:
    counts = {(INODES, "take"): taken}
    made = enumerate_faults(Recording("small", format_counts(counts, counts), RESULT), 1)
    return [parse_fault(one.plan[-1].path, one.plan[-1].content or "").number for one in made.trials]


def test_few_inodes_are_each_missed_once_and_of_many_a_spread() -> None:
    assert numbers_of(5) == [1, 2, 3, 4, 5] and numbers_of(1) == [1]
    found = numbers_of(100)
    assert len(found) == INODE_STEPS and (found[0], found[-1]) == (1, 100)


def test_inodes_are_taken_and_nothing_else_is_done_to_them() -> None:
    assert parse_fault(INODES, "take 3 ENOSPC").number == 3
    others = [f"{operation} 1 {errors[0]}" for operation, errors in OPERATIONS.items() if operation != "take"]
    for role, text in (("log", "take 3 ENOSPC"), *((INODES, other) for other in others)):
        with pytest.raises(MisuseError, match="is no fault of a disk"):
            parse_fault(role, text)


@pytest.mark.parametrize("number", [3, 9], ids=["the log is made", "the ledger is there"])
def test_a_driver_without_inodes_says_that_there_is_no_room_and_the_next_one_finishes(number: int, tmp_path: Path) -> None:
    if lack := find_lack(KIND):
        pytest.skip(f"{KIND}: {lack}")
    plan = f'fail driver@1 "{INODES}" "take {number} ENOSPC"'
    done = run_chaos(tmp_path, "--scenario", "disk-tools", "--plan", plan, "--seed", "5", "--jobs", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = read_trials(tmp_path / "run")
    (said,) = [one["detail"] for one in trial["oracles"] if one["oracle"] == "disk"]
    assert said.startswith("ended with 1: recovery: ") and "no room" in said


def test_more_inodes_than_a_driver_takes_is_unknown(tmp_path: Path) -> None:
    if lack := find_lack(KIND):
        pytest.skip(f"{KIND}: {lack}")
    plan = f'fail driver@1 "{INODES}" "take 300 ENOSPC"'
    done = run_chaos(tmp_path, "--scenario", "disk-tools", "--plan", plan, "--seed", "5", "--jobs", "1", "--out", "run")
    assert done.returncode == 2 and "it came to its end without that operation" in done.stdout, done.stdout + done.stderr
