"""A disk that is really full, of any size: retry, never corrupt, never a new log, never half of one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from eventlog import codec, durable
from eventlog.compact import compact_log
from eventlog.creation import create_log
from eventlog.errors import FullError, StaleEpochError, UncertainCommitError
from eventlog.ports import FakeClock, RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.retention import Policy
from eventlog.values import Epoch
from eventlog.verify import verify
from eventlog.writer import Writer
from tests.eventlog import support
from tests.eventlog.support import STREAM
from tests.recovery.workspace.support import run_with_own_mounts

KIB = 1 << 10


def mount(place: Path, size: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)


def noise(count: int) -> Iterator[codec.Blob]:
    """`count` blobs of 32 KiB that do not compress."""
    for number in range(count):
        yield codec.encode_blob(number.to_bytes(4, "big") + os.urandom(32 * KIB - 4))


def is_sound(path: str) -> bool:
    reader = Reader.open(path)
    try:
        return not verify(reader).findings
    finally:
        reader.close()


def test_case_17_a_log_made_on_a_disk_of_any_size_is_whole_or_absent(tmp_path: Path) -> None:
    """The room can end in the WAL, and in the file itself when the WAL is brought into it."""
    place = tmp_path / "small"
    place.mkdir()
    path = str(place / "log.sqlite")
    ends: set[str] = set()

    def make_on_all_sizes() -> None:
        for size in range(64 * KIB, 3072 * KIB, 64 * KIB):
            mount(place, size)
            try:
                create_log(path, STREAM, support.opened(image={b"": support.IMAGE[b""]}), noise(14), RandomIds())
            except (FullError, UncertainCommitError):
                ends.add("full")
                assert os.listdir(place) == [], "whoever tries again needs the room"
            else:
                ends.add("made")
                # Look at a copy elsewhere: a reader needs room for its index, and here may be none.
                (tmp_path / "copy.sqlite").write_bytes(Path(path).read_bytes())
                assert is_sound(str(tmp_path / "copy.sqlite")) and os.listdir(place) == ["log.sqlite"]
            subprocess.run(["umount", str(place)], check=True)
        assert ends == {"full", "made"}

    run_with_own_mounts(make_on_all_sizes)


def test_case_17_an_append_on_a_full_disk_records_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    path = str(place / "log.sqlite")

    def fill_and_go_on() -> None:
        mount(place, 1200 * KIB)
        create_log(path, STREAM, support.opened(image={b"": support.IMAGE[b""]}), (), RandomIds())
        writer = Writer.open(path, RandomIds())
        writer.raise_floor(STREAM, Epoch(1), support.started())
        kept = []
        with pytest.raises(FullError, match="make room and run the same command again"):
            for number in range(100):
                writer.append(STREAM, Epoch(1), [support.note(f"{number}")], noise(1), "outcome")
                kept.append(f"{number}")
        assert kept and is_sound(path) and support.texts(path) == kept
        subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)
        writer.append(STREAM, Epoch(1), [support.note("room")], noise(4), "outcome")
        assert support.texts(path) == [*kept, "room"] and is_sound(path)
        successor = Writer.open(path, RandomIds())
        successor.raise_floor(STREAM, Epoch(2), support.started("n2"))
        with pytest.raises(StaleEpochError):
            support.add(writer, 1, "late")
        writer.close()
        successor.close()

    run_with_own_mounts(fill_and_go_on)


def test_case_17_a_transaction_that_fills_400_kib_is_temporary(tmp_path: Path) -> None:
    """The case as it was reported: outcome blobs until there is no room, then COMMIT."""
    made = tmp_path / "made"
    made.mkdir()
    writer = support.open_writer(support.create_small(made))
    writer.raise_floor(STREAM, Epoch(1), support.started())
    support.add(writer, 1, "before")
    writer.close()
    support.checkpoint(str(made / "log.sqlite"))
    place = tmp_path / "small"
    place.mkdir()
    path = str(place / "log.sqlite")

    def fill_and_go_on() -> None:
        mount(place, 400 * KIB)
        shutil.copyfile(made / "log.sqlite", path)
        writer = Writer.open(path, RandomIds())
        sent = [Record(support.note("outcome").event, (), b"o" * 16)]
        blobs = list(noise(8))
        for _ in range(3):
            with pytest.raises(FullError, match="nothing was recorded"):
                writer.append(STREAM, Epoch(1), sent, blobs, "outcome")
            with pytest.raises(FullError, match="nothing was recorded"):
                writer.insert_blobs(blobs)
            assert writer.reader.find(b"o" * 16) is None
        with pytest.raises(FullError, match="make room and run the same command again"):
            create_log(str(place / "other.sqlite"), STREAM, support.opened(image={b"": support.IMAGE[b""]}), (), RandomIds())
        assert sorted(os.listdir(place)) == ["log.sqlite", "log.sqlite-shm", "log.sqlite-wal"], "no new log, and nothing of one"
        assert is_sound(path) and support.texts(path) == ["before"]
        subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)
        stands = writer.append(STREAM, Epoch(1), sent, blobs, "outcome")
        writer.close()
        assert support.texts(path) == ["before", "outcome"] and is_sound(path)
        again = Writer.open(path, RandomIds())
        assert again.append(STREAM, Epoch(1), sent, blobs, "outcome") == stands
        again.close()

    run_with_own_mounts(fill_and_go_on)


def test_case_17_a_checkpoint_that_does_not_fit_is_temporary(tmp_path: Path) -> None:
    """The WAL has it all, and there is no room to bring it into the file: every commit stands, and the checkpoint works later."""
    place = tmp_path / "small"
    place.mkdir()
    path = str(place / "log.sqlite")

    def fill_and_go_on() -> None:
        mount(place, 8192 * KIB)
        create_log(path, STREAM, support.opened(image={b"": support.IMAGE[b""]}), (), RandomIds())
        writer = Writer.open(path, RandomIds())
        writer.raise_floor(STREAM, Epoch(1), support.started())
        for number in range(8):
            writer.append(STREAM, Epoch(1), [support.note(f"{number}")], noise(4), "outcome")
        kept = [f"{number}" for number in range(8)]
        used = sum(os.stat(place / name).st_blocks * 512 for name in os.listdir(place))
        subprocess.run(["mount", "-o", f"remount,size={used + 64 * KIB}", str(place)], check=True)
        with pytest.raises(apsw.FullError):
            writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert support.texts(path) == kept and is_sound(path)
        with pytest.raises(FullError):
            writer.append(STREAM, Epoch(1), [support.note("no room")], noise(8), "outcome")
        assert support.texts(path) == kept and is_sound(path)
        subprocess.run(["mount", "-o", "remount,size=16m", str(place)], check=True)
        assert writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
        writer.append(STREAM, Epoch(1), [support.note("room")], noise(8), "outcome")
        writer.close()
        assert support.texts(path) == [*kept, "room"] and is_sound(path)

    run_with_own_mounts(fill_and_go_on)


def test_case_17_a_file_that_could_not_be_published_leaves_no_part_of_it(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()

    def publish_on_a_full_disk() -> None:
        mount(place, 64 * KIB)
        with pytest.raises(OSError, match="No space left"):
            durable.publish(str(place / "a.json"), bytes(256 * KIB), "test")
        assert os.listdir(place) == []

    run_with_own_mounts(publish_on_a_full_disk)


def test_case_17_a_compaction_that_could_only_take_the_last_room_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    path = str(place / "log.sqlite")

    def compact_on_a_full_disk() -> None:
        mount(place, 4096 * KIB)
        create_log(path, STREAM, support.opened(image={b"": support.IMAGE[b""]}), (), RandomIds())
        writer = support.open_writer(path)
        writer.insert_blobs(noise(40))  # in the WAL alone
        writer.close()
        (place / "ballast").write_bytes(bytes(os.statvfs(place).f_bavail * os.statvfs(place).f_frsize - 512 * KIB))
        before = {suffix: Path(path + suffix).read_bytes() for suffix in ("", "-wal")}
        with pytest.raises(FullError, match="nothing was changed"):
            compact_log(path, Policy(), FakeClock(), RandomIds())
        assert {suffix: Path(path + suffix).read_bytes() for suffix in before} == before

    run_with_own_mounts(compact_on_a_full_disk)
