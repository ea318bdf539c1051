"""What a call comes to, whatever was killed: the changes of others stay (case 7), each call has one final result (case 37), and what a
restart of the machine may have taken is told from what a person changed meanwhile (rule D5)."""

import subprocess
import sys

import pytest

from eventlog import events
from tests.crash.person import begun, restore
from tests.helpers import is_running, kill_process, read_contents, wait_until
from tests.recovery.sessions import Sandbox, bash, write

CUT = (
    'echo new > src/main.c; mkdir output/x; echo more >> output/results.jsonl; echo "$CALL_KEY" >> "$WITNESS"; '
    'until [ -e "$GATE" ]; do sleep 0.01; done'
)


@pytest.mark.parametrize("step", ["driver@1:intent.commit.before:2", "driver@1:finish.commit.before:1"])
def test_case_07_changes_made_outside_the_calls_stay_and_a_cut_call_is_undone_alone(sandbox: Sandbox, step: str) -> None:
    """Between two calls another process writes a file and deletes a tracked one; the next call, a shell command, is cut in its midst."""
    (sandbox.root / "src").mkdir()
    (sandbox.root / "src" / "main.c").write_text("old")
    (sandbox.root / "notes.txt").write_text("tracked")
    (sandbox.root / "output").mkdir()
    calls = [bash("echo one > a"), bash(CUT)] if "intent" in step else [bash("echo one > a")]
    driver = sandbox.start("run", sandbox.session(*calls, on_interrupted="continue"), epoch=1, wait=(step,))
    sandbox.steps.wait(step, driver)
    others = "import os; open('output/results.jsonl', 'w').write('{}\\n'); os.unlink('notes.txt')"
    subprocess.run([sys.executable, "-c", others], cwd=sandbox.root, check=True)
    kept = {"a": b"one\n", "src": None, "src/main.c": b"old", "output": None, "output/results.jsonl": b"{}\n"}
    if "intent" not in step:
        sandbox.steps.kill(step, driver)
        driver.end()
        sandbox.drive()
        assert sandbox.labels() == ["record_outside"] and read_contents(sandbox.root) == kept
        return
    sandbox.steps.kill(step, driver)
    driver.end()
    second = sandbox.start("drive", sandbox.state, epoch=2)
    wait_until(sandbox.witnessed, "the second call's start")
    starts = [attempt.start for attempt in sandbox.ledger().attempts.values() if attempt.prepared.call == 2 and attempt.start]
    second.kill()
    kill_process(starts[0].identity.pid)
    sandbox.drive()
    sandbox.open_gate()
    assert read_contents(sandbox.root) == kept
    kinds = [stored.event.kind for stored in sandbox.events()]
    observed = kinds.index("workspace_observed")
    assert kinds.count("workspace_observed") == 1 and kinds[observed + 1] == "attempt_started", "in the commit of the call's intent"
    assert sandbox.settled()[-1][:3] == (2, 1, "interrupted")


STEPS = (
    "driver@1:intent.commit.after:2",
    "shim.2@1:ledger.start.append.after:1",
    "shim.2@1:ended:1",
    "driver@1:outcome.commit.before:2",
    "driver@1:outcome.commit.after:2",
)
SUBSTITUTES = (
    "driver@2:decision.commit.after:1",
    "driver@2:restored.commit.before:1",
    "driver@2:restored.commit.locked:1",
    "driver@2:restored.commit.after:1",
)


def results(sandbox: Sandbox) -> list[tuple[int, str]]:
    return [(call, ended) for call, _, ended, _ in sandbox.settled()]


@pytest.mark.parametrize("step", STEPS)
def test_case_37_each_call_has_exactly_one_final_result_in_order(sandbox: Sandbox, step: str) -> None:
    session = sandbox.session(*(bash(f"echo {number} > f{number}") for number in (1, 2, 3)), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    assert sandbox.run("apply", sandbox.state).code == 0
    first = [call for call, _ in results(sandbox)]
    assert first == list(range(1, len(first) + 1)) == [1, 2], "the cut call has its result before anything follows"
    before = [stored.hash for stored in sandbox.events() if not isinstance(stored.event, events.DriverStarted)]
    assert sandbox.run("apply", sandbox.state).code == 0
    assert [stored.hash for stored in sandbox.events() if not isinstance(stored.event, events.DriverStarted)] == before, "changes nothing"
    sandbox.drive()
    assert [call for call, _ in results(sandbox)] == [1, 2, 3]
    if results(sandbox)[1][1] == "interrupted":
        settled = sandbox.of_kind(events.CallSettled)[1]
        assert "not known whole" in settled.reason and settled.exit is None, "the cut one says that it was"


@pytest.mark.parametrize("step", SUBSTITUTES)
def test_case_37_recovery_killed_while_it_writes_the_substitute_result_writes_one(sandbox: Sandbox, step: str) -> None:
    session = sandbox.session(bash("echo one > a"), bash("echo two > b"), bash("echo three > c"), on_interrupted="continue")
    driver = sandbox.start("run", session, epoch=1, wait=("shim.2@1:ended:1",))
    sandbox.steps.kill("shim.2@1:ended:1", driver)
    driver.end()
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    sandbox.drive()
    assert results(sandbox) == [(1, "finished"), (2, "interrupted"), (3, "finished")]


def test_case_37_a_late_real_result_is_fenced(sandbox: Sandbox) -> None:
    """The driver had the exit in hand and stood before the outcome's commit; its successor settled the call. Woken, it writes nothing."""
    step = "driver@1:outcome.commit.before:1"
    slow = sandbox.start("run", sandbox.session(bash("echo one > a"), on_interrupted="continue"), epoch=1, wait=(step,))
    sandbox.steps.wait(step, slow)
    sandbox.drive(epoch=2)
    before = [stored.hash for stored in sandbox.events()]
    sandbox.steps.release(step)
    assert slow.end() == 75, slow.err
    assert [stored.hash for stored in sandbox.events()] == before and results(sandbox) == [(1, "finished")]
    assert not any(line.startswith("ACK") for line in slow.lines), "nobody is told of a result that is none"


def test_case_37_a_late_exit_record_of_a_condemned_attempt_is_cut_for_ever(sandbox: Sandbox) -> None:
    """The shim stood before its exit record when its attempt was condemned; it is killed before the call gets its substitute result."""
    step = "shim.1@1:ledger.exit.before:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a"), on_interrupted="continue"), epoch=1, wait=(step,))
    pid = sandbox.steps.wait(step, driver)
    driver.kill()
    for name in (sandbox.state / "space" / "sockets").iterdir():
        name.unlink()  # nobody can say hello: the claim becomes a condemnation
    sandbox.drive(epoch=2)
    assert results(sandbox) == [(1, "interrupted")] and not is_running(pid)
    assert read_contents(sandbox.root) == {}


def test_rule_D5_edits_after_a_planned_sync_and_a_restart_survive(sandbox: Sandbox) -> None:
    sandbox.boot = "boot-1"
    restore(sandbox, begun(sandbox, (bash("echo one > a"), bash("echo two > b"))))
    sandbox.boot = "boot-2"
    (sandbox.root / "a").write_text("edited for two days")
    sandbox.drive("--on-interrupted", "continue")
    assert sandbox.labels() == ["restore_by_person", "record_outside"]
    assert read_contents(sandbox.root) == {"a": b"edited for two days"}


@pytest.mark.parametrize("call", [bash("echo one > a"), write("a", "one\n")], ids=["command", "file call"])
def test_rule_D5_a_write_lost_after_an_unsynced_outcome_is_restored(sandbox: Sandbox, call: dict[str, object]) -> None:
    """The outcome is in the log, the workspace was never synced, the machine lost power: a file is empty, another one is missing."""
    sandbox.boot = "boot-1"
    begun(sandbox, (call, bash("echo two > b")))
    (sandbox.root / "a").write_bytes(b"")
    (sandbox.root / "b").unlink()
    sandbox.boot = "boot-2"
    driver = sandbox.drive()
    assert sandbox.labels() == ["restore_unsynced_head"] and "2 paths reverted" in driver.err
    assert read_contents(sandbox.root) == {"a": b"one\n", "b": b"two\n"}
    finished = sandbox.of_kind(events.RestoreFinished)[0]
    assert (finished.reverted, finished.reimaged) == (2, 0) and not sandbox.of_kind(events.WorkspaceObserved)


def test_rule_D5_once_restored_what_a_person_edits_under_the_new_boot_survives(sandbox: Sandbox) -> None:
    sandbox.boot = "boot-1"
    begun(sandbox, (bash("echo one > a"),))
    (sandbox.root / "a").write_bytes(b"")
    sandbox.boot = "boot-2"
    assert sandbox.run("apply", sandbox.state).code == 0
    (sandbox.root / "a").write_text("edited")
    sandbox.drive()
    assert sandbox.labels() == ["restore_unsynced_head", "record_outside"] and read_contents(sandbox.root) == {"a": b"edited"}
