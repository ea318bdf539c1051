"""L5: the files a writer holds are compared with those at the path once it has the lock, not before it waits for it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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
