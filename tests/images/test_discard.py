"""`recovery settle --discard`: what a call made is deleted where there is no room to keep it and restore (rule R4)."""

import os

import pytest

from eventlog import events
from tests.crash.person import begun
from tests.images.conftest import sandbox
from tests.images.test_full_disks import disk_of_workspace, on_disks
from tests.recovery.sessions import Sandbox, bash

__all__ = ["sandbox"]
MIB = 1 << 20
CALLS = (
    bash("echo one > a"),
    bash('echo "$CALL_KEY" >> "$WITNESS"; head -c 4000000 /dev/urandom > large; head -c 4000000 /dev/urandom > junk; echo two > a'),
)  # fmt: skip


def cut(sandbox: Sandbox, **settings: str) -> None:
    step = "shim.2@1:ended:1"
    driver = sandbox.start("run", sandbox.session(*CALLS, on_interrupted="continue", **settings), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()


def discard(sandbox: Sandbox, call: int, expect: int = 0) -> str:
    done = sandbox.run("settle", sandbox.state, "--discard", str(call))
    assert done.code == expect and "Traceback" not in done.err, done.out + done.err
    return done.err


@pytest.mark.parametrize("is_open", [True, False], ids=["a restore has begun", "a restore is due"])
def test_rule_R4_discard_is_the_one_way_that_unlinks_and_is_recorded_as_such(sandbox: Sandbox, is_open: bool) -> None:
    def story() -> None:
        disk_of_workspace(sandbox, 10)
        large = os.urandom(4_000_000)
        (sandbox.root / "large").write_bytes(large)
        cut(sandbox)
        if is_open:
            refused = sandbox.drive(expect=1).err.splitlines()[-1]
            assert "bytes and" in refused and "nothing was moved" in refused
            assert f"`recovery settle {sandbox.state} --discard CALL`" in refused
            assert (sandbox.root / "junk").stat().st_size == 4_000_000
        told = discard(sandbox, 2)
        assert "call 2: 3 paths that its restore displaced were deleted, for ever" in told
        assert (sandbox.root / "large").read_bytes() == large and (sandbox.root / "a").read_text() == "one\n"
        assert not (sandbox.root / "junk").exists()
        [decided] = [event for event in sandbox.of_kind(events.RecoveryDecided) if event.label == "discard_by_person"]
        assert sorted(path.rpartition("/")[2] for path in decided.facts["discarded"]) == ["a", "junk", "large"]
        assert sandbox.settled()[-1] == (2, 1, "interrupted", "restore_and_interrupt") and len(sandbox.witnessed()) == 1
        sandbox.drive()

    on_disks(sandbox, story)


def test_only_what_the_open_call_made_is_discarded(sandbox: Sandbox) -> None:
    sandbox.root.mkdir(exist_ok=True)
    begun(sandbox)
    assert "no call is open" in discard(sandbox, 3, expect=78)


def test_nothing_is_discarded_of_a_call_whose_exit_is_known(sandbox: Sandbox) -> None:
    sandbox.root.mkdir(exist_ok=True)
    step = "driver@1:outcome.commit.before:2"
    driver = sandbox.start("run", sandbox.session(*CALLS), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    assert "--discard 1: call 2 is the open one" in discard(sandbox, 1, expect=78)
    assert "--discard 2: adopt_exit: no restore of the call is due" in discard(sandbox, 2, expect=78)
    assert (sandbox.root / "junk").exists()


@pytest.mark.parametrize("step", ["driver@2:decision.commit.after:2", "worker@2:ledger.exit.append.after:2"])
def test_invariant_I12_a_discard_killed_on_its_way_is_a_restore_like_any_other(sandbox: Sandbox, step: str) -> None:
    sandbox.root.mkdir(exist_ok=True)
    cut(sandbox)
    driver = sandbox.start("settle", sandbox.state, "--discard", "2", epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    sandbox.drive()
    assert sandbox.settled()[-1] == (2, 1, "interrupted", "restore_and_interrupt")
    assert (sandbox.root / "a").read_text() == "one\n" and not (sandbox.root / "junk").exists()
