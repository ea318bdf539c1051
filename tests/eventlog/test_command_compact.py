"""The commands `compact`, `pin` and `usage`: what they say, as JSON too, and one sentence for every mistake."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from eventlog import codec, console
from eventlog.__main__ import _code as exit_code
from eventlog.__main__ import app
from eventlog.connection import WAL_BYTES
from tests.eventlog import growing, support
from tests.eventlog.growing import noise
from tests.eventlog.test_command import assert_one_sentence, lines


def run(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """The command's entry, in this process."""
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(error):
        code = console.run(app, "eventlog", 2, exit_code, list(arguments))
    out.flush()
    error.flush()
    return subprocess.CompletedProcess(arguments, code, out.buffer.getvalue(), error.buffer.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Two sessions: one with four calls of 20,000 bytes each, its fork with two and one content shared."""
    session = growing.begin(support.create_small(tmp_path))
    seqs = [session.call({b"file": noise(number), b"same": noise(9)}) for number in range(4)]
    fork = session.fork("fo\x1brk", seqs[3])
    for number in (10, 11):
        fork.call({b"file": noise(number)})
    session.writer.insert_blobs([codec.encode_blob(noise(99))])
    session.writer.close()
    return session.writer.path


def run_json(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_compact_says_what_it_gave_up_and_verify_is_content(log: str) -> None:
    done = run("compact", os.path.dirname(log), "--keep", "1")
    shown = lines(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.split(":")[0] for line in shown[:2]] == ["fo\\x1brk", "nightly"]
    assert shown[2].endswith("bytes") and "needed by no event: 20000 bytes" in shown[2]
    assert "bytes given up; the database had" in shown[3] and len(shown) == 4
    assert run("verify", log).returncode == 0


def test_compact_as_json(log: str) -> None:
    planned = run_json("compact", log, "--keep", "1", "--dry-run")
    assert set(planned) == {"log", "dry_run", "given_up"} and planned["dry_run"] is True
    found = run_json("compact", log, "--keep", "1")
    assert set(found) == {"log", "dry_run", "given_up", "before_bytes", "after_bytes", "free_pages", "wal", "note"}
    assert found["given_up"] == planned["given_up"]
    assert set(found["given_up"]) == {
        "contents", "chunks", "orphans", "by_session", "shared_bytes", "orphan_bytes", "orphans_left", "total_bytes"
    }  # fmt: skip
    assert (found["given_up"]["contents"], found["given_up"]["orphans"]) == (4, 1)
    assert found["given_up"]["by_session"] == {"fo\x1brk": 20_000, "nightly": 60_000}
    assert found["wal"] == {"done": True, "wal_bytes": 0, "pinned_by": []} and found["free_pages"] == 0
    assert found["after_bytes"] == os.path.getsize(log)


def test_usage_says_where_the_room_goes(log: str) -> None:
    found = run_json("usage", log)
    nightly, fork = sorted(found["sessions"], key=lambda one: one["session"], reverse=True)
    assert (nightly["session"], nightly["events"], nightly["contents"], nightly["given_up"]) == ("nightly", 10, 6, 0)
    assert nightly["own_bytes"] == 60_000  # three images of its own; the fourth, and what stayed, are the fork's too
    assert nightly["shared_bytes"] == found["shared_bytes"] == fork["shared_bytes"] == 40_000
    assert (fork["own_bytes"], found["unnamed_bytes"]) == (40_000, 20_000)
    assert 0 < found["wal_bytes"] <= WAL_BYTES and found["pinned_by"] == []
    run("compact", log, "--keep", "1")
    after = {one["session"]: one for one in run_json("usage", log)["sessions"]}
    assert (after["nightly"]["given_up"], after["nightly"]["own_bytes"]) == (3, 0)
    assert (after["fo\x1brk"]["given_up"], after["fo\x1brk"]["own_bytes"]) == (1, 20_000)
    shown = lines(run("usage", log).stdout)
    assert shown[0].startswith("fo\\x1brk: 6 events (") and all(line.isprintable() for line in shown)
    assert shown[-1].endswith("free; WAL 0 bytes")


def test_usage_names_who_reads_from_the_wal(log: str) -> None:
    code = (
        "import apsw, sys\nc = apsw.Connection(sys.argv[1])\nc.execute('BEGIN').fetchall()\n"
        "print(c.execute('SELECT count(*) FROM event').fetchall(), flush=True)\nsys.stdin.readline()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
    assert [holder["pid"] for holder in run_json("usage", log)["pinned_by"]] == [process.pid]
    assert f"the WAL is read by pid {process.pid} (" in run("usage", log).stdout.decode()
    shown = run("compact", log, "--keep", "1").stdout.decode()
    assert f"is pinned by pid {process.pid} (" in shown and "another process has the log open" in shown
    process.communicate("\n")


def test_a_pin_keeps_an_image_until_it_is_taken_away(log: str) -> None:
    where = ("--at", "4", "--session", "nightly")
    pinned = {"log": log, "session": "nightly", "seq": 4, "pinned": True, "changed": True}
    assert run_json("pin", log, *where, "--note", "good") == pinned
    assert run_json("pin", log, *where) == {**pinned, "changed": False}
    assert run_json("compact", log, "--keep", "1")["given_up"]["contents"] == 3
    assert lines(run("pin", log, *where, "--remove").stdout) == [f"{log}: session nightly seq 4 is not pinned"]
    assert lines(run("pin", log, *where, "--remove").stdout) == [f"{log}: session nightly seq 4 is not pinned, as it was before"]
    assert run_json("compact", log, "--keep", "1")["given_up"]["contents"] == 1


def test_mistakes_are_one_sentence(log: str, tmp_path: Path) -> None:
    assert_one_sentence(run("pin", log, "--at", "4"), 2, "name one with --session: fo\\x1brk, nightly")
    assert_one_sentence(run("pin", log, "--at", "999", "--session", "nightly"), 2, "session nightly has no event 999")
    assert_one_sentence(run("pin", log, "--at", "0"), 2, "--at")
    assert_one_sentence(run("compact", log, "--keep", "0"), 2, "--keep")
    for command in (("compact",), ("compact", "--dry-run"), ("usage",), ("pin", "--at", "1")):
        assert_one_sentence(run(command[0], str(tmp_path / "none" / "log.sqlite"), *command[1:]), 2, "there is no log here")


def test_a_damaged_log_is_named_and_not_compacted(log: str) -> None:
    support.tamper(log, "UPDATE event SET epoch = 7 WHERE stream = 'nightly' AND seq = 4")
    for command in (("compact",), ("compact", "--dry-run"), ("usage",)):
        assert_one_sentence(run(command[0], log, *command[1:]), 1, "stream nightly seq 4", "run `eventlog verify")
