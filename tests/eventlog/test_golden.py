"""A golden log per format version: what an older version wrote is read by all later code, to the byte."""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog import events
from eventlog.compact import compact_log
from eventlog.creation import create_log
from eventlog.errors import CorruptError
from eventlog.excludes import excludes_of
from eventlog.image import root_hash
from eventlog.ports import CountingIds, FakeClock
from eventlog.reader import Reader
from eventlog.retention import Policy
from eventlog.values import FORMAT, READABLE_FORMATS, Epoch, Seq, StreamId
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import bundles, support
from tests.eventlog.support import ROOT, STREAM

GOLDEN = Path(__file__).with_name("golden")


NAMES = {
    **{f"format-{number}": number for number in READABLE_FORMATS},
    "format-2-excludes": 2,
    "format-2-observed": 2,
    "format-3-groups": 3,
    "format-3-checkpoints": 3,
    "format-3-asked": 3,
    "format-3-requests": 3,
}
"""Each golden log and its format. Those with a longer name have versions of events that the others lack. Those of format 2 and
`format-3-asked` were written by the code of that time; another of format 3 may be made anew until that format is released
(`support.make_golden`, `make_golden_with_groups`, `make_golden_with_checkpoints`, `make_golden_with_questions`)."""

ROWS = {"stream": "id", "event": "stream, seq", "image_change": "stream, seq, idx", "dropped": "hash", "pin": "stream, seq"}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a golden log."""
    return str(request.param)


@pytest.fixture
def golden(name: str, tmp_path: Path) -> tuple[int, str]:
    """A copy of a golden log, and its format."""
    path = tmp_path / "log.sqlite"
    shutil.copyfile(GOLDEN / f"{name}.sqlite", path)
    return NAMES[name], str(path)


def test_every_readable_format_has_its_golden_log() -> None:
    assert READABLE_FORMATS[-1] == FORMAT
    assert sorted(file.name for file in GOLDEN.glob("*.sqlite")) == sorted(f"{name}.sqlite" for name in NAMES)


def test_every_version_of_every_kind_that_is_read_stands_in_a_golden_log() -> None:
    found = set()
    for name in NAMES:
        connection = sqlite3.connect(f"file:{GOLDEN / name}.sqlite?mode=ro&immutable=1", uri=True)
        found |= set(connection.execute("SELECT DISTINCT CAST(kind AS BLOB), version FROM event"))
        connection.close()
    written = {(event.kind.encode(), event.version) for event in events.EVENT_TYPES}
    assert found == set(events.DECODERS) and written <= found


def test_a_golden_log_is_sound_and_shows_what_it_always_showed(golden: tuple[int, str], name: str) -> None:
    _, path = golden
    before = Path(path).read_bytes()
    shown = subprocess.run([sys.executable, "-m", "eventlog", "show", "--json", path], capture_output=True, text=True, cwd=ROOT, check=True)
    expected = [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text("utf-8").splitlines()]
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert len(found) == len(expected) > 0
    for old, new in zip(expected, found, strict=True):
        # Later versions may add fields; what was shown stays.
        assert shows(new, old), (old, new)
    assert Path(path).read_bytes() == before


def shows(new: Any, old: Any) -> bool:
    """Whether `new` shows all that `old` does, at any depth."""
    match new, old:
        case dict(), dict():
            return old.keys() <= new.keys() and all(shows(new[name], old[name]) for name in old)
        case list(), list():
            return len(new) == len(old) and all(map(shows, new, old))
        case _:
            return bool(new == old)


def test_a_golden_log_verifies(golden: tuple[int, str]) -> None:
    reader = Reader.open(golden[1])
    assert verify(reader).findings == ()
    assert reader.format == golden[0]
    reader.close()


def test_a_compaction_makes_a_golden_log_one_of_todays_format_and_changes_no_row(golden: tuple[int, str]) -> None:
    log_format, path = golden
    Writer.open(path, CountingIds(5_000_000)).close()  # format 1 becomes format 2 first
    held, other = Reader.open(path), Writer.open(path, CountingIds(6_000_000))
    before = {table: held.rows(f"SELECT * FROM {table} ORDER BY {key}") for table, key in ROWS.items()}
    compact_log(path, Policy(), FakeClock(), CountingIds(7_000_000))
    assert held.format == FORMAT and {table: held.rows(f"SELECT * FROM {table} ORDER BY {key}") for table, key in ROWS.items()} == before
    floor = other.reader.floor(STREAM)
    other.append(STREAM, floor, [support.note("by a handle that was open")], (), "note")
    assert [stored.event for stored in held.events(STREAM)][-1] == support.note("by a handle that was open").event
    assert verify(held).findings == ()
    clustered = {name for (name,) in held.rows("SELECT name FROM pragma_table_list WHERE wr")}
    assert clustered == {"image_change"}
    assert held.rows("SELECT count(*) > 0 FROM v_calls") == [(1,)]
    with pytest.raises(CorruptError, match="append-only"):
        other.maintain("try", lambda handle: handle.execute("DELETE FROM image_change").fetchall())
    held.close()
    other.close()


def test_a_golden_log_is_written_on_and_what_stood_in_it_stands(golden: tuple[int, str]) -> None:
    _, path = golden
    reader = Reader.open(path)
    streams = [row.id for row in reader.streams()]
    stood = {stream: list(reader.events(stream)) for stream in streams}
    reader.close()
    writer = Writer.open(path, CountingIds(5_000_000))
    row = writer.reader.stream(STREAM)
    assert row is not None and writer.reader.format == max(golden[0], 2)
    writer.append(STREAM, Epoch(row.floor), [support.note("later")], (), "note")
    admitted = [writer.admit(STREAM, "r1", {"say": "x"}, 1) for _ in range(2)]
    assert [one.is_new for one in admitted] == [True, False] and admitted[0].appended == admitted[1].appended
    writer.close()
    reader = Reader.open(path)
    for stream, old in stood.items():
        assert list(reader.events(stream))[: len(old)] == old
    assert verify(reader).findings == ()
    reader.close()


def test_a_handle_that_read_format_1_goes_on_when_a_writer_makes_it_format_2(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    shutil.copyfile(GOLDEN / "format-1.sqlite", path)
    reader = Reader.open(str(path))
    writer = Writer.open(str(path), CountingIds(5_000_000))
    writer.append(STREAM, Epoch(4), [support.note("later")], (), "note")
    assert [stored.event for stored in reader.events(STREAM)][-1] == support.note("later").event
    reader.close()
    writer.close()


def test_a_handle_that_read_format_1_reads_what_is_imported_after_it_became_format_2(tmp_path: Path) -> None:
    path, other = tmp_path / "log.sqlite", str(tmp_path / "other.sqlite")
    shutil.copyfile(GOLDEN / "format-1.sqlite", path)
    create_log(other, StreamId("other"), support.opened("other"), support.blobs(), CountingIds(9_000_000))
    bundles.make(other, tmp_path / "a.bundle", "other")
    reader = Reader.open(str(path))
    assert reader.format == 1
    made = bundles.take(str(path), tmp_path / "a.bundle", "mine")
    row = reader.stream(made.prefix)
    assert row is not None and row.origin is not None
    assert [stored.event.kind for stored in reader.events(made.prefix)] == ["session_opened"]
    assert verify(reader).findings == ()
    reader.close()


def test_the_first_version_of_an_intent_is_read_as_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    shutil.copyfile(GOLDEN / "format-1.sqlite", path)
    reader = Reader.open(str(path))
    intents = [stored.event for stored in reader.events(StreamId("nightly")) if isinstance(stored.event, events.AttemptStarted)]
    reader.close()
    assert intents and all(intent.redacted is False and intent.version == 3 and intent.request_id == "" for intent in intents)


def test_the_first_versions_of_a_first_event_exclude_and_track_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    shutil.copyfile(GOLDEN / "format-2.sqlite", path)
    reader = Reader.open(str(path))
    firsts = [next(iter(reader.events(row.id))).event for row in reader.streams()]
    reader.close()
    assert {first.kind for first in firsts} == {"session_opened", "session_forked"}
    for first in firsts:
        assert isinstance(first, events.SessionOpened | events.SessionForked)
        assert (first.excludes, first.track) == ([], []) and first.version == type(first).version


def test_a_root_counts_the_excludes_in(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    shutil.copyfile(GOLDEN / "format-2-excludes.sqlite", path)
    reader = Reader.open(str(path))
    first = next(iter(reader.events(STREAM))).event
    assert isinstance(first, events.SessionOpened)
    image = reader.image(STREAM, Seq(1))
    assert root_hash(image, support.EXCLUDES).hex() == first.root != root_hash(image).hex()
    assert excludes_of(first) == support.EXCLUDES and all(entry.owner == (12, 34) for entry in image.values())
    reader.close()


def test_the_views_answer_the_plain_shell(golden: tuple[int, str]) -> None:
    _, path = golden
    Writer.open(path, CountingIds()).close()
    connection = sqlite3.connect(path)
    calls = connection.execute("SELECT call, attempt, tool, ended, decision, changes, duration_ms FROM v_calls WHERE stream = ?", (STREAM,))
    assert calls.fetchall()[0] == (1, 1, "bash", "finished", "finished", 3, 1)
    assert connection.execute("SELECT json_extract(input, '$.run') FROM v_calls WHERE stream = ?", (STREAM,)).fetchone() == ("true",)
    decided = connection.execute("SELECT count(*) FROM event WHERE kind = 'recovery_decided'").fetchone()
    assert connection.execute("SELECT count(*) FROM v_recoveries").fetchone() == decided
    connection.close()
