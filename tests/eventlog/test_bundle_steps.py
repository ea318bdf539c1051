"""Moving a session away, and SIGKILL at every step of export, move and import."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog import __main__ as eventlog_main
from eventlog import console, events, steps
from eventlog.bundle_export import Exported, export_moved
from eventlog.creation import create_log
from eventlog.errors import CorruptError, HeadMovedError, MisuseError, MovedError
from eventlog.image import root_hash
from eventlog.ports import CountingIds, FakeClock
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import Epoch, Seq, StreamId
from tests.eventlog import bundles, support
from tests.eventlog.support import STREAM

MOVED = b"crashworthy bundle 1 moved\n"
EXPORT_STEPS = [
    *(f"driver@0:bundle.{operation}.{place}:1" for operation in ("write", "sync", "move") for place in ("before", "after")),
    *(f"driver@0:bundle.sync.{place}:2" for place in ("before", "after")),
]
MOVE_STEPS = [*EXPORT_STEPS[:4], *(f"driver@0:move.commit.{place}:1" for place in ("before", "locked", "after")), *EXPORT_STEPS[4:]]
IMPORT_STEPS = [
    *(f"driver@0:blobs.commit.{place}:1" for place in ("locked", "after")),
    *(f"driver@0:import.commit.{place}:1" for place in ("before", "locked", "after")),
]


def make_small(directory: Path) -> str:
    """A log whose session can be moved."""
    path = support.create_small(directory)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(3), support.started())
    support.add(writer, 3, "one", "two")
    writer.close()
    return path


def move(log: str, file: Path, stream: StreamId = STREAM) -> Exported:
    writer = support.open_writer(log, first_id=4_000_000)
    try:
        return export_moved(writer, stream, str(file), CountingIds(88), FakeClock())
    finally:
        writer.close()


def last_kind(log: str) -> str:
    reader = Reader.open(log)
    try:
        return list(reader.events(STREAM))[-1].event.kind
    finally:
        reader.close()


def test_rule_L8_a_moved_session_is_fenced_by_the_digest_of_its_bundle(tmp_path: Path) -> None:
    log = make_small(tmp_path)
    bundles.make(log, tmp_path / "plain.bundle")
    made = move(log, tmp_path / "a.bundle")
    reader = Reader.open(log)
    last = list(reader.events(STREAM))[-1]
    assert (last.event, last.seq, last.epoch) == (events.SessionMoved(1_000_000, made.digest.hex()), 5, 3)
    reader.close()
    assert bundles.unpack(tmp_path / "a.bundle", MOVED) == bundles.unpack(tmp_path / "plain.bundle")
    writer = support.open_writer(log)
    with pytest.raises(MovedError, match="was moved away"):
        support.add(writer, 3, "more")
    with pytest.raises(MovedError):
        writer.raise_floor(STREAM, Epoch(4), support.started("next"))
    with pytest.raises(MovedError):
        writer.append_unfenced(STREAM, [support.note("more")], "note")
    writer.close()
    bundles.assert_sound(log)
    imported = bundles.take_new(str(tmp_path / "new.sqlite"), tmp_path / "a.bundle")
    assert (imported.is_moved, imported.session, imported.forked_at) == (True, STREAM, 4)
    reader = Reader.open(str(tmp_path / "new.sqlite"))
    (first,) = reader.events(STREAM)
    assert isinstance(first.event, events.SessionForked) and first.event.reason == "moved"
    reader.close()


def test_rule_L8_the_steps_of_a_move_are_those_that_are_killed_at(tmp_path: Path) -> None:
    log = make_small(tmp_path)
    assert support.record_steps(lambda: bundles.make(log, tmp_path / "a.bundle") and None) == EXPORT_STEPS
    assert support.record_steps(lambda: move(log, tmp_path / "b.bundle") and None) == MOVE_STEPS


@pytest.mark.parametrize("step", MOVE_STEPS)
def test_rule_L8_a_kill_at_any_step_leaves_a_live_session_or_a_fenced_one_with_the_same_bundle(tmp_path: Path, step: str) -> None:
    log, file = make_small(tmp_path), tmp_path / "a.bundle"
    bundles.make(log, tmp_path / "plain.bundle")
    expected = MOVED + (tmp_path / "plain.bundle").read_bytes()[len(bundles.MAGIC) :]
    support.kill_at(step, lambda: move(log, file) and None)
    fenced = last_kind(log) == "session_moved"
    assert fenced == (MOVE_STEPS.index(step) >= MOVE_STEPS.index("driver@0:move.commit.after:1"))
    assert file.exists() == (MOVE_STEPS.index(step) >= MOVE_STEPS.index("driver@0:bundle.move.after:1"))
    writer = support.open_writer(log)
    if fenced:
        with pytest.raises(MovedError):
            support.add(writer, 3, "more")
    writer.close()
    move(log, file)
    assert file.read_bytes() == expected and last_kind(log) == "session_moved"
    assert len([row for row in bundles.dump(log)["event"] if row[4] == "session_moved"]) == 1
    bundles.assert_sound(log)


@pytest.mark.parametrize("step", EXPORT_STEPS)
def test_a_kill_at_any_step_of_an_export_leaves_a_whole_bundle_or_none(tmp_path: Path, step: str) -> None:
    log, file = make_small(tmp_path), tmp_path / "a.bundle"
    bundles.make(log, tmp_path / "expected")
    support.kill_at(step, lambda: bundles.make(log, file) and None)
    if EXPORT_STEPS.index(step) < EXPORT_STEPS.index("driver@0:bundle.move.after:1"):
        assert not file.exists()
        bundles.make(log, file)
    assert file.read_bytes() == (tmp_path / "expected").read_bytes()


def other_log(directory: Path) -> str:
    directory.mkdir()
    path = str(directory / "log.sqlite")
    create_log(path, StreamId("other"), support.opened("other", {b"": support.IMAGE[b""]}), (), CountingIds(9_000_000))
    return path


def test_the_steps_of_an_import_are_those_that_are_killed_at(tmp_path: Path) -> None:
    bundles.make(support.make_log(tmp_path), tmp_path / "a.bundle")
    target = other_log(tmp_path / "there")
    assert support.record_steps(lambda: bundles.take(target, tmp_path / "a.bundle") and None) == IMPORT_STEPS


@pytest.mark.parametrize("step", IMPORT_STEPS)
def test_a_kill_at_any_step_of_an_import_leaves_all_of_the_session_or_nothing_of_it(tmp_path: Path, step: str) -> None:
    bundles.make(support.make_log(tmp_path), tmp_path / "a.bundle")
    target = other_log(tmp_path / "there")
    before = bundles.dump(target)
    support.kill_at(step, lambda: bundles.take(target, tmp_path / "a.bundle") and None)
    after = bundles.dump(target)
    if step == IMPORT_STEPS[-1]:
        assert len(after["stream"]) == 3
    else:
        assert {**after, "blob": []} == {**before, "blob": []}
        bundles.take(target, tmp_path / "a.bundle")
    bundles.assert_sound(target)
    assert len(bundles.dump(target)["event"]) == 1 + 9 + 1


class Driver:
    """A driver in a process of its own (tests.eventlog.worker)."""

    def __init__(self, log: str) -> None:
        command = [sys.executable, "-m", "tests.eventlog.worker", log, "3000000", "5000"]
        self._process = subprocess.Popen(command, cwd=support.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.read() == "ready"

    def read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, text: str, hold: str | None = None) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": "append", "epoch": 3, "text": text, "hold": hold}) + "\n")
        self._process.stdin.flush()
        return self.read()

    def go_on(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self._process.communicate()


def test_rule_L8_a_driver_that_has_the_session_open_is_stopped_by_the_move(tmp_path: Path) -> None:
    log = make_small(tmp_path)
    driver = Driver(log)
    assert driver.tell("three") == "ok 5"
    assert driver.tell("held before its lock", hold="note.commit.before") == "held"
    move(log, tmp_path / "a.bundle")
    assert driver.go_on() == "MovedError"
    assert driver.tell("again") == "MovedError"
    driver.end()
    assert last_kind(log) == "session_moved"


def test_rule_L8_an_append_during_the_export_wins_and_the_session_stays(tmp_path: Path) -> None:
    log = make_small(tmp_path)

    def append() -> None:
        writer = support.open_writer(log, first_id=3_000_000)
        support.add(writer, 3, "meanwhile")
        writer.close()

    steps.install(support.Calling("bundle.sync.after", append))
    try:
        with pytest.raises(HeadMovedError, match="the head moved from 4 to 5"):
            move(log, tmp_path / "a.bundle")
    finally:
        steps.install(None)
    assert last_kind(log) == "noted"
    assert [file.name for file in tmp_path.iterdir() if "bundle" in file.name] == []


def open_call(log: str) -> None:
    writer = support.open_writer(log, first_id=3_000_000)
    writer.append(STREAM, Epoch(3), [support.attempt(1)], (), "intent")
    writer.close()


def open_restore(log: str) -> None:
    writer = support.open_writer(log, first_id=3_000_000)
    root = root_hash({b"": support.IMAGE[b""]}).hex()
    decided = events.RecoveryDecided(9, "restore_unknown", None, None, True, 1, root, "transactional", {})
    writer.append(STREAM, Epoch(3), [Record(decided)], (), "decision")
    writer.close()


@pytest.mark.parametrize("begin", [open_call, open_restore], ids=["call", "restore"])
def test_rule_C9_a_session_with_a_call_or_a_restore_open_is_not_moved(tmp_path: Path, begin: Callable[[str], None]) -> None:
    log = make_small(tmp_path)
    begin(log)
    before = bundles.dump(log)
    with pytest.raises(MisuseError, match="cannot be moved now: at seq 5 a call or a restore is open"):
        move(log, tmp_path / "a.bundle")
    assert bundles.dump(log) == before and not (tmp_path / "a.bundle").exists()


def test_a_session_is_not_fenced_for_a_file_that_is_there(tmp_path: Path) -> None:
    log = make_small(tmp_path)
    (tmp_path / "a.bundle").write_text("mine")
    with pytest.raises(MisuseError, match="it stays as it is"):
        move(log, tmp_path / "a.bundle")
    assert last_kind(log) == "noted"
    move(log, tmp_path / "b.bundle")
    with pytest.raises(MisuseError, match="it stays as it is"):
        move(log, tmp_path / "a.bundle")
    assert (tmp_path / "a.bundle").read_text() == "mine"
    move(log, tmp_path / "c.bundle")
    assert (tmp_path / "b.bundle").read_bytes() == (tmp_path / "c.bundle").read_bytes()


def test_rule_L8_a_fenced_session_that_makes_another_bundle_than_it_says_is_damage(tmp_path: Path) -> None:
    log = make_small(tmp_path)
    writer = support.open_writer(log, first_id=4_000_000)
    writer.move_away(STREAM, "ab" * 32, Seq(4), 7)
    writer.close()
    with pytest.raises(CorruptError, match="was moved into the bundle abababab"):
        move(log, tmp_path / "a.bundle")
    assert [file.name for file in tmp_path.iterdir() if "bundle" in file.name] == []


def test_a_prefix_is_not_moved(tmp_path: Path) -> None:
    bundles.make(make_small(tmp_path), tmp_path / "a.bundle")
    target = other_log(tmp_path / "there")
    prefix = bundles.take(target, tmp_path / "a.bundle").prefix
    with pytest.raises(MisuseError, match="was imported and is read-only"):
        move(target, tmp_path / "b.bundle", prefix)


def test_a_moved_session_is_still_exported_as_it_stands(tmp_path: Path) -> None:
    log = make_small(tmp_path)
    move(log, tmp_path / "a.bundle")
    bundles.make(log, tmp_path / "b.bundle")
    made = bundles.take(other_log(tmp_path / "there"), tmp_path / "b.bundle")
    assert (made.header.head_seq, made.is_moved) == (5, False)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command in this process: starting one takes longer than what it does."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = console.run(eventlog_main.app, "eventlog", 2, eventlog_main._code, list(arguments))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def run_process(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eventlog", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=support.ROOT, check=False)


def test_the_commands_export_and_import(tmp_path: Path) -> None:
    log, there = support.make_log(tmp_path), tmp_path / "there"
    there.mkdir()
    file = str(tmp_path / "a.bundle")
    done = run("export", log, "--to", file, "--json")
    made = json.loads(done.stdout)
    assert done.returncode == 0 and (made["session"], made["head_seq"], made["moved"]) == ("nightly", 9, False)
    done = run("import", str(there), file, "--new", "--dry-run", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["digest"] == made["digest"] and not list(there.iterdir())
    refused = run("import", str(there), file)
    assert refused.returncode == 2 and "add --new" in refused.stderr and not list(there.iterdir())
    done = run("import", str(there), file, "--new", "--as", "mine", "--json")
    taken = json.loads(done.stdout)
    assert done.returncode == 0 and (taken["session"], taken["forked_at"], taken["reused"]) == ("mine", 9, False)
    assert taken["digest"] == made["digest"]
    assert run("import", str(there), file, "--as", "../x").returncode == 2
    assert run("import", str(there), file, "--as", "two").returncode == 0
    assert "name one with --session" in run("export", str(there), "--to", str(tmp_path / "b")).stderr
    assert "cannot be moved" not in run("export", log, "--to", str(tmp_path / "m"), "--move").stderr
    again = run("export", log, "--to", str(tmp_path / "m"), "--move")
    assert again.returncode == 0 and "nothing is appended to it here any more" in again.stdout
    assert run("export", log, "--to", str(tmp_path / "n"), "--move", "--upto", "3").returncode == 2
    assert run("export", log, "--to", str(tmp_path / "n"), "--upto", "99").returncode == 2
    before = bundles.dump(str(there / "log.sqlite"))
    assert run("import", str(there), file, "--as", "dry", "--dry-run").stdout.startswith("sound, nothing was written: ")
    broken = Path(file).read_bytes()[:-1]
    Path(file).write_bytes(broken)
    done = run_process("import", str(there), file, "--as", "three")
    assert done.returncode == 1 and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert run("import", str(there), file, "--as", "three", "--dry-run").returncode == 1
    assert run("import", str(there), log, "--as", "three").returncode == 2
    assert bundles.dump(str(there / "log.sqlite")) == before
