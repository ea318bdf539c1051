"""Two writers race through 10,000 appends in all while somebody reads: one order, none lost, a gapless prefix at every look."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import events
from eventlog.reader import BEGINNING, Position, Reader
from eventlog.values import Epoch, StreamId
from eventlog.verify import verify
from tests.eventlog import support
from tests.eventlog.support import ROOT, STREAM

APPENDS = 5_000
WRITE = """
import sys
from eventlog.values import Epoch, StreamId
from tests.eventlog import support
path, who = sys.argv[1], int(sys.argv[2])
writer = support.open_writer(path, first_id=who * 10_000_000, busy_ms=60_000)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    stream = support.STREAM if number % 2 else StreamId(f"own-{who}")
    (done,) = writer.append(stream, Epoch(1), [support.note(f"{who}:{number}")], (), "note")
    print(number, done.seq, flush=True)
writer.close()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is to be had, for the sake of time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="crashworthy-", dir="/dev/shm") as made:
        yield Path(made)


def start(path: str, who: int, answers: Path) -> subprocess.Popen[str]:
    """A writer that waits for a line; what it was told of each append comes into `answers`."""
    with open(answers, "w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE, path, str(who), str(APPENDS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=file,
            text=True,
        )
    return process


def release(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


class Look:
    """Reads one stream on from where it stood: what comes is always the next."""

    def __init__(self, reader: Reader, stream: StreamId) -> None:
        self._reader = reader
        self._stream = stream
        self._position: Position = BEGINNING
        self.texts: list[str] = []
        self.looks = 0

    def read(self) -> None:
        before = self._position.seq
        for stored in self._reader.events(self._stream, self._position):
            assert stored.seq == self._position.seq + 1, "a gap"
            self._position = Position(stored.seq, stored.hash, stored.epoch)
            if isinstance(stored.event, events.Noted):
                self.texts.append(stored.event.text)
        self.looks += self._position.seq > before


def test_case_24_two_writers_race_through_10_000_appends_and_nothing_is_lost(directory: Path) -> None:
    path = support.create_small(directory)
    writer = support.open_writer(path)
    streams = [STREAM, StreamId("own-1"), StreamId("own-2")]
    for stream in streams[1:]:
        writer.open_stream(stream, support.opened(stream, image={b"": support.IMAGE[b""]}), "open")
    for stream in streams:
        writer.raise_floor(stream, Epoch(1), support.started())
    writer.close()
    answers = [directory / "answers-1", directory / "answers-2"]
    processes = [start(path, who, answers[who - 1]) for who in (1, 2)]
    reader = Reader.open(path)
    looks = [Look(reader, stream) for stream in streams]
    for process in processes:
        release(process)
    while any(process.poll() is None for process in processes):
        for look in looks:
            look.read()
    for look in looks:
        look.read()
    assert [process.returncode for process in processes] == [0, 0], "nobody was told anything but where it stands"
    assert looks[0].looks > 2, "it was read while it grew"
    check_texts(looks)
    check_answers(reader, answers)
    found = verify(reader)
    reader.close()
    assert found.findings == () and found.events == 2 * APPENDS + 2 * len(streams)


def check_texts(looks: list[Look]) -> None:
    """Each writer's notes in its own order, all of them, in the stream they were meant for."""
    for who in (1, 2):
        mine = [text for text in looks[0].texts if text.startswith(f"{who}:")]
        assert mine == [f"{who}:{number}" for number in range(1, APPENDS, 2)]
        assert looks[who].texts == [f"{who}:{number}" for number in range(0, APPENDS, 2)]
    assert len(looks[0].texts) == APPENDS
    turns = sum(one[0] != two[0] for one, two in zip(looks[0].texts, looks[0].texts[1:], strict=False))
    assert turns > 1, "they did not race"


def check_answers(reader: Reader, answers: list[Path]) -> None:
    """Every append stands at the seq that its writer was told."""
    stands = {
        stored.event.text: stored.seq
        for row in reader.streams()
        for stored in reader.events(row.id)
        if isinstance(stored.event, events.Noted)
    }
    for who, file in enumerate(answers, 1):
        lines = file.read_text().splitlines()
        assert lines[0] == "ready" and len(lines) == APPENDS + 1
        for line in lines[1:]:
            number, seq = line.split()
            assert stands[f"{who}:{number}"] == int(seq)
