"""Opening SQLite the one right way: each setting is in force, each refusal typed, and who holds the lock is asked from outside."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from eventlog import connection
from eventlog.errors import BusyError, CorruptError, FullError, LogMissingError, MisuseError, UncertainCommitError
from eventlog.holder import describe
from eventlog.show import show_text
from tests.eventlog import support


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.create_small(tmp_path)


@pytest.mark.parametrize("version", ["3.7.0", "3.51.2", "3.50.99", "3.51.2.1"])
def test_an_sqlite_with_the_wal_reset_bug_is_refused(version: str) -> None:
    with pytest.raises(MisuseError, match=rf"SQLite {version} has the WAL-reset corruption bug; install an apsw"):
        connection.check_sqlite_version(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "4.0.0", apsw.sqlite_lib_version()])
def test_a_newer_sqlite_is_taken(version: str) -> None:
    connection.check_sqlite_version(version)


def test_a_new_database_has_the_format_of_the_page_and_is_private(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    before = os.umask(0)
    try:
        handle = connection.create(path)
    finally:
        os.umask(before)
    found = {name: handle.pragma(name) for name in ("application_id", "user_version", "page_size", "journal_mode", "synchronous")}
    assert found == {"application_id": 0x43574C31, "user_version": 3, "page_size": 16384, "journal_mode": "wal", "synchronous": 2}
    for suffix in ("", "-wal", "-shm"):
        assert stat.S_IMODE(os.stat(path + suffix).st_mode) == 0o600
    handle.close()
    with pytest.raises(FileExistsError):
        connection.create(path)


def test_a_closed_handle_leaves_its_side_files_and_their_commits(log: str) -> None:
    handle = connection.open_writable(log)
    handle.execute("INSERT INTO meta VALUES ('x', 'y')").fetchall()
    handle.close()
    assert Path(log + "-wal").stat().st_size > 0
    assert b"y" not in Path(log).read_bytes()[-16384:]
    again = connection.open_readable(log)
    assert again.execute("SELECT value FROM meta WHERE key = 'x'").get == "y"
    again.close()
    assert Path(log + "-wal").stat().st_size > 0


def test_a_readable_handle_writes_nothing(log: str) -> None:
    handle = connection.open_readable(log)
    for statement in ("INSERT INTO meta VALUES ('x', 'y')", "DROP TABLE meta", "PRAGMA user_version = 3"):
        with pytest.raises(apsw.ReadOnlyError):
            handle.execute(statement).fetchall()
    handle.close()


def test_a_log_in_another_journal_mode_comes_back_to_the_wal(log: str) -> None:
    handle = apsw.Connection(log)
    assert handle.pragma("journal_mode", "delete") == "delete"
    handle.close()
    again = connection.open_writable(log)
    assert again.pragma("journal_mode") == "wal"
    again.close()


def test_where_the_wal_is_not_to_be_had_the_log_is_refused(tmp_path: Path) -> None:
    memory = apsw.Connection(":memory:")
    with pytest.raises(MisuseError, match="here: journal mode is memory, WAL is not possible"):
        connection.set_wal(memory, "here")


def index_full() -> apsw.Error:
    """The index in shared memory could not be made larger: the way a full disk shows when the index is the first to grow."""
    error = apsw.exception_for(apsw.SQLITE_IOERR_SHMSIZE)
    assert isinstance(error, apsw.IOError)
    return error


TRANSLATED: list[tuple[apsw.Error, type[Exception], str]] = [
    (apsw.BusyError("x"), BusyError, "LogBusy: held by an unknown process"),
    (apsw.LockedError("x"), BusyError, "LogBusy: held by an unknown process"),
    (apsw.ProtocolError("x"), BusyError, "LogBusy: held by an unknown process"),
    (apsw.FullError("x"), FullError, "no room left"),
    (index_full(), FullError, "no room left for the log's index"),
    (apsw.NoMemError("x"), UncertainCommitError, "not enough memory"),
    (apsw.CorruptError("x"), CorruptError, "is damaged"),
    (apsw.NotADBError("x"), CorruptError, "is damaged"),
    (apsw.ConstraintError("x"), CorruptError, "no sound log allows"),
    (apsw.ReadOnlyError("x"), MisuseError, "cannot be opened here"),
    (apsw.CantOpenError("x"), MisuseError, "cannot be opened here"),
    (apsw.IOError("x"), UncertainCommitError, "the device failed"),
    (apsw.SQLError("x"), CorruptError, "SQLite says: x"),
]


@pytest.mark.parametrize(("error", "kind", "words"), TRANSLATED, ids=lambda value: getattr(type(value), "__name__", ""))
def test_rule_L7_each_error_of_sqlite_has_one_meaning(tmp_path: Path, error: apsw.Error, kind: type[Exception], words: str) -> None:
    found = connection.translate(error, str(tmp_path / "log\x1b.sqlite"))
    assert type(found) is kind and words in str(found)
    assert "log\\x1b.sqlite" in str(found) and "\x1b" not in str(found)


@pytest.mark.parametrize("opening", [connection.open_readable, connection.open_writable])
def test_invariant_I9_nothing_is_made_where_no_log_is(tmp_path: Path, opening: Callable[[str], apsw.Connection]) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("log.sqlite", "dangling"):
        with pytest.raises(LogMissingError, match="never made anew"):
            opening(str(tmp_path / name))
    assert os.listdir(tmp_path) == ["dangling"]


HOLD = """
import apsw, sys
c = apsw.Connection(sys.argv[1])
c.execute("BEGIN IMMEDIATE").fetchall()
print("held", flush=True)
sys.stdin.readline()
"""


def test_rule_L4_the_holder_is_named_with_its_command_escaped(log: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, log, "\x1b[2J\n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    found = describe(connection.find_holder(log))
    assert found.startswith(f"held by pid {holder.pid} ({show_text(sys.executable)} -c ") and "\x1b" not in found and "\n" not in found
    holder.communicate("\n")
    assert connection.find_holder(log) is None


def test_a_holder_that_cannot_be_asked_for_is_unknown_and_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert connection.find_holder(str(tmp_path / "nothing.sqlite")) is None
    assert capfd.readouterr() == ("", "")


def test_rule_L6_the_holder_is_asked_for_by_another_process(log: str) -> None:
    assert connection.run_helper([sys.executable, "-I", "-S", "-c", "import os; print(os.getppid())"]).strip() == str(os.getpid())
    assert connection.run_helper(["/nowhere/program"]) == ""


def test_case_21_a_helper_inherits_no_handle_of_the_log(log: str) -> None:
    handle = connection.open_writable(log)
    handle.execute("SELECT * FROM meta").fetchall()
    names = "import os\nfor n in sorted(os.listdir('/proc/self/fd')):\n  p = '/proc/self/fd/' + n\n  print(os.path.realpath(p))"
    listed = connection.run_helper([sys.executable, "-I", "-S", "-c", names])
    assert "/dev/null" in listed and "log.sqlite" not in listed
    handle.close()
