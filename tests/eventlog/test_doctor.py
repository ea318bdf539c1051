"""Doctor: each trouble in plain words, how bad it is and what to do; nothing is changed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog import codec, reading
from eventlog.diagnosis import Diagnosis, can_be_opened, describe_uses, judge_files
from eventlog.errors import CorruptError
from eventlog.examination import Facts
from eventlog.reader import Reader
from eventlog.values import FORMAT, Seq, StreamId
from eventlog.verify_blobs import Use, find_uses
from tests.eventlog import support
from tests.eventlog.support import STREAM, tamper
from tests.eventlog.test_damage import run

HEADER = b"SQLite format 3\0" + bytes(44) + FORMAT.to_bytes(4, "big") + bytes(4) + (0x43574C31).to_bytes(4, "big") + bytes(28)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = support.make_log(tmp_path)
    os.unlink(path + "-shm")
    return path


def contents(directory: str) -> dict[str, tuple[bytes, int]]:
    return {name: ((Path(directory) / name).read_bytes(), os.stat(Path(directory) / name).st_mtime_ns) for name in os.listdir(directory)}


def ask(log: str, *arguments: str) -> list[dict[str, Any]]:
    """The problems that doctor tells of, nothing changed by it."""
    directory = os.path.dirname(log)
    before = contents(directory)
    code, out, err = run("doctor", log, "--json", *arguments)
    said = json.loads(out)
    assert err == "" and contents(directory) == before
    problems = [one for one in said["findings"] if one["problem"]]
    assert (code == 0) == said["healthy"] == (not problems)
    assert all(one[field] for one in said["findings"] for field in ("kind", "what", "which", "harm", "next"))
    return problems


def test_a_healthy_log_is_healthy_and_a_missing_shm_is_a_remark(log: str) -> None:
    assert ask(log) == []
    code, out, _ = run("doctor", log)
    assert code == 0 and out.startswith("note: there is no -shm") and out.endswith(f"{log}: healthy\n")


def test_a_missing_log_is_told_with_the_wal_that_is_left(log: str, tmp_path: Path) -> None:
    os.unlink(log)
    (found,) = ask(log)
    assert found["kind"] == "missing" and "its -wal of" in found["what"] and found["harm"] == "events lost"
    os.unlink(log + "-wal")
    (found,) = ask(log)
    assert found["kind"] == "missing" and "no -wal of it" in found["what"]
    assert ask(str(tmp_path / "no" / "such" / "log.sqlite").replace("/no/such", ""))[0]["kind"] == "missing"


def test_an_empty_file_and_what_is_no_log_are_told(log: str, tmp_path: Path) -> None:
    os.truncate(log, 0)
    assert [one["kind"] for one in ask(log)] == ["empty"]
    Path(log).write_bytes(b"hello\n" * 9000)
    assert [one["kind"] for one in ask(log)] == ["not_a_log"]
    Path(log).unlink()
    os.mkfifo(log)
    code, out, err = run("doctor", log)
    assert code == 1 and "not a regular file" in out and err == ""


@pytest.mark.parametrize("offset", [5, 30])
def test_a_database_that_cannot_be_read_sends_to_doctor_and_doctor_never_to_itself(log: str, offset: int) -> None:
    """A command that answers with its own name as the next one leads nowhere."""
    with open(log, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff")
    code, out, err = run("verify", log)
    assert code == 1 and out == "" and "the database is damaged" in err
    assert f"`eventlog doctor {log}`" in err and "eventlog verify" not in err
    code, out, err = run("doctor", log)
    assert code == 1 and err == "" and f"`eventlog doctor {log} --repair NEWFILE`" in out
    assert f"`eventlog doctor {log}`" not in out and "eventlog verify" not in out


def test_damage_is_told_where_it_is_and_how_bad_it_is(log: str) -> None:
    tamper(log, "UPDATE event SET payload = '{}' WHERE seq = 6")
    (found,) = ask(log)
    assert (found["kind"], found["harm"]) == ("broken_chain", "events lost") and "seq 6" in found["what"] and "--repair" in found["next"]


def test_a_spoilt_cache_row_loses_nothing(log: str) -> None:
    tamper(log, "UPDATE stream SET floor = 1")
    (found,) = ask(log)
    assert (found["kind"], found["harm"]) == ("broken_chain", "nothing lost")


def test_a_missing_content_is_told_with_the_paths_that_need_it(log: str) -> None:
    tamper(log, f"DELETE FROM blob WHERE hash = x'{codec.content_id(support.HELLO).hex()}'")
    (found,) = ask(log)
    assert (found["kind"], found["harm"]) == ("missing_content", "some content lost")
    assert f"a since {STREAM} seq 1, b since {STREAM} seq 1" in found["which"]


def test_a_missing_output_and_a_missing_chunk_are_told_with_what_needs_them(log: str) -> None:
    chunk = next(blob.content for blob in support.blobs() if blob.codec != "chunks" and blob.size > 100_000)
    reader = Reader.open(log)
    assert find_uses(reader, codec.content_id(support.OUTPUT), 5) == [Use(STREAM, Seq(4), None)]
    assert find_uses(reader, chunk, 5) == [Use(STREAM, Seq(1), b"caf\xe9\n/big")]
    reader.close()
    assert describe_uses([Use(STREAM, Seq(4), None)]) == f"needed by the output of the call settled at {STREAM} seq 4"
    assert describe_uses([Use(StreamId("x\n"), Seq(1), b"\x1b")]) == "needed by \\x1b since x\\x0a seq 1"
    assert describe_uses([]) == "no event needs it"


def test_a_cut_tail_is_told_when_an_anchor_is_given(log: str, tmp_path: Path) -> None:
    anchor = str(tmp_path / "elsewhere")
    run("verify", log, "--anchor", anchor)
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)
    assert ask(log) == []
    (found,) = ask(log, "--anchor", anchor)
    assert found["kind"] == "cut_tail" and "4 events are gone (6 to 9)" in found["what"]
    assert run("doctor", log, "--anchor", str(tmp_path / "none"))[0] == 2


def test_a_missing_wal_beside_a_shm_is_told(log: str) -> None:
    Path(log + "-shm").write_bytes(bytes(32768))
    os.unlink(log + "-wal")
    (found,) = ask(log)
    assert (found["kind"], found["harm"]) == ("wal_missing", "events lost")


READ_OR_WRITE = [("append", "--kind", "noted", "--text", "x"), ("show",), ("verify",), ("compact",), ("tail", "--for", "0")]


@pytest.mark.parametrize("arguments", READ_OR_WRITE, ids=lambda arguments: arguments[0])
def test_a_log_whose_wal_is_gone_is_refused_until_its_index_is_gone_too(log: str, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    Path(log + "-shm").write_bytes(bytes(32768))
    os.rename(log + "-wal", tmp_path / "away")
    before = Path(log).read_bytes()
    command, *rest = arguments
    code, _, error = run(command, log, *rest)
    assert code == 1 and "log.sqlite-wal back, or remove" in error and error.count("\n") == 1
    assert Path(log).read_bytes() == before and not os.path.exists(log + "-wal")
    os.rename(tmp_path / "away", log + "-wal")
    assert len(run("show", log)[1].splitlines()) == 9
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)
    assert run("show", log)[0] == 0


def test_a_log_whose_wal_is_gone_is_not_read_as_a_copy_either(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_is_workable", lambda path: False)  # as in a directory that cannot be written
    Path(log + "-shm").write_bytes(bytes(32768))
    os.unlink(log + "-wal")
    with pytest.raises(CorruptError, match="its -wal is gone"), reading.open_anywhere(log):
        pass


def test_contents_that_were_given_up_and_orphans_are_remarks(log: str) -> None:
    name = codec.content_id(support.HELLO).hex()
    tamper(log, f"DELETE FROM blob WHERE hash = x'{name}'", f"INSERT INTO dropped VALUES (x'{name}', 240, 'compacted', 1)")
    tamper(log, "INSERT INTO blob VALUES (x'" + codec.content_id(b"x").hex() + "', 'raw', 1, x'78')")
    assert ask(log) == []
    kinds = [one["kind"] for one in json.loads(run("doctor", log, "--json")[1])["findings"]]
    assert "given_up" in kinds and "orphans" in kinds


def test_a_log_that_others_can_read_is_told(log: str) -> None:
    os.chmod(log, 0o644)
    (found,) = ask(log)
    assert found["kind"] == "permissions" and "mode 0644" in found["what"] and found["next"] == f"chmod 600 {log}"


HOLD = """
import sys
from tests.eventlog import support
writer = support.open_writer(sys.argv[1], first_id=5_000_000)
writer._handle.execute("BEGIN IMMEDIATE").fetchall()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_that_is_not_let_go_is_told_with_its_holder(log: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(support.ROOT)}
    holder = subprocess.Popen([sys.executable, "-c", HOLD, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        code, out, _ = run("doctor", log, "--json")
        found = [one for one in json.loads(out)["findings"] if one["kind"] == "locked"]
        assert code == 1 and f"pid {holder.pid}" in found[0]["what"]
    finally:
        holder.communicate()


def judge(**facts: Any) -> list[Diagnosis]:
    known: dict[str, Any] = {"size": 99, "header": HEADER, "wal_bytes": 1, "shm_bytes": 1, **facts}
    return list(judge_files(Facts("log.sqlite", **known)))


JUDGED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "healthy": ({}, []),
    "network": ({"filesystem": "nfs4"}, ["network"]),
    "fuse": ({"filesystem": "fuse.sshfs"}, ["network"]),
    "read-only": ({"is_read_only": True, "free_bytes": 0}, ["read_only"]),
    "no room": ({"free_bytes": 1000}, ["no_room"]),
    "no room for the wal": ({"free_bytes": 50 << 20, "wal_bytes": 60 << 20}, ["no_room"]),
    "large wal": ({"wal_bytes": 65 << 20}, ["wal_size"]),
    "locked": ({"holder": "held by pid 7: sleep"}, ["locked"]),
    "newer": ({"header": HEADER[:60] + (9).to_bytes(4, "big") + HEADER[64:]}, ["newer_format"]),
    "older": ({"header": HEADER[:60] + (1).to_bytes(4, "big") + HEADER[64:]}, ["older_format"]),
    "older and written": ({"header": HEADER[:60] + (2).to_bytes(4, "big") + HEADER[64:]}, ["older_format"]),
    "another application": ({"header": HEADER[:68] + bytes(4) + HEADER[72:]}, ["not_a_log"]),
    "unreadable": ({"is_readable": False, "header": b""}, ["unreadable"]),
    "empty": ({"size": 0, "header": b""}, ["empty"]),
    "just made": ({"wal_bytes": None, "shm_bytes": None}, ["wal_missing"]),
    "journal": ({"has_journal": True}, ["stray_journal"]),
    "two names": ({"names": 2}, ["hard_links"]),
    "all at once": ({"mode": 0o666, "filesystem": "9p", "holder": "held by pid 7"}, ["permissions", "network", "locked"]),
}


@pytest.mark.parametrize("name", JUDGED)
def test_what_the_files_tell_is_judged_by_kind(name: str) -> None:
    facts, kinds = JUDGED[name]
    assert [one.kind for one in judge(**facts)] == kinds
    assert all(one.what[0].islower() and not one.advice.endswith(".") for one in judge(**facts))


def test_a_log_of_a_newer_format_is_not_opened_and_one_with_a_spoilt_header_is() -> None:
    newer = HEADER[:60] + (9).to_bytes(4, "big") + HEADER[64:]
    assert not can_be_opened(Facts("log.sqlite", size=9, header=newer))
    assert not can_be_opened(Facts("log.sqlite", size=0)) and not can_be_opened(Facts("log.sqlite"))
    assert can_be_opened(Facts("log.sqlite", size=9, header=HEADER)) and can_be_opened(Facts("log.sqlite", size=9, header=bytes(100)))


@pytest.mark.parametrize(
    "kind", ["missing", "network", "stray_journal", "locked", "cut_tail", "given_up", "cannot_be_opened", "broken_chain"]
)
def test_the_kinds_stand_in_the_readme(kind: str) -> None:
    assert f"`{kind}`" in (support.ROOT / "eventlog" / "README.md").read_text("utf-8")


def test_a_cut_tail_is_told_by_what_verify_remembers_beside_the_log(log: str) -> None:
    assert run("verify", "--since", log)[0] == 0
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)
    (found,) = ask(log)
    assert found["kind"] == "cut_tail" and "4 events are gone (6 to 9)" in found["what"] and "`verify --since` has seen 9" in found["what"]


@pytest.mark.parametrize("how", ["anchor", "memory"])
def test_a_repair_lists_the_events_that_were_seen_and_are_gone(log: str, tmp_path: Path, how: str) -> None:
    anchor = str(tmp_path / "elsewhere")
    given = ["--anchor", anchor] if how == "anchor" else ["--since"]
    assert run("verify", log, *given)[0] == 0
    for suffix in ("-wal", "-shm"):
        os.unlink(log + suffix)
    code, out, _ = run("doctor", log, "--repair", str(tmp_path / "new.sqlite"), *(given if how == "anchor" else []))
    assert code == 1 and "LOST events: nightly 6 to 9: the tail was cut: event 9 has been seen" in out and "nothing was lost" not in out
