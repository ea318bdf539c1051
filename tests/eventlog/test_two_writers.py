"""Two writers, two epochs, any interleaving: accepted are exactly the appends at the floor, and the chain holds.

The model is a floor and a list of notes; it knows nothing of SQLite. Interleavings go into an append too: one writer is held where it
has no lock yet (`before`) or has it (`locked`) while the other one acts.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog import events, steps
from eventlog.errors import BusyError, CrashworthyError, InternalError
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.values import Epoch
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM


@dataclass(frozen=True)
class Act:
    """What writer `who` does, under an epoch this far from the floor it has in mind; and what the other does meanwhile, where."""

    who: int
    raises: bool
    epoch: int
    meanwhile: "Act | None" = None
    at: str = "before"


epochs = st.integers(0, 6)
plain_acts = st.builds(Act, st.integers(0, 1), st.booleans(), epochs)
acts_of_second = st.builds(Act, st.just(1), st.booleans(), epochs)
acts = plain_acts | st.builds(Act, st.just(0), st.booleans(), epochs, acts_of_second, st.sampled_from(["before", "before", "locked"]))
plans = st.lists(acts, max_size=12)


@dataclass
class Model:
    """The floor and what was accepted, as the rules say it must be."""

    floor: int = 0
    accepted: list[tuple[int, str]] = field(default_factory=list)

    def take(self, act: Act, text: str, *, locked_out: bool = False) -> str:
        """The answer that an act must get."""
        if locked_out:
            return "BusyError"
        if act.raises:
            if act.epoch < self.floor:
                return "StaleEpochError"
            if act.epoch == self.floor:
                return "EpochTakenError"
            self.floor = act.epoch
        elif act.epoch != self.floor:
            return "StaleEpochError" if act.epoch < self.floor else "InternalError"
        self.accepted.append((act.epoch, text))
        return f"ok {len(self.accepted) + 1}"

    def expect(self, act: Act, number: int) -> list[str]:
        """The answers of an act and of what is nested in it, in the order in which they take effect."""
        text = f"{number} by {act.who}"
        if act.meanwhile is None:
            return [self.take(act, text)]
        inner = f"{number} by {act.meanwhile.who}"
        if act.at == "before":
            return [self.take(act.meanwhile, inner), self.take(act, text)]
        mine = self.take(act, text)
        # At `locked` the other one gets nothing while we hold the lock; when we were refused before it, that point never came.
        return [self.take(act.meanwhile, inner, locked_out=True), mine] if mine.startswith("ok") else [mine]


def check_log(path: str, model: Model) -> None:
    """The log is sound, holds exactly what was accepted in that order, and no epoch falls."""
    reader = Reader.open(path)
    try:
        assert not verify(reader).findings
        stored = list(reader.events(STREAM))[1:]
        found = [(one.epoch, one.event.text if isinstance(one.event, events.Noted) else name_of(one.event)) for one in stored]
        assert found == model.accepted
        assert [epoch for epoch, _ in found] == sorted(epoch for epoch, _ in found), "a lower epoch after a raise"
        assert reader.floor(STREAM) == model.floor
    finally:
        reader.close()


def name_of(event: events.Event) -> str:
    assert isinstance(event, events.DriverStarted)
    return event.identity.nonce


def perform(writers: list[Writer], act: Act, number: int) -> list[str]:
    """Do an act with handles of this process; the answers in the order in which they came."""
    answers: list[str] = []
    meanwhile = act.meanwhile
    if meanwhile is not None:
        purpose = "floor" if act.raises else "note"
        steps.install(support.Calling(f"{purpose}.commit.{act.at}", lambda: answers.append(answer(writers, meanwhile, number))))
    try:
        mine = answer(writers, act, number)
    finally:
        steps.install(None)
    return [*answers, mine]


def answer(writers: list[Writer], act: Act, number: int) -> str:
    text = f"{number} by {act.who}"
    try:
        if act.raises:
            return f"ok {writers[act.who].raise_floor(STREAM, Epoch(act.epoch), support.started(text)).seq}"
        return f"ok {support.add(writers[act.who], act.epoch, text)[0].seq}"
    except (CrashworthyError, InternalError) as error:
        return type(error).__name__


@settings(deadline=None, max_examples=60)
@given(plans)
def test_rule_L2_two_handles_accept_exactly_what_is_at_the_floor(plan: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = support.create_small(Path(directory))
        writers = [support.open_writer(path, first_id=number * 1_000_000) for number in (1, 2)]
        model = Model()
        for number, act in enumerate(plan):
            expected = model.expect(act, number)
            assert perform(writers, act, number) == expected
        for writer in writers:
            writer.close()
        check_log(path, model)


class Process:
    """A writer in a process of its own."""

    def __init__(self, path: str, first_id: int, busy_ms: int = 0) -> None:
        command = [sys.executable, "-m", "tests.eventlog.worker", path, str(first_id), str(busy_ms)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=support.ROOT)
        assert self.hear() == "ready"

    def send(self, act: Act, text: str, hold: str | None = None) -> None:
        order = {"op": "raise" if act.raises else "append", "epoch": act.epoch, "text": text, "hold": hold}
        self.write(json.dumps(order) + "\n")

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, act: Act, text: str) -> str:
        self.send(act, text)
        return self.hear()

    def end(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


def perform_in_processes(processes: list[Process], act: Act, number: int) -> list[str]:
    text = f"{number} by {act.who}"
    if act.meanwhile is None:
        return [processes[act.who].ask(act, text)]
    processes[act.who].send(act, text, f"{'floor' if act.raises else 'note'}.commit.{act.at}")
    heard = processes[act.who].hear()
    if heard != "held":
        return [heard]
    inner = processes[act.meanwhile.who].ask(act.meanwhile, f"{number} by {act.meanwhile.who}")
    processes[act.who].write("\n")
    return [inner, processes[act.who].hear()]


@settings(deadline=None, max_examples=8)
@given(st.lists(acts, min_size=8, max_size=40))
def test_rule_L2_two_processes_accept_exactly_what_is_at_the_floor(plan: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = support.create_small(Path(directory))
        processes = [Process(path, number * 1_000_000) for number in (1, 2)]
        model = Model()
        try:
            for number, act in enumerate(plan):
                expected = model.expect(act, number)
                assert perform_in_processes(processes, act, number) == expected
        finally:
            for process in processes:
                process.end()
        check_log(path, model)


RACERS = 12
APPENDS = 15


def race(path: str, who: int, go: int, answers: int) -> None:
    """Wait for the start, then append at whatever the floor is, and now and then raise it; each answer is one line."""
    writer = Writer.open(path, RandomIds())
    os.read(go, 1)
    draw = random.Random(who)
    for number in range(APPENDS):
        act = Act(who, draw.random() < 0.2, 0)
        text = f"{who}:{number}"
        try:
            floor = writer.reader.floor(STREAM)
            if act.raises:
                writer.raise_floor(STREAM, Epoch(floor + 1), support.started(text))
            else:
                support.add(writer, floor, text)
            answer = "ok"
        except CrashworthyError as error:
            answer = type(error).__name__
        os.write(answers, f"{text} {answer}\n".encode())


def run_at_once(works: list[Callable[[], None]]) -> list[int]:
    """Fork a child for each; their wait statuses."""
    children = []
    for work in works:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]


def test_case_24_twelve_processes_at_once_wait_for_the_lock_and_read_the_floor_again(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    go_read, go_write = os.pipe()
    read_end, write_end = os.pipe()
    os.write(go_write, b"g" * RACERS)
    statuses = run_at_once([lambda who=who: race(path, who, go_read, write_end) for who in range(RACERS)])  # type: ignore[misc]
    assert statuses == [0] * RACERS
    for descriptor in (go_read, go_write, write_end):
        os.close(descriptor)
    with os.fdopen(read_end, encoding="ascii") as file:
        answers = dict(line.split() for line in file)
    assert len(answers) == RACERS * APPENDS
    assert set(answers.values()) <= {"ok", "StaleEpochError", "EpochTakenError"}, "busy is never an answer inside the bound"
    reader = Reader.open(path)
    stored = list(reader.events(STREAM))[1:]
    names = [one.event.text if isinstance(one.event, events.Noted) else name_of(one.event) for one in stored]
    assert sorted(names) == sorted(text for text, answer in answers.items() if answer == "ok")
    assert not verify(reader).findings
    reader.close()


def test_case_24_busy_is_neither_fenced_nor_corrupt_and_nothing_is_written(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    first, second = (support.open_writer(path, first_id=number * 1_000_000) for number in (1, 2))
    first.raise_floor(STREAM, Epoch(1), support.started())
    first._handle.execute("BEGIN IMMEDIATE").fetchall()
    for busy in (
        lambda: support.add(second, 1, "x"),
        lambda: second.raise_floor(STREAM, Epoch(2), support.started()),
        lambda: second.insert_blobs([]),
    ):
        with pytest.raises(BusyError, match="LogBusy: held by pid") as caught:
            busy()
        assert caught.value.exit_code == 1
    first._handle.execute("ROLLBACK").fetchall()
    assert support.add(second, 1, "x")[0].seq == 3
    first.close()
    second.close()
