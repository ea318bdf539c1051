"""Every command that writes, killed at each step that it passes: what the oracle of `chaos` says of the log, which shares no code with
the package, what `verify` says, and whether the same command sent again ends as one that nobody killed.

`chaos` kills sessions: drivers, shims and file workers under a successor that recovers. A person's command is one process without a
successor, and the same command run again is its recovery; so it is killed here.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventlog import compact, console
from eventlog.__main__ import _code, app
from eventlog.creation import create_log
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.values import Epoch, StreamId
from eventlog.verify import verify
from tests.eventlog import bundles, support
from tests.eventlog.growing import begin, noise
from tests.eventlog.support import ROOT, STREAM

ORACLE = """
import sys, tempfile
from chaos.oracle.chain import stream_defects
from chaos.oracle.load import load_log
for line in sys.stdin:
    with tempfile.TemporaryDirectory() as scratch:
        log = load_log(line.rstrip("\\n"), scratch)
        found = [*log.defects, *(one for stream in log.streams.values() for one in stream_defects(log, stream))]
    print(len(log.streams), *(one.text for one in found), sep="; ", flush=True)
"""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Callable[[str], str]]:
    """What the oracle finds in a log: the number of its streams, then each defect. A process of its own: it has another SQLite."""
    process = subprocess.Popen([sys.executable, "-c", ORACLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None and process.stdout is not None
    told, heard = process.stdin, process.stdout

    def ask(path: str) -> str:
        told.write(path + "\n")
        told.flush()
        return heard.readline().rstrip("\n")

    yield ask
    told.close()
    assert process.wait() == 0
    heard.close()


@dataclass(frozen=True)
class Killed:
    """A command, what it may end with when it is sent again after a kill, and what must be true then. `D` in an argument is the directory.

    A log that takes a bundle in has events of another log, which the oracle does not judge: `is_judged` is false.
    """

    arguments: tuple[str, ...]
    holds: Callable[[Path], bool]
    codes: frozenset[int] = frozenset({0})
    is_judged: bool = True
    least_steps: int = 3


def notes(directory: Path) -> list[str]:
    return support.texts(str(directory / "log.sqlite"))


def streams(path: Path) -> set[str]:
    reader = Reader.open(str(path))
    try:
        return {str(row.id) for row in reader.streams()}
    finally:
        reader.close()


def given_up(directory: Path) -> int:
    reader = Reader.open(str(directory / "log.sqlite"))
    try:
        return len(reader.rows("SELECT hash FROM dropped"))
    finally:
        reader.close()


def pins(directory: Path) -> list[tuple[object, ...]]:
    reader = Reader.open(str(directory / "log.sqlite"))
    try:
        return reader.rows("SELECT seq, note FROM pin")
    finally:
        reader.close()


def is_taken(directory: Path) -> bool:
    """Whether the bundle that was made can be taken in."""
    made = bundles.take_new(str(directory / "proof.sqlite"), directory / "out.bundle", "proof")
    bundles.assert_sound(str(directory / "proof.sqlite"))
    return made.session == "proof"


def has_moved(directory: Path) -> bool:
    reader = Reader.open(str(directory / "log.sqlite"))
    kinds = [stored.event.kind for stored in reader.events(STREAM)]
    reader.close()
    return kinds.count("session_moved") == 1 and kinds[-1] == "session_moved" and is_taken(directory)


def remembers(directory: Path) -> bool:
    return json.loads((directory / "log.sqlite.verified").read_text("utf-8"))["streams"][STREAM]["seq"] == 8


def is_anchored(directory: Path) -> bool:
    (line,) = (directory / "anchor").read_text("utf-8").splitlines()
    return bool(json.loads(line)["seq"] == 8)


OR_DONE = frozenset({0, 2})
"""The first run had got as far as its end, and what it made is not made twice."""


def has(file: str, stream: str) -> Callable[[Path], bool]:
    """Whether a log there has a session."""
    return lambda directory: stream in streams(directory / file)


def admissions(directory: Path) -> int:
    reader = Reader.open(str(directory / "log.sqlite"))
    try:
        return len(reader.rows("SELECT 1 FROM event WHERE kind = 'input_admitted'"))
    finally:
        reader.close()


ADMIT = ("append", "D/log.sqlite", "--kind", "input_admitted", "--request", "r", "--input", "{}")
TAKE = ("import", "D/log.sqlite", "D/other.bundle", "--as", "taken")
COMMANDS: dict[str, Killed] = {
    "append": Killed(("append", "D/log.sqlite", "--kind", "noted", "--text", "x"), lambda at: notes(at) in (["x"], ["x", "x"])),
    "admit": Killed(ADMIT, lambda at: admissions(at) == 1),
    "fork": Killed(("fork", "D/log.sqlite", "--at", "head", "--name", "f"), has("log.sqlite", "f"), OR_DONE),
    "pin": Killed(("pin", "D/log.sqlite", "--at", "4", "--note", "n"), lambda at: pins(at) == [(4, "n")]),
    "compact": Killed(("compact", "D/log.sqlite", "--keep", "1"), lambda at: given_up(at) == 2, least_steps=10),
    "export": Killed(("export", "D/log.sqlite", "--to", "D/out.bundle"), is_taken, OR_DONE),
    "move": Killed(("export", "D/log.sqlite", "--to", "D/out.bundle", "--move"), has_moved, OR_DONE, least_steps=8),
    "import": Killed(TAKE, has("log.sqlite", "taken"), OR_DONE, is_judged=False),
    "import --new": Killed(("import", "D/new.sqlite", "D/other.bundle", "--new"), has("new.sqlite", "other"), OR_DONE, least_steps=8),
    "verify --since": Killed(("verify", "D/log.sqlite", "--since"), remembers),
    "verify --anchor": Killed(("verify", "D/log.sqlite", "--anchor", "D/anchor"), is_anchored),
    "doctor --repair": Killed(("doctor", "D/log.sqlite", "--repair", "D/made.sqlite"), has("made.sqlite", STREAM), OR_DONE, least_steps=8),
    "checkout": Killed(
        ("checkout", "D/log.sqlite", "--at", "head", "--to", "D/tree"), lambda at: (at / "tree/f").read_bytes() == noise(3, 40_000), OR_DONE
    ),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in use (its newest events in the WAL), and a bundle of another one."""
    directory = tmp_path_factory.mktemp("prepared")
    session = begin(support.create_small(directory))
    for number in range(1, 4):
        session.call({b"f": noise(number, 40_000)}, b"output %d" % number)
    session.writer.close()
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    other = str(elsewhere / "log.sqlite")
    create_log(other, StreamId("other"), support.opened("other"), support.blobs(), CountingIds(9_000_000))
    bundles.make(other, directory / "other.bundle", "other")
    shutil.rmtree(elsewhere)
    return directory


def enter(arguments: tuple[str, ...], directory: Path) -> int:
    """Run the command in this process; its exit code."""
    compact.VACUUM_PAGES = 4  # several small transactions, where a log of today's size would have one
    given = [word.replace("D/", f"{directory}/") for word in arguments]
    return console.run(app, "eventlog", 2, _code, given)


def events_of(path: Path) -> dict[StreamId, list[bytes]]:
    """The hashes of each stream; the log must be sound."""
    reader = Reader.open(str(path))
    try:
        assert verify(reader).findings == ()
        return {row.id: [stored.hash for stored in reader.events(row.id)] for row in reader.streams()}
    finally:
        reader.close()


def judge(directory: Path, command: Killed, oracle: Callable[[str], str], before: dict[StreamId, list[bytes]]) -> None:
    """Every log there is sound by both, and the one that stood there has its history."""
    for path in sorted(directory.glob("*.sqlite")):
        found = events_of(path)
        if path.name == "log.sqlite":
            assert {stream: found[stream][: len(hashes)] for stream, hashes in before.items()} == before
            if command.is_judged:
                assert oracle(str(path)) == str(len(found))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_killed_at_any_step_leaves_a_sound_log_and_ends_well_when_it_is_run_again(
    name: str, prepared: Path, tmp_path: Path, oracle: Callable[[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    command, place = COMMANDS[name], tmp_path / "place"
    before = events_of(prepared / "log.sqlite")

    def renew() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(prepared, place)
        os.unlink(place / "log.sqlite-shm")

    def act() -> None:
        assert enter(command.arguments, place) == 0

    renew()
    passed = support.record_steps(act)
    assert len(passed) >= command.least_steps and command.holds(place), passed
    for step in passed:
        renew()
        support.kill_at(step, act)
        judge(place, command, oracle, before)
        code = enter(command.arguments, place)
        assert code in command.codes, (step, code, capfd.readouterr())
        assert command.holds(place), step
        judge(place, command, oracle, before)
        assert not list(place.glob("identity/*.json")), step  # one that was never published has another name, and is nobody's


@pytest.mark.parametrize("step", ["compact.commit.locked:1", "vacuum.commit.locked:1"])
def test_a_driver_goes_on_beside_a_compaction_that_was_killed(
    step: str, prepared: Path, tmp_path: Path, oracle: Callable[[str], str]
) -> None:
    place = tmp_path / "place"
    shutil.copytree(prepared, place)
    path = str(place / "log.sqlite")

    def compacts() -> None:
        enter(COMMANDS["compact"].arguments, place)

    support.kill_at(f"driver@0:{step}", compacts)
    writer = support.open_writer(path, first_id=9_000_000)
    writer.raise_floor(STREAM, Epoch(2), support.started("n2"))
    support.add(writer, 2, "goes on")
    writer.close()
    assert oracle(path) == "1" and support.texts(path) == ["goes on"]
    assert enter(COMMANDS["compact"].arguments, place) == 0
    assert oracle(path) == "1" and given_up(place) == 2 and support.texts(path) == ["goes on"]
