"""The rows on log and ledger, and a person's word, in a session whose contents lie in checkpoints: what holds in one mode holds in each."""

import pytest

from eventlog import events
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, bash

POLICIES = ("never", "ask", "never")
CALLS = tuple(
    bash(f'echo "$CALL_KEY" >> "$WITNESS"; echo {number} >> log', policy=policy) for number, policy in enumerate(POLICIES, 1)
)  # fmt: skip


def cut(sandbox: Sandbox, step: str, mode: str, keep: str = "") -> dict[str, bytes]:
    """Killed at `step`; the log's files as they stood at the step `keep`."""
    session = sandbox.session(*CALLS, on_interrupted="continue", mode=mode)
    driver = sandbox.start("run", session, epoch=1, wait=tuple(filter(None, (keep, step))))
    kept: dict[str, bytes] = {}
    if keep:
        sandbox.steps.wait(keep, driver)
        kept = {name: (sandbox.state / name).read_bytes() for name in ("log.sqlite", "log.sqlite-wal")}
        sandbox.steps.release(keep)
    sandbox.steps.kill(step, driver)
    driver.end()
    return kept


MODES = pytest.mark.parametrize("mode", ["checkpoint", "auto"])


@MODES
def test_a_lost_ledger_in_each_mode(sandbox: Sandbox, mode: str) -> None:
    cut(sandbox, "driver@1:outcome.commit.before:3", mode)
    sandbox.ledger_path.unlink()
    sandbox.drive()
    assert sandbox.labels() == ["ledger_lost", "restore_and_interrupt"]
    assert {event.mode for event in sandbox.of_kind(events.RecoveryDecided)} == {mode}
    assert read_contents(sandbox.root) == {"log": b"1\n2\n"} and len(sandbox.witnessed()) == 3


@MODES
@pytest.mark.parametrize(
    ("keep", "step", "label", "left"),
    [
        ("driver@1:intent.commit.before:3", "driver@1:outcome.commit.before:3", "log_behind_adopt", b"1\n2\n3\n"),
        ("driver@1:outcome.commit.before:2", "driver@1:finish.commit.before:1", "log_behind_restore", b"1\n"),
    ],
)
def test_case_20_a_lost_tail_in_each_mode(sandbox: Sandbox, mode: str, keep: str, step: str, label: str, left: bytes) -> None:
    kept = cut(sandbox, step, mode, keep)
    for name, data in kept.items():
        (sandbox.state / name).write_bytes(data)
    (sandbox.state / "log.sqlite-shm").unlink(missing_ok=True)
    sandbox.drive()
    assert sandbox.labels() == [label] and read_contents(sandbox.root) == {"log": left}
    assert not sandbox.of_kind(events.WorkspaceObserved) and len(sandbox.witnessed()) == 3


@MODES
@pytest.mark.parametrize(("option", "left"), [("--ran", b"1\n2\n3\n"), ("--not-run", b"1\n2\n3\n"), ("--undo", b"1\n3\n")])
def test_a_persons_word_in_each_mode(sandbox: Sandbox, mode: str, option: str, left: bytes) -> None:
    cut(sandbox, "shim.2@1:ended:1", mode)
    assert "ask: " in sandbox.drive(expect=78).sentence()
    done = sandbox.run("settle", sandbox.state, option)
    assert done.code == 0, done.err
    sandbox.drive()
    assert read_contents(sandbox.root) == {"log": left}


@MODES
def test_rule_R5_an_accepted_workspace_in_each_mode(sandbox: Sandbox, mode: str) -> None:
    cut(sandbox, "shim.3@1:ended:1", mode)
    step = "worker@2:restore.displace.move.after:1"
    driver = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    (sandbox.root / "mine").write_text("by hand")
    refused = sandbox.run("settle", sandbox.state, "--accept-workspace", "0" * 64).sentence()
    root = refused.partition("has the root hash ")[2].split()[0]
    assert sandbox.run("settle", sandbox.state, "--accept-workspace", root).code == 0
    sandbox.drive()
    assert read_contents(sandbox.root) == {"mine": b"by hand"}
