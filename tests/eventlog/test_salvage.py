"""Salvage: the longest true prefix of each stream in a new log, what is lost by name, the damaged one as it was."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from eventlog import codec, events
from eventlog.carving import carve
from eventlog.connection import PAGE_BYTES, create, expected_indices, expected_tables
from eventlog.errors import CorruptError, LogMissingError, MisuseError
from eventlog.image import Entry, diff, put_change
from eventlog.ports import CountingIds, FakeClock
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.recovered import recover_rows
from eventlog.salvage import Salvaged, salvage
from eventlog.salvage_reading import open_sources
from eventlog.values import ContentId, Epoch, LogId, Seq, StreamId
from eventlog.verify import verify
from tests.eventlog import support
from tests.eventlog.support import STREAM, tamper
from tests.eventlog.test_damage import run

FORMATS = ("3", "2", "3 that was 2")


@pytest.fixture(params=FORMATS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The sample log, in each form that a log of today can have."""
    path = support.make_log(tmp_path)
    if request.param != "3":
        support.as_format_2(path)
    if request.param == "3 that was 2":
        writer = support.open_writer(path)
        writer.cluster()
        writer.close()
    return path


def repair(log: str, tmp_path: Path) -> Salvaged:
    """Salvage, with everything that must hold of any salvage checked."""
    before = {suffix: Path(log + suffix).read_bytes() for suffix in ("", "-wal") if os.path.exists(log + suffix)}
    directory = tmp_path / "salvaged"
    directory.mkdir(exist_ok=True)
    around = sorted(os.listdir(os.path.dirname(log)))
    target = str(directory / "log.sqlite")
    made = salvage(log, target, CountingIds(500), FakeClock())
    assert {suffix: Path(log + suffix).read_bytes() for suffix in before} == before
    assert sorted(os.listdir(os.path.dirname(log))) == around
    assert os.listdir(directory) == ["log.sqlite"]
    reader = Reader.open(target)
    assert verify(reader).findings == ()
    assert reader.rows("SELECT value FROM meta WHERE key = 'salvaged_from'") == [(made.origin,)]
    assert reader.log_id == made.log_id != made.origin
    reader.close()
    return made


def test_an_intact_log_is_salvaged_whole_and_a_session_goes_on_from_its_head(log: str, tmp_path: Path) -> None:
    made = repair(log, tmp_path)
    assert made.is_whole and made.lost == ()
    assert "knows nothing of" not in run("doctor", log, "--repair", str(tmp_path / "again.sqlite"))[1]
    (stream,) = made.streams
    assert (stream.stream, stream.kept, stream.lost_to, stream.session, stream.forked_at) == (STREAM, 9, 9, STREAM, 9)
    old, new = Reader.open(log), Reader.open(made.path)
    row = new.stream(StreamId(stream.prefix))
    assert row is not None and row.origin is not None and (row.origin.log_id, row.origin.stream) == (old.log_id, STREAM)
    assert list(new.events(row.id)) == list(old.events(STREAM))
    columns = "seq, id, epoch, kind, version, CAST(payload AS BLOB), prev_hash, hash"
    sql = f"SELECT {columns} FROM event WHERE stream = ? ORDER BY seq"
    assert new.rows(sql, (row.id,)) == old.rows(sql, (STREAM,))
    (forked,) = new.events(STREAM)
    assert forked.event.kind == "session_forked" and getattr(forked.event, "reason", "") == "salvaged"
    assert new.image(STREAM, Seq(1)) == old.image(STREAM, Seq(9)) == support.LATER
    assert b"".join(new.content(codec.content_id(support.BIG))) == support.BIG
    old.close()
    new.close()
    writer = support.open_writer(made.path, first_id=80_000_000)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    with pytest.raises(MisuseError, match="read-only"):
        writer.append(row.id, row.floor, [support.note("late")], (), "note")
    writer.close()


BROKEN = {
    "a payload": ("UPDATE event SET payload = '{}' WHERE seq = 6", 5),
    "an event gone": ("DELETE FROM event WHERE seq = 5", 4),
    "the first event": ("UPDATE event SET epoch = 7 WHERE seq = 1", 0),
    "an image change": ("UPDATE image_change SET mode = 0 WHERE seq = 4 AND op = 'put'", 3),
    "the floor only": ("UPDATE stream SET floor = 3", 9),
    "the head only": ("UPDATE stream SET head_seq = 2", 9),
    "the stream row": ("DELETE FROM stream", 9),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_longest_valid_prefix_is_kept_and_the_rest_is_listed(log: str, tmp_path: Path, name: str) -> None:
    statement, kept = BROKEN[name]
    tamper(log, "PRAGMA foreign_keys = 0", statement)
    if not kept:
        with pytest.raises(CorruptError, match="no event can be proved any more"):
            repair(log, tmp_path)
        assert os.listdir(tmp_path / "salvaged") == []
        return
    (stream,) = repair(log, tmp_path).streams
    assert (stream.kept, stream.lost_to) == (kept, 9)
    assert stream.forked_at == {3: 2}.get(kept, kept)  # call 1 is open at 3, and nothing can be forked inside a call
    assert bool(stream.why) == (kept < 9)


def test_a_prefix_ends_before_an_event_that_claims_a_root_which_is_not_there(log: str, tmp_path: Path) -> None:
    writer = support.open_writer(log, first_id=9_000_000)
    writer.append(STREAM, Epoch(4), [Record(events.Synced(1, "00" * 32, "boot-1")), support.note("after")], (), "synced")
    writer.close()
    (stream,) = repair(log, tmp_path).streams
    assert (stream.kept, stream.lost_to, stream.forked_at) == (9, 11, 9) and "not the one that is claimed" in stream.why


def test_a_lost_content_is_listed_by_its_paths_and_the_session_goes_on_before_it(tmp_path: Path) -> None:
    log = support.create(tmp_path)
    writer = support.open_writer(log)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    new = codec.encode_blob(b"written by call 1")
    entry = Entry("f", 0o644, new.content, new.size, mtime_ns=8)
    after = {**support.IMAGE, b"new\n": entry}
    record = support.settled(1, after, diff(support.IMAGE, after))
    writer.append(STREAM, Epoch(1), [support.attempt(1), record], [new, *support.blobs()], "outcome")
    support.add(writer, 1, "later")
    writer.close()
    tamper(log, f"UPDATE blob SET bytes = zeroblob(17) WHERE hash = x'{new.content.hex()}'")
    made = repair(log, tmp_path)
    assert [(one.stream, one.seq, one.path, one.content, one.size) for one in made.lost] == [(STREAM, 4, b"new\n", new.content, 17)]
    assert (made.streams[0].kept, made.streams[0].forked_at, made.is_whole) == (5, 2, False)
    reader = Reader.open(made.path)
    assert reader.dropped_reason(new.content) == "lost"
    assert verify(reader).given_up == 1
    reader.close()
    code, out, _ = run("doctor", log, "--repair", str(tmp_path / "again.sqlite"))
    assert code == 1 and f"LOST content: new\\x0a (17 bytes) at {STREAM} seq 4" in out
    assert f"{STREAM} knows nothing of events 3 to 5: a call that began there may have run, and runs again when a fork is driven" in out
    assert run("doctor", made.path)[0] == 0


def test_a_lost_output_is_listed_and_leaves_the_images_whole(log: str, tmp_path: Path) -> None:
    name = codec.content_id(support.OUTPUT)
    tamper(log, f"DELETE FROM blob WHERE hash = x'{name.hex()}'")
    made = repair(log, tmp_path)
    assert [(one.seq, one.path, one.content) for one in made.lost] == [(4, None, name)]
    assert made.streams[0].forked_at == 9


def test_a_lost_chunk_loses_its_content_and_no_other(log: str, tmp_path: Path) -> None:
    chunk = next(blob for blob in support.blobs() if blob.codec != "chunks" and blob.size > 100_000)
    tamper(log, f"DELETE FROM blob WHERE hash = x'{chunk.content.hex()}'")
    made = repair(log, tmp_path)
    assert {one.content for one in made.lost} == {codec.content_id(support.BIG)}
    reader = Reader.open(made.path)
    assert b"".join(reader.content(codec.content_id(support.HELLO))) == support.HELLO
    reader.close()


def test_forks_and_what_was_moved_away_are_salvaged_as_they_were(tmp_path: Path) -> None:
    path = support.make_golden(tmp_path)
    made = repair(path, tmp_path)
    fork, nightly = made.streams
    assert (nightly.session, nightly.forked_at, fork.session) == (STREAM, 9, "")
    assert fork.kept == fork.lost_to == 16 and "moved away" in fork.note
    again = repair_again(made.path, tmp_path)
    assert again.is_whole and len(again.streams) == 3
    assert [one.note for one in again.streams if one.stream.startswith("fork@")] == [
        "it was imported into the damaged log, and is read-only as it was there"
    ]


def repair_again(path: str, tmp_path: Path) -> Salvaged:
    """Salvage a salvaged log: its imported streams keep their origin's names."""
    made = salvage(path, str(tmp_path / "twice.sqlite"), CountingIds(900), FakeClock())
    reader = Reader.open(made.path)
    assert verify(reader).findings == ()
    reader.close()
    return made


def test_a_log_of_format_1_is_salvaged(tmp_path: Path) -> None:
    path = str(tmp_path / "log.sqlite")
    shutil.copyfile(Path(__file__).with_name("golden") / "format-1.sqlite", path)
    made = repair(path, tmp_path)
    assert made.is_whole and made.streams[0].kept > 0


def zero_pages(path: str, *pages: int) -> None:
    support.checkpoint(path)
    with open(path, "r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(bytes(PAGE_BYTES))


def root_page(path: str, name: str) -> int | None:
    """Where the tree of a table or an index begins; None when the log has none of that name."""
    reader = Reader.open(path)
    try:
        found = reader.rows("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,))
        return int(str(found[0][0])) if found else None
    finally:
        reader.close()


def test_no_index_is_called_damaged_because_a_driver_starts_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify holds no transaction from one question to the next: an index and its table are compared in one."""
    path = support.make_log(tmp_path)
    writer, reader = support.open_writer(path, first_id=9_000_000), Reader.open(path)
    rows, epochs = reader.rows, iter(range(100, 200))

    def ask_and_start(sql: str, *bindings: Any) -> Any:
        found = rows(sql, *bindings)
        if "INDEXED BY" in sql:
            epoch = next(epochs)
            writer.raise_floor(STREAM, Epoch(epoch), support.started(f"n{epoch}"))
        return found

    monkeypatch.setattr(reader, "rows", ask_and_start)
    try:
        assert [finding for finding in verify(reader).findings if "index" in finding.what] == []
        assert next(epochs) > 100, "drivers have started"
    finally:
        reader.close()
        writer.close()


def test_an_empty_pointer_map_is_damage_that_costs_nothing(tmp_path: Path) -> None:
    """SQLite's own check of 3.54 says nothing of it, that of 3.40 does."""
    path = support.make_log(tmp_path)
    zero_pages(path, 2)
    reader = Reader.open(path)
    try:
        assert [finding.what for finding in verify(reader).findings if "pointer map" in finding.what]
    finally:
        reader.close()
    assert repair(path, tmp_path).lost == ()


@pytest.mark.parametrize("name", ["event_request", "event_driver"])
def test_the_page_of_another_tree_in_place_of_an_index_is_damage(tmp_path: Path, name: str) -> None:
    """Also where the index names some rows only, whose entries SQLite's own check does not count."""
    path = support.make_log(tmp_path)
    places = [root_page(path, one) for one in (name, "image_change")]
    support.checkpoint(path)
    with open(path, "r+b") as file:
        pages = []
        for page in places:
            assert page is not None
            file.seek((page - 1) * PAGE_BYTES)
            pages.append(file.read(PAGE_BYTES))
        for page, data in zip(places, reversed(pages), strict=True):
            assert page is not None
            file.seek((page - 1) * PAGE_BYTES)
            file.write(data)
    reader = Reader.open(path)
    try:
        assert [finding for finding in verify(reader).findings if name in finding.what]
    finally:
        reader.close()


@pytest.mark.parametrize(("change", "state"), [("DROP INDEX event_request", "is missing"), (
    "DROP INDEX event_request; CREATE INDEX event_request ON event (stream, json_extract(payload, '$.request_id')) "
    "WHERE kind = 'input_admitted'", "has other words than it must",
)])  # fmt: skip
def test_a_log_that_lost_what_refuses_a_second_admission_is_damaged(tmp_path: Path, change: str, state: str) -> None:
    path = support.make_log(tmp_path)
    handle = apsw.Connection(path)
    handle.execute(change)
    handle.close()
    reader = Reader.open(path)
    try:
        assert [finding.what for finding in verify(reader).findings] == [
            f"the index event_request {state}: what it refuses could be done since"
        ]
    finally:
        reader.close()


@pytest.mark.parametrize("log_format", [1, 2, 3])
def test_the_statements_that_a_log_is_compared_with_are_those_that_it_is_made_by(tmp_path: Path, log_format: int) -> None:
    handle = create(str(tmp_path / "log.sqlite"), log_format)
    found = {(kind, name): sql for kind, name, sql in handle.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    handle.close()
    for kind, expected in ("index", expected_indices(log_format)), ("table", expected_tables(log_format)):
        assert {name: sql for (one, name), sql in found.items() if one == kind} == expected


def test_rows_are_held_against_the_rules_of_the_format_whatever_the_file_says_of_its_tables(tmp_path: Path) -> None:
    path = support.make_golden_with_checkpoints(tmp_path)
    tamper(path, "UPDATE dropped SET reason = 'check0ointed'")
    handle = apsw.Connection(path)
    handle.pragma("writable_schema", True)
    handle.execute("UPDATE sqlite_schema SET sql = replace(sql, 'checkpointed', 'check0ointed') WHERE name = 'dropped'")
    handle.close()
    reader = Reader.open(path)
    try:
        assert [finding.what for finding in verify(reader).findings if "dropped" in finding.what]
    finally:
        reader.close()


INDICES = ["sqlite_autoindex_event_1", "sqlite_autoindex_event_2", "sqlite_autoindex_image_change_1", "sqlite_autoindex_blob_1"]
ONLY_IN_2 = {"sqlite_autoindex_image_change_1"}
"""Format 3 has the rows of this table in the tree of its primary key, and no index beside it."""


@pytest.mark.parametrize("name", [*INDICES, "sqlite_autoindex_meta_1", "stream"])
def test_a_damaged_index_or_a_gone_stream_table_loses_nothing(log: str, tmp_path: Path, name: str) -> None:
    page = root_page(log, name)
    if page is None:
        assert name in ONLY_IN_2
        return
    zero_pages(log, page)
    made = repair(log, tmp_path)
    assert made.is_whole and made.streams[0].kept == 9 and made.streams[0].forked_at == 9


def test_a_gone_first_page_loses_nothing(log: str, tmp_path: Path) -> None:
    zero_pages(log, 1)
    assert run("show", log)[0] == 1
    assert repair(log, tmp_path).is_whole


def test_a_gone_log_id_is_taken_from_an_anchor_or_from_what_verify_remembers(log: str, tmp_path: Path) -> None:
    anchor = str(tmp_path / "anchor")
    assert run("verify", "--since", log, "--anchor", anchor)[0] == 0
    remembered = Path(log + ".verified").read_bytes()
    zero_pages(log, root_page(log, "meta") or 0)
    os.unlink(log + ".verified")
    new = str(tmp_path / "new.sqlite")
    code, out, err = run("doctor", log, "--repair", new)
    assert (code, out) == (1, "") and "not even its log id" in err and not os.path.exists(new)
    assert run("doctor", log, "--repair", new, "--anchor", anchor)[0] == 0
    Path(log + ".verified").write_bytes(remembered)
    code, out, _ = run("doctor", log, "--repair", str(tmp_path / "newer.sqlite"), "--json")
    assert code == 0 and json.loads(out)["salvaged_from"] == json.loads(remembered)["log"]


def test_no_wrong_id_makes_anything_true(log: str, tmp_path: Path) -> None:
    zero_pages(log, root_page(log, "meta") or 0)
    with pytest.raises(CorruptError, match="no event can be proved"):
        salvage(log, str(tmp_path / "new.sqlite"), CountingIds(500), FakeClock(), LogId("ab" * 16))


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".verified"])
def test_a_new_file_that_is_there_or_belongs_to_the_log_is_refused(log: str, tmp_path: Path, suffix: str) -> None:
    before = Path(log).read_bytes()
    with pytest.raises(MisuseError, match="a file of the damaged log"):
        salvage(log, log + suffix, CountingIds(500), FakeClock())
    (tmp_path / "there").write_text("mine")
    code, _, err = run("doctor", log, "--repair", str(tmp_path / "there"))
    assert code == 2 and "there is something already" in err and (tmp_path / "there").read_text() == "mine"
    assert Path(log).read_bytes() == before


def test_a_missing_log_is_not_salvaged(tmp_path: Path) -> None:
    with pytest.raises(LogMissingError):
        salvage(str(tmp_path / "log.sqlite"), str(tmp_path / "new.sqlite"), CountingIds(500), FakeClock())
    assert os.listdir(tmp_path) == []


def test_a_content_is_proved_before_any_of_it_is_handed_out(log: str, tmp_path: Path) -> None:
    name = codec.content_id(support.BIG)
    swapped = "CAST(substr(bytes, 33, 32) || substr(bytes, 1, 32) || substr(bytes, 65) AS BLOB)"
    tamper(log, f"UPDATE blob SET bytes = {swapped} WHERE hash = x'{name.hex()}'")
    support.checkpoint(log)
    sources = open_sources(log, str(tmp_path), None)
    try:
        with pytest.raises(CorruptError, match="do not make up its content"):
            next(sources.content(ContentId(name)))
    finally:
        sources.close()


def test_what_compaction_gave_up_is_not_called_lost_and_the_empty_content_is_never_lost(log: str, tmp_path: Path) -> None:
    hello, empty = (codec.content_id(data).hex() for data in (support.HELLO, b""))
    support.tamper(
        log,
        f"INSERT INTO dropped SELECT hash, size, 'compacted', 1 FROM blob WHERE hash = x'{hello}'",
        f"DELETE FROM blob WHERE hash IN (x'{hello}', x'{empty}')",
    )
    made = repair(log, tmp_path)
    assert made.lost == ()
    reader = Reader.open(made.path)
    assert reader.dropped_reason(codec.content_id(support.HELLO)) == "compacted"
    assert b"".join(reader.content(codec.content_id(b""))) == b""
    reader.close()


SESSIONS = (STREAM, StreamId("alpha"), StreamId("zeta"))


def test_a_reason_that_no_log_knows_is_damage_and_the_content_is_called_lost(tmp_path: Path) -> None:
    """The flip of one bit in why a content was given up: SQLite's own check says nothing of it to who only reads."""
    path = support.make_golden_with_checkpoints(tmp_path)
    tamper(path, "UPDATE dropped SET reason = 'check0ointed'")
    reader = Reader.open(path)
    try:
        assert [finding.what for finding in verify(reader).findings if "dropped" in finding.what]
    finally:
        reader.close()
    repaired = Reader.open(repair(path, tmp_path).path)
    try:
        assert {reason for (reason,) in repaired.rows("SELECT reason FROM dropped")} == {"lost"}
        assert not verify(repaired).findings
    finally:
        repaired.close()


def make_three_sessions(directory: Path, events_each: int) -> str:
    """A log whose events and image changes of three sessions fill some pages each; all in the database file."""
    path = support.create_small(directory)
    writer = support.open_writer(path)
    for name in SESSIONS:
        if name != STREAM:
            writer.open_stream(name, support.opened(name, image={b"": support.IMAGE[b""]}), "open")
        writer.raise_floor(name, Epoch(1), support.started())
    for number in range(events_each):
        for name in SESSIONS:
            entry = Entry("p", 0o644, mtime_ns=number)
            changes = tuple(put_change(b"%d-%d-" % (number, index) + b"y" * 200, entry) for index in range(4))
            writer.append(name, Epoch(1), [Record(events.Noted(1, "x" * 1000), changes)], (), "note")
    writer.close()
    return path


@pytest.mark.parametrize("log_format", [2, 3])
def test_a_damaged_page_of_rows_costs_the_rows_on_it_and_no_other(tmp_path: Path, log_format: int) -> None:
    path = make_three_sessions(tmp_path, 20)
    if log_format == 2:
        support.as_format_2(path)
    roots = [root_page(path, name) for name in ("event", "image_change")]
    support.checkpoint(path)
    whole, copy = Path(path).read_bytes(), tmp_path / "copy.sqlite"
    rows_of = count_rows(path)
    damaged = 0
    for page in range(2, len(whole) // PAGE_BYTES + 1):
        at = (page - 1) * PAGE_BYTES
        if page in roots or whole[at] not in (10, 13):
            continue  # not a leaf of a tree
        copy.write_bytes(whole[:at] + bytes(PAGE_BYTES) + whole[at + PAGE_BYTES :])
        scratch = tmp_path / f"{page}.sqlite"
        recover_rows(str(copy), str(scratch))
        for suffix in ("-wal", "-shm"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
        found = count_rows(str(scratch))
        lost = {name: rows_of[name] - found[name] for name in found}
        damaged += any(lost.values())
        assert sum(lost.values()) <= PAGE_BYTES // 200, f"page {page}: {lost}"
    assert damaged >= 8


def carved_rows(path: str, directory: Path) -> dict[str, int]:
    scratch = str(directory / "carved.sqlite")
    carve(path, scratch)
    try:
        return count_rows(scratch)
    finally:
        os.unlink(scratch)


def long_notes(path: str) -> None:
    """Events that go on in pages of their own, and one of just the size that still stands whole in its page."""
    writer = support.open_writer(path, first_id=70_000_000)
    for size in (4_000, 8_000, 16_000, 16_200, 17_000, 40_000, 100_000):
        writer.append_unfenced(STREAM, [support.note("z" * size)], "note")
    writer.close()


@pytest.mark.parametrize("log_format", [2, 3])
@pytest.mark.parametrize("is_checkpointed", [True, False], ids=["checkpointed", "in the WAL"])
def test_every_row_is_found_without_any_tree(tmp_path: Path, log_format: int, is_checkpointed: bool) -> None:
    path = make_three_sessions(tmp_path, 20)
    if log_format == 2:
        support.as_format_2(path)
    long_notes(path)
    if is_checkpointed:
        support.checkpoint(path)
    counted = tmp_path / "counted"
    counted.mkdir()
    for file in tmp_path.glob("log.sqlite*"):
        shutil.copy(file, counted)
    expected = count_rows(str(counted / "log.sqlite"))  # which brings the WAL of the copy into its database
    assert os.path.exists(path + "-wal") != is_checkpointed
    assert carved_rows(path, tmp_path) == expected
    if not is_checkpointed:
        return
    whole = Path(path).read_bytes()
    roots = [(root_page(path, name) or 0, name) for name in ("event", "image_change", "blob", "sqlite_autoindex_event_1")]
    for page, name in roots:
        at = (page - 1) * PAGE_BYTES
        damaged = bytes(12) if name == "image_change" and log_format == 3 else bytes(PAGE_BYTES)  # an inner page of that tree has rows
        Path(path).write_bytes(whole[:at] + damaged + whole[at + len(damaged) :])
        assert carved_rows(path, tmp_path) == expected, name


@pytest.mark.parametrize("name", ["event", "image_change"])
def test_a_damaged_root_of_a_table_loses_nothing_that_stands_on_other_pages(tmp_path: Path, name: str) -> None:
    path = make_three_sessions(tmp_path, 20)
    long_notes(path)
    support.checkpoint(path)
    page = root_page(path, name) or 0
    with open(path, "r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(bytes(12) if name == "image_change" else bytes(PAGE_BYTES))
    made = repair(path, tmp_path)
    assert made.is_whole and [stream.kept for stream in made.streams] == [22, 29, 22]


def test_a_page_that_is_one_long_lie_is_read_in_bounded_time(tmp_path: Path) -> None:
    """Thousands of cells, each of which claims the same long chain of pages."""
    lies = bytearray(PAGE_BYTES)
    lies[0:8] = bytes([13]) + bytes(2) + (4_000).to_bytes(2, "big") + bytes(3)
    lies[8:8_008] = (16_300).to_bytes(2, "big") * 4_000
    lies[16_300:16_310] = b"\x81\x80\x00\x01" + bytes(6)  # a record of 2 MiB
    following = [(number + 1).to_bytes(4, "big") + bytes(PAGE_BYTES - 4) for number in range(3, 203)]
    path = tmp_path / "lies.sqlite"
    path.write_bytes(bytes(PAGE_BYTES) + bytes(lies) + b"".join(following))
    assert carved_rows(str(path), tmp_path) == {"event": 0, "image_change": 0}


def count_rows(path: str) -> dict[str, int]:
    handle = apsw.Connection(path)
    try:
        return {table: handle.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in ("event", "image_change")}
    finally:
        handle.close()
