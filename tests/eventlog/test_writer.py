"""An append: one fenced transaction. Each rule of the log (PROTOCOL, L) and each case that guards one has its test by name."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from eventlog import codec, connection, errors, events, steps
from eventlog.creation import create_log
from eventlog.errors import (
    BusyError,
    CorruptError,
    EpochTakenError,
    FullError,
    InternalError,
    LogMissingError,
    MisuseError,
    ReplacedError,
    StaleEpochError,
    UncertainCommitError,
)
from eventlog.holder import describe
from eventlog.image import Entry, diff, put_change
from eventlog.ports import CountingIds, RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import ContentId, Epoch, StreamId
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM, add

LOCK_AND_TELL = """
import apsw, sys
c = apsw.Connection(sys.argv[1])
c.execute("BEGIN IMMEDIATE").fetchall()
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.create(tmp_path)


@pytest.fixture
def writer(log: str) -> Iterator[Writer]:
    """A driver at epoch 1."""
    made = support.open_writer(log)
    made.raise_floor(STREAM, Epoch(1), support.started())
    yield made
    made.close()


@contextmanager
def hooked(hook: steps.Hook) -> Iterator[None]:
    steps.install(hook)
    try:
        yield
    finally:
        steps.install(None)


def is_sound(path: str) -> bool:
    reader = Reader.open(path)
    try:
        return not verify(reader).findings
    finally:
        reader.close()


def try_lock(path: str) -> str:
    """What another process gets that wants the write lock at once."""
    code = (
        "import apsw, sys\nc = apsw.Connection(sys.argv[1])\ntry: c.execute('BEGIN IMMEDIATE').fetchall(); print('free')\n"
        "except apsw.BusyError: print('busy')"
    )
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout.strip()


def test_an_append_stands_where_it_says_and_its_chain_holds(writer: Writer, log: str) -> None:
    first = add(writer, 1, "one", "two")
    second = add(writer, 1, "three")
    assert [one.seq for one in first + second] == [3, 4, 5]
    stored = {event.seq: event for event in writer.reader.events(STREAM)}
    for one in first + second:
        assert (stored[one.seq].id, stored[one.seq].hash) == (one.id, one.hash)
        assert writer.reader.find(one.id) == one.seq
    assert support.texts(log) == ["one", "two", "three"]


def test_invariant_I2_events_changes_and_blobs_of_an_append_are_one_commit(writer: Writer, log: str) -> None:
    content = codec.encode_blob(b"new")
    changes = (put_change(b"new", Entry("f", 0o644, content.content, 3)),)
    seen: list[tuple[int, bool]] = []

    def look() -> None:
        reader = Reader.open(log)
        seen.append((len(list(reader.events(STREAM))), reader.has_blob(content.content)))
        reader.close()

    with hooked(support.Calling("outcome.commit.locked", look)):
        writer.append(STREAM, Epoch(1), [Record(events.Noted(1, "x"), changes), support.note("y")], [content], "outcome")
    look()
    assert seen == [(2, False), (4, True)]


def test_invariant_I1_an_append_that_returned_is_synced_into_the_wal(tmp_path: Path) -> None:
    path = support.create(tmp_path)
    watch = WatchingVFS()
    writer = support.open_writer(path, vfs=watch.name)
    connection.set_synchronous_full(writer._handle, path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    watch.operations.clear()
    add(writer, 1, "x")
    of_wal = [operation for operation, file in watch.operations if file.endswith("-wal") and operation in ("write", "sync")]
    assert "write" in of_wal and of_wal[-1] == "sync"
    writer.close()


def test_opening_for_writing_asks_for_full_synchronous_and_the_wal(log: str) -> None:
    handle = connection.open_writable(log)
    assert (handle.pragma("synchronous"), handle.pragma("journal_mode")) == (2, "wal")
    assert (handle.pragma("recursive_triggers"), handle.pragma("foreign_keys")) == (1, 1)
    handle.close()


def test_rule_L1_equal_epoch_of_another_identity_is_refused_and_not_75(writer: Writer, log: str) -> None:
    other = support.open_writer(log, first_id=5_000_000)
    with pytest.raises(EpochTakenError, match="epoch 1 is held by another driver; start again under epoch 2") as caught:
        other.raise_floor(STREAM, Epoch(1), support.started("other"))
    assert caught.value.exit_code not in (0, 75)
    other.close()
    assert support.head(log) == (2, 1)


def test_rule_L1_only_a_strictly_newer_epoch_is_answered_by_75(writer: Writer, log: str) -> None:
    other = support.open_writer(log, first_id=5_000_000)
    other.raise_floor(STREAM, Epoch(2), support.started("other"))
    for refused in (lambda: writer.raise_floor(STREAM, Epoch(1), support.started()), lambda: add(writer, 1, "late")):
        with pytest.raises(StaleEpochError, match="epoch 1 is below the floor 2") as caught:
            refused()
        assert caught.value.exit_code == 75
    fenced = {error for error in vars(errors).values() if isinstance(error, type) and getattr(error, "exit_code", 0) == 75}
    assert fenced == {StaleEpochError}
    other.close()


def test_rule_L2_raising_the_floor_is_one_driver_started_and_session_opened_is_at_epoch_0(writer: Writer, log: str) -> None:
    first, second = writer.reader.events(STREAM)
    assert (first.event.kind, first.epoch) == ("session_opened", 0)
    assert (second.event, second.epoch) == (support.started(), 1)
    assert writer.reader.floor(STREAM) == 1


def test_rule_L2_nothing_else_may_open_a_session_or_start_a_driver(writer: Writer, log: str, tmp_path: Path) -> None:
    for record in (support.opened(), Record(support.started("n2"))):
        with pytest.raises(InternalError, match="seq 3"):
            writer.append(STREAM, Epoch(1), [record], (), "note")
    with pytest.raises(InternalError, match="seq 1"):
        create_log(str(tmp_path / "other.sqlite"), STREAM, support.note("first"), (), RandomIds())
    assert not (tmp_path / "other.sqlite").exists()
    add(writer, 1, "goes on")
    assert is_sound(log)


CACHE_DAMAGE = {
    "lowered floor": "UPDATE stream SET floor = 0",
    "raised floor": "UPDATE stream SET floor = 9",
    "lowered head": "UPDATE stream SET head_seq = 1",
    "raised head": "UPDATE stream SET head_seq = 3",
    "other head": "UPDATE stream SET head_hash = zeroblob(32)",
    "newest event gone": "DELETE FROM event WHERE seq = 2",
    "newest event changed": "UPDATE event SET hash = zeroblob(32) WHERE seq = 2",
    "driver_started at another epoch": "UPDATE event SET epoch = 7 WHERE seq = 2",
}


@pytest.mark.parametrize("statement", CACHE_DAMAGE.values(), ids=CACHE_DAMAGE)
def test_rule_L3_a_cache_that_disagrees_with_the_events_is_corrupt_at_every_append(log: str, statement: str) -> None:
    writer = support.open_writer(log)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    support.tamper(log, statement)
    before = count_rows(log)
    writer = support.open_writer(log, first_id=5_000_000)
    for refused in (lambda: add(writer, 1, "x"), lambda: writer.raise_floor(STREAM, Epoch(5), support.started())):
        with pytest.raises(CorruptError, match="disagrees with its events"):
            refused()
    writer.close()
    assert count_rows(log) == before


def test_rule_L3_a_lowered_floor_in_the_cache_is_corrupt_for_readers_too(log: str) -> None:
    writer = support.open_writer(log)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    support.tamper(log, "UPDATE stream SET floor = 0")
    with pytest.raises(CorruptError, match="cache row disagrees"):
        support.head(log)
    assert not is_sound(log)


def test_rule_L5_another_file_renamed_over_the_log_stops_the_writer(writer: Writer, log: str, tmp_path: Path) -> None:
    shutil.copy(log, tmp_path / "copy")
    os.rename(tmp_path / "copy", log)
    for refused in (lambda: add(writer, 1, "x"), lambda: writer.insert_blobs([codec.encode_blob(b"x")])):
        with pytest.raises(ReplacedError, match=r"log\.sqlite"):
            refused()


def test_invariant_I5_a_wal_that_is_taken_away_lowers_no_floor(writer: Writer, log: str) -> None:
    writer.raise_floor(STREAM, Epoch(4), support.started("n4"))
    add(writer, 4, "only in the WAL")
    writer.close()
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)
    again = support.open_writer(log, first_id=9_000_000)
    with pytest.raises(StaleEpochError):
        add(again, 1, "a driver of the past")
    assert again.reader.floor(STREAM) == 4
    again.close()


def test_rule_L5_a_log_taken_from_its_path_stops_the_writer(writer: Writer, log: str, tmp_path: Path) -> None:
    os.rename(log, tmp_path / "elsewhere")
    with pytest.raises(LogMissingError, match="put it back"):
        add(writer, 1, "x")
    os.rename(tmp_path / "elsewhere", log)
    assert add(writer, 1, "back")[0].seq == 3


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_case_19_a_side_file_deleted_under_an_open_log_stops_the_writer(writer: Writer, log: str, suffix: str) -> None:
    add(writer, 1, "before")
    os.unlink(log + suffix)
    with pytest.raises(ReplacedError, match="stop whatever replaced them"):
        add(writer, 1, "after")


def test_case_19_two_worlds_of_side_files_never_both_commit(writer: Writer, log: str) -> None:
    add(writer, 1, "A before")
    assert writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)
    other = support.open_writer(log, first_id=5_000_000)
    add(other, 1, "B")
    with pytest.raises(ReplacedError):
        add(writer, 1, "A after")
    assert [event.text for event in (one.event for one in other.reader.events(STREAM)) if isinstance(event, events.Noted)] == [
        "A before", "B",
    ]  # fmt: skip
    other.close()


def test_case_19_no_function_of_the_package_deletes_a_side_file(log: str) -> None:
    writer = support.open_writer(log)
    support.fill(writer)
    writer.close()
    kept = {suffix: Path(log + suffix).read_bytes() for suffix in ("", "-wal")}
    assert kept["-wal"]
    assert is_sound(log)
    again = support.open_writer(log, first_id=5_000_000)
    again.close()
    assert {suffix: Path(log + suffix).read_bytes() for suffix in ("", "-wal")} == kept


def test_rule_L5_a_new_log_is_not_made_over_the_wal_of_one_that_is_gone(log: str) -> None:
    writer = support.open_writer(log)
    support.fill(writer)
    writer.close()
    os.unlink(log)
    with pytest.raises(LogMissingError, match=r"log\.sqlite-wal is there"):
        create_log(log, STREAM, support.opened(), support.blobs(), RandomIds())
    assert sorted(os.listdir(os.path.dirname(log))) == ["log.sqlite-shm", "log.sqlite-wal"]


def test_rule_L6_nothing_opens_the_files_of_a_log_by_another_way(log: str) -> None:
    code = """
import os, sys
from eventlog import connection
from eventlog.errors import BusyError
from eventlog.reader import Reader
from eventlog.verify import verify
from eventlog.values import Epoch
from tests.eventlog import support
path, opened = sys.argv[1], []
sys.addaudithook(lambda event, arguments: event == "open" and "log.sqlite" in str(arguments[0]) and opened.append(arguments))
writer = support.open_writer(path)
support.fill(writer)
other = support.open_writer(path, first_id=7_000_000)
writer._handle.execute("BEGIN IMMEDIATE").fetchall()
try:
    support.add(other, 4, "x")
except BusyError:
    print(connection.describe(connection.find_holder(path)))
writer._handle.execute("ROLLBACK").fetchall()
reader = Reader.open(path)
assert not verify(reader).findings
list(reader.content(reader.image(support.STREAM, 3)[b"a"].content))
print(opened)
"""
    done = subprocess.run([sys.executable, "-c", code, log], capture_output=True, text=True, check=False, cwd=support.ROOT)
    assert done.returncode == 0, done.stderr
    holder, found = done.stdout.splitlines()
    assert holder.startswith("held by pid ")
    assert found == "[]"


def test_rule_L6_asking_for_the_holder_does_not_drop_the_lock(writer: Writer, log: str) -> None:
    writer._handle.execute("BEGIN IMMEDIATE").fetchall()
    assert try_lock(log) == "busy"
    assert f"held by pid {os.getpid()}" in describe(connection.find_holder(log))
    assert try_lock(log) == "busy"
    writer._handle.execute("ROLLBACK").fetchall()
    assert try_lock(log) == "free"


def test_rule_L4_a_busy_log_names_who_holds_it(log: str, writer: Writer) -> None:
    holder = subprocess.Popen([sys.executable, "-c", LOCK_AND_TELL, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(BusyError, match=rf"LogBusy: held by pid {holder.pid} \(.*import apsw.*\); ") as caught:
        add(writer, 1, "x")
    assert caught.value.exit_code == 1
    holder.communicate("\n")
    assert add(writer, 1, "x")[0].seq == 3


def fill_disk(writer: Writer) -> None:
    """No room for more than one further page."""
    pages = writer._handle.pragma("page_count")
    assert isinstance(pages, int)
    writer._handle.pragma("max_page_count", pages + 1)


def test_rule_L7_full_records_nothing_is_not_corrupt_and_the_log_goes_on(writer: Writer, log: str) -> None:
    add(writer, 1, "before")
    fill_disk(writer)
    big = codec.Blob(ContentId(b"B" * 32), "raw", 1, os.urandom(200_000))
    with pytest.raises(FullError, match="nothing was recorded") as caught:
        writer.append(STREAM, Epoch(1), [support.note("too much")], [big], "note")
    assert caught.value.exit_code == 1
    with pytest.raises(FullError):
        writer.insert_blobs([big])
    assert is_sound(log)
    writer._handle.pragma("max_page_count", 1_000_000)
    add(writer, 1, "after")
    assert support.texts(log) == ["before", "after"]


def test_rule_L7_full_leads_to_no_new_log(tmp_path: Path) -> None:
    path = str(tmp_path / "log.sqlite")
    with pytest.raises(FullError, match=r"log\.sqlite: no room"):
        create_log(path, STREAM, support.opened(), full_blobs(), RandomIds())
    assert not os.path.exists(path)


def full_blobs() -> Iterator[codec.Blob]:
    """The disk fills while the first contents of a new log are written."""
    yield codec.encode_blob(b"x")
    raise apsw.FullError("database or disk is full")


def test_case_17_an_error_that_ended_the_transaction_is_not_followed_by_a_commit(writer: Writer, log: str) -> None:
    """SQLite rolls a transaction back by itself when the disk is full; a COMMIT after it would fail with a general error."""
    add(writer, 1, "before")

    def roll_back() -> None:
        writer._handle.execute("ROLLBACK").fetchall()

    with hooked(support.Calling("note.commit.locked", roll_back)), pytest.raises(UncertainCommitError, match="no transaction"):
        add(writer, 1, "lost")
    again = support.open_writer(log, first_id=5_000_000)
    assert support.texts(log) == ["before"]
    add(again, 1, "after")
    again.close()
    assert support.texts(log) == ["before", "after"] and is_sound(log)


class WatchingVFS(apsw.VFS):
    """The operating system's files, each operation noted, failing as told."""

    def __init__(self, *, default: bool = False) -> None:
        self.name = f"watching-{id(self)}"
        self.operations: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], bool] = lambda operation, file: False
        super().__init__(self.name, base="unix", makedefault=default)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "WatchingFile":
        return WatchingFile(self, name, flags)


class WatchingFile(apsw.VFSFile):
    def __init__(self, vfs: WatchingVFS, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        self._file = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("unix", name, flags)

    def _pass(self, operation: str) -> None:
        self._vfs.operations.append((operation, self._file))
        if self._vfs.fails(operation, self._file):
            raise apsw.IOError("the device failed")

    def xWrite(self, data: bytes, offset: int) -> None:
        self._pass("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._pass("sync")
        super().xSync(flags)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_rule_L7_a_new_log_that_could_not_be_written_or_synced_whole_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """It has no WAL until then, and is synced once, by ourselves."""
    path = str(tmp_path / "log.sqlite")

    def create_on_a_bad_device() -> None:
        watch = WatchingVFS(default=True)

        def refuse(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def fail() -> None:
            if operation == "sync":
                monkeypatch.setattr(os, "fsync", refuse)
            else:
                watch.fails = lambda done, file: done == "write" and not file.endswith("-wal")

        steps.install(support.Calling("open.commit.after", fail))
        with pytest.raises(UncertainCommitError, match=r"log\.sqlite: the device failed"):
            create_log(path, STREAM, support.opened(), support.blobs(), RandomIds())

    assert support.run_in_child(create_on_a_bad_device) == 0
    assert not os.path.exists(path)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_rule_L7_an_uncertain_commit_poisons_the_handle_and_is_looked_up_by_event_id(tmp_path: Path, operation: str) -> None:
    path = support.create(tmp_path)
    watch = WatchingVFS()
    writer = support.open_writer(path, vfs=watch.name)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    watch.fails = lambda done, file: done == operation and file.endswith("-wal")
    with pytest.raises(UncertainCommitError, match="open the log again") as caught:
        add(writer, 1, "one", "two")
    assert caught.value.exit_code == 1
    watch.fails = lambda done, file: False
    ids = caught.value.event_ids
    assert len(ids) == 2 and all(one.hex() in str(caught.value) for one in ids)
    uses: list[Callable[[], object]] = [
        lambda: add(writer, 1, "again"),
        lambda: writer.raise_floor(STREAM, Epoch(2), support.started()),
        lambda: writer.insert_blobs([]),
        lambda: writer.check_fence(STREAM, Epoch(1)),
    ]
    for use in uses:
        with pytest.raises(UncertainCommitError, match="look the event up by its id"):
            use()
    writer.close()
    reader = Reader.open(path)
    found = [reader.find(one) for one in ids]
    assert found in ([None, None], [3, 4]), "all of a commit stands, or nothing"
    reader.close()
    assert is_sound(path)


def test_rule_L7_a_device_that_fails_before_the_commit_records_nothing_and_poisons_the_handle(tmp_path: Path) -> None:
    path = support.create(tmp_path)
    watch = WatchingVFS()
    writer = support.open_writer(path, vfs=watch.name)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer._handle.pragma("cache_size", 1)
    watch.fails = lambda done, file: done == "write" and file.endswith("-wal")
    spilling = [codec.Blob(ContentId(bytes([number]) * 32), "raw", 1, os.urandom(50_000)) for number in range(8)]
    with pytest.raises(UncertainCommitError, match="the device failed"):
        writer.append(STREAM, Epoch(1), [support.note("x")], spilling, "note")
    watch.fails = lambda done, file: False
    with pytest.raises(UncertainCommitError, match="look the event up"):
        add(writer, 1, "y")
    writer.close()
    assert support.texts(path) == [] and is_sound(path)


def test_invariant_I5_a_write_below_the_floor_is_refused_inside_its_own_transaction(log: str, writer: Writer) -> None:
    other = support.open_writer(log, first_id=5_000_000)

    def overtake() -> None:
        other.raise_floor(STREAM, Epoch(2), support.started("other"))

    content = codec.encode_blob(b"stale")
    with hooked(support.Calling("outcome.commit.before", overtake)), pytest.raises(StaleEpochError):
        writer.append(STREAM, Epoch(1), [support.note("stale")], [content], "outcome")
    assert not other.reader.has_blob(content.content)
    assert support.head(log) == (3, 2) and support.texts(log) == []
    other.close()


def test_invariant_I5_the_floor_moves_only_up(writer: Writer, log: str) -> None:
    writer.raise_floor(STREAM, Epoch(7), support.started("n7"))
    for epoch in (0, 1, 6):
        with pytest.raises(StaleEpochError):
            writer.raise_floor(STREAM, Epoch(epoch), support.started("old"))
    with pytest.raises(apsw.ConstraintError, match="a floor never falls"):
        writer._handle.execute("UPDATE stream SET floor = 6, head_seq = head_seq + 1").fetchall()
    assert support.head(log) == (3, 7)


def test_invariant_I5_an_append_above_the_floor_is_a_bug_and_writes_nothing(writer: Writer, log: str) -> None:
    with pytest.raises(InternalError, match="epoch 2 above the floor 1"):
        add(writer, 2, "x")
    assert support.head(log) == (2, 1)


def test_invariant_I6_a_fenced_driver_learns_it_from_one_read_and_writes_no_result(writer: Writer, log: str) -> None:
    writer.check_fence(STREAM, Epoch(1))
    other = support.open_writer(log, first_id=5_000_000)
    other.raise_floor(STREAM, Epoch(2), support.started("other"))
    other._handle.execute("BEGIN IMMEDIATE").fetchall()
    with pytest.raises(StaleEpochError, match="a newer driver has it"):
        writer.check_fence(STREAM, Epoch(1))
    other._handle.execute("ROLLBACK").fetchall()
    later = support.LATER
    with pytest.raises(StaleEpochError):
        writer.append(STREAM, Epoch(1), [support.settled(1, later, diff(support.IMAGE, later))], support.blobs(), "outcome")
    assert [event.event.kind for event in other.reader.events(STREAM)] == ["session_opened", "driver_started", "driver_started"]
    other.close()


def test_a_stream_that_is_not_there_is_misuse(writer: Writer) -> None:
    with pytest.raises(MisuseError, match="no session elsewhere"):
        writer.append(StreamId("elsewhere"), Epoch(1), [support.note("x")], (), "note")


def test_an_id_that_is_taken_is_refused_and_nothing_is_written(log: str) -> None:
    writer = support.open_writer(log, first_id=1)
    taken = next(iter(writer.reader.events(STREAM))).id
    writer.close()
    writer = support.open_writer(log, first_id=int.from_bytes(taken, "big"))
    with pytest.raises(CorruptError, match="UNIQUE"):
        writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    assert support.head(log) == (1, 0)


def test_blobs_inserted_ahead_are_harmless_and_may_come_again(writer: Writer, log: str) -> None:
    blob = codec.encode_blob(b"ahead")
    writer.insert_blobs([blob])
    writer.insert_blobs([blob])
    writer.append(STREAM, Epoch(1), [support.note("x")], [blob], "note")
    assert b"".join(writer.reader.content(blob.content)) == b"ahead"
    assert is_sound(log)


def test_case_21_a_handle_refuses_a_forked_process(writer: Writer, log: str) -> None:
    add(writer, 1, "parent")
    uses: list[Callable[[], object]] = [
        lambda: add(writer, 1, "child"),
        lambda: writer.raise_floor(STREAM, Epoch(2), support.started()),
        lambda: writer.insert_blobs([]),
        lambda: writer.check_fence(STREAM, Epoch(1)),
        lambda: list(writer.reader.events(STREAM)),
        lambda: writer.reader.floor(STREAM),
    ]

    def use_all() -> None:
        for use in uses:
            with pytest.raises(InternalError, match=f"belongs to process {os.getppid()}"):
                use()

    assert support.run_in_child(use_all) == 0
    assert support.texts(log) == ["parent"]


def test_case_21_handles_are_closed_on_exec(writer: Writer, log: str) -> None:
    names = "import os\nfor n in os.listdir('/proc/self/fd'):\n  p = '/proc/self/fd/' + n\n  if os.path.islink(p): print(os.readlink(p))"
    done = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True, close_fds=False)
    assert done.stdout and "log.sqlite" not in done.stdout


FORBIDDEN = {
    "UPDATE event SET payload = payload": "events are append-only",
    "DELETE FROM event": "events are append-only",
    "UPDATE image_change SET mode = mode": "changes are append-only",
    "DELETE FROM image_change": "changes are append-only",
    "UPDATE blob SET bytes = bytes": "blobs are append-only",
    "DELETE FROM blob": "blobs are append-only",
    "UPDATE meta SET value = value": "meta is append-only",
    "DELETE FROM meta": "meta is append-only",
    "DELETE FROM stream": "streams are never deleted",
    "UPDATE stream SET head_seq = head_seq": "a head moves by one",
    "UPDATE stream SET head_seq = head_seq + 2": "a head moves by one",
    "UPDATE stream SET head_seq = head_seq - 1": "a head moves by one",
    "UPDATE stream SET id = 'x', head_seq = head_seq + 1": "a head moves by one",
    "UPDATE stream SET floor = floor - 1, head_seq = head_seq + 1": "a floor never falls",
    "INSERT OR REPLACE INTO event SELECT * FROM event": "events are append-only",
    "REPLACE INTO event SELECT * FROM event WHERE seq = 1": "events are append-only",
    "INSERT OR REPLACE INTO image_change SELECT * FROM image_change": "changes are append-only",
    "INSERT OR REPLACE INTO blob SELECT * FROM blob": "blobs are append-only",
    "INSERT OR REPLACE INTO blob SELECT hash, 'raw', 1, 'x' FROM blob": "blobs are append-only",
    "INSERT OR REPLACE INTO meta SELECT key, 'x' FROM meta": "meta is append-only",
    "INSERT OR REPLACE INTO stream SELECT id, NULL, NULL, 0, 0, zeroblob(32), NULL, NULL FROM stream": "streams are never deleted",
    "INSERT INTO image_change SELECT stream, 99, idx, path, op, kind, mode, content, size, target, link, xattrs, uid, gid, acl, mtime_ns"
    " FROM image_change LIMIT 1": "FOREIGN KEY",
}


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_a_project_connection_refuses_to_change_what_stands(writer: Writer, log: str, statement: str) -> None:
    before = Path(log).read_bytes()
    with pytest.raises(apsw.ConstraintError, match=FORBIDDEN[statement]):
        writer._handle.execute(statement).fetchall()
    assert support.head(log) == (2, 1) and is_sound(log)
    assert Path(log).read_bytes() == before


def test_create_log_makes_a_private_file_that_holds_all_of_it_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = support.create(tmp_path)
    assert os.listdir(tmp_path) == ["log.sqlite"]
    assert os.stat(path).st_mode & 0o7777 == 0o600
    reader = Reader.open(path)
    assert reader.rows("PRAGMA page_size") == [(16384,)]
    assert reader.rows("SELECT value FROM meta WHERE key = 'format'") == [("3",)]
    assert len(reader.log_id) == 32 and reader.image(STREAM, reader.streams()[0].head_seq) == support.IMAGE
    reader.close()
    assert is_sound(path)


def test_create_log_leaves_the_log_of_somebody_else_as_it_is(log: str) -> None:
    before = Path(log).read_bytes()
    with pytest.raises(FileExistsError):
        create_log(log, STREAM, support.opened("mine"), support.blobs(), CountingIds(77))
    assert Path(log).read_bytes() == before
    assert os.listdir(os.path.dirname(log)) == ["log.sqlite"]


def test_create_log_takes_a_name_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create_log("log.sqlite", STREAM, support.opened(), support.blobs(), RandomIds())
    assert is_sound("log.sqlite")


def test_invariant_I9_a_missing_log_is_not_made_anew(tmp_path: Path) -> None:
    for opening in (Reader.open, lambda path: Writer.open(path, RandomIds())):
        with pytest.raises(LogMissingError, match="never made anew"):
            opening(str(tmp_path / "log.sqlite"))
    assert os.listdir(tmp_path) == []


def count_rows(path: str) -> int:
    """How many events there are, nothing checked."""
    handle = connection.open_readable(path)
    count = handle.execute("SELECT count(*) FROM event").get
    handle.close()
    assert isinstance(count, int)
    return count


def test_threads_that_share_a_writer_append_one_after_another(log: str) -> None:
    writer = support.open_writer(log)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    failed: list[BaseException] = []

    def append(number: int) -> None:
        try:
            for count in range(40):
                support.add(writer, 1, f"{number} {count}")
                writer.insert_blobs([codec.encode_blob(b"%d %d" % (number, count))])
        except BaseException as error:  # noqa: BLE001 - shown below, where it fails the test
            failed.append(error)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert failed == []
    assert sorted(support.texts(log)) == sorted(f"{number} {count}" for number in range(4) for count in range(40))


def test_an_append_inside_another_transaction_is_a_bug_and_no_damage(log: str) -> None:
    writer = support.open_writer(log)
    with pytest.raises(InternalError, match="in the middle of a transaction"):
        writer.maintain("try", lambda handle: writer.append_unfenced(STREAM, [support.note("inside")], "note"))
    writer.append_unfenced(STREAM, [support.note("after")], "note")
    writer.close()
    assert support.texts(log) == ["after"]


def test_rule_L7_who_waited_while_another_thread_s_commit_failed_writes_nothing(log: str) -> None:
    writer = support.open_writer(log)

    def fail() -> None:
        writer._poisoned = True

    for append in (lambda: writer.append_unfenced(STREAM, [support.note("late")], "note"), lambda: writer.maintain("note", lambda _: None)):
        writer._poisoned = False
        with hooked(support.Calling("note.commit.before", fail)), pytest.raises(UncertainCommitError, match="open the log again"):
            append()
    writer.close()
    assert support.texts(log) == []
