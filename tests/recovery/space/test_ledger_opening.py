"""Opening a ledger is fail-closed (S3, I9): whatever is not a whole ledger of this user is a typed error with its name and the next step,
and is never read as "nothing happened"; nothing is modified. Its files are 0600, always."""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.errors import CorruptError, CrashworthyError, LogMissingError, MisuseError
from eventlog.ports import SystemClock
from recovery.space.ledger import Ledger, LedgerView, append_fenced, create_ledger
from recovery.space.records import Header, ScanFailed
from tests.helpers import read_tree
from tests.recovery.sessions import Sandbox, bash
from tests.recovery.space.ledgers import (
    EXITED,
    OPENED,
    PREPARED,
    STARTED,
    lay,
    make_ledger,
    open_ledger,
    prepare_key,
    start_key,
    view,
)
from tests.recovery.workspace.support import run_as_ordinary_user, run_in_child, umask

NOBODY = 65534
OPENERS: list[Callable[[str], LedgerView]] = [LedgerView, lambda path: Ledger(path, SystemClock())]


def make_directory(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    os.rename(path.with_name("sound"), path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def make_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE ledger (key TEXT)")
    connection.close()


def make_newer(path: Path) -> None:
    create_ledger(str(path), Header(2, "id", 1))


WRONG = {
    "missing": (lambda path: None, LogMissingError, "the ledger is missing; put it back from where it went: only the takeover of a"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), CorruptError, "not a regular file; put the session's own file back"),
    "a link to a sound one": (make_link, CorruptError, "not a regular file; put the session's own file back"),
    "a directory": (make_directory, CorruptError, "not a regular file; put the session's own file back"),
    "a pipe": (make_fifo, CorruptError, "not a regular file; put the session's own file back"),
    "empty": (lambda path: path.write_bytes(b""), CorruptError, "holds no whole line, and a ledger is made with one; put the"),
    "half a header": (lambda path: path.write_bytes(b"0123"), CorruptError, "holds no whole line"),
    "zeros": (lambda path: path.write_bytes(bytes(512)), CorruptError, "holds no whole line"),
    "a newline": (lambda path: path.write_bytes(b"\n"), CorruptError, "line 1: damaged; line 0 is the last good one"),
    "text": (lambda path: path.write_bytes(b"key=value\n"), CorruptError, "line 1: damaged; line 0 is the last good one"),
    "a database": (make_sqlite, CorruptError, "damaged|holds no whole line"),
    "a newer format": (make_newer, CorruptError, "line 1: ledger format 2 is not known here; use the version that wrote it"),
}


@pytest.mark.parametrize("opener", OPENERS, ids=["view", "writer"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_ledger_is_refused_by_name_and_left_as_it_is(tmp_path: Path, name: str, opener: Callable[[str], LedgerView]) -> None:
    make_wrong, error, says = WRONG[name]
    made = make_ledger(tmp_path, PREPARED)
    OPENED.pop().close()
    os.rename(made.path, tmp_path / "sound")
    make_wrong(tmp_path / "ledger")  # type: ignore[no-untyped-call]
    before = read_tree(tmp_path)
    with pytest.raises(error, match=says) as caught:
        opener(made.path)
    assert made.name in str(caught.value) and "\n" not in str(caught.value)
    assert read_tree(tmp_path) == before


@pytest.mark.parametrize("opener", OPENERS, ids=["view", "writer"])
def test_a_ledger_truncated_at_any_byte_is_damaged(tmp_path: Path, opener: Callable[[str], LedgerView]) -> None:
    """In its header, between two lines, in its last: something that was written is gone, and it may have been a starting mark."""
    made = make_ledger(tmp_path, PREPARED, STARTED, EXITED)
    data = Path(made.path).read_bytes()
    for length in range(len(data)):
        os.truncate(made.path, length)
        with pytest.raises(CorruptError):
            opener(made.path)
        assert os.path.getsize(made.path) == length
        Path(made.path).write_bytes(data)
    assert view(made.path).attempts["k"].exit == EXITED


def test_a_missing_note_of_the_end_is_damage(tmp_path: Path) -> None:
    """Without it a ledger cut between two lines would pass for a whole one. It is made with the ledger, and durable with it."""
    made = make_ledger(tmp_path, PREPARED, STARTED)
    os.unlink(made.path + ".end")
    for opener in OPENERS:
        with pytest.raises(CorruptError, match=r"ledger\.end: missing, so it cannot be told whether the ledger's end was cut off"):
            opener(made.path)
    assert not os.path.exists(made.path + ".end")


@pytest.mark.parametrize("name", ["ledger.end", "ledger.lock"])
def test_a_directory_in_place_of_its_other_files_is_refused(tmp_path: Path, name: str) -> None:
    made = make_ledger(tmp_path, PREPARED)
    OPENED.pop().close()
    os.unlink(tmp_path / name)
    os.mkdir(tmp_path / name)
    with pytest.raises(CorruptError, match=f"{name}: not a regular file"):
        Ledger(made.path, SystemClock())


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that other users come to."""
    with tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        yield Path(base)


def test_a_ledger_that_may_not_be_read_is_refused(reachable: Path) -> None:
    made = make_ledger(reachable, PREPARED)
    os.chmod(made.path, 0)

    def work() -> None:
        for opener in OPENERS:
            with pytest.raises(MisuseError, match="the ledger cannot be opened: Permission denied; make it a file of this user"):
                opener(made.path)

    run_as_ordinary_user(str(reachable), work)


def test_another_users_open_ledger_is_refused_where_it_cannot_be_tightened(reachable: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user needs root")
    made = make_ledger(reachable, PREPARED)
    os.chmod(made.path, 0o666)

    def work() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        with pytest.raises(MisuseError, match="has mode 0666 and belongs to another user; give it to this one"):
            Ledger(made.path, SystemClock())

    for path in (reachable, Path(made.path + ".end"), Path(made.path + ".lock")):
        os.chown(path, NOBODY, NOBODY)
    assert run_in_child(work) == 0


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o604, 0o600, 0o700, 0o400])
def test_an_open_ledger_is_tightened_by_its_writer_and_left_by_a_reader(tmp_path: Path, mode: int) -> None:
    """Refusing would not unread it, and would stop a session over a copied directory."""
    made = make_ledger(tmp_path, PREPARED)
    OPENED.pop().close()
    files = [made.path, made.path + ".end", made.path + ".lock"]
    for path in files:
        os.chmod(path, mode)
    if mode & 0o400:
        view(made.path)
        assert {os.stat(path).st_mode & 0o7777 for path in files} == {mode}
    if os.access(made.path, os.W_OK):
        append_fenced(open_ledger(made.path), 1, ScanFailed(1, 1, "x"))
        assert {os.stat(path).st_mode & 0o7777 for path in files} == {0o600}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o177])
def test_a_ledger_is_never_readable_for_others_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        made = make_ledger(tmp_path, PREPARED)
        with made.transaction() as transaction:
            transaction.compact()
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == dict.fromkeys(
        ("ledger", "ledger.end", "ledger.lock"), 0o600
    )


def test_nothing_of_a_space_is_readable_for_others_under_an_open_umask(sandbox: Sandbox) -> None:
    """A whole session under umask 000: ledger, notes, locks, kept output, sockets, the registry."""
    with umask(0):
        driver = sandbox.start("run", sandbox.session(bash("echo one > a"), bash("false")))
    assert driver.end() == 0, driver.err
    found = [path for path in [*sandbox.state.rglob("*"), *(sandbox.base / "holders").rglob("*")] if not path.is_symlink()]
    assert len(found) > 5
    assert [(str(path), oct(path.stat().st_mode)) for path in found if path.is_file() and path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("key", ["caf\u00e9", "\u20ac\U0001f600", "k"])
def test_case_22_a_record_that_ends_in_the_middle_of_a_character_is_torn(tmp_path: Path, key: str) -> None:
    """Cut at each byte, also inside a character: sealed before anything is appended, which then stands on a line of its own."""
    made = make_ledger(tmp_path, prepare_key("waiting"))
    whole = os.path.getsize(made.path)
    append_fenced(made, 1, prepare_key(key))
    data = Path(made.path).read_bytes()
    for length in range(whole + 1, len(data)):
        cut = open_ledger(lay(tmp_path / "copy", data[:length]))
        append_fenced(cut, 1, start_key("waiting"))
        append_fenced(cut, 1, prepare_key(key))
        found = view(cut.path)
        assert set(found.attempts) == {"waiting", key} and found.attempts["waiting"].start is not None
        assert found.attempts["waiting"].torn
        OPENED.pop().close()


@pytest.mark.parametrize("at", [0, 1, 40, -513, -1])
def test_case_22_zeros_anywhere_before_the_end_are_damage_and_told(tmp_path: Path, at: int) -> None:
    data = Path(make_ledger(tmp_path, PREPARED, STARTED, ScanFailed(1, 1, "x" * 600)).path).read_bytes()
    at %= len(data) - 512
    for spoiled in (data[:at] + bytes(512) + data[at:], data[:at] + bytes(512) + data[at + 512 :]):
        lay(tmp_path / "copy", spoiled)
        for opener in OPENERS:
            with pytest.raises(CrashworthyError, match="damaged; line . is the last good one; the ledger is not read past it"):
                opener(str(tmp_path / "copy"))
        assert (tmp_path / "copy").read_bytes() == spoiled


def test_case_22_zeros_after_the_end_are_a_torn_record(tmp_path: Path) -> None:
    """What a power loss leaves of an append that had not been synced: nothing that was told to anybody."""
    made = make_ledger(tmp_path, PREPARED)
    with open(made.path, "ab") as file:
        file.write(bytes(512))
    append_fenced(made, 1, ScanFailed(1, 1, "x"))
    found = view(made.path)
    assert found.scan_failures == {1: 1} and found.attempts["k"].torn
