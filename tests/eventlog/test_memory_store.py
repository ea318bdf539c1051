"""What the store in memory does beside the suite that it passes (tests/conformance/test_stores.py): its steps, its lock, its copies."""

from pathlib import Path

import pytest
from greenlet import getcurrent, greenlet

from eventlog import events, memory_store, sqlite_store, steps
from eventlog.codec import encode_blob
from eventlog.conformance.samples import OTHER, STREAM, add, begin, drive, head, note, opened, read, read_texts, started
from eventlog.errors import BusyError
from eventlog.ports import RandomIds
from eventlog.records import Record
from eventlog.store import Store
from eventlog.values import Epoch
from tests.eventlog.support import Calling, Recorder


class Died(Exception):
    """The process ends here."""


def die() -> None:
    raise Died


@pytest.fixture
def store() -> Store:
    made = memory_store.make(Path("nowhere"))
    begin(made)
    return made


@pytest.fixture(autouse=True)
def no_hook_is_left() -> object:
    yield
    steps.install(None)


def pass_steps(store: Store) -> list[str]:
    """The steps of each thing a writer does, in order."""
    recorder = Recorder()
    begin_now = store.open_writing(RandomIds())
    steps.install(recorder)
    try:
        begin_now.raise_floor(STREAM, Epoch(1), started())
        add(begin_now, 1, "x")
        begin_now.append_unfenced(STREAM, [note("y")], "note")
        begin_now.admit(STREAM, "r", {}, 1)
        begin_now.admit(STREAM, "r", {}, 1)
        begin_now.insert_blobs([encode_blob(b"x")])
        begin_now.open_stream(OTHER, opened("other"), "fork")
    finally:
        steps.install(None)
    begin_now.close()
    return [step.split(":")[1] for step in recorder.steps]


def test_a_commit_passes_the_steps_that_it_passes_in_sqlite(store: Store, tmp_path: Path) -> None:
    reference = sqlite_store.make(tmp_path)
    begin(reference)
    passed = pass_steps(store)
    assert passed == pass_steps(reference)
    assert passed[:3] == ["floor.commit.before", "floor.commit.locked", "floor.commit.after"]


@pytest.mark.parametrize(("step", "stands"), [("note.commit.before", []), ("note.commit.locked", []), ("note.commit.after", ["x", "y"])])
def test_a_process_that_dies_at_a_step_leaves_all_of_an_append_or_nothing(store: Store, step: str, stands: list[str]) -> None:
    handle = drive(store)
    steps.install(Calling(step, die))
    with pytest.raises(Died):
        add(handle, 1, "x", "y")
    steps.install(None)
    again = store.open_writing(RandomIds())
    assert read_texts(again.reader) == stands
    assert add(again, 1, "next")[0].seq == 3 + len(stands)


def test_case_24_busy_is_neither_fenced_nor_corrupt_and_nothing_is_written(store: Store) -> None:
    first, second = drive(store), store.open_writing(RandomIds())
    refused: list[str] = []

    def meanwhile() -> None:
        for act in (
            lambda: add(second, 1, "x"),
            lambda: second.raise_floor(STREAM, Epoch(2), started()),
            lambda: second.admit(STREAM, "r", {}, 1),
            lambda: second.insert_blobs([encode_blob(b"x")]),
            lambda: second.open_stream(OTHER, opened("other"), "fork"),
        ):
            with pytest.raises(BusyError) as caught:
                act()
            refused.append(type(caught.value).__name__)
        assert head(second.reader) == (2, 1), "a reader is never blocked"

    steps.install(Calling("note.commit.locked", meanwhile))
    add(first, 1, "one")
    steps.install(None)
    assert refused == ["BusyError"] * 5
    assert add(second, 1, "two")[0].seq == 4


def test_what_is_read_is_a_copy_that_no_caller_can_change_in_the_log(store: Store) -> None:
    handle = drive(store)
    given = {"say": ["hello"]}
    handle.append(STREAM, Epoch(1), [Record(events.InputAdmitted(1, "r", given))], (), "note")
    given["say"].append("changed by the caller")
    for _ in range(2):
        event = read(handle.reader)[2].event
        assert isinstance(event, events.InputAdmitted) and event.input == {"say": ["hello"]}
        event.input["say"].append("changed by a reader")


def test_a_copy_holds_what_was_committed_and_goes_on_by_itself(store: Store) -> None:
    assert isinstance(store, memory_store.MemoryStore)
    writer = drive(store)
    add(writer, 1, "before")
    copy = store.copy()
    add(writer, 1, "after")
    add(copy.open_writing(RandomIds()), 1, "elsewhere")
    assert read_texts(copy.open_reading()) == ["before", "elsewhere"]
    assert read_texts(store.open_reading()) == ["before", "after"]
    assert copy.rows(STREAM)[0] is store.rows(STREAM)[0]


def test_the_lock_of_a_process_that_died_in_an_append_is_let_go_and_nothing_of_it_stands(store: Store) -> None:
    assert isinstance(store, memory_store.MemoryStore)
    writer = drive(store)
    here = getcurrent()
    held = greenlet(lambda: add(writer, 1, "lost"))
    steps.install(Calling("note.commit.locked", lambda: here.switch() and None))
    held.switch()
    steps.install(None)
    with pytest.raises(BusyError):
        add(store.open_writing(RandomIds()), 1, "x")
    store.let_go()
    add(store.open_writing(RandomIds()), 1, "x")
    assert read_texts(store.open_reading()) == ["x"]
