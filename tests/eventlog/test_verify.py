"""Verify walks everything: a sound log is sound, a damaged one is damaged, and the independent oracle agrees."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import blake3
import pytest
import zstandard
from msgspec.structs import replace

from eventlog import codec, events
from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.errors import CrashworthyError
from eventlog.image import Entry, diff, put_change, root_hash
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import ContentId, Epoch
from eventlog.verify import Verified, claimed_root, verify
from tests.eventlog import support
from tests.eventlog.support import STREAM, tamper
from tests.eventlog.test_events import EXAMPLES
from tests.eventlog.test_reader import DAMAGE, forge

JUDGE = support.ROOT / "chaos" / "oracle" / "judge.py"
LIBRARIES = sorted({str(Path(str(module.__file__)).parents[1]) for module in (blake3, zstandard)})
FLIPS = 450


def walk(path: str) -> Verified:
    reader = Reader.open(path)
    try:
        return verify(reader)
    finally:
        reader.close()


def ask_oracle(path: str, directory: Path) -> dict[str, Any]:
    """What the oracle `chain`, which shares no code with us and runs in a process of its own, says of a log."""
    scratch, work = directory / "scratch", directory / "work"
    scratch.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    request: dict[str, object] = {
        "op": "judge", "log": path, "scratch": str(scratch), "stream": STREAM, "workspace": str(work), "witness": None, "witnessed": [],
        "acknowledged": None, "reference": None, "reference_outputs": None, "reference_exits": None, "on_interrupted": "reissue",
        "script_length": 1, "expect_finished": True, "outside_edits": False, "superseded": [], "quarantine": None,
    }  # fmt: skip
    question = directory / "request.json"
    question.write_text(json.dumps(request))
    paths = [word for place in LIBRARIES for word in ("--path", place)]
    command = [sys.executable, "-I", "-S", str(JUDGE), *paths, "--once", str(question)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    verdicts: list[dict[str, Any]] = json.loads(done.stdout)["verdicts"]
    return next(verdict for verdict in verdicts if verdict["oracle"] == "chain")


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.make_log(tmp_path)


def test_a_log_that_the_writer_made_is_sound_and_the_oracle_agrees(log: str, tmp_path: Path) -> None:
    found = walk(log)
    size = sum(map(len, (support.HELLO, support.BIG, support.OUTPUT)))
    assert (found.streams, found.events, found.blobs, found.blob_bytes, found.findings) == (1, 9, 6, size, ())
    assert (found.orphans, found.orphan_bytes, found.given_up) == (0, 0, 0)
    verdict = ask_oracle(log, tmp_path)
    assert (verdict["verdict"], verdict["detail"]) == ("pass", "9 events, 6 blobs")


def test_verify_counts_the_bytes_of_a_chunk_once_however_many_contents_hold_it(log: str) -> None:
    before = walk(log)
    longer = support.BIG + b"and what another version of the file has besides"
    blobs = list(encode_content([longer]))
    writer = support.open_writer(log, first_id=3_000_000)
    writer.insert_blobs(blobs)
    new = {blob.content: blob.size for blob in blobs if blob.codec != "chunks"}
    for old in encode_content([support.BIG]):
        new.pop(old.content, None)
    writer.close()
    assert 0 < sum(new.values()) < len(longer), "the two contents share a chunk"
    found = walk(log)
    assert (found.findings, found.blobs, found.blob_bytes) == ((), before.blobs + len(new) + 1, before.blob_bytes + sum(new.values()))


def test_verify_of_a_log_that_grows_meanwhile_finds_nothing(log: str) -> None:
    writer = support.open_writer(log, first_id=5_000_000)
    reader = Reader.open(log)
    walked = reader.events(STREAM)
    next(walked)
    support.add(writer, 4, "meanwhile")
    assert len(list(walked)) == 8
    assert not verify(reader).findings
    reader.close()
    writer.close()


BEYOND_THE_CHAIN = {
    "blob gone": f"DELETE FROM blob WHERE hash = x'{codec.content_id(support.HELLO).hex()}'",
    "output gone": f"DELETE FROM blob WHERE hash = x'{codec.content_id(support.OUTPUT).hex()}'",
    "blob spoilt": f"UPDATE blob SET bytes = zeroblob(9) WHERE hash = x'{codec.content_id(support.HELLO).hex()}'",
    "chunk gone": f"DELETE FROM blob WHERE hash = x'{codec.content_id(support.BIG[: 1 << 20]).hex()}'",
    "blob of another size": f"UPDATE blob SET size = 1 WHERE hash = x'{codec.content_id(b'').hex()}'",
    "orphan change": "PRAGMA foreign_keys = 0; INSERT INTO image_change SELECT stream, 77, idx, path, op, kind, mode, content, size,"
    " target, link, xattrs, uid, gid, acl, mtime_ns FROM image_change WHERE seq = 1",
    "stream row gone": "DELETE FROM stream",
}


@pytest.mark.parametrize("statement", BEYOND_THE_CHAIN.values(), ids=BEYOND_THE_CHAIN)
def test_invariant_I9_damage_beside_the_chain_is_found_and_the_oracle_agrees(log: str, tmp_path: Path, statement: str) -> None:
    tamper(log, *statement.split("; "))
    assert walk(log).findings
    assert ask_oracle(log, tmp_path)["verdict"] == "fail"


AGREED = sorted(name for name, (statement, _) in DAMAGE.items() if not statement.startswith("DROP"))


@pytest.mark.parametrize("name", AGREED)
def test_invariant_I9_damage_of_any_row_is_found_and_the_oracle_agrees(log: str, tmp_path: Path, name: str) -> None:
    tamper(log, DAMAGE[name][0])
    try:
        found = walk(log).findings
    except CrashworthyError:
        found = ()  # refused before the walk, by a typed error
    else:
        assert found
    assert ask_oracle(log, tmp_path)["verdict"] == "fail"


def append(path: str, record: Record, *blobs: codec.Blob) -> None:
    """Append what the writer takes and the format page does not: the writer checks no images."""
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.append(STREAM, Epoch(1), [support.attempt(1), record], blobs, "outcome")
    writer.close()


def wrong_records() -> dict[str, tuple[Record, str]]:
    new = codec.encode_blob(b"new")
    entry = Entry("f", 0o644, new.content, 3)
    after = {**support.IMAGE, b"new": entry}
    wrong_size = {**support.IMAGE, b"new": replace(entry, size=4)}
    settled = support.settled(1, after, diff(support.IMAGE, after))
    assert isinstance(settled.event, events.CallSettled) and settled.event.output is not None
    gone = events.CallSettled(5, 1, 1, "finished", "finished", "", None, events.Output(1, 1, False, "zz"), root_hash(after).hex(), [])
    kept = events.CallSettled(
        5, 1, 1, "finished", "finished", "", None, events.Output(9, 9, False, new.content.hex()), root_hash(support.IMAGE).hex(), []
    )
    return {
        "another root": (Record(events.Synced(1, "00" * 32, "boot-1")), "the last good event is 3"),
        "a change that the root does not tell of": (Record(events.Noted(1, "x"), (put_change(b"new", entry),)), ""),
        "a change that does not fit": (Record(events.Noted(1, "x"), (put_change(b"nowhere/new", entry),)), "parent is not a directory"),
        "a content of another size": (support.settled(1, wrong_size, diff(support.IMAGE, wrong_size)), "has 3 bytes, 4 are stated"),
        "an output that names no blob": (Record(gone, settled.changes), "names no blob"),
        "an output of another size": (Record(kept), "has 3 bytes, 9 are stated"),
    }


@pytest.mark.parametrize("name", wrong_records())
def test_invariant_I9_a_chained_event_that_is_not_true_is_damage_and_the_oracle_agrees(tmp_path: Path, name: str) -> None:
    record, words = wrong_records()[name]
    path = support.create(tmp_path)
    append(path, record, codec.encode_blob(b"new"), *support.blobs())
    findings = walk(path).findings
    expected = "pass" if name == "a change that the root does not tell of" else "fail"
    assert bool(findings) == (expected == "fail")
    assert ask_oracle(path, tmp_path)["verdict"] == expected
    assert not words or words in " ".join(finding.what for finding in findings)


def test_a_session_without_an_image_is_damage_and_not_a_traceback(tmp_path: Path) -> None:
    path = str(tmp_path / "log.sqlite")
    opened = support.opened()
    create_log(path, STREAM, Record(opened.event), (), CountingIds())
    assert ["no root directory" in finding.what for finding in walk(path).findings] == [True]
    assert ask_oracle(path, tmp_path)["verdict"] == "fail"


def test_a_forged_payload_that_nests_too_deeply_is_damage_and_not_a_traceback(tmp_path: Path) -> None:
    path = support.create_small(tmp_path)
    forge(path, "noted", 0, b'{"at_ms": 1, "text": ' + b"[" * 50_000)
    assert walk(path).findings


def test_every_kind_says_whether_it_claims_a_root() -> None:
    for event in EXAMPLES:
        assert claimed_root(event) == getattr(event, "root", None)


def take_all(path: str) -> list[object]:
    """Everything a reader hands out of a log."""
    reader = Reader.open(path)
    try:
        stored = list(reader.events(STREAM))
        images = [reader.image(STREAM, one.seq) for one in stored]
        contents = {entry.content for image in images for entry in image.values() if entry.content is not None}
        data = [b"".join(reader.content(ContentId(content))) for content in sorted(contents)]
        return [reader.log_id, reader.streams(), stored, images, data]
    finally:
        reader.close()


def small_log(directory: Path) -> str:
    """A log of one file, with little room in it that nobody uses, each kind of blob but chunks."""
    path = str(directory / "log.sqlite")
    image = {path: entry for path, entry in support.IMAGE.items() if path != b"caf\xe9\n/big"}
    after = {**image, b"new": Entry("f", 0o600, codec.content_id(b"raw"), 3, mtime_ns=1)}
    create_log(path, STREAM, support.opened(image=image), [codec.encode_blob(support.HELLO)], CountingIds())
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    blobs = [codec.encode_blob(b"raw"), codec.encode_blob(support.OUTPUT)]
    writer.append(STREAM, Epoch(1), [support.attempt(1), support.settled(1, after, diff(image, after))], blobs, "outcome")
    for number in range(30):
        support.add(writer, 1, f"caf\u00e9 {number} " * 20)
    writer.close()
    support.checkpoint(path)
    return path


def test_invariant_I9_any_flipped_byte_is_said_to_be_damage_or_changes_nothing_that_is_read(tmp_path: Path) -> None:
    path = small_log(tmp_path)
    whole = Path(path).read_bytes()
    intact = take_all(path)
    draw = random.Random(2026)
    used = [place for place, byte in enumerate(whole) if byte]
    places = [*range(100), *draw.sample(range(len(whole)), FLIPS // 3), *draw.sample(used, FLIPS)]
    said = 0
    for place in places:
        flip = 1 << draw.randrange(8) if draw.random() < 0.7 else draw.randrange(1, 256)
        said += flip_is_said(path, place, whole[place] ^ flip, intact)
        restore(path, place, whole[place])
    assert Path(path).read_bytes() == whole
    assert said > FLIPS // 2, f"only {said} of {len(places)} flips mattered: the log is mostly unused room"


@pytest.mark.parametrize("place", [35, 38, 39], ids=["the list's first page", "its length, far", "its length, near"])
def test_invariant_I9_a_free_list_that_is_not_there_is_found_and_the_oracle_agrees(tmp_path: Path, place: int) -> None:
    path = small_log(tmp_path)
    restore(path, place, Path(path).read_bytes()[place] ^ 2)
    assert any("integrity check" in finding.what for finding in walk(path).findings)
    assert ask_oracle(path, tmp_path)["verdict"] == "fail"


def flip_is_said(path: str, place: int, byte: int, intact: list[object]) -> bool:
    """Whether the changed log is called damaged; when not, everything that is read of it must be as it was."""
    restore(path, place, byte)
    try:
        if walk(path).findings:
            return True
    except CrashworthyError:
        return True
    assert take_all(path) == intact, f"byte {place} set to {byte}: nothing was said, and what is read differs"
    return False


def restore(path: str, place: int, byte: int) -> None:
    """Write one byte of a log that nobody has open, and take away what SQLite put beside it."""
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, bytes([byte]), place)
    os.close(descriptor)
    for suffix in ("-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)


def test_invariant_I9_a_flipped_byte_in_the_wal_is_said_or_the_newest_commits_are_not_there(tmp_path: Path) -> None:
    """A WAL frame that does not check ends the WAL: whole transactions are cut, which only the ledger can tell (README)."""
    path = support.make_log(tmp_path)
    wal = Path(path + "-wal").read_bytes()
    intact = [stored.hash for stored in stored_events(path)]
    draw = random.Random(7)
    for place in [*range(32), *draw.sample(range(len(wal)), 60)]:
        Path(path + "-wal").write_bytes(wal[:place] + bytes([wal[place] ^ (1 << draw.randrange(8))]) + wal[place + 1 :])
        Path(path + "-shm").unlink(missing_ok=True)
        try:
            found = [stored.hash for stored in stored_events(path)]
        except CrashworthyError:
            continue
        assert found == intact[: len(found)] and found
        Path(path + "-wal").write_bytes(wal)


def stored_events(path: str) -> list[Any]:
    reader = Reader.open(path)
    try:
        return list(reader.events(STREAM))
    finally:
        reader.close()
