"""L5: the files a writer holds are compared with those at the path once it has the lock, not before it waits for it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog import held_files
from eventlog.errors import LogMissingError, ReplacedError
from eventlog.ports import FakeClock, RandomIds
from eventlog.values import Epoch
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM, add
from tests.eventlog.test_writer import LOCK_AND_TELL


class ActingClock(FakeClock):
    """Does something the first time that somebody waits by it."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act: Callable[[], None] | None = act

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        if self._act is not None:
            act, self._act = self._act, None
            act()


def hold_lock(path: str) -> "subprocess.Popen[str]":
    """A second process that has the write lock until it is told a line."""
    holder = subprocess.Popen([sys.executable, "-c", LOCK_AND_TELL, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
    return holder


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = support.create_small(tmp_path)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(path + suffix, tmp_path / f"copy{suffix}")
    return path


EXCHANGES: dict[str, tuple[type[Exception], Callable[[str], None]]] = {
    "another file over the log": (ReplacedError, lambda log: os.rename(os.path.dirname(log) + "/copy", log)),
    "another WAL": (ReplacedError, lambda log: os.rename(os.path.dirname(log) + "/copy-wal", log + "-wal")),
    "another index": (ReplacedError, lambda log: os.rename(os.path.dirname(log) + "/copy-shm", log + "-shm")),
    "no WAL": (ReplacedError, lambda log: os.unlink(log + "-wal")),
    "no index": (ReplacedError, lambda log: os.unlink(log + "-shm")),
    "no log": (LogMissingError, lambda log: os.rename(log, log + ".away")),
}


@pytest.mark.parametrize(("error", "exchange"), EXCHANGES.values(), ids=EXCHANGES)
def test_rule_L5_files_are_compared_under_the_lock(log: str, error: type[Exception], exchange: Callable[[str], None]) -> None:
    """A writer waits for the lock; meanwhile the files are exchanged, then the lock is released: it must not write into what it holds."""
    holder = hold_lock(log)

    def exchange_and_release() -> None:
        exchange(log)
        holder.communicate("\n")

    clock = ActingClock(exchange_and_release)
    writer = Writer.open(log, RandomIds(), clock=clock)
    with pytest.raises(error, match=r"log\.sqlite"):
        add(writer, 1, "into the wrong file")
    assert clock.pauses >= 1 and holder.returncode == 0, "it did not wait for the lock"
    assert writer.reader.rows("SELECT count(*) FROM event WHERE kind = 'noted'") == [(0,)]
    writer.close()


def test_rule_L5_a_writer_that_waited_beside_files_left_alone_goes_on(log: str) -> None:
    holder = hold_lock(log)
    clock = ActingClock(lambda: holder.communicate("\n") and None)
    writer = Writer.open(log, RandomIds(), clock=clock)
    assert add(writer, 1, "waited")[0].seq == 3 and clock.pauses >= 1
    writer.close()


def settle(log: str, writer: Writer) -> int:
    """Append until the directory's time is older than the WAL by more than SETTLED_NS, so that it alone is looked at. How many events."""
    deadline = time.monotonic() + 30
    appended = 0
    while os.stat(log + "-wal").st_ctime_ns - os.stat(os.path.dirname(log)).st_ctime_ns <= held_files.SETTLED_NS:
        assert time.monotonic() < deadline, "waited 30 s for a WAL that is newer than its directory"
        add(writer, 1, "again")
        appended += 1
    add(writer, 1, "looked at the names, and noted the directory")
    return appended + 1


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each look at the three names, as it is made."""
    found: list[str] = []
    real = held_files.look_at_names

    def look(names: tuple[str, str, str]) -> held_files.HeldFiles:
        found.append(names[0])
        return real(names)

    monkeypatch.setattr(held_files, "look_at_names", look)
    return found


@pytest.mark.parametrize(("error", "exchange"), EXCHANGES.values(), ids=EXCHANGES)
def test_rule_L5_files_exchanged_in_a_directory_that_was_at_rest_are_noticed(
    log: str, looks: list[str], error: type[Exception], exchange: Callable[[str], None]
) -> None:
    writer = Writer.open(log, RandomIds())
    settle(log, writer)
    looks.clear()
    add(writer, 1, "the directory tells")
    assert not looks, "the names were looked at, so that this test says nothing of the directory"
    size = os.path.getsize(log + "-wal")
    exchange(log)
    with pytest.raises(error, match=r"log\.sqlite"):
        add(writer, 1, "into the wrong file")
    assert not os.path.exists(log + "-wal") or os.path.getsize(log + "-wal") <= size, "something was written"
    writer.close()


def test_rule_L5_another_directory_in_the_place_of_the_one_at_rest_is_noticed(log: str) -> None:
    writer = Writer.open(log, RandomIds())
    settle(log, writer)
    directory = os.path.dirname(log)
    os.rename(directory, directory + ".away")
    with pytest.raises(LogMissingError):
        add(writer, 1, "into a log that is not there")
    shutil.copytree(directory + ".away", directory)
    with pytest.raises(ReplacedError):
        add(writer, 1, "into a log that nobody will find")
    shutil.rmtree(directory)
    os.rename(directory + ".away", directory)
    add(writer, 1, "back again")
    writer.close()


def test_rule_L5_other_files_that_come_and_go_cost_a_look_and_stop_nobody(log: str, looks: list[str]) -> None:
    writer = Writer.open(log, RandomIds())
    settle(log, writer)
    looks.clear()
    Path(log).with_name("other").touch()
    add(writer, 1, "beside another file")
    assert looks, "the directory has changed, and the names were not looked at"
    add(writer, 1, "its time is too young to be believed")
    assert len(looks) == 2
    settle(log, writer)
    looks.clear()
    add(writer, 1, "at rest again")
    assert not looks
    writer.close()
