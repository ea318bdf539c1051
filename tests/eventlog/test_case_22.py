"""Case 22, the log's half: every file beside the database that is not SQLite, cut, zeroed and ended in the middle of a character.

Each such file has an entry in `FILES`: what makes a sound one, and what reads it. Damage is reported; it is never read as the end, as
less than what stood there, or as nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventlog.errors import CorruptError
from eventlog.identity_files import DRIVE, Writing, highest_intended, leave_identity
from eventlog.process_identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A kind of file. To add one, add an entry to `FILES`.

    `make` makes a sound one below a directory and returns its path; `read` reads the one at a path and returns what it says (never None),
    raising CorruptError for damage. `last_record` says where in its bytes the last record begins: 0 for a file that is one record.
    A file that only remembers what can be found out again `is_forgettable`: then None, as if it were not there, is right too.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    last_record: Callable[[bytes], int] = lambda data: 0
    is_forgettable: bool = False


def make_identity(directory: Path) -> Path:
    return Path(leave_identity(str(directory), Writing("caf\u00e9-nonce", ProcessIdentity(41, 99, "boot-\u00e9", 7), 12, DRIVE)))


FILES: dict[str, RecordFile] = {
    "identity file": RecordFile(make_identity, lambda path: highest_intended(str(path.parents[1]))),
}


@pytest.fixture(params=FILES)
def kind(request: pytest.FixtureRequest) -> RecordFile:
    return FILES[str(request.param)]


def check_damaged(kind: RecordFile, path: Path, what: str) -> None:
    """It is told as damage of this file, in one sentence, or forgotten where that is harmless."""
    try:
        found = kind.read(path)
    except CorruptError as error:
        assert path.name in str(error) and "\n" not in str(error), str(error)
        return
    assert kind.is_forgettable and found is None, f"{what} is read as {found!r} in silence"


def test_case_22_a_record_file_cut_at_each_byte_of_its_last_record_is_damage(kind: RecordFile, tmp_path: Path) -> None:
    path = kind.make(tmp_path)
    data, sound = path.read_bytes(), kind.read(path)
    assert sound is not None and len(data) > kind.last_record(data)
    for size in range(kind.last_record(data), len(data)):
        path.write_bytes(data[:size])
        check_damaged(kind, path, f"cut to {size} of {len(data)} bytes, it")
    path.write_bytes(data)
    assert kind.read(path) == sound


def test_case_22_zeros_in_the_middle_of_a_record_file_are_damage(kind: RecordFile, tmp_path: Path) -> None:
    path = kind.make(tmp_path)
    data = path.read_bytes()
    for start in range(0, len(data), 64):
        size = min(512, len(data) - start)
        path.write_bytes(data[:start] + bytes(size) + data[start + size :])
        check_damaged(kind, path, f"zeroed from {start}, it")


def test_case_22_a_record_file_that_ends_in_the_middle_of_a_character_is_damage(kind: RecordFile, tmp_path: Path) -> None:
    path = kind.make(tmp_path)
    data = path.read_bytes()
    for tail in ("\u00e9".encode()[:1], "\u20ac".encode()[:2], "\U0001f4a5".encode()[:3]):
        for changed in (data + tail, data[:-1] + tail, data[: len(data) // 2] + tail):
            path.write_bytes(changed)
            check_damaged(kind, path, f"ended by {tail!r}, it")
