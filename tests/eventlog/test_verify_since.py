"""What verify remembers, what an anchor exposes, what is counted and what is given up; forks against their parents."""

import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import msgspec
import pytest

from eventlog import codec, events
from eventlog.anchor import load_anchor
from eventlog.errors import MisuseError
from eventlog.image import diff, root_hash
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.rowset import RowSet
from eventlog.values import CHUNK_BYTES, Seq, StreamId
from eventlog.verify import Verified, verify
from eventlog.verify_memory import load_mark, save_mark
from tests.eventlog import support
from tests.eventlog.support import STREAM, tamper
from tests.eventlog.test_damage import run


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.make_log(tmp_path)


def walk(path: str) -> Verified:
    reader = Reader.open(path)
    try:
        return verify(reader)
    finally:
        reader.close()


def add(path: str, *texts: str) -> None:
    writer = support.open_writer(path, first_id=os.stat(path + "-wal").st_size + 7_000_000)
    support.add(writer, 4, *texts)
    writer.close()


def test_since_verifies_all_at_first_and_says_so_and_then_only_what_follows(log: str) -> None:
    code, out, _ = run("verify", "--since", log)
    assert code == 0 and "nothing was remembered of this log: all of it is verified" in out and "9 events, 6 blobs" in out
    add(log, "one", "two")
    code, out, _ = run("verify", "--since", log)
    assert code == 0 and f"verified before up to {STREAM} seq 9" in out and "2 events, 0 blobs" in out
    found = json.loads(run("verify", "--since", "--json", log)[1])
    assert (found["events"], found["orphans"], found["since"]["partial"]) == (0, None, True)


def test_since_is_remembered_beside_the_log_as_the_readme_says(log: str) -> None:
    run("verify", "--since", log)
    stored = json.loads(Path(log + ".verified").read_text("utf-8"))
    reader = Reader.open(log)
    row = reader.streams()[0]
    root = root_hash(reader.image(STREAM, row.head_seq)).hex()
    assert stored["streams"] == {STREAM: {"seq": 9, "hash": row.head_hash.hex(), "epoch": 4, "root": root}}
    assert (stored["format"], stored["log"]) == (1, reader.log_id) and stored["blob"]["row"] == 6
    reader.close()
    assert os.stat(log + ".verified").st_mode & 0o777 == 0o600


def test_since_exposes_a_cut_tail_and_keeps_its_memory(log: str) -> None:
    run("verify", "--since", log)
    before = Path(log + ".verified").read_bytes()
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)
    code, out, _ = run("verify", "--since", log)
    assert code == 1 and "4 events are gone: the head is 5, and events up to 9 were verified here before" in out
    assert Path(log + ".verified").read_bytes() == before
    assert run("verify", log)[0] == 0


REWRITTEN = {
    "the remembered event": ("UPDATE event SET hash = zeroblob(32) WHERE seq = 9", "not the event that was verified here before"),
    "a session": ("DELETE FROM stream", "the session is gone; its 9 events were verified here before"),
    "an old image change": ("UPDATE image_change SET mode = 511 WHERE seq = 4 AND op = 'put'", "are not those that were verified here"),
    "a new event": ("UPDATE event SET epoch = 3 WHERE seq = 10", "seq 10"),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_since_finds_what_was_rewritten(log: str, name: str) -> None:
    statement, words = REWRITTEN[name]
    run("verify", "--since", log)
    add(log, "later")
    tamper(log, "PRAGMA foreign_keys = 0", statement)
    code, out, err = run("verify", "--since", log)
    assert code == 1 and words in out, out + err


def test_since_does_not_read_again_what_it_has_read_and_a_whole_verify_does(log: str) -> None:
    """The README says so: old events' hashes and old blobs' bytes are not looked at again."""
    run("verify", "--since", log)
    add(log, "later")
    tamper(log, f"UPDATE blob SET bytes = zeroblob(9) WHERE hash = x'{codec.content_id(support.HELLO).hex()}'")
    tamper(log, "UPDATE event SET payload = payload || ' ' WHERE seq = 6")
    assert run("verify", "--since", log)[0] == 0
    assert run("verify", log)[0] == 1


def test_since_reads_all_blobs_again_when_their_rows_are_others(log: str) -> None:
    run("verify", "--since", log)
    tamper(log, f"UPDATE blob SET bytes = zeroblob(9) WHERE hash = x'{codec.content_id(support.HELLO).hex()}'")
    tamper(log, "UPDATE blob SET rowid = rowid + 100 WHERE rowid = (SELECT max(rowid) FROM blob)")
    assert run("verify", "--since", log)[0] == 1


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format": 7}', b"\xff\xfe"])
def test_a_memory_that_cannot_be_read_is_no_reason_to_verify_less(log: str, damage: bytes) -> None:
    Path(log + ".verified").write_bytes(damage)
    code, out, _ = run("verify", "--since", log)
    assert code == 0 and "cannot be read" in out and "9 events" in out
    assert "9 events" not in run("verify", "--since", log)[1]


def test_the_memory_of_another_log_is_not_used(log: str) -> None:
    reader = Reader.open(log)
    mark = verify(reader).mark
    save_mark(log, reader.log_id, mark)
    assert load_mark(log, reader.log_id) == (mark, "")
    reader.close()
    text = Path(log + ".verified").read_text("utf-8").replace(reader.log_id, "ab" * 16)
    Path(log + ".verified").write_text(text, "utf-8")
    assert "is of another log" in run("verify", "--since", log)[1]


def test_an_anchor_is_made_loudly_then_moved_forward(log: str, tmp_path: Path) -> None:
    anchor = str(tmp_path / "anchor")
    code, out, _ = run("verify", log, "--anchor", anchor)
    assert code == 0 and "MADE NOW: it exposes what is cut from now on" in out
    first = Path(anchor).read_bytes()
    line = json.loads(first)
    assert list(line) == ["log", "stream", "seq", "hash"] and line["seq"] == 9
    assert "no newer one" in run("verify", log, "--anchor", anchor)[1] and Path(anchor).read_bytes() == first
    add(log, "one")
    assert "moved forward" in run("verify", log, "--anchor", anchor)[1]
    assert json.loads(Path(anchor).read_bytes())["seq"] == 10


CUT = {
    "a cut tail": (["-wal", "-shm"], "", "4 events are gone (6 to 9): the head is 5, and the anchor has seen 9"),
    "a rewritten event": ([], "UPDATE event SET hash = zeroblob(32) WHERE seq = 9", "seq 9: this event is not the one"),
    "a missing session": ([], "DELETE FROM stream", "the session is gone; 9 events of it have been seen by the anchor"),
}


@pytest.mark.parametrize("name", CUT)
def test_an_anchor_exposes_what_was_seen_and_is_gone_and_stays_as_it_is(log: str, tmp_path: Path, name: str) -> None:
    gone, statement, words = CUT[name]
    anchor = str(tmp_path / "anchor")
    run("verify", log, "--anchor", anchor)
    before = Path(anchor).read_bytes()
    if statement:
        tamper(log, "PRAGMA foreign_keys = 0", statement)
    for suffix in gone:
        os.unlink(log + suffix)
    code, out, _ = run("verify", log, "--anchor", anchor)
    assert code == 1 and words in out and "the anchor stays as it is" in out
    assert Path(anchor).read_bytes() == before


BAD_ANCHORS = {
    "empty": (b"", "holds no heads"),
    "no json": (b"hello\n", "damaged at line 1"),
    "a torn line": (b'{"log":"00","stream":"nightly","seq":1,"hash":"' + b"00" * 32 + b'"}\n{"log":"0', "damaged at line 2"),
    "a short hash": (b'{"log":"00","stream":"nightly","seq":1,"hash":"00"}\n', "damaged at line 1"),
    "another log": (b'{"log":"00","stream":"nightly","seq":1,"hash":"' + b"00" * 32 + b'"}\n', "is of the log 00"),
}


@pytest.mark.parametrize("name", BAD_ANCHORS)
def test_an_anchor_that_is_damaged_or_of_another_log_is_refused_and_left(log: str, tmp_path: Path, name: str) -> None:
    data, words = BAD_ANCHORS[name]
    anchor = tmp_path / "anchor"
    anchor.write_bytes(data)
    code, out, err = run("verify", log, "--anchor", str(anchor))
    assert code == 2 and out == "" and words in err and err.count("\n") == 1
    assert anchor.read_bytes() == data


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".verified"])
def test_a_file_of_the_log_is_no_anchor(log: str, suffix: str) -> None:
    Path(log + "-shm").unlink()
    with pytest.raises(MisuseError, match="a file of the log itself"):
        load_anchor(log + suffix, log)


def test_blobs_that_no_event_needs_are_counted_and_are_no_damage(log: str) -> None:
    stray = codec.encode_blob(os.urandom(5000))
    writer = support.open_writer(log, first_id=9_000_000)
    writer.insert_blobs([stray])
    writer.close()
    found = walk(log)
    assert (found.findings, found.orphans, found.orphan_bytes) == ((), 1, 5000)
    assert "1 blobs that no event needs take 5000 bytes" in run("verify", log)[1]


def test_chunks_are_needed_while_their_content_is(log: str) -> None:
    assert walk(log).orphans == 0
    assert len(support.BIG) > CHUNK_BYTES


def test_a_content_that_was_given_up_on_record_is_no_damage(log: str) -> None:
    name = codec.content_id(support.HELLO)
    tamper(log, f"DELETE FROM blob WHERE hash = x'{name.hex()}'")
    assert [finding.kind for finding in walk(log).findings] == ["content"]
    tamper(log, f"INSERT INTO dropped VALUES (x'{name.hex()}', {len(support.HELLO)}, 'compacted', 1)")
    found = walk(log)
    assert (found.findings, found.given_up) == ((), 1)


def forked_log(directory: Path, change: dict[str, object], parent: str = STREAM, at: int = 4) -> str:
    """A log with a fork whose first event, or row, says something else than its parent."""
    path = support.make_log(directory)
    writer = support.open_writer(path, first_id=2_000_000)
    parent_hash = next(stored.hash for stored in writer.reader.events(STREAM) if stored.seq == 4)
    said: dict[str, object] = {"parent_log": writer.log_id, "parent_seq": 4, "parent_hash": parent_hash.hex(), "parent": STREAM, **change}
    image = support.LATER if said.get("image") is None else support.IMAGE
    event = events.SessionForked(
        20, "fork", "forked", str(said["parent_log"]), str(said["parent"]), int(str(said["parent_seq"])), str(said["parent_hash"]),
        "transactional", "stop", [], [], root_hash(image).hex(), [], [], [], None, None, [],
    )  # fmt: skip
    writer.open_stream(StreamId("fork"), Record(event, diff({}, image)), "fork", StreamId(parent), Seq(at))
    writer.close()
    return path


FORKS: dict[str, tuple[dict[str, object], str]] = {
    "sound": ({}, ""),
    "another event": ({"parent_hash": "00" * 32}, "not the one at seq 4 of its parent"),
    "no hash": ({"parent_hash": "zz"}, "not the one at seq 4 of its parent"),
    "beyond the head": ({"parent_seq": 99}, "has no event 99"),
    "another image": ({"image": 1}, "its parent nightly has root"),
    "no such parent": ({"parent": "nobody"}, "its parent nightly has no event 4 of that name"),
    "another seq": ({"parent_seq": 1}, "its row names the parent nightly seq 4, its first event nightly seq 1"),
}


@pytest.mark.parametrize("name", FORKS)
def test_a_fork_agrees_with_its_parent(tmp_path: Path, name: str) -> None:
    change, words = FORKS[name]
    found = walk(forked_log(tmp_path, change)).findings
    assert bool(found) == bool(words) and words in " ".join(finding.what for finding in found)
    assert all(finding.kind == "fork" for finding in found)


def test_row_sets_hold_what_was_added_and_nothing_else() -> None:
    rows = RowSet()
    added = [0, 7, 8, 32767, 32768, 1 << 40]
    for row in added:
        rows.add(row)
    assert [row for row in (*added, 1, 9, 32766, 32769, (1 << 40) + 1) if row in rows] == added


def test_findings_carry_what_they_are(log: str) -> None:
    tamper(log, "UPDATE event SET epoch = 1 WHERE seq = 6", f"DELETE FROM blob WHERE hash = x'{codec.content_id(support.HELLO).hex()}'")
    assert [finding.kind for finding in walk(log).findings] == ["chain", "content"]
    assert msgspec.structs.replace(walk(log).findings[0], what="").where == f"stream {STREAM}"


WIDE = """
import sys
from eventlog import codec, connection, events
from eventlog.creation import publish_log
from eventlog.ports import RandomIds
from eventlog.values import Epoch
from tests.eventlog import support

def fill(writer):
    writer.open_stream(support.STREAM, support.opened(image={b"": support.IMAGE[b""]}), "open")
    writer.raise_floor(support.STREAM, Epoch(1), support.started())
    for start in range(0, int(sys.argv[2]), 500):
        writer.append(support.STREAM, Epoch(1), [support.note("x" * 200) for _ in range(500)], (), "note")
    for number in range(int(sys.argv[3])):
        writer.insert_blobs([codec.encode_blob(number.to_bytes(8, "big") * 100_000)])

publish_log(sys.argv[1], fill, RandomIds())
"""


@pytest.mark.parametrize(("count", "blobs"), [(6_000, 200)])
def test_verify_needs_no_more_memory_for_a_longer_log(tmp_path: Path, count: int, blobs: int) -> None:
    """Under the limit of 600,000 KiB of address space that the budget names, and with hardly more than for a log of nine events."""
    path = str(tmp_path / "long.sqlite")
    environ = {**os.environ, "PYTHONPATH": str(support.ROOT)}
    subprocess.run([sys.executable, "-c", WIDE, path, str(count), str(blobs)], env=environ, check=True)
    small = support.make_log(tmp_path)

    def measure(log: str) -> int:
        script = "import resource, sys; from eventlog.__main__ import app; import eventlog.console as c;"
        script += "code = c.run(app, 'eventlog', 2, lambda e: 1, ['verify', sys.argv[1]]);"
        script += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(code)"
        command = ["bash", "-c", 'ulimit -v 600000 && exec "$@"', "bash", sys.executable, "-c", script, log]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.splitlines()[-1])

    assert measure(path) < measure(small) + 40_000
    assert apsw.sqlite_lib_version()
