"""Case 20: an old copy of the log's files is put back, and the ledger has seen more (rule D2): adopted from the ledger's bytes, or
restored; never an outside change, never run again."""

import os
from contextlib import suppress

import pytest

from eventlog import events
from eventlog.ports import RandomIds
from eventlog.records import Record
from eventlog.values import StreamId
from eventlog.writer import Writer
from recovery.opening import read_log
from tests.helpers import read_contents, wait_until
from tests.recovery.sessions import Sandbox, bash, write

NAMES = ("log.sqlite", "log.sqlite-wal")
CALLS = tuple(bash(f'echo "$CALL_KEY" >> "$WITNESS"; echo {number} >> log; echo said {number}') for number in (1, 2, 3))
OLD = ("outcome.commit.before:2", "intent.commit.before:3", "outcome.commit.before:3")


def run_and_put_back(sandbox: Sandbox, old: str, last: str, **settings: str) -> None:
    """Run three calls; the log as it stood at the step `old` is put back once the driver has been killed at `last`."""
    old, last = f"driver@1:{old}", f"driver@1:{last}"
    driver = sandbox.start("run", sandbox.session(*CALLS, **settings), epoch=1, wait=(old, last))
    sandbox.steps.wait(old, driver)
    kept = copy(sandbox)
    if old != last:
        sandbox.steps.release(old)
    sandbox.steps.kill(last, driver)
    driver.end()
    put_back(sandbox, kept)


def copy(sandbox: Sandbox) -> dict[str, bytes]:
    return {name: (sandbox.state / name).read_bytes() for name in NAMES}


def put_back(sandbox: Sandbox, kept: dict[str, bytes]) -> None:
    for name, data in kept.items():
        (sandbox.state / name).write_bytes(data)
    (sandbox.state / "log.sqlite-shm").unlink(missing_ok=True)


def witnessed_calls(sandbox: Sandbox) -> list[int]:
    return [int(line.split("/")[2]) for line in sandbox.witnessed()]


def check_legal(sandbox: Sandbox) -> None:
    assert not sandbox.of_kind(events.WorkspaceObserved), "what a lost call did is no outside change"
    settled = [call for call, _, _, _ in sandbox.settled()]
    assert settled == list(range(1, len(settled) + 1)), "each call has one end, in order"
    assert len(set(sandbox.witnessed())) == len(sandbox.witnessed()), "no attempt began twice"


@pytest.mark.parametrize("last", ["outcome.commit.before:3", "outcome.commit.after:3"], ids=["one commit lost", "two commits lost"])
def test_case_20_one_lost_call_with_a_clean_exit_is_adopted_from_the_ledger(sandbox: Sandbox, last: str) -> None:
    run_and_put_back(sandbox, "intent.commit.before:3", last)
    planned = sandbox.run("plan", sandbox.state)
    assert planned.code == 2 and "log_behind_adopt: " in planned.out
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_adopt"]
    assert sandbox.settled()[-1] == (3, 1, "finished", "log_behind_adopt") and sandbox.output(3) == b"said 3\n"
    assert sandbox.of_kind(events.CallSettled)[-1].exit == events.Exit("exited", code=0)
    intent = sandbox.of_kind(events.AttemptStarted)[-1]
    assert (intent.call, intent.script_index, intent.input["run"], intent.redacted) == (3, 2, CALLS[2]["run"], False)
    assert read_contents(sandbox.root) == {"log": b"1\n2\n3\n"} and witnessed_calls(sandbox) == [1, 2, 3]
    assert len(sandbox.of_kind(events.SessionFinished)) == 1
    check_legal(sandbox)


@pytest.mark.parametrize("old", OLD, ids=["three commits lost", "two commits lost", "one commit lost"])
@pytest.mark.parametrize("choice", ["continue", "reissue"])
def test_case_20_lost_calls_that_the_ledger_has_collected_end_interrupted(sandbox: Sandbox, old: str, choice: str) -> None:
    """Their outcome was in the log, and of those whose intent is lost too the ledger knows the number alone."""
    run_and_put_back(sandbox, old, "finish.commit.before:1", on_interrupted=choice)
    assert "log_behind_restore: " in sandbox.run("plan", sandbox.state).out
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"]
    first = 2 if old == OLD[0] else 3
    ended = {call: (how, label) for call, _, how, label in sandbox.settled()}
    assert all(ended[call] == ("finished", "live") for call in range(1, first))
    assert all(ended[call] == ("interrupted", "log_behind_restore") for call in range(first, 4))
    lost = sandbox.of_kind(events.RecoveryDecided)[0].facts
    assert lost["missing_calls"] == ([] if old == OLD[2] else [3]) == lost["unknown_calls"]
    again = list(range(first, 4)) if choice == "reissue" else []
    assert sorted(ended) == list(range(1, 4 + len(again)))
    assert witnessed_calls(sandbox) == [1, 2, 3, *range(4, 4 + len(again))]
    stands = list(range(1, first)) + again
    assert read_contents(sandbox.root)["log"] == b"".join(b"%d\n" % number for number in stands)
    check_legal(sandbox)


def test_case_20_a_lost_call_that_is_not_known_says_so_and_is_no_input_to_run_again(sandbox: Sandbox) -> None:
    run_and_put_back(sandbox, "intent.commit.before:3", "finish.commit.before:1")
    asked = sandbox.drive(expect=78)
    assert "call 3 (call 3 of the script) was undone by the restore decided at seq" in asked.err
    intent, settled = sandbox.of_kind(events.AttemptStarted)[-1], sandbox.of_kind(events.CallSettled)[-1]
    assert (intent.tool, intent.redacted, intent.policy, intent.script_index) == ("unknown", True, "never", 2)
    assert "the ledger knows no more of it" in settled.reason and settled.exit is None


@pytest.mark.parametrize("old", [*OLD[1:], "outcome.commit.before:2"])
def test_case_20_the_epoch_raised_in_the_lost_commit_is_never_given_again(sandbox: Sandbox, old: str) -> None:
    step = f"driver@1:{old}"
    last = "driver@1:outcome.commit.before:3"
    driver = sandbox.start("run", sandbox.session(*CALLS, on_interrupted="continue"), epoch=1, wait=(step, last))
    sandbox.steps.wait(step, driver)
    kept = copy(sandbox)
    if step != last:
        sandbox.steps.release(step)
    sandbox.steps.kill(last, driver)
    driver.end()
    second = sandbox.start("drive", sandbox.state, epoch=5, wait=("driver@5:takeover.killed:1",))
    sandbox.steps.kill("driver@5:takeover.killed:1", second)
    second.end()
    for path in (sandbox.state / "identity").iterdir():
        path.unlink()
    put_back(sandbox, kept)
    assert read_log(str(sandbox.state)).floor == 1
    sandbox.drive()
    assert read_log(str(sandbox.state)).floor == 6 == sandbox.ledger().floor
    expected = "log_behind_adopt" if old == OLD[1] else "log_behind_restore"
    assert sandbox.labels() == [expected]
    assert witnessed_calls(sandbox) == [1, 2, 3]
    check_legal(sandbox)


def test_case_20_after_a_restart_of_the_machine_nothing_is_adopted(sandbox: Sandbox) -> None:
    """Its effects may not have reached the disk."""
    sandbox.boot = "boot-1"
    run_and_put_back(sandbox, "intent.commit.before:3", "outcome.commit.before:3", on_interrupted="continue")
    sandbox.boot = "boot-2"
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"]
    settled = sandbox.of_kind(events.CallSettled)[-1]
    assert (settled.call, settled.ended) == (3, "interrupted") and "the log lost it with its tail" in settled.reason
    assert sandbox.of_kind(events.AttemptStarted)[-1].input["run"] == CALLS[2]["run"], "the intent is the ledger's, byte for byte"
    assert read_contents(sandbox.root) == {"log": b"1\n2\n"}
    check_legal(sandbox)


def test_case_20_a_lost_call_that_still_runs_is_killed_and_never_adopted(sandbox: Sandbox) -> None:
    gated = 'echo "$CALL_KEY" >> "$WITNESS"; echo 2 >> log; until [ -e "$GATE" ]; do sleep 0.01; done; echo late >> log'
    session = sandbox.session(bash("echo 1 >> log"), bash(gated), on_interrupted="continue")
    old = "driver@1:intent.commit.before:2"
    driver = sandbox.start("run", session, epoch=1, wait=(old,))
    sandbox.steps.wait(old, driver)
    kept = copy(sandbox)
    sandbox.steps.release(old)
    wait_until(sandbox.witnessed, "the command's start")
    driver.kill()
    put_back(sandbox, kept)
    sandbox.drive()
    sandbox.open_gate()
    assert sandbox.labels() == ["log_behind_restore"] and read_contents(sandbox.root) == {"log": b"1\n"}
    check_legal(sandbox)


def test_case_20_a_lost_file_call_is_never_adopted(sandbox: Sandbox) -> None:
    """S6: its exit record proves nothing."""
    session = sandbox.session(write("a", "one"), write("b", "two"), on_interrupted="continue")
    old, last = "driver@1:intent.commit.before:2", "driver@1:outcome.commit.before:2"
    driver = sandbox.start("run", session, epoch=1, wait=(old, last))
    sandbox.steps.wait(old, driver)
    kept = copy(sandbox)
    sandbox.steps.release(old)
    sandbox.steps.kill(last, driver)
    driver.end()
    put_back(sandbox, kept)
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"] and read_contents(sandbox.root) == {"a": b"one"}
    check_legal(sandbox)


ADOPT_STEPS = (
    "driver@2:decision.commit.before:1",
    "driver@2:decision.commit.after:1",
    "driver@2:ledger.rejoin.before:1",
    "driver@2:ledger.rejoin.append.after:1",
    "driver@2:outcome.commit.before:1",
    "driver@2:outcome.commit.after:1",
)
RESTORE_STEPS = (
    "driver@2:decision.commit.before:1",
    "driver@2:decision.commit.after:1",
    "driver@2:ledger.rejoin.append.after:1",
    "worker@2:restore.displace.move.after:1",
    "driver@2:restored.commit.before:1",
    "driver@2:restored.commit.after:1",
    "driver@2:ledger.collect.append.after:1",
)


@pytest.mark.parametrize("step", ADOPT_STEPS)
def test_case_20_an_adoption_killed_at_any_step_ends_as_an_adoption(sandbox: Sandbox, step: str) -> None:
    run_and_put_back(sandbox, "intent.commit.before:3", "outcome.commit.before:3")
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    sandbox.drive(epoch=3)
    assert set(sandbox.labels()) <= {"log_behind_adopt", "adopt_exit"}
    assert sandbox.settled()[-1][:3] == (3, 1, "finished")
    assert read_contents(sandbox.root) == {"log": b"1\n2\n3\n"} and witnessed_calls(sandbox) == [1, 2, 3]
    check_legal(sandbox)


@pytest.mark.parametrize("step", RESTORE_STEPS)
def test_case_20_a_restore_of_lost_calls_killed_at_any_step_is_completed(sandbox: Sandbox, step: str) -> None:
    run_and_put_back(sandbox, "outcome.commit.before:2", "finish.commit.before:1", on_interrupted="continue")
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    sandbox.drive(epoch=3)
    assert [event.label for event in sandbox.of_kind(events.RecoveryDecided) if event.obligation] == ["log_behind_restore"]
    assert [how for _, _, how, _ in sandbox.settled()] == ["finished", "interrupted", "interrupted"]
    assert read_contents(sandbox.root) == {"log": b"1\n"} and witnessed_calls(sandbox) == [1, 2, 3]
    check_legal(sandbox)


def test_case_20_a_loss_stays_seen_until_it_is_decided_on(sandbox: Sandbox) -> None:
    """A takeover's own events must not cover what the ledger has seen: each drive appends one, and exactly one outcome is lost."""
    run_and_put_back(sandbox, "outcome.commit.before:3", "finish.commit.before:1", on_interrupted="continue")
    for epoch in (2, 3, 4):
        step = f"driver@{epoch}:decision.commit.before:1"
        driver = sandbox.start("drive", sandbox.state, epoch=epoch, wait=(step,))
        sandbox.steps.kill(step, driver)
        driver.end()
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"] and read_contents(sandbox.root) == {"log": b"1\n2\n"}
    check_legal(sandbox)


def test_case_20_a_log_that_goes_on_after_its_loss_is_whole(sandbox: Sandbox) -> None:
    """The loss is decided on once: neither a later drive nor its own events make it behind again."""
    run_and_put_back(sandbox, "outcome.commit.before:3", "finish.commit.before:1")
    for _ in range(3):
        sandbox.drive(expect=78)
    assert sandbox.labels() == ["log_behind_restore"]
    (sandbox.root / "mine").write_text("by hand")
    sandbox.drive("--on-interrupted", "continue")
    assert sandbox.labels() == ["log_behind_restore", "record_outside"]
    assert read_contents(sandbox.root) == {"log": b"1\n2\n", "mine": b"by hand"}


@pytest.mark.parametrize("lost", [1, 10])
def test_case_20_a_log_that_lost_takeovers_and_no_call_is_behind_until_it_is_decided_and_whole_after(sandbox: Sandbox, lost: int) -> None:
    """Of ten the log that goes on is shorter than the one the ledger has seen; of one it is as long after the next takeover, which must not
    cover the loss by what it prepares: the root is to be marked first."""
    last = "driver@1:finish.commit.before:1"
    driver = sandbox.start("run", sandbox.session(*CALLS, on_interrupted="continue"), epoch=1, wait=(last,))
    sandbox.steps.kill(last, driver)
    driver.end()
    kept = copy(sandbox)
    for epoch in range(2, 2 + lost):
        step = f"driver@{epoch}:takeover.killed:1"
        driver = sandbox.start("drive", sandbox.state, epoch=epoch, wait=(step,))
        sandbox.steps.kill(step, driver)
        driver.end()
    put_back(sandbox, kept)
    (sandbox.root / "extra").write_text("may be of a lost call")
    with suppress(OSError):
        os.removexattr(sandbox.root, "user.crashworthy.root")
    step = f"driver@{2 + lost}:decision.commit.before:1"
    driver = sandbox.start("drive", sandbox.state, epoch=2 + lost, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"] and read_contents(sandbox.root) == {"log": b"1\n2\n3\n"}
    assert len(sandbox.of_kind(events.SessionFinished)) == 1 and sandbox.ledger().floor == 3 + lost


def test_case_20_a_loss_is_met_in_no_directory_but_the_sessions_own(sandbox: Sandbox) -> None:
    run_and_put_back(sandbox, "outcome.commit.before:3", "finish.commit.before:1", on_interrupted="continue")
    sandbox.root.rename(sandbox.base / "own")
    sandbox.root.mkdir()
    (sandbox.root / "foreign").write_text("mine")
    assert "root_replaced" in sandbox.drive(expect=78).sentence()
    refused = sandbox.run("settle", sandbox.state, "--accept-root")
    assert refused.code == 78 and "the log is older than the ledger" in refused.sentence()
    (sandbox.root / "foreign").unlink()
    sandbox.root.rmdir()
    (sandbox.base / "own").rename(sandbox.root)
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"] and read_contents(sandbox.root) == {"log": b"1\n2\n"}


def test_case_20_a_lost_tail_and_a_lost_workspace_are_both_made_good(sandbox: Sandbox) -> None:
    run_and_put_back(sandbox, "outcome.commit.before:2", "outcome.commit.before:3", on_interrupted="continue")
    for path in sandbox.root.iterdir():
        path.unlink()
    sandbox.root.rmdir()
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"] and read_contents(sandbox.root) == {"log": b"1\n"}
    assert [how for _, _, how, _ in sandbox.settled()] == ["finished", "interrupted", "interrupted"]


def test_case_20_a_log_put_back_from_before_a_pause_ended_stays_readable_and_goes_on(sandbox: Sandbox) -> None:
    """What resumed the session is lost, and the lost call stands behind `session_paused`: the decision on the loss ends the pause."""
    gated = 'echo "$CALL_KEY" >> "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo 1 >> log'
    driver = sandbox.start("run", sandbox.session(bash(gated), *CALLS[1:], on_interrupted="continue"), epoch=1)
    wait_until(sandbox.witnessed, "the first command")
    assert sandbox.run("pause", sandbox.state).code == 0
    sandbox.open_gate()
    assert driver.end() == 78, driver.err
    kept = copy(sandbox)
    step = "driver@2:outcome.commit.before:2"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    put_back(sandbox, kept)
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore"]
    assert [how for _, _, how, _ in sandbox.settled()] == ["finished", "interrupted", "interrupted"]
    assert len(sandbox.of_kind(events.SessionFinished)) == 1 and read_contents(sandbox.root) == {"log": b"1\n"}


@pytest.mark.parametrize("last", ["outcome.commit.before:1", "finish.commit.before:1"])
def test_case_20_a_log_put_back_from_before_an_answer_stays_readable_and_goes_on(sandbox: Sandbox, last: str) -> None:
    """The answer is lost with the call that it let begin: the call is taken back or interrupted all the same."""
    asked = sandbox.run("run", sandbox.session(bash("echo 1 >> log", approve=True), on_interrupted="continue"), epoch=1)
    assert asked.code == 78, asked.err
    kept = copy(sandbox)
    assert sandbox.run("answer", sandbox.state, "--approve").code == 0
    step = f"driver@2:{last}"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    put_back(sandbox, kept)
    sandbox.drive()
    is_adopted = last.startswith("outcome")
    assert sandbox.labels() == ["log_behind_adopt" if is_adopted else "log_behind_restore"]
    assert [how for _, _, how, _ in sandbox.settled()] == ["finished" if is_adopted else "interrupted"]
    assert len(sandbox.of_kind(events.SessionFinished)) == 1


def lose_ledger(sandbox: Sandbox, how: str) -> None:
    """The ledger is gone, or its newest line is damaged: all the lines before that can be read."""
    if how == "missing":
        sandbox.ledger_path.unlink()
    else:
        with sandbox.ledger_path.open("ab") as file:
            file.write(b"f" * 32 + b" {}\n")


@pytest.mark.parametrize("last", ["outcome.commit.before:1", "finish.commit.before:1"])
def test_case_20_a_ledger_made_anew_after_the_copy_is_kept_and_says_what_the_log_lost(sandbox: Sandbox, last: str) -> None:
    """Its generation is in no event of the copy. Thrown away, the numbers of the lost calls would be given again (I4)."""
    first = "driver@1:intent.commit.before:3"
    driver = sandbox.start("run", sandbox.session(*CALLS, on_interrupted="continue"), epoch=1, wait=(first,))
    sandbox.steps.kill(first, driver)
    driver.end()
    kept = copy(sandbox)
    lose_ledger(sandbox, "missing")
    step = f"driver@2:{last}"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    put_back(sandbox, kept)
    label = "log_behind_adopt" if last.startswith("outcome") else "log_behind_restore"
    planned = sandbox.run("plan", sandbox.state).out
    assert "ledger_exchanged: the ledger is the session's own and newer" in planned
    assert f"{label}: " in planned and "call 3: lost" in planned
    sandbox.drive()
    assert sandbox.labels() == ["ledger_exchanged", label]
    header = sandbox.ledger().header
    assert header is not None and header.generation == 2 == read_log(str(sandbox.state)).generation
    assert not (sandbox.state / "space" / "ledger.aside-e3").exists()
    assert sandbox.settled()[-1][:3] == (3, 1, "finished" if label == "log_behind_adopt" else "interrupted")
    assert witnessed_calls(sandbox) == [1, 2, 3], "no key ran twice"
    check_legal(sandbox)


@pytest.mark.parametrize("step", ["", "driver@2:ledger.aside.move.after:1"])
def test_case_20_a_damaged_ledger_still_says_what_a_log_lost(sandbox: Sandbox, step: str) -> None:
    """The highest call that can be read of it, and where it saw the log, also when the driver that makes it anew is killed."""
    run_and_put_back(sandbox, "intent.commit.before:3", "finish.commit.before:1", on_interrupted="reissue")
    lose_ledger(sandbox, "damaged")
    if step:
        second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
        sandbox.steps.kill(step, second)
        second.end()
    sandbox.drive()
    assert sandbox.labels() == ["ledger_damaged", *(["ledger_lost"] if step else []), "log_behind_restore"]
    assert [(call, how) for call, _, how, _ in sandbox.settled()] == [(1, "finished"), (2, "finished"), (3, "interrupted"), (4, "finished")]
    assert witnessed_calls(sandbox) == [1, 2, 3, 4]
    check_legal(sandbox)


def lose_notes(sandbox: Sandbox) -> None:
    """A log whose three calls stand, put back from before twenty notes that the ledger has seen: no call is lost."""
    last = "driver@1:finish.commit.before:1"
    driver = sandbox.start("run", sandbox.session(*CALLS, on_interrupted="continue"), epoch=1, wait=(last,))
    sandbox.steps.kill(last, driver)
    driver.end()
    kept = copy(sandbox)
    writer = Writer.open(str(sandbox.log), RandomIds())
    writer.append_unfenced(StreamId("nightly"), [Record(events.Noted(1, "lost")) for _ in range(20)], "note")
    writer.close()
    step = "driver@2:takeover.killed:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    put_back(sandbox, kept)


@pytest.mark.parametrize("step", ["", "driver@3:ledger.aside.move.after:1"])
def test_case_20_a_damaged_ledger_still_says_that_a_log_lost_its_tail_and_no_call(sandbox: Sandbox, step: str) -> None:
    lose_notes(sandbox)
    lose_ledger(sandbox, "damaged")
    if step:
        third = sandbox.start("drive", sandbox.state, epoch=3, wait=(step,))
        sandbox.steps.kill(step, third)
        third.end()
    sandbox.drive()
    assert sandbox.labels() == ["ledger_damaged", *(["ledger_lost"] if step else []), "log_behind_restore"]


def test_case_20_the_numbers_of_lost_calls_outlive_a_ledger_that_is_lost_in_their_restore(sandbox: Sandbox) -> None:
    run_and_put_back(sandbox, "intent.commit.before:3", "finish.commit.before:1", on_interrupted="reissue")
    step = "driver@2:decision.commit.after:1"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(step,))
    sandbox.steps.kill(step, second)
    second.end()
    lose_ledger(sandbox, "missing")
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore", "complete_without_ledger", "complete_restore"]
    assert [how for _, _, how, _ in sandbox.settled()] == ["finished", "finished", "interrupted", "finished"]
    assert witnessed_calls(sandbox) == [1, 2, 3, 4]
    check_legal(sandbox)


def test_case_20_a_restore_for_a_lost_tail_that_a_person_ends_is_decided_once(sandbox: Sandbox) -> None:
    """The ledger has seen more of the log than there is even after the end: it is told that this log goes on."""
    lose_notes(sandbox)
    step = "driver@3:decision.commit.after:1"
    third = sandbox.start("drive", sandbox.state, epoch=3, wait=(step,))
    sandbox.steps.kill(step, third)
    third.end()
    refused = sandbox.run("settle", sandbox.state, "--accept-workspace", "0" * 64)
    root = refused.sentence().partition("has the root hash ")[2].split()[0]
    accepted = sandbox.run("settle", sandbox.state, "--accept-workspace", root)
    assert accepted.code == 0, accepted.err
    sandbox.drive()
    assert sandbox.labels() == ["log_behind_restore", "accept_by_person"]
    assert len(sandbox.of_kind(events.SessionFinished)) == 1 and read_contents(sandbox.root) == {"log": b"1\n2\n3\n"}
