"""A driver, shim or file worker is killed at a step; the next driver decides by the label that belongs to what the crash left."""

from typing import Any

import pytest

from eventlog import events
from tests.helpers import is_running, kill_process, read_contents, wait_until
from tests.recovery.sessions import Sandbox, bash, edit, write

GATED = 'echo "$CALL_KEY start" >> "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; '


def crash(sandbox: Sandbox, step: str, *calls: dict[str, object], **settings: Any) -> None:
    """Run a session, SIGKILL the process that reaches `step`, and wait until its driver is gone too."""
    driver = sandbox.start("run", sandbox.session(*calls, **settings), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()


@pytest.mark.parametrize("step", ["outcome.commit.before", "outcome.commit.locked"])
def test_decision_adopt_exit_when_the_driver_dies_between_exit_and_outcome(sandbox: Sandbox, step: str) -> None:
    """The exit stands in the ledger: the outcome is recorded from it, and nothing runs again (I4)."""
    crash(sandbox, f"driver@1:{step}:1", bash('echo "$CALL_KEY" >> "$WITNESS"; echo said; echo one >> a; exit 3'))
    driver = sandbox.drive()
    assert sandbox.labels() == ["adopt_exit"]
    settled = sandbox.of_kind(events.CallSettled)
    assert [(event.attempt, event.ended, event.label, event.exit) for event in settled] == [
        (1, "finished", "adopt_exit", events.Exit("exited", code=3))
    ]
    assert (sandbox.output(1), read_contents(sandbox.root), len(sandbox.witnessed())) == (b"said\n", {"a": b"one\n"}, 1)
    assert driver.lines == [f"ACK 1 {next(stored.seq for stored in sandbox.events() if stored.event == settled[0])} {settled[0].root}"]


def test_an_outcome_in_the_log_is_never_decided_on_again(sandbox: Sandbox) -> None:
    """Case 28: killed after the commit and before the ACK: the call is finished, and stays so."""
    crash(sandbox, "driver@1:outcome.commit.after:1", bash("echo one >> a"), bash("echo two >> a"))
    sandbox.drive()
    assert sandbox.labels() == []
    assert sandbox.settled() == [(1, 1, "finished", "live"), (2, 1, "finished", "live")]
    assert read_contents(sandbox.root) == {"a": b"one\ntwo\n"}


def test_decision_reattach_when_the_driver_dies_while_its_command_runs(sandbox: Sandbox) -> None:
    """The same shim, one start line, the whole output; the call finishes, it is not interrupted."""
    driver = sandbox.start("run", sandbox.session(bash(GATED + "echo begun; echo one > a; echo ended")), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    shim = only_shim(sandbox)
    driver.kill()
    assert is_running(shim)
    second = sandbox.start("drive", sandbox.state, epoch=2)
    wait_until(lambda: sandbox.labels() == ["reattach"], "the decision to reattach")
    assert only_shim(sandbox) == shim and is_running(shim)
    sandbox.open_gate()
    assert second.end() == 0, second.err
    assert sandbox.settled() == [(1, 1, "finished", "reattach")]
    assert (sandbox.output(1), len(sandbox.witnessed())) == (b"begun\nended\n", 1)


def only_shim(sandbox: Sandbox) -> int:
    starts = [attempt.start for attempt in sandbox.ledger().attempts.values() if attempt.prepared.kind == "command" and attempt.start]
    assert len(starts) == 1
    return starts[0].identity.pid


def test_a_reattached_command_can_be_reattached_again(sandbox: Sandbox) -> None:
    """A claim passes on: T2 gives the running command to each newer epoch."""
    driver = sandbox.start("run", sandbox.session(bash(GATED + "echo one > a")), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    driver.kill()
    for epoch in (2, 3):
        driver = sandbox.start("drive", sandbox.state, epoch=epoch)
        wait_until(lambda count=epoch - 1: len(sandbox.labels()) == count, f"the decision of epoch {epoch}")  # type: ignore[misc]
        driver.kill()
    sandbox.open_gate()
    sandbox.drive()
    assert set(sandbox.labels()) <= {"reattach", "adopt_exit"}
    assert (len(sandbox.witnessed()), read_contents(sandbox.root)) == (1, {"a": b"one\n"})


@pytest.mark.parametrize(
    "step",
    [
        "driver@1:intent.commit.after:1",
        "driver@1:ledger.prepare.append.after:2",
        "spawner@1:spawn.before:2",
        "shim.1@1:start:1",
        "shim.1@1:ledger.start.before:1",
    ],
)
def test_decision_void_and_run_when_the_attempt_provably_never_started(sandbox: Sandbox, step: str) -> None:
    """No starting mark: voided in ledger and log, then attempt 2 runs, also for bash with policy `never`."""
    crash(sandbox, step, bash('echo "$CALL_KEY" >> "$WITNESS"; echo one >> a'))
    sandbox.drive()
    assert sandbox.labels() == ["void_and_run"]
    assert sandbox.settled() == [(1, 2, "finished", "live")]
    assert [line.split("/")[2:] for line in sandbox.witnessed()] == [["1", "2", "1"]]
    assert read_contents(sandbox.root) == {"a": b"one\n"}


def test_decision_run_voided_when_the_driver_dies_after_the_void(sandbox: Sandbox) -> None:
    """I12: the committed void binds the successor."""
    crash(sandbox, "shim.1@1:start:1", bash("echo one >> a"))
    step = "driver@2:intent.commit.before:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    sandbox.drive()
    assert sandbox.labels() == ["void_and_run", "run_voided"]
    assert (sandbox.settled(), read_contents(sandbox.root)) == ([(1, 2, "finished", "live")], {"a": b"one\n"})


def test_a_void_whose_decision_was_lost_is_decided_again(sandbox: Sandbox) -> None:
    """Killed between the ledger's void and the log's decision: the attempt still provably never started."""
    crash(sandbox, "shim.1@1:start:1", bash("echo one >> a"))
    step = "driver@2:decision.commit.before:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    sandbox.drive()
    assert sandbox.labels() == ["void_and_run"]
    assert sandbox.settled() == [(1, 2, "finished", "live")]


@pytest.mark.parametrize("step", ["ledger.start.append.after", "spawn.before", "ended", "ledger.exit.before", "ledger.exit.append.before"])
def test_decision_restore_and_interrupt_when_the_shim_of_a_bash_call_dies(sandbox: Sandbox, step: str) -> None:
    """From the starting mark to the exit record nothing is known: restored to the image before, interrupted, never run again (I3, I4)."""
    (sandbox.root / "kept").write_text("kept")
    crash(sandbox, f"shim.1@1:{step}:1", bash('echo "$CALL_KEY" >> "$WITNESS"; echo one > a; rm kept'))
    asked = sandbox.drive(expect=78)
    assert "call 1 (call 1 of the script) was interrupted and the workspace restored" in asked.err
    assert sandbox.labels() == ["restore_and_interrupt"]
    assert sandbox.settled() == [(1, 1, "interrupted", "restore_and_interrupt")]
    assert read_contents(sandbox.root) == {"kept": b"kept"}
    assert len(sandbox.witnessed()) <= 1


def test_invariant_I10_what_a_restore_displaces_is_in_quarantine_and_recorded(sandbox: Sandbox) -> None:
    """Nothing is unlinked: what the cut call made, and the file it rewrote, lie in quarantine byte for byte."""
    (sandbox.root / "kept").write_text("before")
    crash(sandbox, "shim.1@1:ended:1", bash("mkdir -p deep/er; echo made > deep/er/a; echo after > kept; rm -f gone"))
    sandbox.drive(expect=78)
    assert read_contents(sandbox.root) == {"kept": b"before"}
    event = sandbox.of_kind(events.Quarantined)[0]
    place = next(sandbox.base.glob(".crashworthy-*/quarantine")) / event.directory / "1"
    found = read_contents(place)
    assert found == {"deep": None, "deep/er": None, "deep/er/a": b"made\n", "kept": b"after\n"}
    assert sorted(event.paths) == ["1/deep/er/a", "1/kept"]
    finished = sandbox.of_kind(events.RestoreFinished)[0]
    assert (finished.restored, finished.displaced > 0) == (1, True)


@pytest.mark.parametrize(
    "step", ["file.write.half", "file.sync.after", "file.rename.before", "file.rename.after", "ledger.exit.append.after"]
)
def test_decision_restore_and_rerun_when_the_file_worker_dies_in_a_write(sandbox: Sandbox, step: str) -> None:
    """S6: only the log's call_settled proves a file call. Write is safe: restored, then attempt 2."""
    (sandbox.root / "a").write_text("old")
    ordinal = 2 if step.startswith("ledger") else 1  # its first exit record is that of the side directory
    crash(sandbox, f"worker@1:{step}:{ordinal}", write("a", "new"), bash("cat a"))
    sandbox.drive()
    assert sandbox.labels() == ["restore_and_rerun", "rerun_restored"]
    assert sandbox.settled() == [(1, 2, "finished", "live"), (2, 1, "finished", "live")]
    assert (read_contents(sandbox.root), sandbox.output(2)) == ({"a": b"new"}, b"new")


def test_decision_restore_and_rerun_applies_an_edit_once(sandbox: Sandbox) -> None:
    """Policy after-restore: an edit that had been done before the crash is undone, then done again."""
    (sandbox.root / "a").write_text("x")
    crash(sandbox, "worker@1:file.rename.after:1", edit("a", "x", "xx"))
    sandbox.drive()
    assert sandbox.settled() == [(1, 2, "finished", "live")]
    assert read_contents(sandbox.root) == {"a": b"xx"}


def test_a_bash_call_of_policy_after_restore_runs_again(sandbox: Sandbox) -> None:
    crash(sandbox, "shim.1@1:ended:1", bash('echo "$CALL_KEY" >> "$WITNESS"; echo one >> a', policy="after-restore"))
    sandbox.drive()
    assert sandbox.labels() == ["restore_and_rerun", "rerun_restored"]
    assert read_contents(sandbox.root) == {"a": b"one\n"}
    assert [line.split("/")[3] for line in sandbox.witnessed()] == ["1", "2"]


def test_decision_ask_waits_for_a_person(sandbox: Sandbox) -> None:
    """Exit 78 with the label; the call stays open and the workspace as it is."""
    crash(sandbox, "shim.1@1:ended:1", bash("echo one > a", policy="ask"))
    asked = sandbox.drive(expect=78)
    assert "ask: " in asked.sentence() and "its policy is `ask`" in asked.sentence()
    assert (sandbox.settled(), read_contents(sandbox.root)) == ([], {"a": b"one\n"})


@pytest.mark.parametrize(("choice", "code", "expected"), [("stop", 78, b"two\n"), ("reissue", 0, b"two\none\n"), ("continue", 0, b"two\n")])
@pytest.mark.parametrize("by", ["file", "option"])
def test_what_the_script_does_about_an_interrupted_call(sandbox: Sandbox, choice: str, code: int, expected: bytes, by: str) -> None:
    """`on_interrupted`, from the session file or the command line: reissue runs it as a new call, continue goes on without it."""
    settings = {"on_interrupted": choice} if by == "file" else {}
    crash(sandbox, "shim.2@1:ended:1", bash("echo two > a"), bash("echo one >> a"), **settings)
    sandbox.drive(*([] if by == "file" else ["--on-interrupted", choice]), expect=code)
    assert read_contents(sandbox.root) == {"a": expected}
    ended = [(call, how) for call, _, how, _ in sandbox.settled()]
    assert ended == [(1, "finished"), (2, "interrupted"), *([(3, "finished")] if choice == "reissue" else [])]


def test_case_32_nothing_of_a_killed_call_writes_after_its_restore(sandbox: Sandbox) -> None:
    """I7: a descendant that forked twice, left its session and cleared its environment is dead before the restore begins."""
    escape = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open(os.environ['WITNESS'], 'w').write(str(os.getpid()))\n"
        "        os.execve('/bin/bash', ['bash', '-c', 'trap \"\" TERM; while :; do echo x >> late; sleep 0.01; done'], {})\n"
        "    os._exit(0)\n"
    )
    (sandbox.base / "escape.py").write_text(escape)
    driver = sandbox.start("run", sandbox.session(bash(f"python3 -I -S {sandbox.base}/escape.py; sleep 300")), epoch=1)
    wait_until((sandbox.root / "late").exists, "the descendant's first line")
    late = int(sandbox.witnessed()[0])
    kill_process(only_shim(sandbox))
    assert driver.end() == 1
    if not sandbox.of_kind(events.DriverStarted)[0].kill_mark == "cgroup":
        kill_process(late)
        pytest.skip("without cgroups the dead shim's command is not provably dead: tests/recovery/space has that case")
    sandbox.drive(expect=78)
    assert not is_running(late)
    assert read_contents(sandbox.root) == {}


def test_rule_S5_a_command_ends_with_its_shim(sandbox: Sandbox) -> None:
    driver = sandbox.start("run", sandbox.session(bash('echo $$ > "$WITNESS"; exec sleep 300')), epoch=1)
    command = int(wait_until(sandbox.witnessed, "the command's start")[0])
    kill_process(only_shim(sandbox))
    wait_until(lambda: not is_running(command), "the command's end")
    assert driver.end() == 1


def test_case_33_what_a_takeover_cut_off_is_interrupted_not_failed(sandbox: Sandbox) -> None:
    """A claimed shim that does not answer is condemned and killed; its command's end by signal 9 is no outcome (T2)."""
    driver = sandbox.start("run", sandbox.session(bash('echo $$ > "$WITNESS"; sleep 300')), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    driver.kill()
    for name in (sandbox.state / "space" / "sockets").iterdir():
        name.unlink()  # nobody can say hello
    sandbox.drive(expect=78)
    assert sandbox.settled() == [(1, 1, "interrupted", "restore_and_interrupt")]
    assert sandbox.of_kind(events.CallSettled)[0].exit is None
