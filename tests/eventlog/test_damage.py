"""Damage with real files: flipped bits, cut files, zeroed and swapped pages, missing side files. Each is said, or changes no output.

The commands run in this process, through the application itself, to be quick; a sample of each runs as processes. A command added to
READING is held to the same rules.
"""

import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import console
from eventlog.__main__ import _code, app
from eventlog.connection import PAGE_BYTES
from eventlog.values import Epoch
from tests.eventlog import support
from tests.eventlog.support import STREAM
from tests.eventlog.test_verify import small_log

READING = (("show",), ("show", "--json"), ("verify",), ("verify", "--json"))
"""Every command that reads, without its LOG; what a damaged log must not change in silence."""
FLIPS_PER_PAGE = 5
FRAME_BYTES = PAGE_BYTES + 24
Said = tuple[int, str, str]


def run(*arguments: str) -> Said:
    """A command in this process: its exit code, stdout and stderr. An exception that no person should see fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = console.run(app, "eventlog", 2, _code, list(arguments))
    return code, out.getvalue(), err.getvalue()


def run_process(*arguments: str) -> Said:
    """The same as a process."""
    environ = {**os.environ, "PYTHONPATH": str(support.ROOT)}
    done = subprocess.run([sys.executable, "-m", "eventlog", *arguments], capture_output=True, text=True, env=environ, check=False)
    return done.returncode, done.stdout, done.stderr


class Files:
    """A closed log, and every way to write other bytes in its place."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.database = Path(path).read_bytes()
        wal = Path(path + "-wal")
        self.wal = wal.read_bytes() if wal.exists() else None
        self.intact = {command: run(*command, path) for command in READING}
        assert all(code == 0 for code, _, _ in self.intact.values())

    def put(self, database: bytes | None = None, wal: bytes | None = None) -> None:
        """The intact files but for what is given; nothing that SQLite put beside them is left."""
        Path(self.path + "-shm").unlink(missing_ok=True)
        Path(self.path + "-wal").unlink(missing_ok=True)
        Path(self.path).write_bytes(self.database if database is None else database)
        kept = self.wal if wal is None else wal
        if kept is not None:
            Path(self.path + "-wal").write_bytes(kept)

    def is_said(self, what: str) -> bool:
        """Whether verify calls the files damaged. Each command must say so in one sentence, or answer as for the intact log."""
        answers = {command: run(*command, self.path) for command in READING}
        said = answers[("verify",)][0] != 0
        for command, (code, out, err) in answers.items():
            if code == 0:
                assert (out == self.intact[command][1] and not err) or said, f"{what}: {command} says something else, and verify is silent"
            else:
                assert code in (1, 2) and "Traceback" not in err and err.count("\n") <= 1, f"{what}: {command}: {code} {err}"
                assert said, f"{what}: {command} fails and verify is silent"
        return said


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(small_log(tmp_path))


def flips(database: bytes) -> Iterator[tuple[int, int]]:
    """(place, bit) for each page: several where something stands, one anywhere."""
    draw = random.Random(4)
    for page in range(0, len(database), PAGE_BYTES):
        used = [place for place in range(page, page + PAGE_BYTES) if database[place]] or [page]
        for place in [*draw.choices(used, k=FLIPS_PER_PAGE), page + draw.randrange(PAGE_BYTES)]:
            yield place, 1 << draw.randrange(8)


def test_invariant_I9_a_flipped_bit_in_any_page_is_said_or_changes_no_output(files: Files) -> None:
    said: list[int] = []
    for place, bit in flips(files.database):
        files.put(files.database[:place] + bytes([files.database[place] ^ bit]) + files.database[place + 1 :])
        if files.is_said(f"bit {bit:#x} of byte {place}"):
            said.append(place)
    assert len({place // PAGE_BYTES for place in said}) > len(files.database) // PAGE_BYTES // 2, "hardly a page is read at all"


def test_a_flipped_bit_is_told_by_the_process_as_by_the_application(files: Files) -> None:
    for place, bit in list(flips(files.database))[3::40]:
        files.put(files.database[:place] + bytes([files.database[place] ^ bit]) + files.database[place + 1 :])
        assert run_process("verify", files.path) == run("verify", files.path)


def test_invariant_I9_a_database_cut_anywhere_is_said_or_lacks_bytes_that_nobody_uses(files: Files) -> None:
    """Within its last page a cut takes zeroes only when nothing stands at that page's end: SQLite reads the rest as zeroes."""
    last = len(files.database) - PAGE_BYTES
    files.put()
    for size in reversed(range(0, len(files.database), 512)):
        os.truncate(files.path, size)
        code, out, err = run("verify", files.path)
        assert code in (1, 2) or size > last, f"cut at {size}: {out}"
        assert "Traceback" not in err and err.count("\n") <= 1, f"cut at {size}: {err}"
        if code == 0:
            assert not any(files.database[size:]) and out == files.intact[("verify",)][1]
    files.put(files.database[: len(files.database) // 2])
    assert files.is_said("cut in half")


@pytest.mark.parametrize("kind", ["zeroed", "swapped", "doubled"])
def test_invariant_I9_pages_that_are_not_theirs_are_said_or_change_no_output(files: Files, kind: str) -> None:
    pages = [files.database[at : at + PAGE_BYTES] for at in range(0, len(files.database), PAGE_BYTES)]
    said = 0
    for number in range(len(pages)):
        other = (number + 1) % len(pages)
        spoilt = list(pages)
        spoilt[number] = bytes(PAGE_BYTES) if kind == "zeroed" else pages[other]
        spoilt[other] = pages[number] if kind == "swapped" else pages[other]
        files.put(b"".join(spoilt))
        said += files.is_said(f"page {number + 1} {kind}")
    assert said >= len(pages) - 4  # tables that are empty have pages that are alike


@pytest.fixture
def with_wal(tmp_path: Path) -> Files:
    """A small log whose newest three events stand in the WAL only, one commit each."""
    path = support.create_small(tmp_path)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    for number in range(2):
        support.add(writer, 1, f"note {number}")
    writer.close()
    return Files(path)


def test_a_wal_cut_anywhere_is_an_earlier_state_and_the_anchor_says_how_much_is_gone(with_wal: Files, tmp_path: Path) -> None:
    assert with_wal.wal is not None
    anchor = str(tmp_path / "elsewhere")
    whole = with_wal.intact[("show", "--json")][1].splitlines()
    assert run("verify", with_wal.path, "--anchor", anchor)[0] == 0
    heads: set[int] = set()
    for size in range(0, len(with_wal.wal), 512):
        with_wal.put(wal=with_wal.wal[:size])
        code, out, _ = run("show", "--json", with_wal.path)
        found = out.splitlines()
        assert code == 0 and found == whole[: len(found)] and found
        if size % 8192 and len(found) in heads:
            continue
        code, out, _ = run("verify", with_wal.path, "--anchor", anchor, "--json")
        gone = len(whole) - len(found)
        assert code == (1 if gone else 0)
        assert not gone or f"{gone} event" in json.loads(out)["findings"][0]["what"]
        heads.add(len(found))
    assert heads >= set(range(2, len(whole)))  # the first two stand in the database: a floor that was raised is brought over


def test_a_zeroed_frame_of_the_wal_ends_it_and_the_anchor_exposes_it(with_wal: Files, tmp_path: Path) -> None:
    assert with_wal.wal is not None
    anchor = str(tmp_path / "elsewhere")
    whole = with_wal.intact[("show", "--json")][1].splitlines()
    run("verify", with_wal.path, "--anchor", anchor)
    for at in range(32, len(with_wal.wal), FRAME_BYTES):
        with_wal.put(wal=with_wal.wal[:at] + bytes(FRAME_BYTES) + with_wal.wal[at + FRAME_BYTES :])
        code, out, _ = run("show", "--json", with_wal.path)
        found = out.splitlines()
        assert code == 0 and found == whole[: len(found)] and 0 < len(found)
        assert run("verify", with_wal.path, "--anchor", anchor)[0] == (0 if found == whole else 1)


def test_a_missing_shm_changes_nothing_and_a_missing_wal_shows_against_the_anchor_only(with_wal: Files, tmp_path: Path) -> None:
    anchor = str(tmp_path / "elsewhere")
    assert run("verify", with_wal.path, "--anchor", anchor)[0] == 0
    with_wal.put()
    assert not os.path.exists(with_wal.path + "-shm")
    assert not with_wal.is_said("no -shm")
    with_wal.put()
    os.unlink(with_wal.path + "-wal")
    assert run("verify", with_wal.path)[0] == 0
    code, out, _ = run("verify", with_wal.path, "--anchor", anchor)
    assert code == 1 and "2 events are gone (3 to 4)" in out


@pytest.mark.parametrize("column", ["floor = floor - 1", "floor = floor + 2", "head_seq = head_seq - 1", "head_hash = zeroblob(32)"])
def test_rule_L3_a_changed_cache_row_is_damage_when_read_and_when_appended_to(tmp_path: Path, column: str) -> None:
    path = support.make_log(tmp_path)
    support.tamper(path, f"UPDATE stream SET {column}")
    code, out, _ = run("verify", path)
    assert code == 1 and "cache row" in out
    writer = support.open_writer(path)
    with pytest.raises(Exception, match="disagrees with its events|cache row"):
        support.add(writer, 4, "late")
    writer.close()


def reading_commands() -> list[str]:
    """Every command that the application has: each takes a LOG that must exist."""
    return sorted((command.name or command.callback.__name__) for command in app.registered_commands if command.callback)


MORE_ARGUMENTS: dict[str, list[list[str]]] = {
    "verify": [[], ["--since"], ["--anchor", "{}/anchor"]],
    "doctor": [["--repair", "{}/new.sqlite"]],
    "append": [["--kind", "noted", "--text", "x"]],
    "diff": [["1", "1"]],
    "checkout": [["--at", "1", "--to", "{}/there"]],
    "fork": [["--at", "1", "--name", "x"]],
    "pin": [["--at", "1"]],
    "export": [["--to", "{}/bundle"]],
    "import": [["{}/bundle"]],
}
"""What a command needs, or takes, beside its LOG. Without `--repair`, doctor answers with a finding (tests of doctor)."""


@pytest.mark.parametrize("command", reading_commands())
def test_rule_L9_a_log_that_should_exist_is_missed_in_one_sentence_and_nothing_is_made(tmp_path: Path, command: str) -> None:
    for extra in MORE_ARGUMENTS.get(command, [[]]):
        arguments = [word.replace("{}", str(tmp_path)) for word in extra]
        code, out, err = run(command, str(tmp_path / "log.sqlite"), *arguments)
        assert code == 2 and out == "" and err.count("\n") == 1 and "there is no log here" in err
        assert os.listdir(tmp_path) == []


def copy_files(path: str, directory: Path) -> str:
    directory.mkdir()
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):
            shutil.copyfile(path + suffix, directory / f"log.sqlite{suffix}")
    return str(directory / "log.sqlite")


def prefixes(path: str) -> dict[str, list[str]]:
    """The event hashes of each stream."""
    found: dict[str, list[str]] = {}
    for line in run("show", "--json", path)[1].splitlines():
        event = json.loads(line)
        found.setdefault(event["stream"], []).append(event["hash"])
    return found


def check_repair(files: Files, tmp_path: Path, anchor: str, whole: list[str], what: str) -> int:
    """Doctor does not crash; a repair gives a log that verifies clean with a true prefix, or says that nothing is left. Events kept."""
    before = (Path(files.path).read_bytes(), Path(files.path + "-wal").read_bytes() if files.wal else b"")
    code, _, err = run("doctor", files.path)
    assert code in (0, 1) and not err, f"{what}: {err}"
    new = str(tmp_path / "new.sqlite")
    for suffix in ("", "-wal", "-shm"):
        Path(new + suffix).unlink(missing_ok=True)
    code, out, err = run("doctor", files.path, "--repair", new, "--anchor", anchor, "--json")
    after = (Path(files.path).read_bytes(), Path(files.path + "-wal").read_bytes() if files.wal else b"")
    assert before == after, f"{what}: the damaged log was touched"
    if not os.path.exists(new):
        assert code == 1 and err.count("\n") == 1 and "nothing" in err, f"{what}: {err}"
        return 0
    assert run("verify", new)[0] == 0
    # A spoilt name makes a second stream, with nothing in it.
    kept = next(one for one in json.loads(out)["streams"] if one["stream"] == STREAM)
    hashes = prefixes(new).get(kept["prefix"], [])
    assert hashes == whole[: len(hashes)] and len(hashes) == kept["kept"], what
    assert (code == 0) == json.loads(out)["whole"]
    return len(hashes)


def test_doctor_never_crashes_and_a_repair_keeps_a_true_prefix_when_a_page_is_gone(files: Files, tmp_path: Path) -> None:
    anchor = str(tmp_path / "elsewhere")
    run("verify", files.path, "--anchor", anchor)
    whole = prefixes(files.path)[STREAM]
    pages = random.Random(9).sample(range(0, len(files.database), PAGE_BYTES), 10)
    kept = []
    for at in pages:
        files.put(files.database[:at] + bytes(PAGE_BYTES) + files.database[at + PAGE_BYTES :])
        kept.append(check_repair(files, tmp_path, anchor, whole, f"page {at // PAGE_BYTES + 1} zeroed"))
    assert kept.count(len(whole)) >= len(pages) // 2, kept


def test_doctor_never_crashes_and_a_repair_keeps_a_true_prefix_of_a_cut_or_flipped_log(files: Files, tmp_path: Path) -> None:
    anchor = str(tmp_path / "elsewhere")
    run("verify", files.path, "--anchor", anchor)
    whole = prefixes(files.path)[STREAM]
    for size in (PAGE_BYTES // 2, PAGE_BYTES * 5, len(files.database) - PAGE_BYTES, len(files.database) - 512):
        files.put(files.database[:size])
        check_repair(files, tmp_path, anchor, whole, f"cut at {size}")
    for place, bit in list(flips(files.database))[2::15]:
        files.put(files.database[:place] + bytes([files.database[place] ^ bit]) + files.database[place + 1 :])
        check_repair(files, tmp_path, anchor, whole, f"bit {bit:#x} of byte {place}")
