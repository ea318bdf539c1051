"""`recovery apply` does what `recovery plan` says and stops: no new call is begun, and the session is not finished."""

import json
import shutil
from collections.abc import Callable

import pytest

from eventlog import events
from tests.crash.person import begun
from tests.helpers import read_contents, read_tree
from tests.recovery.sessions import Sandbox, bash

EFFECT = 'echo "$CALL_KEY" >> "$WITNESS"; echo two > b'


def cut(sandbox: Sandbox, step: str, policy: str = "never") -> None:
    session = sandbox.session(bash("echo one > a"), bash(EFFECT, policy=policy), bash("echo three > c"))
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()


def lose_ledger(sandbox: Sandbox) -> None:
    cut(sandbox, "shim.2@1:ended:1")
    sandbox.ledger_path.unlink()


def lose_root(sandbox: Sandbox) -> None:
    cut(sandbox, "shim.2@1:ended:1", "after-restore")
    shutil.rmtree(sandbox.root)


CASES: dict[str, tuple[Callable[[Sandbox], None], list[str], dict[str, bytes]]] = {
    "adopt_exit": (lambda sandbox: cut(sandbox, "driver@1:outcome.commit.before:2"), ["adopt_exit"], {"b": b"two\n"}),
    "void_and_run": (lambda sandbox: cut(sandbox, "driver@1:intent.commit.after:2"), ["void_and_run"], {"b": b"two\n"}),
    "restore_and_interrupt": (lambda sandbox: cut(sandbox, "shim.2@1:ended:1"), ["restore_and_interrupt"], {}),
    "restore_and_rerun": (
        lambda sandbox: cut(sandbox, "shim.2@1:ended:1", "after-restore"), ["restore_and_rerun", "rerun_restored"], {"b": b"two\n"},
    ),
    "ledger_lost": (lose_ledger, ["ledger_lost", "restore_and_interrupt"], {}),
    "root_lost": (lose_root, ["root_lost", "rerun_restored"], {"b": b"two\n"}),
}  # fmt: skip


@pytest.mark.parametrize("label", CASES)
def test_apply_does_what_plan_says_and_stops(sandbox: Sandbox, label: str) -> None:
    make, labels, changed = CASES[label]
    make(sandbox)
    planned = sandbox.run("plan", sandbox.state, "--json")
    forecast = json.loads(planned.out)
    assert planned.code == 2 and forecast["label"] == label
    assert [step.split(": ")[1] for step in forecast["steps"]] == labels, "each row that follows is foreseen"
    applied = sandbox.run("apply", sandbox.state, "--json")
    assert applied.code == 0, applied.err
    assert [one["label"] for one in json.loads(applied.out)["decisions"]] == labels == sandbox.labels()
    assert read_contents(sandbox.root) == {"a": b"one\n", **changed}, "call 3 has not begun"
    assert [call for call, _, _, _ in sandbox.settled()] == [1, 2] and not sandbox.of_kind(events.SessionFinished)
    assert sandbox.run("plan", sandbox.state).code == 0
    again = sandbox.run("apply", sandbox.state)
    assert again.code == 0 and "nothing to recover; `recovery drive " in again.out and sandbox.labels() == labels


def test_apply_does_not_finish_a_session_and_keeps_its_workspace(sandbox: Sandbox) -> None:
    begun(sandbox)
    assert sandbox.run("apply", sandbox.state).code == 0
    assert not sandbox.of_kind(events.SessionFinished)
    other = sandbox.run("run", sandbox.session(bash("true"), file="o.toml", name="other", state=str(sandbox.base / "other")))
    assert other.code == 78 and "held by session:nightly" in other.sentence()
    sandbox.drive()
    done = sandbox.run("apply", sandbox.state, "--json")
    assert done.code == 0 and json.loads(done.out)["decisions"] == []


def test_apply_waits_for_a_person_as_drive_does(sandbox: Sandbox) -> None:
    cut(sandbox, "shim.2@1:ended:1", "ask")
    refused = sandbox.run("apply", sandbox.state)
    assert refused.code == 78 and "ask: what call 2 did is not known" in refused.sentence()


def test_plan_names_the_calls_what_is_known_and_the_commands_and_touches_nothing(sandbox: Sandbox) -> None:
    cut(sandbox, "shim.2@1:ended:1", "ask")
    before = {name: node for name, node in read_tree(sandbox.state).items() if not name.endswith(("-shm", "-wal"))}
    said = sandbox.run("plan", sandbox.state).out.splitlines()
    assert said[0] == "session nightly, epoch 1: then a person is needed"
    assert said[1].startswith("call 2: ask: ")
    assert "calls that stand as they are: 1 finished" in said
    [because] = [line for line in said if line.startswith("because ")]
    assert "what its newest attempt did is not known" in because and "its policy is to ask a person" in because
    assert any(f"`recovery settle {sandbox.state} --ran`" in line for line in said)
    after = {name: node for name, node in read_tree(sandbox.state).items() if not name.endswith(("-shm", "-wal"))}
    assert after == before


def test_plan_names_each_call_that_the_log_lost(sandbox: Sandbox) -> None:
    old, last = "driver@1:outcome.commit.before:1", "driver@1:finish.commit.before:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a"), bash(EFFECT)), epoch=1, wait=(old, last))
    sandbox.steps.wait(old, driver)
    kept = {name: (sandbox.state / name).read_bytes() for name in ("log.sqlite", "log.sqlite-wal")}
    sandbox.steps.release(old)
    sandbox.steps.kill(last, driver)
    driver.end()
    for name, data in kept.items():
        (sandbox.state / name).write_bytes(data)
    (sandbox.state / "log.sqlite-shm").unlink(missing_ok=True)
    forecast = json.loads(sandbox.run("plan", sandbox.state, "--json").out)
    assert (forecast["label"], forecast["call"], forecast["lost"]) == ("log_behind_restore", 1, [2])
    assert forecast["steps"][1] == "call 2: lost from the log: it ends interrupted"
    assert "the ledger has seen more of the log than there is" in forecast["why"]
