"""Compaction beside a driver at work: what the driver saw in the log and is about to name is never lost, and its session goes on."""

import subprocess
import sys
from pathlib import Path

from eventlog import compact, wal
from eventlog.compact import Compacted, compact_log
from eventlog.connection import WAL_BYTES
from eventlog.ports import RandomIds, SystemClock
from eventlog.reader import Reader
from eventlog.retention import Policy
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, bash

POLICY = Policy(images=1)


def run(sandbox: Sandbox) -> Compacted:
    return compact_log(str(sandbox.log), POLICY, SystemClock(), RandomIds())


def check(sandbox: Sandbox) -> None:
    reader = Reader.open(str(sandbox.log))
    found = verify(reader)
    reader.close()
    assert found.findings == ()


def test_a_content_given_up_between_capture_and_commit_is_captured_again(sandbox: Sandbox) -> None:
    """Call 3 writes what call 1 had written: the driver saw it in the log, and does not send it. Then it is given up."""
    session = sandbox.session(bash("echo one > a"), bash("echo two > a"), bash("echo one > a"))
    driver = sandbox.start("run", session, epoch=1, wait=("driver@1:outcome.commit.before:3",))
    sandbox.steps.wait("driver@1:outcome.commit.before:3", driver)
    assert run(sandbox).given_up.contents == 1
    sandbox.steps.release("driver@1:outcome.commit.before:3")
    assert driver.end() == 0, driver.err
    assert [(call, ended) for call, _, ended, _ in sandbox.settled()] == [(1, "finished"), (2, "finished"), (3, "finished")]
    assert read_contents(sandbox.root) == {"a": b"one\n"}
    check(sandbox)


def test_what_was_changed_outside_and_given_up_meanwhile_is_captured_again(sandbox: Sandbox) -> None:
    """The same in the commit of an intent, which carries what was changed between calls."""
    session = sandbox.session(bash("echo one > a"), bash("echo two > a"), bash("cat a"))
    driver = sandbox.start("run", session, epoch=1, wait=("driver@1:intent.commit.before:3", "driver@1:outcome.commit.after:2"))
    sandbox.steps.wait("driver@1:outcome.commit.after:2", driver)
    (sandbox.root / "a").write_text("one\n")
    sandbox.steps.release("driver@1:outcome.commit.after:2")
    sandbox.steps.wait("driver@1:intent.commit.before:3", driver)
    assert run(sandbox).given_up.contents == 1
    sandbox.steps.release("driver@1:intent.commit.before:3")
    assert driver.end() == 0, driver.err
    assert sandbox.output(3) == b"one\n"
    check(sandbox)


def test_large_contents_that_went_ahead_and_are_given_up_are_sent_again(sandbox: Sandbox) -> None:
    """As if nobody had the log open: the driver's contents ahead of their commit go, and it begins its capture anew."""
    session = sandbox.session(bash("head -c 9000000 /dev/urandom > big; head -c 200000 /dev/urandom > small"))
    step = "driver@1:outcome.commit.before:1"
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.wait(step, driver)
    assert run(sandbox).given_up.orphans == 0  # the driver has it open
    writer = Writer.open(str(sandbox.log), RandomIds())
    assert compact.compact(writer, POLICY, SystemClock(), takes_orphans=True).given_up.orphan_bytes > 9_000_000
    writer.close()
    sandbox.steps.release(step)
    assert driver.end() == 0, driver.err
    assert [ended for _, _, ended, _ in sandbox.settled()] == ["finished"]
    check(sandbox)


def test_a_driver_is_not_disturbed_by_compactions_all_along(sandbox: Sandbox) -> None:
    calls = [bash(f"echo {number % 3} > a; echo {number} >> b") for number in range(8)]
    driver = sandbox.start("run", sandbox.session(*calls))
    rounds = given_up = 0
    while driver.code is None:
        if sandbox.log.exists():
            given_up += run(sandbox).given_up.contents
            rounds += 1
    assert driver.end() == 0, driver.err
    assert rounds > 0 and given_up + run(sandbox).given_up.contents > 0
    assert [ended for _, _, ended, _ in sandbox.settled()] == ["finished"] * 8
    assert read_contents(sandbox.root) == {"a": b"1\n", "b": b"".join(b"%d\n" % number for number in range(8))}
    check(sandbox)


def test_an_interrupted_call_is_restored_from_a_compacted_log(sandbox: Sandbox) -> None:
    """The image before an open call is kept, whatever the policy says."""
    session = sandbox.session(bash("echo one > a"), bash("echo two > a"), bash("rm a; kill -9 $PPID"), on_interrupted="continue")
    driver = sandbox.run("run", session)
    assert driver.code == 1
    run(sandbox)
    sandbox.drive()
    assert sandbox.settled()[-1][2:] == ("interrupted", "restore_and_interrupt")
    assert read_contents(sandbox.root) == {"a": b"two\n"}
    check(sandbox)


READER = """
import apsw, sys
c = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
c.execute("BEGIN").fetchall()
print(c.execute("SELECT count(*) FROM event").fetchall(), flush=True)
sys.stdin.readline()
"""


def test_case_18_a_driver_that_ends_leaves_a_wal_within_its_bound(sandbox: Sandbox) -> None:
    """A reader pins the WAL while large contents go into it, and leaves before the driver does."""
    session = sandbox.session(bash("head -c 30000000 /dev/urandom > big"))
    first, last = "driver@1:intent.commit.after:1", "driver@1:finish.commit.locked:1"
    driver = sandbox.start("run", session, epoch=1, wait=(first, last))
    sandbox.steps.wait(first, driver)
    reader = subprocess.Popen([sys.executable, "-c", READER, sandbox.log], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout is not None and reader.stdout.readline()
    sandbox.steps.release(first)
    sandbox.steps.wait(last, driver)
    assert wal.wal_bytes(str(sandbox.log)) > 30_000_000
    reader.communicate(b"\n")
    sandbox.steps.release(last)
    assert driver.end() == 0, driver.err
    assert Path(f"{sandbox.log}-wal").exists() and wal.wal_bytes(str(sandbox.log)) <= WAL_BYTES
    check(sandbox)
