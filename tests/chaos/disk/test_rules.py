"""What a driver may do on a failing disk, on ends and traces made by hand: each rule broken is a failure."""

import pytest

from chaos.disk.fault import DiskFault
from chaos.disk.rules import find_repeated_sync, has_fired, judge_driver, parse_trace
from chaos.results import Verdict

FULL = DiskFault("ledger", "write", 2, "ENOSPC")
BROKEN = DiskFault("wal", "sync", 1, "EIO")
READ_ONLY = DiskFault("state", "create", 1, "EROFS")
TRACE = """7 write ledger 1 - /t/state/space/ledger
7 write ledger 2 ENOSPC /t/state/space/ledger
7 write state 1 ENOSPC /t/state/a name
"""
NO_ROOM = "recovery: /t/state/space/ledger: no room is left (No space left on device); make room there and drive again\n"
FAILED = "recovery: /t/log.sqlite: the device failed (disk I/O error); open the log again\n"


def test_a_trace_is_read_and_tells_whether_the_fault_was_met() -> None:
    trace = parse_trace(TRACE + "7 write led")
    assert [one.path for one in trace] == ["/t/state/space/ledger", "/t/state/space/ledger", "/t/state/a name"]
    assert has_fired(trace, FULL) and not has_fired(trace, BROKEN) and not has_fired(trace[:1], FULL)


@pytest.mark.parametrize(
    ("fault", "code", "said", "verdict"),
    [
        (FULL, 1, NO_ROOM, Verdict.PASS),
        (FULL, 0, "", Verdict.PASS),
        (BROKEN, 1, FAILED, Verdict.PASS),
        (READ_ONLY, 78, "recovery: /t/state: read-only file system; mount it writable and drive again\n", Verdict.PASS),
        (FULL, 78, NO_ROOM, Verdict.FAIL),
        (FULL, 70, NO_ROOM, Verdict.FAIL),
        (FULL, -6, "", Verdict.FAIL),
        (FULL, 1, "", Verdict.FAIL),
        (FULL, 1, FAILED, Verdict.FAIL),
        (FULL, 1, "recovery: /t/state: the record could not be carefully written; drive again\n", Verdict.FAIL),
        (FULL, 1, "Traceback (most recent call last):\n" + NO_ROOM, Verdict.FAIL),
        (BROKEN, 1, "recovery: /t/log.sqlite: the database is damaged; run `eventlog verify`\n", Verdict.FAIL),
    ],
)
def test_a_driver_copes_or_says_in_one_sentence_what_failed(fault: DiskFault, code: int, said: str, verdict: Verdict) -> None:
    assert judge_driver(fault, code, said, parse_trace(TRACE), 5, 5).verdict is verdict


def test_a_sync_that_failed_and_is_tried_again_by_its_process_is_a_failure() -> None:
    failed = "7 sync wal 1 EIO /t/w\n"
    assert find_repeated_sync(parse_trace(failed + "8 sync wal 2 - /t/w\n7 sync log 1 - /t/l\n")) == ""
    trace = parse_trace(failed + "7 sync wal 2 - /t/w\n")
    assert find_repeated_sync(trace) == "/t/w"
    assert judge_driver(BROKEN, 1, FAILED, trace, 5, 5).verdict is Verdict.FAIL
    assert find_repeated_sync([*trace, *parse_trace("7 unlink wal 1 - /t/w\n")]) == ""
    assert find_repeated_sync([*trace, *parse_trace("7 unlink wal 1 EIO /t/w\n")]) == "/t/w"


def test_another_log_in_place_of_the_one_that_was_there_is_a_failure() -> None:
    assert judge_driver(FULL, 1, NO_ROOM, [], 5, 6).verdict is Verdict.FAIL
    assert judge_driver(FULL, 1, NO_ROOM, [], 5, 0).verdict is Verdict.FAIL
    assert judge_driver(FULL, 1, NO_ROOM, [], 0, 6).verdict is Verdict.PASS
