"""A log under other names than its own: symlinks, hard links, relative paths; and what is no file where one belongs."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.errors import CorruptError, MisuseError
from eventlog.follow import Follower
from eventlog.ports import RandomIds, SystemClock
from eventlog.reader import Reader
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM
from tests.eventlog.test_damage import run

NOTE = ("--kind", "noted", "--text", "x")


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The sample log in a directory of its own."""
    (tmp_path / "state").mkdir()
    return support.make_log(tmp_path / "state")


@pytest.fixture
def link(log: str, tmp_path: Path) -> str:
    """A symlink to it, in another directory."""
    (tmp_path / "elsewhere").mkdir()
    os.symlink(log, tmp_path / "elsewhere/link.sqlite")
    return str(tmp_path / "elsewhere/link.sqlite")


def test_what_lies_beside_a_log_is_looked_for_beside_the_file_that_a_symlink_leads_to(log: str, link: str) -> None:
    assert run("append", link, *NOTE)[0] == 0
    assert os.listdir(os.path.dirname(link)) == ["link.sqlite"], "an identity file was left beside the link"
    assert run("doctor", link)[1].count("note:") == 0, "its -wal was looked for beside the link"
    assert run("verify", link, "--since")[0] == 0 and os.path.exists(log + ".verified")
    assert run("doctor", link, "--repair", os.path.join(os.path.dirname(log), "made.sqlite"))[0] == 0
    reader = Reader.open(os.path.join(os.path.dirname(log), "made.sqlite"))
    assert len(list(reader.events(next(row.id for row in reader.streams() if row.origin)))) == 10, "the events in the WAL were not copied"
    reader.close()


def test_rule_L5_side_files_are_compared_through_a_symlink(log: str, link: str) -> None:
    writer = Writer.open(link, RandomIds())
    os.unlink(log + "-wal")
    with pytest.raises(Exception, match="no longer those this driver opened"):
        support.add(writer, 4, "x")
    writer.close()
    for opening in (lambda: Writer.open(link, RandomIds()), lambda: Reader.open(link), lambda: Follower(link, SystemClock())):
        with pytest.raises(CorruptError, match="its -wal is gone"):
            opening()


def test_a_process_may_change_its_directory_while_it_has_a_log_open(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(log))
    writer, reader = Writer.open("log.sqlite", RandomIds()), Reader.open("log.sqlite")
    follower = Follower("log.sqlite", SystemClock(), STREAM)
    monkeypatch.chdir(tmp_path)
    support.add(writer, 4, "after")
    assert not reader.has_moved() and [stored.event for stored in reader.events(STREAM)][-1] == support.note("after").event
    assert [followed.stored.seq for followed in follower.follow(lambda: True)] == list(range(1, 11))
    for handle in (writer, reader, follower):
        handle.close()


def test_a_log_with_a_second_name_is_not_written(log: str, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    os.link(log, other)
    for path in (log, str(other)):
        code, _, error = run("append", path, *NOTE)
        assert code == 2 and "has a second name (a hard link)" in error and error.count("\n") == 1
        with pytest.raises(MisuseError, match="second name"):
            Writer.open(path, RandomIds())
    assert run("show", log)[0] == 0
    found = [one["kind"] for one in json.loads(run("doctor", log, "--json")[1])["findings"] if one["problem"]]
    assert found == ["hard_links"]
    os.unlink(other)
    assert run("append", log, *NOTE)[0] == 0


def test_the_name_under_which_a_log_was_made_is_no_second_name(log: str) -> None:
    os.link(log, f"{log}.new-1-abc")
    assert run("append", log, *NOTE)[0] == 0


def make_fifo(path: str) -> None:
    os.mkfifo(path)


def make_endless(path: str) -> None:
    os.symlink("/dev/zero", path)


@pytest.mark.parametrize("make", [make_fifo, make_endless, os.mkdir])
def test_what_is_no_file_where_one_belongs_is_not_read(log: str, tmp_path: Path, make: Callable[[str], None]) -> None:
    make(str(tmp_path / "anchor"))
    code, _, error = run("verify", log, "--anchor", str(tmp_path / "anchor"))
    assert code == 2 and "the anchor cannot be read" in error
    make(log + ".verified")
    code, out, _ = run("verify", log, "--since")
    assert "no regular file" in out
    os.makedirs(os.path.join(os.path.dirname(log), "identity"))
    make(os.path.join(os.path.dirname(log), "identity", "ab.json"))
    assert run("append", log, *NOTE)[0] == 0


def test_an_anchor_behind_a_symlink_stays_behind_it(log: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    os.symlink(tmp_path / "disk/anchor", tmp_path / "anchor")
    for _ in range(2):
        assert run("verify", log, "--anchor", str(tmp_path / "anchor"))[0] == 0
        assert os.path.islink(tmp_path / "anchor") and (tmp_path / "disk/anchor").stat().st_size > 0
        assert run("append", log, *NOTE)[0] == 0
