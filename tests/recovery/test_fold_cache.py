"""The kept fold: it is used where the log has the very rows that it was folded from, and is as if it were not there everywhere else."""

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from blake3 import blake3
from hypothesis import given, settings

from eventlog import events, image_rows
from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.errors import CorruptError, CrashworthyError
from eventlog.image import Entry, put_change, root_hash
from eventlog.ports import LinuxHost, RandomIds
from eventlog.process_identity import identify_self
from eventlog.reader import Position, Reader
from eventlog.records import Record
from eventlog.values import Epoch, StreamId
from eventlog.writer import Writer
from recovery import fold_cache
from recovery.fold_cache import FOLD_VERSION, FoldCache, Known, decode_state, encode_state, name_fold
from recovery.journal import Journal, read_state
from recovery.labels import Label
from recovery.opening import fold_cache_of, log_path
from recovery.state import AttemptState, CallState, SessionState
from tests.recovery.histories import History
from tests.recovery.test_state import legal_histories

NAME = StreamId("kept")
CALLS = 12
ROOT = Entry("d", 0o755)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a few events, and the fold kept often, as a long history has it."""
    monkeypatch.setattr(fold_cache, "PAGE_EVENTS", 4)
    monkeypatch.setattr(fold_cache, "LEAST_EVENTS", 6)


@pytest.fixture
def state(tmp_path: Path, small: None) -> Iterator[str]:
    """The state directory of a session of CALLS calls, written as a driver does. The kept fold is of an event before its last."""
    script = [{"tool": "bash", "run": "true"} for _ in range(CALLS)]
    identity = events.RootIdentity("root", 1, None, "fs")
    opened = events.SessionOpened(
        0, NAME, "L3c=", "transactional", "stop", script, root_hash({b"": ROOT}).hex(), identity, "ledger", 1, [], [], [], None, None
    )  # fmt: skip
    create_log(log_path(str(tmp_path)), NAME, Record(opened, (put_change(b"", ROOT),)), (), RandomIds())
    me = identify_self(LinuxHost())
    driver = events.DriverIdentity("nonce", me.pid, me.start_ticks, me.boot_id, me.pid_namespace)
    journal = Journal(Writer.open(log_path(str(tmp_path)), RandomIds()), NAME, Epoch(1), cache=fold_cache_of(str(tmp_path)))
    journal.raise_floor(events.DriverStarted(0, driver, "ledger", 1, "cgroup"))
    for number in range(1, CALLS + 1):
        append_call(journal, number)
    journal.close()
    yield str(tmp_path)


def append_call(journal: Journal, number: int) -> None:
    """One call that changed one path."""
    begun = events.AttemptStarted(
        0, number, 1, number - 1, "bash", {"tool": "bash", "run": "true"}, "never", f"key/{number}", "d", False, ""
    )  # fmt: skip
    journal.append([Record(begun)], (), "intent")
    path = b"f%d" % (number % 3)
    (blob,) = encode_content([b"%d" % number])
    entry = Entry("f", 0o644, blob.content, blob.size, mtime_ns=number)
    root = root_hash({**journal.state.image, path: entry}).hex()
    settled = events.CallSettled(0, number, 1, "finished", "live", "", events.Exit("exited", code=0), None, root, [])
    journal.append([Record(settled, (put_change(path, entry),))], (blob,), "outcome")


def read(state: str, cache: FoldCache | None) -> Known:
    reader = Reader.open(log_path(state))
    try:
        return read_state(reader, NAME, cache=cache)
    finally:
        reader.close()


def outcome(state: str, cache: FoldCache | None) -> Known | str:
    """What is read, or the error that says why not."""
    try:
        return read(state, cache)
    except CrashworthyError as error:
        return str(error)


def kept_path(state: str) -> Path:
    return Path(state) / "fold.cache"


def is_taken(state: str) -> bool:
    """Whether the kept fold is used."""
    reader = Reader.open(log_path(state))
    try:
        return fold_cache_of(state).load(reader, NAME) is not None
    finally:
        reader.close()


def test_what_a_driver_kept_is_begun_with_and_says_what_the_whole_log_does(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []
    read_events = Reader.events

    def noted(self: Reader, stream: StreamId, after: Position) -> object:
        began.append(after.seq)
        return read_events(self, stream, after)

    whole = read(state, None)
    monkeypatch.setattr(Reader, "events", noted)
    found = read(state, fold_cache_of(state))
    assert found == whole and found[0].image == whole[0].image and found[0].calls == whole[0].calls
    assert began[0] > 2 * CALLS - 2 * 6, "only what followed the kept event was folded"


def test_a_driver_goes_on_from_what_was_kept_and_keeps_more(state: str) -> None:
    """The next driver adds to the digest of the pages that it has compared; what it keeps fits the log as well."""
    cache = fold_cache_of(state)
    known = read(state, cache)
    journal = Journal(Writer.open(log_path(state), RandomIds()), NAME, Epoch(1), known, cache)
    before = kept_path(state).read_bytes()
    for number in range(CALLS + 1, 2 * CALLS + 1):
        append_call(journal, number)
    last = (journal.state, journal.hashes)
    journal.close()
    assert kept_path(state).read_bytes() != before and is_taken(state)
    assert read(state, fold_cache_of(state)) == read(state, None) == last


def test_a_whole_read_leaves_nothing_behind_and_the_next_driver_keeps_it(state: str) -> None:
    os.unlink(kept_path(state))
    cache = fold_cache_of(state)
    known = read(state, cache)
    assert not kept_path(state).exists(), "who only reads writes nothing"
    journal = Journal(Writer.open(log_path(state), RandomIds()), NAME, Epoch(1), known, cache)
    append_call(journal, CALLS + 1)
    journal.close()
    assert is_taken(state) and read(state, fold_cache_of(state)) == read(state, None)


COLUMNS = {
    "event": ("seq", "id", "epoch", "kind", "version", "payload", "prev_hash", "hash"),
    "image_change": ("seq", "idx", "path", "op", "kind", "mode", "content", "size", "mtime_ns"),
}
SPOILT = {
    "epoch": "epoch + 1", "version": "version + 1", "payload": "replace(payload, '\"at_ms\":0', '\"at_ms\":1')", "mode": "mode + 1",
    "size": "size + 1", "mtime_ns": "mtime_ns + 1", "kind": "'put'", "op": "'times'", "seq": "seq + 1000", "idx": "idx + 1",
}  # fmt: skip


def spoil(state: str, statement: str) -> None:
    """Change rows that nothing may change."""
    handle = apsw.Connection(log_path(state))
    handle.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
    for (name,) in handle.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        handle.execute(f"DROP TRIGGER {name}")
    handle.execute(statement)
    handle.close()


@pytest.mark.parametrize(("table", "column"), [(table, column) for table, columns in COLUMNS.items() for column in columns])
def test_a_changed_row_is_found_as_without_it(state: str, table: str, column: str) -> None:
    """Any column of any event that it was folded from: the kept fold is not used, and the damage is named as ever."""
    assert is_taken(state)
    spoil(state, f"UPDATE {table} SET {column} = {SPOILT.get(column, 'randomblob(32)')} WHERE seq = 6")
    assert not is_taken(state)
    assert outcome(state, fold_cache_of(state)) == outcome(state, None)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET payload = CAST(payload AS BLOB) WHERE seq = 6",
        "UPDATE event SET kind = CAST(kind AS BLOB) WHERE seq = 6",
        "DELETE FROM event WHERE seq = 5",
        "DELETE FROM image_change WHERE seq = 6",
        f"INSERT INTO image_change SELECT stream, seq, 1, {image_rows.COLUMNS} FROM image_change WHERE seq = 6",
        f"INSERT INTO image_change SELECT stream, 5, idx, {image_rows.COLUMNS} FROM image_change WHERE seq = 6",
    ],
)
def test_a_row_of_another_type_a_lost_one_and_one_too_many_are_found(state: str, statement: str) -> None:
    spoil(state, statement)
    assert not is_taken(state)
    found = outcome(state, fold_cache_of(state))
    assert isinstance(found, str) and found == outcome(state, None)


def test_a_log_that_lost_its_tail_is_read_from_its_beginning(state: str) -> None:
    """An older copy of the log put back under a newer kept fold: what it says is what the log says."""
    spoil(state, "DELETE FROM image_change WHERE seq > 9; DELETE FROM event WHERE seq > 9")
    handle = apsw.Connection(log_path(state))
    ((digest,),) = handle.execute("SELECT hash FROM event WHERE seq = 9").fetchall()
    handle.execute("UPDATE stream SET head_seq = 9, head_hash = ?", (digest,))
    handle.close()
    assert not is_taken(state)
    found = read(state, fold_cache_of(state))
    assert found == read(state, None) and found[0].head_seq == 9


def test_what_follows_the_kept_event_is_verified_as_ever(state: str) -> None:
    head = read(state, None)[0].head_seq
    spoil(state, f"UPDATE event SET payload = replace(payload, '\"at_ms\":0', '\"at_ms\":1') WHERE seq = {head}")
    with pytest.raises(CorruptError, match=f"seq {head}: its hash does not fit"):
        read(state, fold_cache_of(state))


@pytest.mark.parametrize("change", ["flip", "cut"])
def test_a_damaged_file_is_as_if_it_were_not_there(state: str, change: str) -> None:
    whole, data = read(state, None), kept_path(state).read_bytes()
    for at in range(0, len(data), max(1, len(data) // 60)):
        spoilt = data[:at] if change == "cut" else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        kept_path(state).write_bytes(spoilt)
        assert not is_taken(state) and read(state, fold_cache_of(state)) == whole


def test_what_was_kept_of_another_log_or_by_another_fold_is_not_taken(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_taken(state)
    with monkeypatch.context() as patched:
        patched.setattr(fold_cache, "name_fold", lambda: "another fold")
        assert not is_taken(state)
    with monkeypatch.context() as patched:
        patched.setattr(Reader, "log_id", "another log", raising=False)
        reader = Reader.open(log_path(state))
        reader.log_id = reader.log_id[::-1]  # type: ignore[assignment]
        assert fold_cache_of(state).load(reader, NAME) is None
        reader.close()


def test_a_state_directory_that_cannot_be_written_keeps_nothing_and_stops_nobody(state: str) -> None:
    os.unlink(kept_path(state))
    os.mkdir(f"{kept_path(state)}.new")
    cache = fold_cache_of(state)
    journal = Journal(Writer.open(log_path(state), RandomIds()), NAME, Epoch(1), read(state, cache), cache)
    append_call(journal, CALLS + 1)
    journal.close()
    assert not kept_path(state).exists() and len(read(state, None)[0].calls) == CALLS + 1


@settings(deadline=None)
@given(legal_histories())
def test_a_state_comes_back_as_it_was(history: History) -> None:
    made = history.state()
    again = decode_state(encode_state(made))
    assert again == made and again.profile.left_out == made.profile.left_out and list(again.calls) == list(made.calls)


def test_the_name_of_the_fold_says_what_is_in_a_state_however_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field more in what a state has, or in what that has, is another fold: what is kept does not say it."""
    named = {name_fold.__wrapped__()}
    for kind in (SessionState, CallState, AttemptState, Entry, events.SessionOpened, events.RootIdentity, events.ForkedInput):
        with monkeypatch.context() as patched:
            patched.setitem(kind.__annotations__, "another", int)
            named.add(name_fold.__wrapped__())
    assert len(named) == 8


def rich_history() -> History:
    """One history with most of what the fold looks at."""
    history = History(calls=3)
    history.observe((put_change(b"a", Entry("f", 0o644, bytes(32), 0)),))
    history.attempt()
    history.settle()
    history.attempt(script_index=1)
    history.driver("boot-2")
    history.restore(Label.RESTORE_AND_INTERRUPT.value)
    history.settle("interrupted")
    history.restore(Label.RESTORE_BY_PERSON.value, call=None)
    history.undo(1)
    history.add(events.InputAdmitted(0, "request", {"say": "hello"}))
    history.add(events.PauseRequested(0, "over night"))
    history.attempt(script_index=2)
    return history


def test_another_meaning_of_the_fold_is_another_version() -> None:
    """When this is red, the fold says something else of the same events than before, or a state has other fields. Of other fields the kept
    folds know themselves; where a field that stays means something else, raise FOLD_VERSION. Then write the new digest here."""
    digest = blake3(encode_state(rich_history().state())).hexdigest()[:16]
    assert (FOLD_VERSION, digest) == (1, "e94874ad39a5f83c")
