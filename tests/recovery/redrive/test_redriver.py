"""Real redrivers over real sessions: drivers as processes, kills at every step, the log and the witness as judges."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog import events
from eventlog.ports import LinuxHost
from eventlog.process_identity import is_alive
from recovery.opening import log_path
from recovery.redrive.looking import LogWatch
from recovery.redrive.record import Ready, RedriveRecord, load_record
from tests.helpers import is_running, kill_process, read_contents, wait_until
from tests.recovery.sessions import Driver, Sandbox, bash, sandbox_directory

WITNESS = 'echo "$CALL_KEY" >> "$WITNESS"; '
FAST = ("--backoff", "0.01", "--seed", "1", "--ready", "0")
"""No start is counted ahead: what a redriver does would hang on how long a driver takes."""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A sandbox whose drivers, which outlive their redrivers, are ended with the rest."""
    with sandbox_directory() as base:
        made = Sandbox(base)
        try:
            yield made
        finally:
            for attempt in record(made).attempts if made.state.is_dir() else []:
                if is_alive(attempt.driver, LinuxHost()):
                    kill_process(attempt.driver.pid)
            made.close()


def record(sandbox: Sandbox, state: Path | None = None) -> RedriveRecord:
    return load_record(str(state or sandbox.state))


def begin(sandbox: Sandbox, *calls: dict[str, object], **settings: object) -> None:
    """A session whose first driver was killed when it had just taken over."""
    step = "driver@1:floor.raised:1"
    driver = sandbox.start("run", sandbox.session(*calls, **settings), epoch=1, wait=(step,))
    sandbox.steps.kill(step, driver)
    driver.end()


def lines(sandbox: Sandbox) -> list[int]:
    """The calls whose commands began, in order."""
    return [int(line.split("/")[2]) for line in sandbox.witnessed()]


def redrive(sandbox: Sandbox, *more: str, expect: int = 0) -> Driver:
    done = sandbox.run("redrive", sandbox.state, *FAST, *more)
    assert done.code == expect, done.out + done.err
    return done


def two_calls(sandbox: Sandbox) -> None:
    begin(sandbox, bash(WITNESS + "echo one >> a"), bash(WITNESS + "echo two >> a"))


@pytest.mark.parametrize("warmth", ["", "--cold"])
def test_a_session_whose_driver_died_is_driven_to_its_end(sandbox: Sandbox, warmth: str) -> None:
    two_calls(sandbox)
    done = redrive(sandbox, *filter(None, [warmth]))
    assert "started under epoch 2 (first start)" in done.err and "finished" in done.err
    assert read_contents(sandbox.root) == {"a": b"one\ntwo\n"} and lines(sandbox) == [1, 2]
    assert [(one.epoch, one.ended) for one in record(sandbox).attempts] == [(2, "exit 0")] and record(sandbox).is_finished
    out = (sandbox.state / "redrive" / "out-2").read_text()
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("ACK")] == [["ACK", "1"], ["ACK", "2"]]


def test_old_output_that_cannot_be_removed_stops_nobody(sandbox: Sandbox) -> None:
    """It is removed when the driver has been told to begin: "nothing was started" would be untrue."""
    two_calls(sandbox)
    directory = sandbox.state / "redrive"
    (directory / "out-0").mkdir(parents=True)
    for epoch in range(1001, 1021):
        (directory / f"out-{epoch}").write_text("")
    redrive(sandbox)
    assert (directory / "out-0").is_dir() and record(sandbox).is_finished
    assert [one.ended for one in record(sandbox).attempts] == ["exit 0"]


def test_a_driver_that_is_killed_is_followed_by_the_next_one(sandbox: Sandbox) -> None:
    """Killed at its commit: adopted by the next driver, which the redriver starts at once."""
    two_calls(sandbox)
    step = "driver@2:outcome.commit.before:1"
    redriver = sandbox.start("redrive", sandbox.state, *FAST, wait=(step,))
    sandbox.steps.kill(step, redriver)
    assert redriver.end() == 0, redriver.err
    assert [one.ended for one in record(sandbox).attempts] == ["killed by signal 9", "exit 0"]
    assert sandbox.labels() == ["adopt_exit"] and lines(sandbox) == [1, 2]


STEPS = (
    "start:1",
    "redrive.prepared:1",
    "redrive.record.write.half:1",
    "redrive.record.sync.before:1",
    "redrive.record.sync.after:1",
    "redrive.record.rename.before:1",
    "redrive.record.rename.after:1",
    "redrive.record.sync.before:2",
    "redrive.record.sync.after:2",
    "redrive.counted:1",
    "redrive.told:1",
    "redrive.ended:1",
    "redrive.record.write.half:2",
    "redrive.record.sync.before:3",
    "redrive.record.sync.after:3",
    "redrive.record.rename.before:2",
    "redrive.record.rename.after:2",
    "redrive.record.sync.before:4",
    "redrive.record.sync.after:4",
)


def test_the_steps_of_a_redriver_are_the_ones_that_are_killed_at(sandbox: Sandbox) -> None:
    two_calls(sandbox)
    trace = sandbox.base / "trace"
    done = sandbox.run("redrive", sandbox.state, *FAST, CRASHWORTHY_STEP_TRACE=str(trace))
    assert done.code == 0, done.err
    passed = [line.split()[0] for line in trace.read_text().splitlines()]
    assert [step.removeprefix("redriver@0:") for step in passed if step.startswith("redriver@")] == list(STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_a_redriver_killed_at_any_step_is_followed_by_one_that_converges(sandbox: Sandbox, step: str) -> None:
    """Each command's line there once; the killed one's driver is left alone while it lives, and never begun twice."""
    two_calls(sandbox)
    name = f"redriver@0:{step}"
    first = sandbox.start("redrive", sandbox.state, *FAST, wait=(name,))
    sandbox.steps.kill(name, first)
    assert first.end() == -signal.SIGKILL
    redrive(sandbox)
    assert read_contents(sandbox.root) == {"a": b"one\ntwo\n"} and lines(sandbox) == [1, 2]
    assert [end[2] for end in sandbox.settled()] == ["finished", "finished"]
    epochs = [stored.epoch for stored in sandbox.events() if isinstance(stored.event, events.DriverStarted)]
    assert epochs == sorted(set(epochs)) and set(epochs) - {1} <= {one.epoch for one in record(sandbox).attempts}


AHEAD = ("--backoff", "0.01", "--seed", "1", "--ready", "0.01")


def start_ahead(sandbox: Sandbox, *waits: str) -> tuple[Driver, Ready]:
    """A redriver whose driver waits at its first commit, and the start that is counted behind it."""
    two_calls(sandbox)
    redriver = sandbox.start("redrive", sandbox.state, *AHEAD, wait=("driver@2:outcome.commit.before:1", *waits))
    sandbox.steps.wait("driver@2:outcome.commit.before:1", redriver)
    wait_until(lambda: record(sandbox).ready is not None, "the next start to be counted ahead", 120.0)
    ready = record(sandbox).ready
    assert ready is not None and [one.epoch for one in record(sandbox).attempts] == [2]
    return redriver, ready


def test_a_start_that_is_counted_ahead_is_the_next_drivers(sandbox: Sandbox) -> None:
    redriver, ready = start_ahead(sandbox)
    told = sandbox.run("redrive", "--status", sandbox.state).out
    assert f"the next start is counted ahead: epoch 3 pid {ready.driver.pid}" in told
    sandbox.steps.kill("driver@2:outcome.commit.before:1", redriver)
    assert redriver.end() == 0, redriver.err
    assert [(one.epoch, one.ended) for one in record(sandbox).attempts] == [(2, "killed by signal 9"), (3, "exit 0")]
    assert (record(sandbox).attempts[1].epoch, record(sandbox).attempts[1].driver) == (ready.epoch, ready.driver)
    assert sandbox.labels() == ["adopt_exit"] and lines(sandbox) == [1, 2] and record(sandbox).ready is None


def test_a_redriver_killed_when_it_had_told_a_driver_that_was_counted_ahead_is_followed_by_one_that_finds_it(sandbox: Sandbox) -> None:
    """Its record says only that the start was counted: the process is found by that, waited for, and on the count."""
    told = "redriver@0:redrive.told:2"
    redriver, ready = start_ahead(sandbox, told)
    sandbox.steps.kill("driver@2:outcome.commit.before:1", redriver)
    sandbox.steps.kill(told, redriver)
    assert redriver.end() == -signal.SIGKILL and record(sandbox).ready == ready
    redrive(sandbox)
    assert (record(sandbox).attempts[1].epoch, record(sandbox).attempts[1].driver) == (ready.epoch, ready.driver)
    assert lines(sandbox) == [1, 2] and [end[2] for end in sandbox.settled()] == ["finished", "finished"]


def wait_for_driver(sandbox: Sandbox) -> int:
    """The pid of the driver that a redriver has started and whose first command has begun."""
    wait_until(sandbox.witnessed, "the first command")
    return record(sandbox).attempts[-1].driver.pid


GATED = WITNESS + 'until [ -e "$GATE" ]; do sleep 0.01; done; echo one > a'


def test_a_restarted_redriver_leaves_a_driver_that_lives_alone(sandbox: Sandbox) -> None:
    begin(sandbox, bash(GATED))
    first = sandbox.start("redrive", sandbox.state, *FAST)
    pid = wait_for_driver(sandbox)
    first.kill()
    assert is_running(pid)
    second = sandbox.start("redrive", sandbox.state, *FAST)
    wait_until(lambda: f"driver {pid} lives and is left alone" in second.err, "the second redriver's word")
    sandbox.open_gate()
    assert second.end() == 0, second.err
    assert len(record(sandbox).attempts) == 1 and lines(sandbox) == [1] and not sandbox.labels()


def test_a_driver_that_dies_while_nobody_watches_is_followed_by_the_next_redrivers(sandbox: Sandbox) -> None:
    """Redriver and driver killed, one after the other: the command runs on, and is reattached to."""
    begin(sandbox, bash(GATED))
    first = sandbox.start("redrive", sandbox.state, *FAST)
    pid = wait_for_driver(sandbox)
    first.kill()
    kill_process(pid)
    second = sandbox.start("redrive", sandbox.state, *FAST)
    wait_until(lambda: sandbox.labels() == ["reattach"], "the decision to reattach")
    sandbox.open_gate()
    assert second.end() == 0, second.err
    assert lines(sandbox) == [1] and [one.why for one in record(sandbox).attempts] == ["first start", "nobody drives it"]


def test_a_workspace_is_not_released_under_a_redriver(sandbox: Sandbox) -> None:
    """Between two drivers nobody of the session lives but the redriver, which would start the next."""
    begin(sandbox, bash("kill -9 $PPID"), on_interrupted="reissue")
    redriver = sandbox.start("redrive", sandbox.state, "--backoff", "1000", "--backoff-most", "1000")
    wait_until(lambda: "the next driver starts in" in redriver.err, "the redriver's delay")
    refused = sandbox.run("release", sandbox.state)
    assert refused.code == 1 and "the redriver, which would start the next driver" in refused.sentence()
    redriver.kill()
    wait_until(lambda: sandbox.run("release", sandbox.state).code == 0, "the release, once the driver's helpers have ended")


def test_a_driver_started_by_hand_is_left_alone_too(sandbox: Sandbox) -> None:
    driver = sandbox.start("run", sandbox.session(bash(GATED)))
    wait_until(sandbox.witnessed, "the first command")
    redriver = sandbox.start("redrive", sandbox.state, *FAST)
    wait_until(lambda: f"driver {driver.pid} lives and is left alone" in redriver.err, "the redriver's word")
    sandbox.open_gate()
    assert (driver.end(), redriver.end()) == (0, 0) and not record(sandbox).attempts


def test_a_second_redriver_is_refused_by_name_and_the_first_goes_on(sandbox: Sandbox) -> None:
    begin(sandbox, bash(GATED))
    first = sandbox.start("redrive", sandbox.state, *FAST)
    wait_for_driver(sandbox)
    second = sandbox.run("redrive", sandbox.state, *FAST)
    assert second.code == 1 and "another redriver is at work on it" in second.sentence() and f"{first.pid}" in second.sentence()
    sandbox.open_gate()
    assert first.end() == 0 and lines(sandbox) == [1]


@pytest.mark.parametrize("round_", range(3))
def test_case_25_redrivers_that_start_at_once_begin_each_command_once(sandbox: Sandbox, round_: int) -> None:
    race(sandbox)


@pytest.mark.soak
def test_case_25_a_thousand_starts_begin_each_command_once() -> None:
    for number in range(1000):
        with sandbox_directory() as base:
            made = Sandbox(base)
            try:
                race(made)
            finally:
                made.close()
        if number % 100 == 0:
            print(f"{number} of 1000")


def race(sandbox: Sandbox) -> None:
    """One interrupted call; three redrivers and an input at the same moment. Intents and epochs decide, not times."""
    begin(sandbox, bash(WITNESS + "echo one >> a"), bash(WITNESS + "echo two >> a"))
    starts = [sandbox.start("redrive", sandbox.state, *FAST) for _ in range(3)]
    codes = sorted(redriver.end() for redriver in starts)
    assert codes[0] == 0 and set(codes) <= {0, 1}, [redriver.err for redriver in starts]
    assert lines(sandbox) == [1, 2] and read_contents(sandbox.root) == {"a": b"one\ntwo\n"}


def test_case_26_a_call_that_kills_its_driver_ends_parked_also_when_its_redriver_is_killed_in_between(sandbox: Sandbox) -> None:
    begin(sandbox, bash(WITNESS + "kill -9 $PPID"), on_interrupted="reissue")
    limit = ("--attempts", "3")
    step = "redriver@0:redrive.ended:1"
    for _ in range(2):
        redriver = sandbox.start("redrive", sandbox.state, *FAST, *limit, wait=(step,))
        sandbox.steps.kill(step, redriver)
        redriver.end()
    done = redrive(sandbox, *limit, expect=78)
    assert "parked: 3 drivers were started and none committed progress" in done.err
    assert f"`recovery redrive {sandbox.state} --retry` goes on" in done.err
    assert len(record(sandbox).attempts) == 3
    head = len(sandbox.events())
    redrive(sandbox, *limit, expect=78)
    assert len(sandbox.events()) == head, "a parked session is not touched"


def test_case_28_a_driver_killed_after_the_end_was_committed_is_not_followed(sandbox: Sandbox) -> None:
    two_calls(sandbox)
    step = "driver@2:finish.commit.after:1"
    redriver = sandbox.start("redrive", sandbox.state, *FAST, wait=(step,))
    sandbox.steps.kill(step, redriver)
    assert redriver.end() == 0, redriver.err
    assert [one.ended for one in record(sandbox).attempts] == ["killed by signal 9"]
    head = len(sandbox.events())
    for _ in range(2):
        redrive(sandbox)
    assert len(sandbox.events()) == head and [end[2] for end in sandbox.settled()] == ["finished", "finished"]


def test_a_stalled_driver_is_ended_and_the_next_one_goes_on(sandbox: Sandbox) -> None:
    """Stopped with SIGSTOP: its heartbeat stops too. It is killed by identity, and counted."""
    begin(sandbox, bash(GATED, policy="after-restore"))
    redriver = sandbox.start("redrive", sandbox.state, *FAST, "--stall", "2", "--grace", "600", SESSION_HEARTBEAT_SECS="0.1")
    pid = wait_for_driver(sandbox)
    wait_until(lambda: (sandbox.state / "redrive" / "out-2").read_text(), "a heartbeat")
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not is_running(pid), "the end of the stalled driver")
    sandbox.open_gate()
    assert redriver.end() == 0, redriver.err
    attempts = record(sandbox).attempts
    assert attempts[0].ended.startswith("stalled: silent for ") and attempts[-1].ended == "exit 0"
    assert sandbox.settled()[-1][2] == "finished" and len(set(lines(sandbox))) == len(lines(sandbox)) == 1


@pytest.mark.parametrize("step", ["redrive.kill.before:1", "redrive.kill.after:1"])
def test_a_redriver_killed_while_it_ends_a_stalled_driver_is_followed_by_one_that_converges(sandbox: Sandbox, step: str) -> None:
    """The stopped driver is found by its identity, is silent again, and is ended then."""
    begin(sandbox, bash(GATED, policy="after-restore"))
    name, stall = f"redriver@0:{step}", ("--stall", "2")
    first = sandbox.start("redrive", sandbox.state, *FAST, *stall, wait=(name,), SESSION_HEARTBEAT_SECS="0.1")
    pid = wait_for_driver(sandbox)
    wait_until(lambda: (sandbox.state / "redrive" / "out-2").read_text(), "a heartbeat")
    os.kill(pid, signal.SIGSTOP)
    sandbox.steps.kill(name, first)
    second = sandbox.start("redrive", sandbox.state, *FAST, *stall, SESSION_HEARTBEAT_SECS="0.1")
    wait_until(lambda: not is_running(pid), "the end of the stalled driver")
    sandbox.open_gate()
    assert second.end() == 0, second.err
    assert sandbox.settled()[-1][2] == "finished" and len(lines(sandbox)) == 1


def test_a_session_that_needs_a_person_is_parked_until_the_log_moves(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("echo one > a", approve=True)))
    done = redrive(sandbox, expect=78)
    assert "parked: call 1 (call 1 of the script) waits for a person's word" in done.err
    redrive(sandbox, expect=78)
    assert len(record(sandbox).attempts) == 1
    assert f"`recovery answer {sandbox.state}`" in sandbox.run("plan", sandbox.state).out
    assert sandbox.run("answer", sandbox.state, "--approve").code == 0
    redrive(sandbox)
    assert read_contents(sandbox.root) == {"a": b"one\n"}


def test_a_paused_session_is_resumed_only_when_a_person_says_so(sandbox: Sandbox) -> None:
    begin(sandbox, bash("echo one > a"))
    assert sandbox.run("pause", sandbox.state).code == 0
    redrive(sandbox, expect=78)
    redrive(sandbox, expect=78)
    assert len(record(sandbox).attempts) == 1 and not read_contents(sandbox.root)
    redrive(sandbox, "--retry")
    assert read_contents(sandbox.root) == {"a": b"one\n"}


def make_many(sandbox: Sandbox, count: int, run: Callable[[int], str]) -> Path:
    """A directory of sessions whose first drivers were killed."""
    many = sandbox.base / "many"
    many.mkdir()
    (many / "not a session").mkdir()
    for number in range(count):
        root = sandbox.base / f"work-{number}"
        root.mkdir()
        session = sandbox.session(
            bash(run(number)), file=f"s{number}.toml", name=f"s{number}", workspace=str(root), state=str(many / f"s{number}")
        )
        step = "driver@1:floor.raised:1"
        driver = sandbox.start("run", session, epoch=1, wait=(step,))
        sandbox.steps.kill(step, driver)
        driver.end()
    return many


def test_one_redriver_drives_all_sessions_of_a_directory(sandbox: Sandbox) -> None:
    many = make_many(sandbox, 3, lambda number: "kill -9 $PPID" if number == 1 else "echo x > a")
    done = sandbox.run("redrive", many, *FAST, "--attempts", "2")
    assert done.code == 78, done.err
    assert [record(sandbox, many / f"s{number}").is_finished for number in range(3)] == [True, False, True]
    assert f"{many}/s1: parked: call 1 (call 1 of the script) was interrupted" in done.err


def test_the_history_is_told_to_people_and_to_programs(sandbox: Sandbox) -> None:
    two_calls(sandbox)
    assert "no redriver was ever at work on it" in sandbox.run("redrive", "--status", sandbox.state).out
    redrive(sandbox)
    told = sandbox.run("redrive", "--status", sandbox.state)
    assert told.code == 0 and "attempt 1 epoch 2 pid " in told.out and "(first start): exit 0" in told.out and "finished" in told.out
    found = json.loads(sandbox.run("redrive", "--status", "--json", sandbox.state).out)
    assert set(found) == {"state", "format", "epoch", "attempts", "dropped", "parked", "is_finished", "is_retried", "ready"}
    assert found["attempts"][0]["ended"] == "exit 0"


def test_what_cannot_be_redriven_is_refused_in_one_sentence(sandbox: Sandbox) -> None:
    cases = {
        (str(sandbox.root),): "is not the state directory of a session",
        (str(sandbox.base / "missing"),): "is not the state directory of a session",
        (str(sandbox.root), "--stall", "-1"): "--stall -1 is not a number of seconds above 0",
        (str(sandbox.root), "--attempts", "0"): "--attempts 0 is not a number from 1 to",
    }
    for arguments, says in cases.items():
        refused = sandbox.run("redrive", *arguments)
        assert refused.code == 78 and says in refused.sentence()
    two_calls(sandbox)
    assert "SESSION_EPOCH is set" in sandbox.run("redrive", sandbox.state, epoch=5).sentence()
    for name in ("log.sqlite", "log.sqlite-wal", "log.sqlite-shm"):
        Path(f"{sandbox.state}/{name}").unlink()
    assert not os.path.exists(log_path(str(sandbox.state)))
    missing = sandbox.run("redrive", sandbox.state)
    assert missing.code == 78 and "the log is missing" in missing.sentence()


def test_what_anybody_may_append_is_not_what_a_driver_wrote(sandbox: Sandbox) -> None:
    assert sandbox.run("run", sandbox.session(bash("true", approve=True))).code == 78
    watch = LogWatch(str(sandbox.state))
    asked = watch.look()
    assert asked.driven_seq == asked.head_seq
    assert sandbox.run("answer", sandbox.state, "--approve").code == 0
    answered = watch.look()
    assert (answered.driven_seq, answered.head_seq) == (asked.head_seq, asked.head_seq + 1)
