"""Case 21: a connection crosses a fork. A child neither uses nor closes it, however it ends; nothing of it is left to another program."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog import codec, steps
from eventlog.errors import InternalError
from eventlog.ports import FakeClock
from eventlog.reader import Origin, Reader, StreamRow
from eventlog.records import Dropped
from eventlog.values import Epoch, LogId, Seq, StreamId
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM, add
from tests.helpers import wait_until

ROUNDS = 200


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.make_log(tmp_path)


@pytest.fixture
def writer(log: str) -> Iterator[Writer]:
    made = support.open_writer(log, first_id=5_000_000)
    yield made
    made.close()


def refuse_all(uses: dict[str, Callable[[], object]]) -> None:
    """Each use is refused in this forked process."""
    for name, use in uses.items():
        with pytest.raises(InternalError, match=f"belongs to process {os.getppid()}"):
            use()
            raise AssertionError(f"{name} was not refused")


def public_methods(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)}


def test_case_21_every_method_of_a_reader_refuses_a_forked_process(log: str) -> None:
    reader = Reader.open(log)
    content = codec.content_id(support.HELLO)
    uses: dict[str, Callable[[], object]] = {
        "rows": lambda: reader.rows("SELECT 1"),
        "raw_rows": lambda: reader.raw_rows(STREAM, 0, 1),
        "has_moved": reader.has_moved,
        "streams": reader.streams,
        "stream": lambda: reader.stream(STREAM),
        "floor": lambda: reader.floor(STREAM),
        "find": lambda: reader.find(bytes(16)),
        "events": lambda: list(reader.events(STREAM)),
        "changes": lambda: reader.changes(STREAM, Seq(1)),
        "image": lambda: reader.image(STREAM, Seq(1)),
        "has_blob": lambda: reader.has_blob(content),
        "blob": lambda: reader.blob(content),
        "dropped_reason": lambda: reader.dropped_reason(content),
        "keeps_contents_elsewhere": reader.keeps_contents_elsewhere,
        "content": lambda: list(reader.content(content)),
        "contents": lambda: list(reader.contents([content])),
        "close": reader.close,
    }
    assert set(uses) == public_methods(Reader), "a new method needs its line here"
    assert support.run_in_child(lambda: refuse_all(uses)) == 0
    assert len(list(reader.events(STREAM))) == 9
    reader.close()


def test_case_21_every_method_of_a_writer_refuses_a_forked_process(log: str, writer: Writer) -> None:
    imported = StreamRow(StreamId("imported"), Epoch(0), Seq(1), bytes(32), None, None, Origin(LogId("0" * 32), STREAM))
    uses: dict[str, Callable[[], object]] = {
        "raise_floor": lambda: writer.raise_floor(STREAM, Epoch(9), support.started()),
        "append": lambda: add(writer, 4, "child"),
        "append_unfenced": lambda: writer.append_unfenced(STREAM, [support.note("child")], "note"),
        "admit": lambda: writer.admit(STREAM, "request", {}, 1),
        "open_stream": lambda: writer.open_stream(StreamId("other"), support.opened("other"), "open"),
        "import_stream": lambda: writer.import_stream(imported, (), (), StreamId("other"), support.opened("other"), Seq(1)),
        "adopt_stream": lambda: writer.adopt_stream(imported, ()),
        "record_dropped": lambda: writer.record_dropped([Dropped(codec.content_id(b"gone"), 4, "lost", 1)]),
        "move_away": lambda: writer.move_away(STREAM, "d" * 64, Seq(9), 1),
        "maintain": lambda: writer.maintain("test", lambda handle: handle.execute("SELECT 1")),
        "cluster": writer.cluster,
        "rebuild": writer.rebuild,
        "tidy": lambda: writer.tidy(FakeClock()),
        "check_fence": lambda: writer.check_fence(STREAM, Epoch(4)),
        "insert_blobs": lambda: writer.insert_blobs([codec.encode_blob(b"child")]),
        "close": writer.close,
    }
    assert set(uses) == public_methods(Writer), "a new method needs its line here"
    assert support.run_in_child(lambda: refuse_all(uses)) == 0
    assert support.head(log) == (9, 4)
    add(writer, 4, "parent")
    assert support.texts(log)[-1] == "parent"


def test_case_21_an_iterator_begun_before_the_fork_refuses_its_next_step(log: str) -> None:
    reader = Reader.open(log)
    events, content = reader.events(STREAM), reader.content(codec.content_id(support.BIG))
    next(events)
    next(content)
    nexts: dict[str, Callable[[], object]] = {"events": lambda: next(events), "content": lambda: next(content)}
    assert support.run_in_child(lambda: refuse_all(nexts)) == 0
    assert next(events).seq == 2 and b"".join(content)
    reader.close()


def test_case_21_a_handle_that_is_not_closed_by_name_is_not_closed_by_a_child_that_clears_up(log: str, writer: Writer) -> None:
    """The last reference to the handle goes away in the child: nothing happens to the parent's open transaction."""

    def fork_and_forget() -> None:
        assert support.run_in_child(forget) == 0

    def forget() -> None:
        del writer._handle
        writer.reader.__dict__.clear()

    writer._handle.pragma("cache_size", 1)
    steps.install(support.Calling("note.commit.locked", fork_and_forget))
    try:
        add(writer, 4, *("x" * 40_000 for _ in range(20)))
    finally:
        steps.install(None)
    add(writer, 4, "goes on")
    assert support.texts(log)[-1] == "goes on"
    assert writer.reader.rows("PRAGMA integrity_check") == [("ok",)]


def test_case_21_every_descriptor_of_a_process_with_an_open_log_is_closed_on_exec(log: str) -> None:
    code = """
import fcntl, os, sys
from eventlog.reader import Reader
from tests.eventlog import support
path = sys.argv[1]
writer, reader = support.open_writer(path, first_id=9_000_000), Reader.open(path)
support.add(writer, 4, "x")
list(reader.events(support.STREAM))
for name in os.listdir("/proc/self/fd"):
    try:
        target, flags = os.readlink("/proc/self/fd/" + name), fcntl.fcntl(int(name), fcntl.F_GETFD)
    except OSError:
        continue
    print(int(name), bool(flags & fcntl.FD_CLOEXEC), target)
"""
    done = subprocess.run([sys.executable, "-c", code, log], capture_output=True, text=True, check=False, cwd=support.ROOT)
    assert done.returncode == 0, done.stderr
    found = [line.split(" ", 2) for line in done.stdout.splitlines()]
    names = {target for _, _, target in found if target.startswith(log)}
    assert names == {log, log + "-wal", log + "-shm"}
    assert [target for number, is_closed, target in found if is_closed != "True" and int(number) > 2] == []


COMMIT_BESIDE = """
import sys
from tests.eventlog import support
writer = support.open_writer(sys.argv[1], first_id=20_000_000, busy_ms=30_000)
print("ready", flush=True)
import os, select
count = 0
while not select.select([sys.stdin], [], [], 0.002)[0]:
    support.add(writer, 1, f"beside {count}")
    count += 1
print(count, flush=True)
"""


def test_case_21_hundreds_of_forks_of_every_kind_beside_a_second_writer_lose_no_commit_and_no_lock(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    first = support.open_writer(path)
    first.raise_floor(STREAM, Epoch(1), support.started())
    first.close()
    python = [sys.executable, "-m", "tests.eventlog.fork_worker", path, str(ROUNDS)]
    driver = subprocess.Popen(python, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=support.ROOT)
    beside = subprocess.Popen(
        [sys.executable, "-c", COMMIT_BESIDE, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=support.ROOT
    )
    assert beside.stdout is not None and driver.stdout is not None
    assert beside.stdout.readline() == "ready\n"
    assert driver.stdout.readline() == "inside\n"
    assert try_lock(path) == "busy", "the children took the lock away"
    appended = int(driver.communicate("\n")[0])
    committed = int(beside.communicate("\n")[0])
    assert (driver.returncode, beside.returncode) == (0, 0) and committed > 0
    texts = support.texts(path)
    assert [text for text in texts if text.startswith("driver")] == [f"driver {number}" for number in range(ROUNDS + 1)]
    assert appended == ROUNDS + 1
    assert [text for text in texts if text.startswith("beside")] == [f"beside {number}" for number in range(committed)]
    reader = Reader.open(path)
    assert not verify(reader).findings
    assert reader.rows("PRAGMA integrity_check") == [("ok",)]
    reader.close()


def try_lock(path: str) -> str:
    """What a third process gets that wants the write lock at once."""
    code = (
        "import apsw, sys\nc = apsw.Connection(sys.argv[1])\ntry: c.execute('BEGIN IMMEDIATE').fetchall(); print('free')\n"
        "except apsw.BusyError: print('busy')"
    )
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout.strip()


def test_a_handle_that_is_let_go_in_its_own_process_is_closed(log: str) -> None:
    """What keeps a handle from children must not keep it here."""

    def count() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{name}") == log for name in os.listdir("/proc/self/fd"))

    before = count()
    reader: Reader | None = Reader.open(log)
    assert count() == before + 1 and reader is not None
    reader = None
    wait_until(lambda: count() == before, "the handle to be closed")


