"""The ledger as a file: torn ends, damage, the floor, the lock, and SIGKILL at each step of an append."""

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3

from eventlog import steps
from eventlog.errors import BusyError, CorruptError, LogMissingError, StaleEpochError
from eventlog.events import Exit
from eventlog.ports import FakeClock, SystemClock
from recovery.space.ledger import Ledger, LedgerView, append_fenced, create_ledger
from recovery.space.lock import FileLock
from recovery.space.records import (
    Advance,
    Collect,
    Condemn,
    Exited,
    Header,
    ProvedDead,
    Record,
    Register,
    ScanFailed,
    Void,
)
from tests.recovery.space.ledgers import EXITED, ME, OPENED, PREPARED, STARTED, KillAt, lay, make_ledger, open_ledger, view
from tests.recovery.workspace.support import run_in_child


@pytest.mark.parametrize("last", [PREPARED, STARTED, EXITED, Collect(1, 1, 2, "hash")], ids=lambda record: type(record).__name__)
def test_case_22_a_ledger_cut_at_every_byte_of_its_last_record_is_sealed_and_read_whole(tmp_path: Path, last: Record) -> None:
    """Cut, append, read all: everything complete before the cut and everything after it is there, and the torn record is nowhere."""
    before = {PREPARED: (), STARTED: (PREPARED,)}.get(last, (PREPARED, STARTED))
    made = make_ledger(tmp_path, *before)
    whole = len(Path(made.path).read_bytes())
    with made.transaction() as transaction:
        transaction.append(last)
    data = Path(made.path).read_bytes()
    for length in range(whole, len(data)):
        cut = open_ledger(lay(tmp_path / "copy", data[:length]))
        append_fenced(cut, 1, ScanFailed(1, 7, "after"))
        found = view(cut.path)
        assert found.scan_failures == {7: 1} and found.floor == 1
        attempt = found.attempts.get("k")
        assert (attempt is not None) == bool(before)
        if attempt is not None:
            assert (attempt.start is not None, attempt.exit) == (STARTED in before, None)
            assert attempt.torn == (length > whole and last == STARTED), "a torn record is unknown, never: not started"
        OPENED.pop().close()


@pytest.mark.parametrize("bytes_off", [1, 40, 400])
def test_a_ledger_whose_end_was_cut_off_is_damaged_and_never_read_as_not_started(tmp_path: Path, bytes_off: int) -> None:
    """More lines were appended than stand: what is missing may be a starting mark, so nothing is read from what is left (I9)."""
    made = make_ledger(tmp_path, PREPARED, STARTED)
    data = Path(made.path).read_bytes()
    os.truncate(made.path, len(data) - bytes_off)
    with pytest.raises(CorruptError, match="its end was cut off; put the whole file back"):
        LedgerView(made.path)
    with pytest.raises(CorruptError, match="its end was cut off; put the whole file back"):
        Ledger(made.path, FakeClock())
    Path(made.path).write_bytes(data)
    assert view(made.path).attempts["k"].start is not None


def test_a_ledger_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    create_ledger(str(tmp_path / "ledger"), Header(2, "id", 1))
    with pytest.raises(CorruptError, match="ledger format 2 is not known here"):
        LedgerView(str(tmp_path / "ledger"))


def test_records_of_before_times_and_digests_were_kept_are_read(tmp_path: Path) -> None:
    """A ledger of an older version stays readable: what it did not record is told as not recorded."""
    made = make_ledger(tmp_path, PREPARED)
    last = Path(made.path).read_bytes().splitlines()[-1][:32]
    older = [
        b'{"op":"start","key":"k","identity":{"pid":1,"start_ticks":1,"boot_id":"boot","pid_namespace":1},"socket":""}',
        b'{"op":"exit","key":"k","exit":{"kind":"exited","code":0},"boot_id":"boot","output_total":7,"output_kept":7,"survivors":2,'
        b'"message":"","detail":null}',
    ]
    with open(made.path, "ab") as file:
        for body in older:
            last = blake3(last + body).hexdigest(16).encode()
            file.write(last + b" " + body + b"\n")
    attempt = view(made.path).attempts["k"]
    assert attempt.start == STARTED
    assert attempt.exit == Exited("k", Exit("exited", code=0), "boot", 7, 7, 2)
    assert (attempt.exit.digest, attempt.exit.at_ms, attempt.exit.left, attempt.exit.held_output) == ("", 0, 0, False)


def test_a_note_of_the_end_that_a_power_loss_left_unreadable_blocks_nothing(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, PREPARED, STARTED)
    Path(made.path + ".end").write_bytes(bytes(512))
    assert set(view(made.path).attempts) == {"k"}


def test_case_22_a_torn_end_is_not_read_and_not_changed_by_a_reader(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, PREPARED)
    data = Path(made.path).read_bytes() + b"0123 {half of a re"
    Path(made.path).write_bytes(data)
    assert set(view(made.path).attempts) == {"k"}
    assert Path(made.path).read_bytes() == data


def test_case_22_zero_bytes_in_the_middle_are_damage(tmp_path: Path) -> None:
    """Never read as the end: the record is named, and the last good one."""
    data = Path(make_ledger(tmp_path, PREPARED, STARTED, *[ScanFailed(1, 1, "x" * 200)] * 4).path).read_bytes()
    lines = data.split(b"\n")
    at = len(lines[0]) + len(lines[1]) + 10
    for spoiled in (data[:at] + bytes(512) + data[at:], data[:at] + bytes(512) + data[at + 512 :]):
        lay(tmp_path / "copy", spoiled)
        with pytest.raises(CorruptError, match=r"copy: line 3: damaged; line 2 is the last good one; the ledger is not read past it"):
            view(tmp_path / "copy")


def test_any_flipped_bit_is_damage(tmp_path: Path) -> None:
    """Every bit of every complete line but its newline (which makes a torn end of what follows, if that is the last line)."""
    data = Path(make_ledger(tmp_path, PREPARED).path).read_bytes()
    for index in range(len(data)):
        spoiled = bytearray(data)
        spoiled[index] ^= 1
        lay(tmp_path / "copy", spoiled)
        if index == len(data) - 1:
            assert not view(tmp_path / "copy").attempts
        else:
            with pytest.raises(CorruptError):
                view(tmp_path / "copy")


def test_a_line_lost_or_moved_is_damage(tmp_path: Path) -> None:
    lines = Path(make_ledger(tmp_path, PREPARED, STARTED, EXITED).path).read_bytes().splitlines(keepends=True)
    for spoiled in (lines[:2] + lines[3:], [*lines[:2], lines[3], lines[2], lines[4]], lines[1:], [*lines, lines[-1]]):
        lay(tmp_path / "copy", b"".join(spoiled))
        with pytest.raises(CorruptError):
            view(tmp_path / "copy")


def test_a_ledger_that_became_shorter_is_damage(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, PREPARED)
    os.truncate(made.path, 10)
    with pytest.raises(CorruptError, match="shorter than it was"):
        made.refresh()


def test_a_missing_ledger_is_never_made_anew(tmp_path: Path) -> None:
    with pytest.raises(LogMissingError, match="only the takeover of a session makes one anew"):
        Ledger(str(tmp_path / "ledger"), SystemClock())
    assert not (tmp_path / "ledger").exists()


def test_an_existing_ledger_is_never_replaced(tmp_path: Path) -> None:
    made = make_ledger(tmp_path)
    data = Path(made.path).read_bytes()
    with pytest.raises(FileExistsError):
        create_ledger(made.path, Header(1, "other", 1))
    assert Path(made.path).read_bytes() == data
    assert os.stat(made.path).st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["ledger", "ledger.end", "ledger.lock"]


BELOW: list[Record] = [
    PREPARED,
    STARTED,
    Void("k", 1),
    Collect(1, 1, 2, "h"),
    ScanFailed(1, 1, "x"),
    Register("worker", 1, "m", ME),
    Condemn(1, ["k"]),
    ProvedDead(1, ["k"], []),
]


@pytest.mark.parametrize("record", BELOW, ids=lambda record: type(record).__name__)
def test_rule_S4_every_write_of_a_driver_below_the_floor_is_refused(tmp_path: Path, record: Record) -> None:
    """Compared under the lock, in a ledger that this handle had not looked at since a newer epoch raised the floor."""
    stale = make_ledger(tmp_path, *([] if record is PREPARED else [PREPARED]))
    advance_elsewhere(stale.path)
    size = os.path.getsize(stale.path)
    with pytest.raises(StaleEpochError, match="epoch 1 is below the ledger's floor 2; a newer driver has the space"):
        append_fenced(stale, 1, record)
    assert os.path.getsize(stale.path) == size


def advance_elsewhere(path: str) -> None:
    """Another process raises the floor to 2 (a lock belongs to a process)."""

    def work() -> None:
        with Ledger(path, SystemClock()).transaction() as transaction:
            transaction.append(Advance(2, "log", 1, "hash", {}, []))

    assert run_in_child(work) == 0


def test_rule_S4_an_exit_record_is_always_accepted(tmp_path: Path) -> None:
    stale = make_ledger(tmp_path, PREPARED, STARTED)
    advance_elsewhere(stale.path)
    with stale.transaction() as transaction:
        transaction.append(EXITED)
    assert view(stale.path).attempts["k"].exit == EXITED


def test_what_one_process_appends_the_other_sees(tmp_path: Path) -> None:
    made = make_ledger(tmp_path)

    def work() -> None:
        append_fenced(Ledger(made.path, SystemClock()), 1, PREPARED)

    assert run_in_child(work) == 0
    made.refresh()
    assert set(made.state.attempts) == {"k"}


def hold(path: str, work: Callable[[], None]) -> int:
    """A child that holds a ledger's lock until it is killed; `work` runs under it first."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with Ledger(path, SystemClock()).transaction():
                work()
                os.write(writer, b".")
                signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert select.select([reader], [], [], 30)[0], "waited 30 s for the lock's holder"
    os.close(reader)
    return pid


def test_rule_L4_the_holder_of_the_lock_is_named(tmp_path: Path) -> None:
    """Bounded by the clock, then BusyError (exit 1) with the pid; when the holder dies the lock is free."""
    made = make_ledger(tmp_path)
    pid = hold(made.path, lambda: None)
    clock = FakeClock()
    lock = FileLock(made.path + ".lock", clock, seconds=10.0)
    try:
        with (
            pytest.raises(BusyError, match=rf"LogBusy: held by pid {pid} \(.*; the ledger is locked for more than 10 s; end that process"),
            lock.held(),
        ):
            pass
        assert clock.pauses > 100
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with lock.held():
        pass
    lock.close()


@pytest.mark.parametrize(
    ("step", "stands"),
    [
        ("ledger.start.before", False),
        ("ledger.start.append.before", False),
        ("ledger.start.append.unsynced", True),
        ("ledger.start.append.after", True),
    ],
)
def test_an_append_killed_at_any_step_stands_whole_or_not_at_all(tmp_path: Path, step: str, stands: bool) -> None:
    """The next writer gets the lock at once and reads a sound file."""
    made = make_ledger(tmp_path, PREPARED)

    def work() -> None:
        steps.install(KillAt(step))
        append_fenced(Ledger(made.path, SystemClock()), 1, STARTED)

    status = run_in_child(work)
    assert os.WTERMSIG(status) == signal.SIGKILL
    append_fenced(made, 1, ScanFailed(1, 1, "after"))
    attempt = view(made.path).attempts["k"]
    assert (attempt.start == STARTED, attempt.torn) == (stands, False)


def test_a_seal_killed_in_the_middle_is_done_again(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, PREPARED)
    with open(made.path, "ab") as file:
        file.write(b"torn" * 200)

    def work() -> None:
        steps.install(KillAt("ledger.seal.tail.before"))
        append_fenced(Ledger(made.path, SystemClock()), 1, ScanFailed(1, 1, "x"))

    assert os.WTERMSIG(run_in_child(work)) == signal.SIGKILL
    append_fenced(made, 1, ScanFailed(1, 1, "x"))
    found = view(made.path)
    assert found.attempts["k"].torn and found.scan_failures == {1: 1}


def test_many_processes_append_and_none_is_lost(tmp_path: Path) -> None:
    made = make_ledger(tmp_path)

    def work() -> None:
        mine = Ledger(made.path, SystemClock())
        for _ in range(20):
            append_fenced(mine, 1, ScanFailed(1, 1, "x"))

    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0, 0]
    made.refresh()
    assert made.state.scan_failures == {1: 80}
