"""A hinted scan equals a whole one: by named cases, and over random operations whose seed is printed with a failure."""

import ctypes
import mmap
import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from eventlog.image import Image, diff, root_hash
from recovery.workspace import hinted, walk
from recovery.workspace.profile import Profile
from recovery.workspace.scan import Scanner
from recovery.workspace.watch import Watch

SAMPLE, OPERATIONS = 2_000, 10_000
SEED = 20_240_601
MOUNTS = "30 1 254:1 / / rw - ext4 /dev/x rw\n"
LARGEST = 150  # paths; above it something moves out
_RENAME_EXCHANGE = 2


class Pair:
    """One root under two scanners: one with a watcher, one without."""

    def __init__(self, root: Path, profile: Profile | None = None) -> None:
        self.root = root
        self.watch = Watch(str(root), read_mountinfo=lambda: MOUNTS)
        self.hinted, self.whole = Scanner(str(root), profile), Scanner(str(root), profile)
        self.by_hints = 0
        self.before: Image = {}
        self.excluded = self.bare = 0

    def compare(self, note: str = "") -> None:
        hints = self.watch.drain()
        self.by_hints += not hints.doubt
        found, expected = self.hinted.scan(hints=hints, against=self.before), self.whole.scan(against=self.before)
        differing = sorted(path for path in found.image.keys() | expected.image.keys() if found.image.get(path) != expected.image.get(path))
        assert not differing, f"{note}: a hinted scan differs at {differing[:5]}"
        assert found.untracked == expected.untracked, note
        assert found.excluded == expected.excluded, note
        self.excluded += bool(found.excluded)
        self.bare += any(path.rpartition(b"/")[0] not in found.image for path in found.excluded)
        assert root_hash(found.image) == root_hash(dict(expected.image)), note
        assert diff(self.before, found.image) == diff(dict(self.before), dict(expected.image)), note
        self.before = found.image


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    root = tmp_path / "root"
    (root / "a" / "deep").mkdir(parents=True)
    (root / "b").mkdir()
    for path in ("a/file", "a/deep/file", "b/file"):
        (root / path).write_text(path)
    pair = Pair(root)
    pair.compare()
    yield pair
    pair.watch.close()


def test_a_hinted_scan_looks_only_at_what_changed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until_old(pair)
    (pair.root / "a" / "deep" / "file").write_text("changed")
    looked: list[bytes] = []
    real = hinted.HintedWalk.read_names

    def record(walk: hinted.HintedWalk, frame: hinted.Frame, stamp: hinted.Key) -> None:
        looked.append(frame.path)
        real(walk, frame, stamp)

    monkeypatch.setattr(hinted.HintedWalk, "read_names", record)
    pair.compare()
    assert looked == [b"", b"a", b"a/deep"]


def wait_until_old(pair: Pair) -> None:
    """Scan until nothing is too young to be remembered."""
    for _ in range(10_000):
        pair.compare()
        if not pair.hinted._young:
            return
    raise AssertionError("the file system's clock does not move on")


def test_a_store_through_a_mapping_that_ended_is_found(pair: Pair) -> None:
    wait_until_old(pair)
    with (pair.root / "a" / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0:1] = b"X"
    pair.compare()


def test_a_store_through_a_living_mapping_is_found_when_the_process_is_named(pair: Pair) -> None:
    wait_until_old(pair)
    with (pair.root / "a" / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pair.hinted.scan(hints=pair.watch.drain(), processes=[os.getpid()])
        mapped[0:1] = b"X"
        hints = pair.watch.drain()
        found = pair.hinted.scan(hints=hints, processes=[os.getpid()])
        assert found.image == pair.whole.scan(rehash=True).image


def test_a_write_through_another_name_is_found(pair: Pair) -> None:
    os.link(pair.root / "a" / "file", pair.root / "b" / "second")
    outside = pair.root.parent / "outside"
    os.link(pair.root / "a" / "deep" / "file", outside)
    (pair.root / "a" / "deep" / "new").touch()
    wait_until_old(pair)
    (pair.root / "b" / "second").write_text("through the second name")
    pair.compare()
    outside.write_text("through a name outside")
    pair.compare()
    outside.unlink()
    pair.compare()


@pytest.mark.parametrize("kind", ["file", "symlink", "FIFO"])
def test_a_second_name_changes_the_first(pair: Pair, kind: str) -> None:
    name = pair.root / "a" / kind
    if kind == "symlink":
        name.symlink_to("file")
    elif kind == "FIFO":
        os.mkfifo(name)
    wait_until_old(pair)
    os.link(name, pair.root / "b" / "second", follow_symlinks=False)
    pair.compare()


def test_a_swapped_tree_is_read_whole(pair: Pair) -> None:
    wait_until_old(pair)
    exchange(pair.root / "a", pair.root / "b")
    pair.compare()


def test_what_changes_between_drain_and_scan_below_a_directory_that_is_read_is_seen(pair: Pair) -> None:
    wait_until_old(pair)
    (pair.root / "top").touch()
    hints = pair.watch.drain()
    (pair.root / "b" / "late").touch()
    assert b"b/late" in pair.hinted.scan(hints=hints).image
    pair.compare()


def test_every_directory_is_watched_before_its_names_are_read(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    real = walk.Walk.look_at_names

    def check(self: walk.Walk, frame: walk.Frame, new: Iterable[bytes], known: Mapping[bytes, walk.Key | None]) -> None:
        node = watched[-1]._find(frame.path, make=False)
        assert node is not None and node.watch is not None, frame.path
        read.append(frame.path)
        real(self, frame, new, known)

    monkeypatch.setattr(walk.Walk, "look_at_names", check)
    watched = [Watch(str(pair.root), read_mountinfo=lambda: MOUNTS)]
    scanner = Scanner(str(pair.root))
    scanner.scan(hints=watched[-1].drain())
    (pair.root / "new" / "below").mkdir(parents=True)
    scanner.scan(hints=watched[-1].drain())
    assert b"a/deep" in read and b"new/below" in read
    watched[-1].close()


def test_a_failed_scan_is_made_good_by_a_whole_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until_old(pair)
    (pair.root / "new" / "below").mkdir(parents=True)
    (pair.root / "new" / "below" / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(hinted.HintedWalk, "_find_partners", fail)
        with pytest.raises(KeyboardInterrupt):
            pair.hinted.scan(hints=pair.watch.drain())
    pair.compare()


def fail(*_: object) -> None:
    raise KeyboardInterrupt


def exchange(one: Path, other: Path) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


class World:
    """Random operations on the tree below `root`; `outside` is a directory beside it for what moves out and in. One generator.

    A second name is looked at before it can go again: one that is given and taken away between two scans is what no watcher is told.
    """

    def __init__(self, root: Path, source: random.Random) -> None:
        self.root, self.source = root, source
        self.outside = root.parent / "outside"
        self.outside.mkdir()
        self.made = 0
        self.operations = OPERATION_NAMES
        self.directories: list[Path] = []
        self.files: list[Path] = []
        self.others: list[Path] = []

    def look(self) -> None:
        self.directories, self.files, self.others = [self.root], [], []
        for above, directories, names in os.walk(self.root):
            for name in directories:
                path = Path(above, name)
                (self.others if path.is_symlink() else self.directories).append(path)
            for name in names:
                path = Path(above, name)
                (self.others if path.is_symlink() or not path.is_file() else self.files).append(path)

    def new(self) -> Path:
        self.made += 1
        return self.source.choice(self.directories) / f"n{self.made}"

    def directory(self) -> Path:
        """One below the root."""
        if len(self.directories) > 1:
            return self.source.choice(self.directories[1:])
        path = self.new()
        path.mkdir()
        return path

    def file(self) -> Path:
        return self.source.choice(self.files) if self.files else self.create()

    def create(self) -> Path:
        path = self.new()
        path.write_bytes(self.source.randbytes(self.source.randrange(64)))
        return path

    def step(self) -> str:
        name = self.source.choice(self.operations)
        if len(self.directories) + len(self.files) > LARGEST:
            name = "do_move_out"
        try:
            getattr(self, name)()
        except OSError as error:  # a directory that is not empty, one moved below itself, a path that went in the same batch
            return f"{name} ({error.strerror})"
        return name

    def do_create(self) -> None:
        self.create()

    def do_write(self) -> None:
        self.file().write_bytes(self.source.randbytes(16))

    def do_append(self) -> None:
        with self.file().open("ab") as file:
            file.write(b"more")

    def do_truncate(self) -> None:
        os.truncate(self.file(), self.source.randrange(8))

    def do_store(self) -> None:
        with self.file().open("r+b") as file:
            file.write(b"0123456789")
            file.flush()
            with mmap.mmap(file.fileno(), 0) as mapped:
                mapped[0:4] = self.source.randbytes(4)
                mapped.flush()

    def do_chmod(self) -> None:
        self.source.choice(self.directories + self.files).chmod(0o700 | self.source.randrange(64))

    def do_utime(self) -> None:
        when = self.source.randrange(10**18)
        os.utime(self.source.choice(self.directories + self.files), ns=(when, when))

    def do_setxattr(self) -> None:
        os.setxattr(self.source.choice(self.directories + self.files), "user.note", self.source.randbytes(4))

    def do_rename_file(self) -> None:
        self.file().rename(self.new())

    def do_replace_file(self) -> None:
        self.file().replace(self.file())

    def do_rename_directory(self) -> None:
        self.directory().rename(self.new())

    def do_link(self) -> None:
        os.link(self.source.choice(self.files + self.others), self.new(), follow_symlinks=False)

    def do_symlink(self) -> None:
        os.symlink("nowhere", self.new())

    def do_pipe(self) -> None:
        os.mkfifo(self.new())

    def do_unlink(self) -> None:
        self.source.choice((self.files + self.others) or self.directories).unlink()

    def do_mkdir(self) -> None:
        self.new().mkdir()

    def do_nested(self) -> None:
        path = self.new()
        (path / "one" / "two").mkdir(parents=True)
        (path / "one" / "two" / "file").touch()
        (path / "one" / "file").write_bytes(self.source.randbytes(3))

    def do_rmdir(self) -> None:
        self.directory().rmdir()

    def do_again(self) -> None:
        path = self.directory()
        path.rmdir()
        path.mkdir()

    def do_exchange(self) -> None:
        everything = self.directories[1:] + self.files + self.others
        exchange(self.source.choice(everything), self.source.choice(everything))

    def do_become_directory(self) -> None:
        path = self.file()
        path.unlink()
        path.mkdir()
        (path / "inside").touch()

    def do_become_link(self) -> None:
        path = self.file()
        path.unlink()
        path.symlink_to("elsewhere")

    def do_move_out(self) -> None:
        self.made += 1
        self.directory().rename(self.outside / f"o{self.made}")

    def do_move_in(self) -> None:
        waiting = sorted(self.outside.iterdir())
        if waiting:
            self.source.choice(waiting).rename(self.new())


OPERATION_NAMES = sorted(name for name in vars(World) if name.startswith("do_"))


def run_world(root: Path, seed: int, operations: int, profile: Profile | None = None) -> Pair:
    root.mkdir()
    source = random.Random(seed)
    world, pair = World(root, source), Pair(root, profile)
    if profile is not None:  # a second name among what is left out is one outside, of which no watcher tells
        world.operations = [name for name in OPERATION_NAMES if name != "do_link"]
    pair.compare("at first")
    done = 0
    while done < operations:
        steps = []
        world.look()
        for _ in range(source.randint(1, 12)):
            steps.append(world.step())
            if steps[-1] == "do_link":
                break
        done += sum("(" not in step for step in steps)  # what was refused changed nothing and does not count
        pair.compare(f"seed {seed}, operation {done}, after {steps}")
    return pair


def keeps_attributes(directory: str) -> bool:
    try:
        os.setxattr(directory, "user.note", b"1")
    except OSError:
        return False
    return True


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where that keeps attributes: thousands of msyncs wait for a disk otherwise."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path) as directory:
        yield Path(directory) if keeps_attributes(directory) else tmp_path


@pytest.mark.parametrize(
    ("seed", "operations"), [(SEED, SAMPLE), pytest.param(SEED + 1, OPERATIONS, marks=pytest.mark.soak, id="soak")]
)
def test_hinted_and_whole_scans_are_equal_over_random_operations(fast_path: Path, seed: int, operations: int) -> None:
    pair = run_world(fast_path / "root", seed, operations)
    assert pair.by_hints > operations / 20, "most scans go by hints, or this test shows nothing"
    pair.watch.close()


@pytest.mark.parametrize(
    ("seed", "operations"), [(SEED + 2, SAMPLE // 2), pytest.param(SEED + 3, OPERATIONS, marks=pytest.mark.soak, id="soak")]
)
def test_hinted_and_whole_scans_are_equal_where_paths_are_excluded(fast_path: Path, seed: int, operations: int) -> None:
    pair = run_world(fast_path / "root", seed, operations, Profile(("n*3", "n*7/")))
    assert pair.by_hints > operations / 20, "most scans go by hints, or this test shows nothing"
    assert pair.excluded > operations / 20 and pair.bare, "paths are excluded, and whole directories by them, or this test shows nothing"
    pair.watch.close()


def test_a_root_exchanged_between_drain_and_scan_has_no_past(pair: Pair) -> None:
    wait_until_old(pair)
    hints = pair.watch.drain()
    pair.root.rename(pair.root.parent / "old")
    (pair.root / "c").mkdir(parents=True)
    assert set(pair.hinted.scan(hints=hints).image) == {b"", b"c"}
    pair.compare()
