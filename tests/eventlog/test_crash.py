"""SIGKILL at every step of an append and of the making of a log: all of it stands, or nothing; what was acknowledged stands."""

import os
import random
from pathlib import Path

import pytest

from eventlog import codec, events, steps
from eventlog.blobs import BATCH_BYTES
from eventlog.creation import create_log
from eventlog.image import Entry, diff, root_hash
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import CHUNK_BYTES, Epoch
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM

NEW = codec.encode_blob(b"written by the call " * 20)
AFTER: dict[bytes, Entry] = {**support.IMAGE, b"new": Entry("f", 0o600, NEW.content, NEW.size, mtime_ns=9)}
APPEND_STEPS = [
    *(f"driver@0:{purpose}.commit.{place}:1" for purpose in ("floor", "intent") for place in ("before", "locked", "after")),
    *(f"driver@0:blobs.commit.{place}:1" for place in ("locked", "after")),
    *(f"driver@0:outcome.commit.{place}:1" for place in ("before", "locked", "after")),
]
CREATE_STEPS = [
    *(f"driver@0:blobs.commit.{place}:{number}" for number in range(1, 3) for place in ("locked", "after")),
    *(f"driver@0:open.commit.{place}:1" for place in ("before", "locked", "after")),
    *(f"driver@0:log.create.{operation}.{place}:1" for operation in ("sync", "link", "unlink") for place in ("before", "after")),
    *(f"driver@0:log.create.sync.{place}:2" for place in ("before", "after")),
]


def work_on(path: str, told: int) -> None:
    """What a driver appends for one call; after each append that returned, one byte to `told`."""
    writer = Writer.open(path, RandomIds())
    writer.raise_floor(STREAM, Epoch(1), support.started())
    os.write(told, b"1")
    writer.append(STREAM, Epoch(1), [support.attempt(1)], (), "intent")
    os.write(told, b"2")
    writer.insert_blobs([NEW])
    outcome = [support.settled(1, AFTER, diff(support.IMAGE, AFTER)), Record(events.Synced(9, root_hash(AFTER).hex(), "boot-1"))]
    writer.append(STREAM, Epoch(1), outcome, support.blobs(), "outcome")
    os.write(told, b"3")


def kinds_in(path: str) -> list[str]:
    """The kinds of all events of a log that must be sound."""
    reader = Reader.open(path)
    try:
        found = verify(reader)
        assert not found.findings
        return [stored.event.kind for stored in reader.events(STREAM)]
    finally:
        reader.close()


def test_the_steps_of_an_append_are_those_that_are_killed_at(tmp_path: Path) -> None:
    path = support.create(tmp_path)
    assert support.record_steps(lambda: work_on(path, os.open(os.devnull, os.O_WRONLY))) == APPEND_STEPS


@pytest.mark.parametrize("step", APPEND_STEPS)
def test_a_kill_at_any_step_of_an_append_leaves_all_of_it_or_nothing(tmp_path: Path, step: str) -> None:
    path = support.create(tmp_path)
    read_end, write_end = os.pipe()
    support.kill_at(step, lambda: work_on(path, write_end))
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        acknowledged = len(file.read())
    whole = [["session_opened"], ["driver_started"], ["attempt_started"], ["call_settled", "synced"]]
    kinds = kinds_in(path)
    stands = next(count for count in range(4) if kinds == sum(whole[: count + 1], []))
    assert acknowledged <= stands <= acknowledged + 1
    committed = step.split(":")[1] in ("floor.commit.after", "intent.commit.after", "outcome.commit.after")
    assert stands == acknowledged + committed
    image = support.image_at(path, len(kinds))
    assert image == (AFTER if stands == 3 else support.IMAGE)


@pytest.mark.parametrize("step", APPEND_STEPS)
def test_the_next_driver_goes_on_after_a_kill_at_any_step(tmp_path: Path, step: str) -> None:
    path = support.create(tmp_path)
    support.kill_at(step, lambda: work_on(path, os.open(os.devnull, os.O_WRONLY)))
    before = kinds_in(path)
    successor = support.open_writer(path)
    successor.raise_floor(STREAM, Epoch(2), support.started("n2"))
    support.add(successor, 2, "here")
    successor.close()
    assert kinds_in(path) == [*before, "driver_started", "noted"]


def test_the_steps_of_making_a_log_are_those_that_are_killed_at(tmp_path: Path) -> None:
    assert support.record_steps(lambda: make(str(tmp_path / "log.sqlite"))) == CREATE_STEPS


def make(path: str) -> None:
    """With contents enough for two commits of them."""
    noise = [codec.encode_blob(random.Random(number).randbytes(CHUNK_BYTES)) for number in range(BATCH_BYTES // CHUNK_BYTES)]
    create_log(path, STREAM, support.opened(), [*support.blobs(), *noise], RandomIds())


@pytest.mark.parametrize("step", CREATE_STEPS)
def test_a_log_killed_while_it_is_made_is_absent_or_holds_its_opened_session(tmp_path: Path, step: str) -> None:
    path = str(tmp_path / "log.sqlite")
    support.kill_at(step, lambda: make(path))
    has_name = CREATE_STEPS.index(step) >= CREATE_STEPS.index("driver@0:log.create.link.after:1")
    assert os.path.exists(path) == has_name
    if not has_name:
        make(path)
    assert kinds_in(path) == ["session_opened"]
    assert support.image_at(path, 1) == support.IMAGE
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    assert kinds_in(path) == ["session_opened", "driver_started"]


def test_a_step_that_is_never_passed_is_a_failure_of_the_test_itself(tmp_path: Path) -> None:
    path = support.create(tmp_path)
    with pytest.raises(AssertionError, match="was not reached"):
        support.kill_at("driver@0:nowhere:1", lambda: work_on(path, os.open(os.devnull, os.O_WRONLY)))
    assert steps._process.hook is None
