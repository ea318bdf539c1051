"""Full disks and no inodes left, for every command that writes: one sentence, nothing lost, and it goes on when there is room.

Each story has a small file system of its own, mounted where nobody else sees it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.stories import digest, inodes
from tests.recovery.sessions import Sandbox, Zygote
from tests.recovery.workspace.support import run_with_own_mounts

MIB = 1 << 20
DATA = b"a few bytes of data" * 100


class Disk:
    """A file system in memory at `place`, `size` MiB large."""

    def __init__(self, place: Path, size: int, inodes: int = 0) -> None:
        self.place = place
        place.mkdir(exist_ok=True)
        options = f"size={size}m" + (f",nr_inodes={inodes}" if inodes else "")
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)

    def fill(self, leave: int = 0) -> Path:
        """A file that takes all the room but `leave` bytes."""
        room = os.statvfs(self.place)
        free = room.f_bavail * room.f_frsize
        path = self.place / "filling"
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - leave)
        return path

    def grow(self, size: int, inodes: int = 0) -> None:
        """Make room, as a person does."""
        options = f"remount,size={size}m" + (f",nr_inodes={inodes}" if inodes else "")
        subprocess.run(["mount", "-o", options, str(self.place)], check=True)


def disk_of_workspace(sandbox: Sandbox, size: int) -> Disk:
    """A disk that holds the workspace and room beside it; a workspace that is a disk of its own has its side directory inside."""
    disk = Disk(sandbox.base / "disk", size)
    sandbox.root = disk.place / "work"
    sandbox.root.mkdir()
    return disk


def on_disks(sandbox: Sandbox, story: Callable[[], None]) -> None:
    """Run a story where its mounts are its own."""
    sandbox.root.mkdir()

    def begin() -> None:
        Zygote._process = None  # a warm process of this mount namespace
        story()

    run_with_own_mounts(begin)


def run(sandbox: Sandbox, program: str, *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command."""
    if program == "recovery":
        driver = sandbox.run(*arguments)
        done = (driver.end(), driver.out, driver.err)
    else:
        command = [sys.executable, "-m", program, *map(str, arguments)]
        ended = subprocess.run(command, env=sandbox.environment(None, ()), cwd=sandbox.base, capture_output=True, text=True, check=False)
        done = (ended.returncode, ended.stdout, ended.stderr)
    assert "Traceback" not in done[2], done[2]
    return done


def good(sandbox: Sandbox, program: str, *arguments: str | Path) -> str:
    code, out, error = run(sandbox, program, *arguments)
    assert code == 0, out + error
    return out


def refusal(sandbox: Sandbox, program: str, *arguments: str | Path) -> str:
    """The one sentence of a command that is to be tried again."""
    code, out, error = run(sandbox, program, *arguments)
    assert code == 1 and len(error.splitlines()) == 1, (code, out + error)
    return error


def image(sandbox: Sandbox, *more: str) -> tuple[str | Path, ...]:
    return ("recovery", "image", sandbox.state, "--workspace", sandbox.root, *more)


def restore(sandbox: Sandbox, seq: int = 1) -> tuple[str | Path, ...]:
    return ("recovery", "restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root)


def make_sparse(path: Path, size: int) -> None:
    """Three small pieces of data in a hole of `size` bytes."""
    with open(path, "wb") as file:
        for place in (0, size // 2 + 12345, size - len(DATA)):
            file.seek(place)
            file.write(DATA)


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("size", [128 * MIB, pytest.param(4 << 30, marks=pytest.mark.soak)])
def test_case_06_a_sparse_file_larger_than_its_disk_comes_back_with_its_holes(sandbox: Sandbox, size: int) -> None:
    def story() -> None:
        disk = disk_of_workspace(sandbox, 64)
        make_sparse(sandbox.root / "sparse", size)
        (sandbox.root / "hole").touch()
        os.truncate(sandbox.root / "hole", size)
        (sandbox.root / "zeros").write_bytes(bytes(MIB))
        good(sandbox, *image(sandbox, "--new"))
        before = digest(sandbox.root)
        for name in ("sparse", "hole", "zeros"):
            (sandbox.root / name).unlink()
        good(sandbox, *restore(sandbox))
        assert digest(sandbox.root) == before
        assert allocated(sandbox.root / "sparse") < MIB and allocated(sandbox.root / "hole") == 0
        with open(sandbox.root / "sparse", "r+b") as file:
            file.write(b"X")
        filling = disk.fill(leave=8192)
        seen = inodes(sandbox.root)
        assert "nothing was decided or moved" in refusal(sandbox, *restore(sandbox))
        assert inodes(sandbox.root) == seen
        filling.unlink()
        good(sandbox, *restore(sandbox))
        assert digest(sandbox.root) == before

    on_disks(sandbox, story)


def test_case_06_a_restore_without_room_moves_nothing_and_goes_on_with_room(sandbox: Sandbox) -> None:
    def story() -> None:
        disk = disk_of_workspace(sandbox, 64)
        (sandbox.root / "large").write_bytes(os.urandom(40 * MIB))
        (sandbox.root / "small").write_bytes(b"one\n")
        good(sandbox, *image(sandbox, "--new"))
        before = digest(sandbox.root)
        (sandbox.root / "large").write_bytes(os.urandom(40 * MIB))
        (sandbox.root / "small").unlink()
        seen, head = inodes(sandbox.root), len(sandbox.events())
        told = refusal(sandbox, *restore(sandbox))
        assert "bytes and" in told and "Free space and try again" in told
        assert inodes(sandbox.root) == seen
        assert {stored.event.kind for stored in sandbox.events()[head:]} <= {"driver_started"}
        disk.grow(128)
        good(sandbox, *restore(sandbox))
        assert digest(sandbox.root) == before

    on_disks(sandbox, story)


@pytest.mark.parametrize("step", ["restore.place.write.half:3", "restore.displace.move.after:2"])
def test_a_disk_that_fills_during_a_restore_loses_nothing(sandbox: Sandbox, step: str) -> None:
    """Somebody else takes the room after it was computed."""

    def story() -> None:
        disk = Disk(sandbox.root, 64)
        for name in "abcd":
            (sandbox.root / name).write_bytes(name.encode() + os.urandom(5 * MIB))
        good(sandbox, *image(sandbox, "--new"))
        before = digest(sandbox.root)
        changed = {name: name.encode() * 2 + os.urandom(MIB) for name in "abcd"}
        for name, content in changed.items():
            (sandbox.root / name).write_bytes(content)
        held = f"worker@1:{step}"
        driver = sandbox.start(*restore(sandbox)[1:], epoch=1, wait=(held,))
        sandbox.steps.wait(held, driver)
        filling = disk.fill()
        sandbox.steps.release(held)
        assert driver.end() == 1 and "Free space and try again" in driver.sentence()
        everything = [path.read_bytes() for path in sandbox.root.rglob("*") if path.is_file() and path != filling]
        assert all(content in everything for content in changed.values()), "what was there is in the tree or in quarantine"
        filling.unlink()
        good(sandbox, *restore(sandbox))
        assert digest(sandbox.root, "--exclude", ".crashworthy-side") == before
        kept = [path.read_bytes() for path in (sandbox.root / ".crashworthy-side").rglob("*") if path.is_file()]
        assert all(content in kept for content in changed.values())

    on_disks(sandbox, story)


def test_a_restore_without_inodes_moves_nothing_and_goes_on_with_some(sandbox: Sandbox) -> None:
    def story() -> None:
        disk = Disk(sandbox.root, 64, inodes=100)
        for number in range(60):
            (sandbox.root / f"f{number}").write_bytes(b"%d" % number)
        good(sandbox, *image(sandbox, "--new"))
        before = digest(sandbox.root)
        for path in list(sandbox.root.glob("f*")):
            path.unlink()
        for number in range(60):
            (sandbox.root / f"d{number}").mkdir()
        tree = inodes(sandbox.root)
        assert "inodes" in refusal(sandbox, *restore(sandbox))
        now = inodes(sandbox.root)
        assert {path: now[path] for path in tree if path != os.fsencode(sandbox.root)} == {
            path: one for path, one in tree.items() if path != os.fsencode(sandbox.root)
        }
        disk.grow(64, inodes=1000)
        good(sandbox, *restore(sandbox))
        assert digest(sandbox.root, "--exclude", ".crashworthy-side") == before

    on_disks(sandbox, story)


@pytest.mark.parametrize("lack", ["room", "inodes"])
def test_a_state_directory_that_cannot_hold_the_pack_stops_a_restore_before_it_moves(sandbox: Sandbox, lack: str) -> None:
    def story() -> None:
        disk = Disk(sandbox.state, 64)
        (sandbox.root / "large").write_bytes(os.urandom(8 * MIB))
        good(sandbox, *image(sandbox, "--new"))
        before = digest(sandbox.root)
        (sandbox.root / "large").write_bytes(b"small")
        seen = inodes(sandbox.root)
        if lack == "inodes":
            taken = len(list(sandbox.state.rglob("*")))
            disk.grow(64, inodes=taken + 3)
        else:
            disk.fill(leave=6 * MIB)
        told = refusal(sandbox, *restore(sandbox))
        assert "space" in told.lower(), told
        assert inodes(sandbox.root) == seen
        disk.grow(128, inodes=1000)
        good(sandbox, *restore(sandbox))
        assert digest(sandbox.root) == before

    on_disks(sandbox, story)


@pytest.mark.parametrize("lack", ["room", "inodes"])
def test_a_new_image_on_a_full_disk_is_refused_and_made_when_there_is_room(sandbox: Sandbox, lack: str) -> None:
    def story() -> None:
        disk = Disk(sandbox.state, 2, inodes=4 if lack == "inodes" else 0)
        (sandbox.root / "large").write_bytes(os.urandom(4 * MIB) if lack == "room" else b"small")
        before, seen = digest(sandbox.root), inodes(sandbox.root)
        if lack == "inodes":
            (sandbox.state / "x").touch()
            (sandbox.state / "y").touch()
        told = refusal(sandbox, *image(sandbox, "--new"))
        assert "no room left" in told and str(sandbox.state) in told and ".new-" not in told, told
        disk.grow(32, inodes=1000)
        good(sandbox, *image(sandbox, "--new"))
        assert (digest(sandbox.root), inodes(sandbox.root)) == (before, seen)
        (sandbox.root / "large").unlink()
        good(sandbox, *restore(sandbox))
        assert digest(sandbox.root) == before

    on_disks(sandbox, story)


@pytest.mark.parametrize("lack", ["room", "inodes"])
def test_a_checkout_on_a_full_disk_is_refused_and_leaves_no_half_tree(sandbox: Sandbox, lack: str) -> None:
    def story() -> None:
        for number in range(30):
            (sandbox.root / f"f{number}").write_bytes(os.urandom(MIB // 4))
        good(sandbox, *image(sandbox, "--new"))
        disk = Disk(sandbox.base / "disk", 4 if lack == "room" else 64, inodes=20 if lack == "inodes" else 0)
        checkout = ("eventlog", "checkout", sandbox.state, "--at", "head", "--to", disk.place / "out")
        code, _, error = run(sandbox, *checkout)
        assert code in (1, 2) and len(error.splitlines()) == 1 and "space" in error.lower(), error
        disk.grow(64, inodes=1000)
        if (disk.place / "out").exists():
            code, _, error = run(sandbox, *checkout)
            assert code == 2 and "out" in error, "what is there already is named"
            subprocess.run(["rm", "-r", str(disk.place / "out")], check=True)
        good(sandbox, *checkout)
        assert digest(disk.place / "out") == digest(sandbox.root)

    on_disks(sandbox, story)


def test_quarantine_that_cannot_be_recorded_as_emptied_is_kept(sandbox: Sandbox) -> None:
    def story() -> None:
        disk = Disk(sandbox.state, 4)
        (sandbox.root / "a").write_bytes(b"one\n")
        good(sandbox, *image(sandbox, "--new"))
        (sandbox.root / "a").write_bytes(b"two\n")
        good(sandbox, *restore(sandbox))
        before = digest(sandbox.root)
        kept = list(sandbox.base.glob(".crashworthy-*/quarantine/*/*/a"))
        assert [path.read_bytes() for path in kept] == [b"two\n"]
        filling = disk.fill()
        code, _, error = run(sandbox, "recovery", "quarantine", "empty", sandbox.state)
        if code:
            assert code == 1 and len(error.splitlines()) == 1, error
            assert kept[0].read_bytes() == b"two\n", "nothing is deleted before it is recorded"
        filling.unlink()
        good(sandbox, "recovery", "quarantine", "empty", sandbox.state)
        assert not kept[0].exists() and digest(sandbox.root) == before

    on_disks(sandbox, story)
