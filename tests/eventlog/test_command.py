"""The command `eventlog` as a process: exit codes 0, 1, 2; one sentence for every mistake; nothing modified."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from eventlog import codec
from eventlog.creation import create_log
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.values import Epoch, StreamId
from tests.eventlog import support
from tests.eventlog.support import STREAM


@pytest.fixture
def log(tmp_path: Path) -> str:
    return support.make_log(tmp_path)


def run(*arguments: str | bytes, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[bytes]":
    command = [os.fsencode(word) for word in (sys.executable, "-m", "eventlog", *arguments)]
    environ = {**os.environ, "PYTHONPATH": str(support.ROOT), "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
    return subprocess.run(command, capture_output=True, cwd="/", env=environ, check=False)


def lines(output: bytes) -> list[str]:
    return output.decode("utf-8").splitlines()


def assert_one_sentence(done: "subprocess.CompletedProcess[bytes]", code: int, *words: str) -> None:
    """Exit `code`, nothing on stdout, one line on stderr with these words, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == b"" and len(lines(done.stderr)) == 1 and b"Traceback" not in done.stderr
    assert all(word in done.stderr.decode() for word in words), done.stderr
    assert done.stderr.decode().rstrip("\n").isprintable()


def test_show_prints_one_line_per_event(log: str) -> None:
    done = run("show", log)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = lines(done.stdout)
    assert len(shown) == 9
    assert shown[0].startswith("nightly     1 epoch 0   session_opened")
    assert "(7 paths changed)" in shown[0] and "(3 paths changed)" in shown[3]
    assert "call 1 finished (finished) exit 0 image" in shown[3]
    assert "driver_started      pid 41, kill mark cgroup" in shown[4]


def test_show_takes_the_state_directory_as_well(log: str) -> None:
    assert run("show", os.path.dirname(log)).stdout == run("show", log).stdout


def test_show_as_json_is_one_object_per_event_with_the_whole_payload(log: str) -> None:
    done = run("show", log, "--json")
    found: list[dict[str, Any]] = [json.loads(line) for line in lines(done.stdout)]
    assert [one["seq"] for one in found] == list(range(1, 10))
    reader = Reader.open(log)
    stored = list(reader.events(STREAM))
    reader.close()
    assert [one["hash"] for one in found] == [one.hash.hex() for one in stored]
    known = {"call", "tool", "decision", "size", "duration_ms"}
    assert [set(one) - known for one in found] == [{"stream", "seq", "epoch", "kind", "hash", "changes", "payload"}] * 9
    assert found[0]["payload"]["workspace"] == {"b64": "Y2Fm6Q=="}
    assert found[5]["payload"] == {"at_ms": 3, "text": "caf\u00e9 \u202e \x1b[31m"}


def test_case_04_show_escapes_what_would_steer_a_terminal(log: str, tmp_path: Path) -> None:
    done = run("show", log)
    shown = lines(done.stdout)
    assert all(line.isprintable() for line in shown)
    assert shown[5].endswith("caf\u00e9 \\xe2\\x80\\xae \\x1b[31m")
    assert shown[6].endswith("two\\x0alines")
    hostile = str(tmp_path / "hostile.sqlite")
    create_log(hostile, StreamId("\x1b[2J\nnightly"), support.opened("\x1b]0;x\x07"), support.blobs(), CountingIds())
    for arguments in (("show", hostile), ("verify", hostile), ("show", hostile, "--json"), ("verify", hostile, "--json")):
        done = run(*arguments)
        assert done.returncode == 0 and all(line.isprintable() for line in lines(done.stdout)), done.stdout
        assert done.stdout.count(b"\n") == 1


@pytest.mark.parametrize("environment", [{"LANG": "C.UTF-8"}, {"LANG": "C"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}])
def test_case_03_show_works_for_any_bytes_under_any_locale(log: str, environment: dict[str, str], tmp_path: Path) -> None:
    there = tmp_path / "caf\u00e9"
    there.mkdir()
    for suffix in ("", "-wal"):
        (there / f"log.sqlite{suffix}").write_bytes(Path(log + suffix).read_bytes())
    for arguments in (("show",), ("verify",), ("show", "--json"), ("verify", "--json")):
        done = run(*arguments, os.fsencode(there), environment=environment)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        assert done.stdout.isascii() or environment.get("PYTHONUTF8") != "0"


@pytest.mark.parametrize("arguments", [["show"], ["verify"], ["verify", "--json"]])
def test_case_03_a_path_that_is_not_utf_8_is_refused_by_its_escaped_form(log: str, tmp_path: Path, arguments: list[str]) -> None:
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(odd)
    for suffix in ("", "-wal"):
        os.rename(log + suffix, odd + f"/log.sqlite{suffix}".encode())
    assert_one_sentence(run(*arguments, odd), 2, "caf\\xe9/log.sqlite", "not UTF-8")
    os.symlink(odd, tmp_path / "link")
    assert run(*arguments, str(tmp_path / "link")).returncode == 0


def test_verify_says_sound_and_how_much_was_walked(log: str) -> None:
    done = run("verify", log)
    size = sum(map(len, (support.HELLO, support.BIG, support.OUTPUT)))
    assert (done.returncode, done.stderr) == (0, b"")
    sound = "sound up to its head (a cut tail shows only against an anchor, `--anchor FILE`, or the ledger, `recovery plan`)"
    assert lines(done.stdout) == [f"{log}: {sound}: 1 sessions, 9 events, 6 blobs, {size} bytes"]
    found = json.loads(run("verify", log, "--json").stdout)
    assert found == {
        "log": log, "streams": 1, "events": 9, "blobs": 6, "blob_bytes": size, "orphans": 0, "orphan_bytes": 0, "given_up": 0,
        "findings": [], "since": None, "anchor": None,
    }  # fmt: skip


def test_invariant_I9_verify_names_each_piece_of_damage_and_exits_1(log: str) -> None:
    blob = codec.content_id(support.HELLO).hex()
    support.tamper(log, "UPDATE event SET epoch = 1 WHERE seq = 6", f"DELETE FROM blob WHERE hash = x'{blob}'")
    done = run("verify", log)
    assert (done.returncode, done.stderr) == (1, b"")
    shown = lines(done.stdout)
    assert [line.split()[0] for line in shown[:-2]] == ["DAMAGE"] * 2
    assert shown[-2] == f"`eventlog doctor {log}` says how bad it is and what to do" and "run `eventlog verify" not in done.stdout.decode()
    assert "seq 6" in shown[0] and "the last good event is 5" in shown[0]
    assert f"blob {blob} is missing" in shown[1]
    assert shown[-1].startswith(f"{log}: damaged: ")
    found = run("verify", log, "--json")
    assert found.returncode == 1
    assert [set(one) for one in json.loads(found.stdout)["findings"]] == [{"where", "what", "kind"}] * 2


def test_invariant_I9_show_stops_at_damage_with_one_sentence(log: str) -> None:
    support.tamper(log, "UPDATE event SET payload = CAST(x'7bff' AS TEXT) WHERE seq = 4")
    done = run("show", log)
    assert done.returncode == 1 and len(lines(done.stdout)) == 3
    assert len(lines(done.stderr)) == 1
    assert "seq 4" in lines(done.stderr)[0] and "the last good event is 3" in lines(done.stderr)[0]
    assert b"Traceback" not in done.stderr


WRONG: dict[str, tuple[list[str], int, list[str]]] = {
    "no such log": (["show", "{}/nothing"], 2, ["there is no log here"]),
    "no log in the directory": (["verify", "{}"], 2, ["there is no log here"]),
    "no database": (["verify", "{}/text"], 1, ["is damaged"]),
    "empty file": (["verify", "{}/empty"], 1, ["the log is an empty file"]),
    "a pipe": (["show", "{}/pipe"], 2, ["not a regular file"]),
    "a name too long": (["show", "{}/" + "n" * 5000], 2, ["there is no log here"]),
    "no argument": (["show"], 2, ["log", "`eventlog show --help`"]),
    "unknown option": (["show", "{}/text", "--jsn"], 2, ["--jsn"]),
    "unknown command": (["shw"], 2, ["shw", "`eventlog --help`"]),
    "too many": (["verify", "a", "b"], 2, ["b"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_sentence_and_never_a_traceback(tmp_path: Path, name: str) -> None:
    (tmp_path / "text").write_text("hello\n" * 5000)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    arguments, code, words = WRONG[name]
    before = sorted(os.listdir(tmp_path))
    assert_one_sentence(run(*(word.replace("{}", str(tmp_path)) for word in arguments)), code, *words)
    assert sorted(os.listdir(tmp_path)) == before


def test_no_arguments_show_what_there_is_and_count_as_usage() -> None:
    done = run()
    assert done.returncode == 2 and b"Traceback" not in done.stderr
    assert b"verify" in done.stdout + done.stderr and b"show" in done.stdout + done.stderr
    helped = run("--help")
    assert helped.returncode == 0 and b"verify" in helped.stdout


@pytest.mark.parametrize("arguments", [["show"], ["show", "--json"], ["verify"], ["verify", "--json"]])
def test_looking_at_a_killed_log_modifies_nothing(log: str, arguments: list[str]) -> None:
    os.unlink(log + "-shm")
    before = {suffix: (Path(log + suffix).read_bytes(), os.stat(log + suffix).st_mtime_ns) for suffix in ("", "-wal")}
    assert run(*arguments, log).returncode == 0
    assert {suffix: (Path(log + suffix).read_bytes(), os.stat(log + suffix).st_mtime_ns) for suffix in ("", "-wal")} == before


def test_looking_at_a_log_that_a_driver_writes_needs_no_lock_and_takes_none(log: str) -> None:
    writer = support.open_writer(log, first_id=5_000_000)
    writer._handle.execute("BEGIN IMMEDIATE").fetchall()
    assert run("verify", log).returncode == 0
    writer._handle.execute("ROLLBACK").fetchall()
    writer.raise_floor(STREAM, Epoch(9), support.started("n9"))
    assert len(lines(run("show", log).stdout)) == 10
    writer.close()


def test_a_reader_that_goes_away_is_no_traceback(log: str) -> None:
    writer = support.open_writer(log, first_id=5_000_000)
    for _ in range(30):
        support.add(writer, 4, *["x" * 200] * 20)
    writer.close()
    environ = {**os.environ, "PYTHONPATH": str(support.ROOT)}
    command = [sys.executable, "-m", "eventlog", "show", log]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, cwd="/")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() != 0 and said == b""


@pytest.mark.parametrize("make", [lambda path: os.chmod(path, 0), lambda path: os.truncate(path, 20_000)], ids=["closed", "cut"])
def test_a_log_that_cannot_be_read_is_said_in_one_sentence(log: str, make: Callable[[str], None]) -> None:
    make(log)
    os.unlink(log + "-wal")
    done = run("verify", log)
    assert b"Traceback" not in done.stderr
    if os.geteuid() != 0 or os.path.getsize(log) == 20_000:
        assert done.returncode in (1, 2)


@pytest.mark.parametrize("command", ["show", "verify"])
def test_looking_at_an_emptied_log_keeps_its_wal(log: str, command: str) -> None:
    """SQLite deletes the WAL beside an empty database: it may hold the only copy of the newest events."""
    os.truncate(log, 0)
    with open(log + "-wal", "rb") as file:
        before = file.read()
    assert before
    assert_one_sentence(run(command, log), 1, "the log is an empty file")
    with open(log + "-wal", "rb") as file:
        assert file.read() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="a read-only mount needs root")
@pytest.mark.parametrize("command", ["show", "verify"])
def test_a_log_on_a_read_only_mount_is_read_without_its_shm_file(log: str, command: str) -> None:
    expected = run(command, log)
    directory = os.path.dirname(log)
    os.unlink(log + "-shm")
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    arguments = ["unshare", "-m", "bash", "-c", script, "bash", directory, sys.executable, "-m", "eventlog", command, log]
    found = subprocess.run(arguments, capture_output=True, check=False)
    if b"unshare" in found.stderr or b"mount:" in found.stderr:
        pytest.skip(f"mounting is not allowed here: {found.stderr.decode()}")
    assert (found.returncode, found.stdout, found.stderr) == (0, expected.stdout, b"")
    assert sorted(os.listdir(directory)) == ["log.sqlite", "log.sqlite-wal"]
