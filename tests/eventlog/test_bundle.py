"""Bundles: what goes out comes in again, byte for byte; what is imported is read-only; nothing is stored twice."""

import random
import resource
import struct
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
import zstandard
from blake3 import blake3

from eventlog import codec, events
from eventlog.blobs import encode_content
from eventlog.bundle_import import check_import
from eventlog.creation import create_log
from eventlog.errors import CompactedError, CorruptError, MisuseError
from eventlog.image import Entry, diff, root_hash
from eventlog.ports import CountingIds
from eventlog.reader import Origin, Reader
from eventlog.records import Record
from eventlog.values import CHUNK_BYTES, ContentId, Epoch, LogId, Seq, StreamId
from tests.eventlog import bundles, support
from tests.eventlog.support import STREAM

ORIGIN = LogId("0" * 31 + "2")
PREFIX = StreamId("nightly@000000000000:9")
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.sqlite"))


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.make_log(tmp_path)


def make_target(directory: Path) -> str:
    """A log with another session and ids of its own, to import into."""
    directory.mkdir()
    path = str(directory / "log.sqlite")
    create_log(path, StreamId("other"), support.opened("other", {b"": support.IMAGE[b""]}), (), CountingIds(9_000_000))
    return path


def stored(log: str, stream: str) -> list[tuple[object, ...]]:
    reader = Reader.open(log)
    try:
        sql = "SELECT seq, id, epoch, kind, version, payload, prev_hash, hash FROM event WHERE stream = ? ORDER BY seq"
        assert len(list(reader.events(StreamId(stream)))) == len(reader.rows(sql, (stream,)))
        return reader.rows(sql, (stream,))
    finally:
        reader.close()


def test_a_session_comes_in_as_a_read_only_prefix_and_a_fork(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    bundles.make(log, tmp_path / "a.bundle")
    made = bundles.take(target, tmp_path / "a.bundle")
    assert (made.prefix, made.session, made.forked_at, made.is_reused) == (PREFIX, STREAM, 9, False)
    assert stored(target, PREFIX) == stored(log, STREAM)
    reader = Reader.open(target)
    row, fork = reader.stream(PREFIX), reader.stream(STREAM)
    assert row is not None and fork is not None
    assert (row.floor, row.head_seq, row.origin) == (4, 9, Origin(ORIGIN, STREAM))
    assert (fork.floor, fork.head_seq, fork.parent, fork.forked_at, fork.origin) == (0, 1, PREFIX, 9, None)
    assert dict(reader.image(PREFIX, Seq(3))) == support.IMAGE
    assert dict(reader.image(PREFIX, Seq(9))) == dict(reader.image(STREAM, Seq(1))) == support.LATER
    (first,) = reader.events(STREAM)
    assert isinstance(first.event, events.SessionForked) and isinstance(first.event.parent_hash, str)
    assert (first.event.reason, first.event.parent_log, first.event.parent, first.event.parent_seq) == ("imported", ORIGIN, STREAM, 9)
    assert first.event.parent_hash == row.head_hash.hex()
    for data in (support.HELLO, support.BIG, b"", support.OUTPUT):
        assert b"".join(reader.content(codec.content_id(data))) == data
    reader.close()
    bundles.assert_sound(target)


def test_a_new_log_can_hold_a_bundle(log: str, tmp_path: Path) -> None:
    bundles.make(log, tmp_path / "a.bundle")
    (tmp_path / "new").mkdir()
    target = str(tmp_path / "new" / "log.sqlite")
    assert bundles.take_new(target, tmp_path / "a.bundle", "mine").session == "mine"
    assert stored(target, PREFIX) == stored(log, STREAM)
    bundles.assert_sound(target)
    assert sorted(file.name for file in (tmp_path / "new").iterdir() if "-" not in file.name) == ["log.sqlite"]
    with pytest.raises(MisuseError, match="import without --new"):
        bundles.take_new(target, tmp_path / "a.bundle", "mine")


def test_the_same_prefix_is_the_same_file_whoever_exports_it(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    first = bundles.make(log, tmp_path / "a.bundle")
    bundles.make(log, tmp_path / "b.bundle")
    bundles.take(target, tmp_path / "a.bundle")
    again = bundles.make(target, tmp_path / "c.bundle", PREFIX)
    assert again == first
    files = [(tmp_path / f"{name}.bundle").read_bytes() for name in "abc"]
    assert files[0] == files[1] == files[2]


def test_forks_and_prefixes_of_prefixes_go_out_and_come_in(log: str, tmp_path: Path) -> None:
    one, two = make_target(tmp_path / "one"), str(tmp_path / "two.sqlite")
    bundles.make(log, tmp_path / "a.bundle")
    bundles.take(one, tmp_path / "a.bundle")
    bundles.make(one, tmp_path / "prefix.bundle", PREFIX, upto=4)
    bundles.make(log, tmp_path / "origin.bundle", upto=4)
    assert (tmp_path / "prefix.bundle").read_bytes() == (tmp_path / "origin.bundle").read_bytes()
    bundles.make(one, tmp_path / "fork.bundle", STREAM)
    made = bundles.take_new(two, tmp_path / "fork.bundle", "third")
    assert made.prefix.startswith("nightly@") and made.forked_at == 1
    bundles.take(two, tmp_path / "prefix.bundle", "fourth")
    bundles.assert_sound(two)
    bundles.make(two, tmp_path / "again.bundle", made.prefix)
    assert (tmp_path / "again.bundle").read_bytes() == (tmp_path / "fork.bundle").read_bytes()


@pytest.mark.parametrize("golden", [path for path in GOLDEN if path.stem != "format-3-checkpoints"], ids=lambda path: path.stem)
def test_a_log_of_every_format_goes_out_with_its_events_as_they_were_written(golden: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "log.sqlite", str(tmp_path / "new.sqlite")
    source.write_bytes(golden.read_bytes())
    reader = Reader.open(str(source))
    streams = [row.id for row in reader.streams()]
    reader.close()
    for number, stream in enumerate(streams):
        file = tmp_path / f"{number}.bundle"
        bundles.make(str(source), file, stream)
        made = bundles.take(target, file, f"f{number}") if number else bundles.take_new(target, file, f"f{number}")
        assert stored(target, made.prefix) == stored(str(source), stream)
        bundles.make(target, tmp_path / f"{number}.again", made.prefix)
        assert file.read_bytes() == (tmp_path / f"{number}.again").read_bytes()
    bundles.assert_sound(target)


def test_a_stream_whose_contents_lie_in_a_checkpoint_store_does_not_go_out(tmp_path: Path) -> None:
    (golden,) = (path for path in GOLDEN if path.stem == "format-3-checkpoints")
    source = tmp_path / "log.sqlite"
    source.write_bytes(golden.read_bytes())
    with pytest.raises(MisuseError, match="keeps its files in its checkpoint store"):
        bundles.make(str(source), tmp_path / "one.bundle", STREAM)
    assert not (tmp_path / "one.bundle").exists()


def log_of_file(path: Path, data: bytes, blobs: list[codec.Blob], first_id: int = 1) -> str:
    image = {b"": support.IMAGE[b""], b"large": Entry("f", 0o600, codec.content_id(data), len(data))}
    path.mkdir(exist_ok=True)
    create_log(str(path / "log.sqlite"), STREAM, support.opened(image=image), blobs, CountingIds(first_id))
    return str(path / "log.sqlite")


def fixed_blobs(data: bytes) -> list[codec.Blob]:
    """A content as format 1 cut it."""
    chunks = [codec.encode_blob(data[at : at + CHUNK_BYTES]) for at in range(0, len(data), CHUNK_BYTES)]
    return [*chunks, codec.encode_chunk_list(codec.content_id(data), len(data), [chunk.content for chunk in chunks])]


def test_a_bundle_does_not_depend_on_how_a_log_cuts_its_contents(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(2 * CHUNK_BYTES + 12345)
    one = log_of_file(tmp_path / "one", data, list(encode_content([data])))
    two = log_of_file(tmp_path / "two", data, fixed_blobs(data))
    bundles.make(one, tmp_path / "1.bundle")
    bundles.make(two, tmp_path / "2.bundle")
    assert (tmp_path / "1.bundle").read_bytes() == (tmp_path / "2.bundle").read_bytes()
    pieces = [body for kind, body in bundles.unpack(tmp_path / "1.bundle") if kind == "P"]
    assert [len(piece) for piece in pieces] == [CHUNK_BYTES, CHUNK_BYTES, 12345] and b"".join(pieces) == data
    bundles.take_new(str(tmp_path / "three.sqlite"), tmp_path / "2.bundle")
    bundles.make(str(tmp_path / "three.sqlite"), tmp_path / "3.bundle", "nightly@000000000000:1")
    assert (tmp_path / "3.bundle").read_bytes() == (tmp_path / "1.bundle").read_bytes()


def test_contents_that_are_there_are_not_stored_twice(log: str, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(CHUNK_BYTES + 5)
    target = log_of_file(tmp_path / "there", data, fixed_blobs(data), 9_000_000)
    source = log_of_file(tmp_path / "here", data, list(encode_content([data])))
    before = bundles.dump(target)["blob"]
    bundles.make(source, tmp_path / "a.bundle")
    bundles.take(target, tmp_path / "a.bundle", "twin")
    assert bundles.dump(target)["blob"] == before


def test_the_fork_begins_where_no_call_is_open(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    bundles.make(log, tmp_path / "a.bundle", upto=3)
    made = bundles.take(target, tmp_path / "a.bundle")
    assert (made.header.head_seq, made.forked_at) == (3, 2)
    assert len(stored(target, "nightly@000000000000:3")) == 3
    bundles.assert_sound(target)


def test_the_same_prefix_again_is_found_and_only_a_fork_is_made(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    bundles.make(log, tmp_path / "whole.bundle")
    bundles.make(log, tmp_path / "part.bundle", upto=6)
    bundles.take(target, tmp_path / "whole.bundle")
    before = bundles.dump(target)
    with pytest.raises(MisuseError, match="there is a session nightly already; choose another name with --as"):
        bundles.take(target, tmp_path / "whole.bundle")
    assert bundles.dump(target) == before
    again = bundles.take(target, tmp_path / "whole.bundle", "second")
    part = bundles.take(target, tmp_path / "part.bundle", "third")
    assert (again.prefix, again.is_reused) == (part.prefix, part.is_reused) == (PREFIX, True)
    assert part.forked_at == 6
    assert len(bundles.dump(target)["stream"]) == len(before["stream"]) + 2
    bundles.assert_sound(target)


def test_a_session_that_comes_home_is_its_own_prefix(log: str, tmp_path: Path) -> None:
    bundles.make(log, tmp_path / "a.bundle", upto=4)
    made = bundles.take(log, tmp_path / "a.bundle", "again")
    assert (made.prefix, made.is_reused, made.forked_at) == (STREAM, True, 4)
    assert len(bundles.dump(log)["stream"]) == 2
    bundles.assert_sound(log)


def test_more_events_of_a_prefix_and_other_events_under_its_name_are_refused(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    bundles.make(log, tmp_path / "part.bundle", upto=6)
    bundles.make(log, tmp_path / "whole.bundle")
    bundles.take(target, tmp_path / "part.bundle")
    before = bundles.dump(target)
    with pytest.raises(MisuseError, match="the first 6 events of the 9"):
        bundles.take(target, tmp_path / "whole.bundle", "more")
    (tmp_path / "twin").mkdir()
    twin = support.create(tmp_path / "twin")
    writer = support.open_writer(twin)
    writer.raise_floor(STREAM, Epoch(1), support.started("another"))
    support.add(writer, 1, "a", "b", "c", "d")
    writer.close()
    bundles.make(twin, tmp_path / "twin.bundle", upto=6)
    with pytest.raises(MisuseError, match="two histories under one name"):
        bundles.take(target, tmp_path / "twin.bundle", "more")
    assert bundles.dump(target) == before


def test_two_logs_whose_ids_begin_alike_have_prefixes_of_their_own(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    bundles.make(log, tmp_path / "a.bundle")
    support.tamper(target, f"INSERT INTO stream VALUES ('{PREFIX}', NULL, NULL, 0, 0, zeroblob(32), NULL, NULL)")
    assert bundles.take(target, tmp_path / "a.bundle").prefix == f"nightly@{ORIGIN}:9"


def test_an_event_id_that_stands_for_another_event_is_refused(log: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = support.create(tmp_path / "there")  # counts its ids from the same number
    handle = apsw.Connection(target)
    handle.close()
    support.tamper(target, "UPDATE meta SET value = 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd' WHERE key = 'log_id'")
    before = bundles.dump(target)
    bundles.make(log, tmp_path / "a.bundle")
    with pytest.raises(MisuseError, match="is in this log already, in another session"):
        bundles.take(target, tmp_path / "a.bundle", "new")
    assert bundles.dump(target) == before


def test_nothing_is_appended_to_a_prefix(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    bundles.make(log, tmp_path / "a.bundle")
    bundles.take(target, tmp_path / "a.bundle")
    before = bundles.dump(target)
    writer = support.open_writer(target)
    with pytest.raises(MisuseError, match="was imported and is read-only"):
        writer.append(PREFIX, Epoch(4), [support.note("more")], (), "note")
    with pytest.raises(MisuseError, match="was imported and is read-only"):
        writer.raise_floor(PREFIX, Epoch(5), support.started())
    writer.close()
    handle = apsw.Connection(target)
    for statement in (
        f"UPDATE stream SET head_seq = 10 WHERE id = '{PREFIX}'",
        f"UPDATE stream SET origin_log = NULL WHERE id = '{PREFIX}'",
        f"INSERT INTO event SELECT stream, 10, zeroblob(16), epoch, kind, version, payload, prev_hash, hash FROM event "
        f"WHERE stream = '{PREFIX}' AND seq = 9",
    ):
        with pytest.raises(apsw.ConstraintError, match="imported"):
            handle.execute(statement).fetchall()
    handle.close()
    assert bundles.dump(target) == before


def give_up(log: str, *contents: bytes) -> None:
    names = [codec.content_id(data).hex() for data in contents]
    support.tamper(
        log,
        *(f"INSERT INTO dropped VALUES (x'{name}', {len(data)}, 'compacted', 5)" for name, data in zip(names, contents, strict=True)),
        *(f"DELETE FROM blob WHERE hash = x'{name}'" for name in names),
    )


def test_what_was_given_up_goes_out_and_comes_in_as_given_up(log: str, tmp_path: Path) -> None:
    bundles.make(log, tmp_path / "whole.bundle")
    target = make_target(tmp_path / "there")
    give_up(log, support.OUTPUT)
    made = bundles.make(log, tmp_path / "a.bundle")
    assert (made.counts.contents, made.counts.given_up) == (3, 1)
    bundles.take(target, tmp_path / "a.bundle")
    reader = Reader.open(target)
    assert reader.dropped_reason(codec.content_id(support.OUTPUT)) == "compacted"
    with pytest.raises(CompactedError):
        list(reader.content(codec.content_id(support.OUTPUT)))
    reader.close()
    bundles.make(target, tmp_path / "b.bundle", PREFIX)
    assert (tmp_path / "a.bundle").read_bytes() == (tmp_path / "b.bundle").read_bytes()
    bundles.take(target, tmp_path / "whole.bundle", "filled")  # a bundle made before brings the contents back
    reader = Reader.open(target)
    assert b"".join(reader.content(codec.content_id(support.OUTPUT))) == support.OUTPUT
    reader.close()


@pytest.mark.parametrize("take", [bundles.take, lambda target, file: check_import(target, str(file))], ids=["import", "dry run"])
def test_no_session_goes_on_from_an_image_that_is_not_whole(log: str, tmp_path: Path, take: Callable[[str, Path], object]) -> None:
    target = make_target(tmp_path / "there")
    give_up(log, support.HELLO)
    bundles.make(log, tmp_path / "a.bundle")
    before = bundles.dump(target)
    with pytest.raises(MisuseError, match=r"go on from seq \d+, and the content of a there was given up .*--upto"):
        take(target, tmp_path / "a.bundle")
    assert bundles.dump(target) == before


def test_what_the_log_has_is_not_dropped_by_a_bundle_that_lacks_it(log: str, tmp_path: Path) -> None:
    target = log_of_file(tmp_path / "there", support.HELLO, list(encode_content([support.HELLO])), 9_000_000)
    give_up(log, support.HELLO)
    bundles.make(log, tmp_path / "a.bundle")
    bundles.take(target, tmp_path / "a.bundle", "mine")
    assert bundles.dump(target)["dropped"] == []
    bundles.assert_sound(target)


def test_a_content_that_is_missing_without_a_record_cannot_be_exported(log: str, tmp_path: Path) -> None:
    support.tamper(log, f"DELETE FROM blob WHERE hash = x'{codec.content_id(support.HELLO).hex()}'")
    with pytest.raises(CorruptError, match="session nightly cannot be exported: .* is missing"):
        bundles.make(log, tmp_path / "a.bundle")
    assert not [file for file in tmp_path.iterdir() if "bundle" in file.name]


def test_a_file_is_never_replaced(log: str, tmp_path: Path) -> None:
    (tmp_path / "a.bundle").write_text("mine")
    with pytest.raises(MisuseError, match="it stays as it is"):
        bundles.make(log, tmp_path / "a.bundle")
    assert (tmp_path / "a.bundle").read_text() == "mine"
    with pytest.raises(MisuseError, match="a file of the log"):
        bundles.make(log, tmp_path / "log.sqlite-journal")
    with pytest.raises(MisuseError, match="cannot be written"):
        bundles.make(log, tmp_path / "nowhere" / "a.bundle")


def test_the_file_is_what_the_readme_says(log: str, tmp_path: Path) -> None:
    """Taken apart with the README in hand, without the code under test."""
    made = bundles.make(log, tmp_path / "a.bundle")
    records = bundles.unpack(tmp_path / "a.bundle")
    assert "".join(kind for kind, _ in records) == "HECCCCCCCEEECCCEEEEEDPDPDDPPT"
    handle = apsw.Connection(log, flags=apsw.SQLITE_OPEN_READONLY)
    rows = handle.execute("SELECT seq, id, epoch, kind, version, payload, hash FROM event ORDER BY seq").fetchall()
    handle.close()
    assert records[0][1] == bundles.header_record("nightly", 9, rows[-1][6], 4, ORIGIN)
    found = [body for kind, body in records if kind == "E"]
    counts = {1: 7, 4: 3}
    assert found == [
        bundles.event_record(seq, event_id, epoch, kind, version, payload.encode(), digest, counts.get(seq, 0))
        for seq, event_id, epoch, kind, version, payload, digest in rows
    ]
    named = sorted((blake3(data).digest(), data) for data in (support.HELLO, support.BIG, b"", support.OUTPUT))
    contents = [part for name, data in named for part in bundles.content_records(name, data)]
    assert [record for record in records if record[0] in "DP"] == contents
    assert records == bundles.sealed(records) and records[-1][1][40:] == made.digest
    parameters = zstandard.get_frame_parameters((tmp_path / "a.bundle").read_bytes()[len(bundles.MAGIC) :])
    assert (parameters.window_size, parameters.dict_id, parameters.has_checksum) == (1 << 21, 0, False)
    assert zstandard.frame_content_size((tmp_path / "a.bundle").read_bytes()[len(bundles.MAGIC) :]) == -1
    assert struct.unpack(">5Q", records[-1][1][:40]) == (9, 10, 4, 0, sum(len(data) for _, data in named))


def test_a_large_content_passes_both_ways_in_bounded_memory(tmp_path: Path) -> None:
    """64 MiB within 60 MiB more than the process has: what bounds this bounds 2 GiB."""
    piece = random.Random(3).randbytes(1 << 20)
    pieces = [number.to_bytes(8, "big") + piece[8:] for number in range(64)]
    hasher = blake3()
    for one in pieces:
        hasher.update(one)
    large = ContentId(hasher.digest())
    image = {b"": support.IMAGE[b""], b"large": Entry("f", 0o600, large, 64 << 20)}
    source, target = str(tmp_path / "log.sqlite"), str(tmp_path / "new.sqlite")
    create_log(source, STREAM, support.opened(image=image), encode_content(iter(pieces)), CountingIds())

    def limit() -> None:
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (60 << 20), now + (60 << 20)))

    def go() -> None:
        limit()
        bundles.make(source, tmp_path / "a.bundle")
        bundles.take_new(target, tmp_path / "a.bundle")

    del pieces
    assert support.run_in_child(go) == 0
    reader = Reader.open(target)
    assert sum(len(one) for one in reader.content(large)) == 64 << 20
    reader.close()


def test_sizes_that_disagree_are_found_before_a_bundle_is_made(tmp_path: Path) -> None:
    image = {b"": support.IMAGE[b""], b"a": Entry("f", 0o600, codec.content_id(support.HELLO), 1)}
    create_log(
        str(tmp_path / "log.sqlite"), STREAM, support.opened(image=image), list(encode_content([support.HELLO])), CountingIds()
    )  # fmt: skip
    with pytest.raises(CorruptError, match="has 240 bytes where events state 1"):
        bundles.make(str(tmp_path / "log.sqlite"), tmp_path / "a.bundle")


def test_a_fork_of_an_import_can_be_driven(log: str, tmp_path: Path) -> None:
    target = make_target(tmp_path / "there")
    bundles.make(log, tmp_path / "a.bundle")
    bundles.take(target, tmp_path / "a.bundle", "mine")
    writer = support.open_writer(target, first_id=8_000_000)
    writer.raise_floor(StreamId("mine"), Epoch(1), support.started())
    root = root_hash(support.IMAGE).hex()
    back = Record(events.WorkspaceObserved(9, root, []), diff(support.LATER, support.IMAGE))
    writer.append(StreamId("mine"), Epoch(1), [back], (), "outside")
    writer.close()
    bundles.assert_sound(target)
