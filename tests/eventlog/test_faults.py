"""Every read, write, sync, truncation, opening and deletion that an operation on a log makes, failing one by one, with real files.

What holds for each: the fault fired; the caller is told in one sentence of the right kind; what was acknowledged stands, what was not
stands whole or not at all; a handle that met a failing device is used no more; a new one settles it by event id and goes on.
"""

import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from eventlog import codec, connection
from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.errors import BusyError, CrashworthyError, FullError, MisuseError, StaleEpochError, UncertainCommitError
from eventlog.image import diff
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.records import Appended, Record
from eventlog.values import Epoch
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.faulty_vfs import KINDS, Fault, FaultyDevice, faulty_device
from tests.eventlog.support import STREAM

ONE, TWO = b"1" * 16, b"2" * 16
NOISE = b"".join(codec.content_id(b"%d" % number) for number in range(1_000))  # does not compress
OLD = support.blobs()
RECORDS = [
    Record(support.settled(1, support.LATER, ()).event, diff(support.IMAGE, support.LATER), ONE),
    Record(support.note("after it").event, (), TWO),
]


@functools.cache
def contents() -> list[codec.Blob]:
    """Two contents that the log has not, and that do not compress."""
    return [blob for data in (NOISE, NOISE[:100]) for blob in encode_content([data])]


@dataclass(frozen=True, slots=True)
class Operation:
    """`before` makes the handle ready on a device that works; `work` is what meets the fault, by the ids it can be found by."""

    work: Callable[[Writer], object]
    ids: tuple[bytes, ...] = ()
    before: Callable[[Writer], object] = lambda writer: None


def append(writer: Writer) -> list[Appended]:
    return writer.append(STREAM, Epoch(1), RECORDS, [*OLD, *contents()], "outcome")


def spill_at_once(writer: Writer) -> None:
    """A cache of one page: the WAL is written before COMMIT is sent."""
    writer._handle.pragma("cache_size", 1)


def checkpoint_at_once(writer: Writer) -> None:
    """Every commit is followed by a checkpoint."""
    writer._handle.pragma("wal_autocheckpoint", 1)


OPERATIONS = {
    "raise_floor": Operation(lambda writer: writer.raise_floor(STREAM, Epoch(2), support.started("n2"))),
    "append": Operation(append, (ONE, TWO)),
    "append that spills": Operation(append, (ONE, TWO), spill_at_once),
    "append and checkpoint": Operation(append, (ONE, TWO), checkpoint_at_once),
    "insert_blobs": Operation(lambda writer: writer.insert_blobs(contents())),
    "admit": Operation(lambda writer: writer.admit(STREAM, "request-1", {"say": "hello"}, 7)),
    "open_stream": Operation(lambda writer: writer.open_stream(support.StreamId("second"), support.opened("second"), "open")),
    "checkpoint": Operation(lambda writer: checkpoint(writer)),
}


def checkpoint(writer: Writer) -> None:
    """As whoever looks after the WAL does it."""
    try:
        writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        raise connection.translate(error, writer.path) from error


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose newest events stand in its WAL."""
    directory = tmp_path_factory.mktemp("template")
    writer = support.open_writer(support.create(directory))
    writer.raise_floor(STREAM, Epoch(1), support.started())
    support.add(writer, 1, "one", "two")
    writer.close()
    return directory


class Place:
    """Copies of a log, each in a directory of its own."""

    def __init__(self, template: Path, directory: Path) -> None:
        self._template = template
        self._directory = directory
        self._numbers = itertools.count()

    def fresh(self) -> str:
        directory = self._directory / str(next(self._numbers))
        directory.mkdir()
        for name in ("log.sqlite", "log.sqlite-wal"):
            shutil.copyfile(self._template / name, directory / name)
        return str(directory / "log.sqlite")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for thousands of short-lived logs: in memory where that is to be had, for the sake of time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="crashworthy-", dir="/dev/shm") as made:
        yield Path(made)


@pytest.fixture
def place(template: Path, directory: Path) -> Place:
    return Place(template, directory)


@pytest.fixture
def device() -> Iterator[FaultyDevice]:
    with faulty_device() as made:
        yield made


def list_faults(counts: dict[str, int]) -> Iterator[Fault]:
    """A fault of each kind at everything that was counted, the last kind with a device that is gone from there on."""
    for operation, kinds in KINDS.items():
        for number in range(1, counts.get(operation, 0) + 1):
            yield from (Fault(operation, number, kind) for kind in kinds[:-1] or kinds)
            yield Fault(operation, number, kinds[-1], is_final=True)


def attempt(work: Callable[[], object]) -> CrashworthyError | None:
    """What a person would be told, or None when it was done; anything but a sentence is a failure."""
    try:
        work()
    except CrashworthyError as error:
        text = str(error)
        assert "log.sqlite" in text and "\n" not in text and len(text) > 60, text
        return error
    return None


def check_kind(error: CrashworthyError, fault: Fault) -> None:
    """Full is FullError; a device that fails is UncertainCommitError; nothing of it is corrupt, stale, missing or a new log (L7)."""
    if fault.operation == "open":
        assert type(error) is MisuseError and "cannot be opened here" in str(error), (fault, error)
        return
    assert type(error) in ((FullError,) if fault.kind == "no room" else (FullError, UncertainCommitError)), (fault, error)
    if not fault.kind.endswith("no room"):
        assert type(error) is UncertainCommitError, (fault, error)
    assert error.exit_code == 1


def check_poisoned(writer: Writer) -> None:
    """The device works again, and still nothing is done through this handle."""
    uses: list[Callable[[], object]] = [
        lambda: support.add(writer, 1, "again"),
        lambda: append(writer),
        lambda: writer.raise_floor(STREAM, Epoch(9), support.started()),
        lambda: writer.insert_blobs(contents()),
        lambda: writer.admit(STREAM, "request-9", {}, 1),
        lambda: writer.open_stream(support.StreamId("third"), support.opened("third"), "open"),
        lambda: writer.check_fence(STREAM, Epoch(1)),
    ]
    for use in uses:
        with pytest.raises(UncertainCommitError, match="open the log again"):
            use()


def check_log(path: str) -> None:
    """Sound, with everything that was acknowledged in the template."""
    reader = Reader.open(path)
    try:
        assert verify(reader).findings == ()
        noted = [stored.event.text for stored in reader.events(STREAM) if isinstance(stored.event, support.events.Noted)]
        assert noted[:2] == ["one", "two"]
    finally:
        reader.close()


def find(path: str, ids: tuple[bytes, ...]) -> list[bool]:
    reader = Reader.open(path)
    try:
        return [reader.find(one) is not None for one in ids]
    finally:
        reader.close()


@pytest.mark.parametrize("name", OPERATIONS)
def test_rule_L7_each_failing_operation_of_a_device_is_told_and_settled(place: Place, device: FaultyDevice, name: str) -> None:
    operation = OPERATIONS[name]
    seen: set[tuple[str, str]] = set()
    for fault in list_faults(count_operations(place, device, operation)):
        path = place.fresh()
        writer = Writer.open(path, CountingIds(1_000))
        operation.before(writer)
        device.arm(fault)
        error = attempt(lambda done=operation, by=writer: done.work(by))  # type: ignore[misc]
        assert device.fired, f"{name}: {fault} did not fire"
        device.arm(None)
        seen.add((fault.operation, "done" if error is None else type(error).__name__))
        if error is not None:
            check_kind(error, fault)
        if isinstance(error, UncertainCommitError) and name != "checkpoint":
            check_poisoned(writer)
        if isinstance(error, FullError):
            assert not any(find(path, operation.ids)), f"{name}: {fault}: nothing was recorded, it says"
            assert attempt(lambda done=operation, by=writer: done.work(by)) is None  # type: ignore[misc]
        writer.close()
        check_log(path)
        found = find(path, operation.ids)
        assert all(found) or not any(found), f"{name}: {fault}: half of a commit stands"
        assert all(found) or isinstance(error, UncertainCommitError), f"{name}: {fault}: an acknowledged append is gone"
        send_again(path, operation)
        shutil.rmtree(Path(path).parent)
    assert ("write", "FullError") in seen and ("sync", "UncertainCommitError") in seen and ("read", "UncertainCommitError") in seen


def count_operations(place: Place, device: FaultyDevice, operation: Operation) -> dict[str, int]:
    """What the operation does on a device that works."""
    writer = Writer.open(place.fresh(), CountingIds(1_000))
    operation.before(writer)
    device.arm(None)
    assert attempt(lambda: operation.work(writer)) is None
    counts = {str(kind): number for kind, number in device.counts.items()}
    writer.close()
    assert counts["write"] and counts["sync"] and counts["read"]
    return counts


def send_again(path: str, operation: Operation) -> None:
    """Whoever was told nothing sends it again through a new handle: it stands once."""
    if not operation.ids:
        return
    writer = support.open_writer(path, first_id=9_000)
    places = [operation.work(writer) for _ in range(2)]
    assert places[0] == places[1]
    support.add(writer, 1, "goes on")
    writer.close()
    reader = Reader.open(path)
    assert [stored.id for stored in reader.events(STREAM)].count(ONE) == 1 and verify(reader).findings == ()
    reader.close()


@pytest.mark.parametrize("kind", ["writer", "reader"])
def test_rule_L7_each_failing_operation_of_an_opening_is_told_and_the_next_opening_works(
    place: Place, device: FaultyDevice, kind: str
) -> None:
    opens: Callable[[str], Writer | Reader] = Reader.open if kind == "reader" else lambda path: Writer.open(path, CountingIds(1_000))
    path = place.fresh()
    device.arm(None)
    opens(path).close()
    counts = {str(operation): number for operation, number in device.counts.items()}
    assert counts["read"] and counts["open"]
    for fault in list_faults(counts):
        path = place.fresh()
        device.arm(fault)
        error = attempt(lambda at=path: opens(at).close())  # type: ignore[misc]
        assert device.fired, f"{fault} did not fire"
        device.arm(None)
        assert error is not None, fault
        check_kind(error, fault)
        opens(path).close()
        check_log(path)
        shutil.rmtree(Path(path).parent)


def test_rule_L7_each_failing_read_of_a_whole_walk_is_weather_and_the_next_reader_works(place: Place, device: FaultyDevice) -> None:
    """Events, changes, contents and all of verify: a read that fails is never a finding of damage."""
    path = place.fresh()
    writer = support.open_writer(path)
    append(writer)
    writer.close()

    def walk() -> None:
        reader = Reader.open(path)
        try:
            reader.rows("PRAGMA cache_size = 1")
            assert verify(reader).findings == ()
            assert len(list(reader.events(STREAM))) == 6
            for blob in (*OLD, *contents()):
                assert reader.has_blob(blob.content) and isinstance(b"".join(reader.content(blob.content)), bytes)
        except AssertionError as error:
            raise AssertionError(f"a failed read was taken for what the log says: {error}") from error
        finally:
            reader.close()

    device.arm(None)
    walk()
    reads = device.counts["read"]
    assert reads > 50
    for number, is_final in itertools.product(range(1, reads + 1), (False, True)):
        device.arm(Fault("read", number, is_final=is_final))
        error = attempt(walk)
        assert device.fired, f"read {number} was not reached"
        device.arm(None)
        assert type(error) is UncertainCommitError, (number, error)
    walk()


def test_rule_L7_each_failing_operation_of_a_new_log_leaves_all_of_it_or_nothing(directory: Path, device: FaultyDevice) -> None:
    def make(path: str) -> None:
        create_log(path, STREAM, support.opened(), OLD, CountingIds())

    device.arm(None)
    (directory / "first").mkdir()
    make(str(directory / "first" / "log.sqlite"))
    counts = {str(operation): number for operation, number in device.counts.items()}
    assert counts["write"] > 50 and counts["sync"] and counts["truncate"] and counts["delete"]
    for number, fault in enumerate(list_faults(counts)):
        place = directory / str(number)
        place.mkdir()
        path = str(place / "log.sqlite")
        device.arm(fault)
        error = attempt(lambda at=path: make(at))  # type: ignore[misc]
        assert device.fired, f"{fault} did not fire"
        device.arm(None)
        if error is None:
            assert os.listdir(place) == ["log.sqlite"], fault
        else:
            check_kind(error, fault)
            assert os.listdir(place) == [], fault
            make(path)
        reader = Reader.open(path)
        assert verify(reader).findings == () and reader.streams()[0].head_seq == 1
        reader.close()
        shutil.rmtree(place)


def test_rule_L7_a_sync_that_failed_is_never_tried_again_through_the_handle(place: Place, device: FaultyDevice) -> None:
    """After a failed fsync the kernel may have dropped the pages: a second one that succeeds would promise what is not on the disk."""
    path = place.fresh()
    writer = Writer.open(path, CountingIds(1_000))
    device.arm(Fault("sync", 1))
    assert isinstance(attempt(lambda: append(writer)), UncertainCommitError)
    assert device.fired == [("sync", path + "-wal")]
    for _ in range(3):
        assert isinstance(attempt(lambda: append(writer)), UncertainCommitError)
        assert isinstance(attempt(lambda: writer.insert_blobs(contents())), UncertainCommitError)
    assert {operation for operation, _ in device.after} <= {"read"}, "something was written or synced after the sync that failed"
    device.arm(None)
    writer.close()
    check_log(path)


class StuckConnection(apsw.Connection):
    """A connection on whose cursors statements that begin so fail; with `works_first` they do their work all the same."""

    fails_at = "nothing"
    works_first = False
    error: apsw.Error = apsw.IOError("the device failed")


class StuckCursor(apsw.Cursor):
    """A cursor of a StuckConnection."""

    def execute(self, statements: str, *arguments: object, **options: object) -> apsw.Cursor:
        handle = self.connection
        assert isinstance(handle, StuckConnection)
        if statements.startswith(handle.fails_at):
            if handle.works_first:
                super().execute(statements, *arguments, **options).fetchall()  # type: ignore[arg-type]
            raise handle.error
        return super().execute(statements, *arguments, **options)  # type: ignore[arg-type]


def open_stuck(path: str, fails_at: str, error: apsw.Error) -> tuple[Writer, StuckConnection]:
    handle = StuckConnection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    handle.cursor_factory = StuckCursor
    connection._settle(handle, path, 0, connection.CLOCK)
    handle.error = error
    writer = Writer(handle, path, CountingIds(1_000))
    handle.fails_at = fails_at
    return writer, handle


def test_rule_L7_a_rollback_that_fails_hides_no_error_and_poisons_the_handle(place: Place) -> None:
    path = place.fresh()
    writer, handle = open_stuck(path, "ROLLBACK", apsw.IOError("the device failed"))
    with pytest.raises(StaleEpochError, match="below the floor"):
        support.add(writer, 0, "late")
    handle.fails_at = "nothing"
    check_poisoned(writer)
    writer.close()
    check_log(path)
    assert support.texts(path) == ["one", "two"]


@pytest.mark.parametrize("statement", ["BEGIN", "SELECT", "INSERT INTO event", "COMMIT"])
def test_rule_L7_a_statement_that_meets_a_failing_device_poisons_the_handle(place: Place, statement: str) -> None:
    path = place.fresh()
    writer, handle = open_stuck(path, statement, apsw.IOError("disk I/O error"))
    with pytest.raises(UncertainCommitError, match="disk I/O error"):
        append(writer)
    handle.fails_at = "nothing"
    check_poisoned(writer)
    writer.close()
    check_log(path)
    assert find(path, (ONE, TWO)) == [False, False]


def test_rule_L7_a_commit_that_stands_is_acknowledged_when_the_room_ended_behind_it(place: Place) -> None:
    """A hook that checkpoints behind a commit reports its full disk as that of the COMMIT."""
    path = place.fresh()
    writer, handle = open_stuck(path, "COMMIT", apsw.FullError("database or disk is full"))
    handle.works_first = True
    stands = append(writer)
    handle.works_first = False
    with pytest.raises(FullError, match="nothing was recorded"):
        support.add(writer, 1, "no room")
    handle.fails_at = "nothing"
    assert append(writer) == stands and support.texts(path) == ["one", "two", "after it"]
    writer.close()
    check_log(path)


def test_rule_L7_a_fence_that_could_not_be_read_is_not_a_newer_epoch(place: Place) -> None:
    path = place.fresh()
    writer, handle = open_stuck(path, "SELECT", apsw.IOError("disk I/O error"))
    with pytest.raises(UncertainCommitError, match="disk I/O error"):
        writer.check_fence(STREAM, Epoch(1))
    handle.fails_at = "nothing"
    check_poisoned(writer)
    writer.close()


@pytest.mark.parametrize("statement", ["BEGIN", "SELECT", "INSERT INTO event"])
@pytest.mark.parametrize("error", [apsw.BusyError("database is locked"), apsw.ProtocolError("locking protocol")], ids=["busy", "protocol"])
def test_rule_L7_busy_is_neither_fenced_nor_corrupt_and_the_handle_goes_on(place: Place, statement: str, error: apsw.Error) -> None:
    path = place.fresh()
    writer, handle = open_stuck(path, statement, error)
    with pytest.raises(BusyError, match="LogBusy: held by"):
        append(writer)
    handle.fails_at = "nothing"
    append(writer)
    writer.close()
    check_log(path)


def test_rule_L7_a_checkpoint_that_fails_is_told_and_loses_nothing(place: Place, device: FaultyDevice) -> None:
    path = place.fresh()
    writer = Writer.open(path, CountingIds(1_000))
    append(writer)
    for fault in (Fault("write", 1, "no room"), Fault("sync", 1), Fault("sync", 2), Fault("truncate", 1)):
        device.arm(fault)
        error = attempt(lambda: checkpoint(writer))
        assert device.fired and error is not None, fault
        check_kind(error, fault)
        device.arm(None)
        check_log(path)
        assert find(path, (ONE, TWO)) == [True, True]
    checkpoint(writer)
    writer.close()
    check_log(path)
