"""Case 19 in all its ways: whoever holds a log whose files were exchanged under it stops before it writes, whatever it was about to do.

The other writer is another process: in one process SQLite shares what it knows of a file between its connections.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from eventlog import codec, connection
from eventlog.errors import LogMissingError, ReplacedError
from eventlog.reader import Reader
from eventlog.values import Epoch, StreamId
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import ROOT, STREAM

NOTE_IN_ANOTHER_PROCESS = """
import json, sys
from tests.eventlog import support
for line in iter(sys.stdin.readline, ""):
    path, text, first_id = json.loads(line)
    writer = support.open_writer(path, first_id=first_id)
    support.add(writer, 1, text)
    writer.close()
    print("done", flush=True)
"""


class Other:
    """Another process, which opens a log, writes one note, and closes it, when told to."""

    def __init__(self) -> None:
        self._first_id = 7_000_000
        self._process = subprocess.Popen(
            [sys.executable, "-c", NOTE_IN_ANOTHER_PROCESS],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def note(self, path: str, text: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._first_id += 1000
        self._process.stdin.write(json.dumps([path, text, self._first_id]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.end()


def exchange(path: str, *suffixes: str) -> None:
    """Files of equal content and another inode take the place of these."""
    for suffix in suffixes:
        shutil.copyfile(path + suffix, path + suffix + ".copy")
        os.replace(path + suffix + ".copy", path + suffix)


def delete_side_files(path: str) -> None:
    for suffix in ("-wal", "-shm"):
        os.unlink(path + suffix)


def rename_another_over(path: str) -> None:
    """A copy put back as people do it: the log from elsewhere over this one, the side files taken away."""
    backup = Path(path).parent / "backup"
    backup.mkdir()
    writer = support.open_writer(support.create_small(backup))
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    support.checkpoint(str(backup / "log.sqlite"))
    os.replace(backup / "log.sqlite", path)
    delete_side_files(path)


EXCHANGES: dict[str, Callable[[str], None]] = {
    "side files deleted": delete_side_files,
    "another log over it": rename_another_over,
    "the database only": lambda path: exchange(path, ""),
    "the WAL only": lambda path: exchange(path, "-wal"),
    "the index only": lambda path: exchange(path, "-shm"),
    "all three": lambda path: exchange(path, "", "-wal", "-shm"),
}

USES: dict[str, Callable[[Writer], object]] = {
    "append": lambda writer: support.add(writer, 1, "of A"),
    "append_unfenced": lambda writer: writer.append_unfenced(STREAM, [support.note("of A")], "note"),
    "raise_floor": lambda writer: writer.raise_floor(STREAM, Epoch(2), support.started("A")),
    "insert_blobs": lambda writer: writer.insert_blobs([codec.encode_blob(b"of A")]),
    "insert_blobs, none": lambda writer: writer.insert_blobs([]),
    "admit": lambda writer: writer.admit(STREAM, "of A", {}, 1),
    "open_stream": lambda writer: writer.open_stream(StreamId("of A"), support.opened("of A"), "open"),
}


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = support.create_small(tmp_path)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    support.checkpoint(path)  # so that whoever deletes the side files now takes no commit away
    return path


def read_files(path: str) -> dict[str, bytes]:
    return {suffix: Path(path + suffix).read_bytes() for suffix in ("", "-wal") if os.path.exists(path + suffix)}


@pytest.mark.parametrize("how", EXCHANGES)
def test_case_19_a_writer_whose_files_were_exchanged_stops_before_it_writes(log: str, other: Other, how: str) -> None:
    first = support.open_writer(log, first_id=1_000)
    first.reader.rows("SELECT count(*) FROM event")  # it has all three files open
    assert os.path.exists(log + "-shm")
    EXCHANGES[how](log)
    other.note(log, "of B")
    kept = read_files(log)
    for name, use in USES.items():
        with pytest.raises(ReplacedError, match="no longer those this driver opened"):
            use(first)
        assert first._handle.get_autocommit(), f"{name} left its transaction open"
    first.close()
    assert read_files(log) == kept, "nothing was written, checkpointed or deleted"
    other.note(log, "of B again")
    assert support.texts(log) == ["of B", "of B again"]
    reader = Reader.open(log)
    assert verify(reader).findings == ()
    reader.close()


def test_case_19_a_writer_whose_log_was_taken_away_makes_none(log: str) -> None:
    writer = support.open_writer(log)
    for suffix in ("", "-wal", "-shm"):
        os.unlink(log + suffix)
    for use in USES.values():
        with pytest.raises(LogMissingError, match="gone from its path"):
            use(writer)
    writer.close()
    assert os.listdir(os.path.dirname(log)) == []


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_case_19_files_exchanged_between_two_appends_stop_the_second(log: str, suffix: str) -> None:
    writer = support.open_writer(log, first_id=1_000)
    support.add(writer, 1, "acknowledged")
    exchange(log, suffix)
    with pytest.raises(ReplacedError):
        support.add(writer, 1, "not written")
    writer.close()
    assert support.texts(log) == ["acknowledged"]


def test_rule_L5_a_log_exchanged_while_it_was_being_opened_is_met_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noted of the path must be what SQLite holds: later only the path is looked at."""
    path = support.create(tmp_path)
    opened = connection.open_writable

    def open_and_exchange(*arguments: Any, **options: Any) -> apsw.Connection:
        handle = opened(*arguments, **options)
        shutil.copyfile(path, path + ".other")
        os.rename(path + ".other", path)
        return handle

    monkeypatch.setattr(connection, "open_writable", open_and_exchange)
    with pytest.raises(ReplacedError):
        support.open_writer(path)
