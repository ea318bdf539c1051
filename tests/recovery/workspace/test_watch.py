"""The watcher's own rules, with a small reader in place of the scanner: what it says to read, and when it says that it does not know."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.workspace import inotify
from recovery.workspace.inotify import Event, Inotify
from recovery.workspace.watch import Hints, Watch, mounts_around

MOUNT = "30 1 254:1 / {} rw - {} /dev/x rw\n"


def read_whole(root: str, hints: Hints, path: bytes = b"") -> None:
    """Read a directory and all below it, as a scan does: watched before its names are read."""
    descriptor = os.open(os.path.join(os.fsencode(root), path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        hints.enter(path, descriptor)
        below = [os.fsencode(one.name) for one in os.scandir(descriptor) if one.is_dir(follow_symlinks=False)]
    finally:
        os.close(descriptor)
    for name in below:
        read_whole(root, hints, path + b"/" + name if path else name)


def read_all(root: Path, watch: Watch) -> Hints:
    hints = watch.drain()
    read_whole(str(root), hints)
    hints.complete()
    return hints


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "a" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "b").mkdir()
    (tmp_path / "root" / "a" / "file").write_bytes(b"one")
    (tmp_path / "root" / "b" / "file").write_bytes(b"one")
    return tmp_path / "root"


@pytest.fixture
def watch(root: Path) -> Iterator[Watch]:
    watch = Watch(str(root), read_mountinfo=lambda: MOUNT.format("/", "ext4"))
    assert read_all(root, watch).doubt == "the first scan"
    yield watch
    watch.close()


def changed(watch: Watch) -> frozenset[bytes]:
    hints = watch.drain()
    assert not hints.doubt
    return hints.changed


def test_nothing_changed_needs_nothing_read(watch: Watch) -> None:
    assert watch.count == 4
    hints = watch.drain()
    assert (hints.doubt, hints.changed, hints.whole) == ("", frozenset(), frozenset())


def test_each_way_to_change_a_file_names_its_directory(root: Path, watch: Watch) -> None:
    file = root / "a" / "file"

    def truncate() -> None:
        os.truncate(file, 1)

    for change in (
        lambda: file.write_bytes(b"two"),
        truncate,
        lambda: file.chmod(0o600),
        lambda: os.utime(file, ns=(1, 1)),
        lambda: os.setxattr(file, "user.note", b"1"),
        lambda: os.symlink("x", root / "a" / "link"),
        lambda: os.link(file, root / "a" / "second"),
        lambda: os.mkfifo(root / "a" / "pipe"),
        lambda: file.unlink(),
    ):
        change()
        hints = watch.drain()
        assert hints.changed == {b"a"} and not hints.doubt
        hints.complete()
    assert changed(watch) == frozenset()


def test_the_roots_own_attributes_are_told(root: Path, watch: Watch) -> None:
    root.chmod(0o700)
    assert changed(watch) == {b""}


def test_a_failed_scan_forgets_nothing(root: Path, watch: Watch) -> None:
    (root / "a" / "file").write_bytes(b"two")
    watch.drain()  # and the scan fails
    (root / "b" / "file").write_bytes(b"two")
    assert changed(watch) == {b"a", b"b"}


def test_what_happens_during_a_scan_belongs_to_the_next(root: Path, watch: Watch) -> None:
    (root / "a" / "file").write_bytes(b"two")
    hints = watch.drain()
    (root / "a" / "file").write_bytes(b"three")
    (root / "b" / "file").write_bytes(b"two")
    hints.complete()
    assert changed(watch) == {b"a", b"b"}


def test_a_new_directory_is_read_whole_and_then_watched(root: Path, watch: Watch) -> None:
    (root / "new" / "below").mkdir(parents=True)
    hints = watch.drain()
    assert (hints.changed, hints.whole) == ({b""}, {b"new"})
    read_whole(str(root), hints, b"new")
    hints.complete()
    (root / "new" / "below" / "file").write_bytes(b"")
    hints = watch.drain()
    assert (hints.changed, hints.whole) == ({b"new/below"}, frozenset())


def test_a_moved_directory_is_watched_under_its_new_name(root: Path, watch: Watch) -> None:
    (root / "a").rename(root / "b" / "moved")
    hints = watch.drain()
    assert (hints.changed, hints.whole) == ({b"", b"b", b"a"}, {b"b/moved"})
    hints.leave(b"a")
    read_whole(str(root), hints, b"b/moved")
    hints.complete()
    assert watch.count == 4
    (root / "b" / "moved" / "deep" / "file").write_bytes(b"")
    assert changed(watch) == {b"b/moved/deep"}


def test_leaving_the_old_name_after_entering_the_new_keeps_the_watch(root: Path, watch: Watch) -> None:
    (root / "a").rename(root / "b" / "moved")
    hints = watch.drain()
    read_whole(str(root), hints, b"b/moved")
    hints.leave(b"a")
    hints.complete()
    (root / "b" / "moved" / "deep" / "file").write_bytes(b"")
    assert changed(watch) == {b"b/moved/deep"}


def count_in_kernel(root: Path) -> int:
    """The inotify watches of this process on `root`, on what is below it and on what was moved out, as the kernel counts them: what another
    test may have left open is not meant."""
    files = [Path("/proc/self/fdinfo", name) for name in os.listdir("/proc/self/fdinfo")]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines() if line.startswith("inotify wd:")]
    inodes = {os.stat(place).st_ino for top in (root, root.parent / "outside") for place, _, _ in os.walk(top)}
    return sum(int(line.split(" ino:")[1].split()[0], 16) in inodes for line in lines)


def test_a_directory_in_the_place_of_another_takes_its_watch_away(root: Path, watch: Watch) -> None:
    (root / "a" / "deep").rename(root.parent / "outside")
    (root / "a" / "deep").mkdir()
    hints = watch.drain()
    read_whole(str(root), hints, b"a/deep")
    hints.complete()
    assert (watch.count, count_in_kernel(root)) == (4, 4)
    (root.parent / "outside" / "file").write_bytes(b"")
    assert changed(watch) == frozenset()


def test_a_directory_moved_out_loses_its_watches(root: Path, watch: Watch) -> None:
    (root / "a").rename(root.parent / "outside")
    hints = watch.drain()
    hints.leave(b"a")
    hints.complete()
    assert (watch.count, count_in_kernel(root)) == (2, 2)
    (root.parent / "outside" / "deep" / "file").write_bytes(b"")
    assert changed(watch) == frozenset()


def test_a_removed_directory_made_again_is_read_whole(root: Path, watch: Watch) -> None:
    (root / "a" / "deep").rmdir()
    (root / "a" / "deep").mkdir()
    hints = watch.drain()
    assert not hints.doubt and b"a/deep" in hints.whole
    read_whole(str(root), hints, b"a/deep")
    hints.complete()
    assert watch.count == 4
    (root / "a" / "deep" / "file").write_bytes(b"")
    assert changed(watch) == {b"a/deep"}


class Scripted(Inotify):
    """An instance to whose queue a test adds what a kernel may say; `refuse` is the error number of every `add`."""

    extra: list[Event] = []
    refuse = 0

    def read(self) -> list[Event]:
        told, Scripted.extra = Scripted.extra, []
        return super().read() + told

    def add(self, directory: int) -> int:
        if Scripted.refuse:
            raise OSError(Scripted.refuse, os.strerror(Scripted.refuse))
        return super().add(directory)


@pytest.fixture
def scripted(root: Path) -> Iterator[Watch]:
    watch = Watch(str(root), read_mountinfo=lambda: MOUNT.format("/", "ext4"), open_queue=Scripted)
    read_all(root, watch)
    yield watch
    Scripted.extra, Scripted.refuse = [], 0
    watch.close()


@pytest.mark.parametrize(
    ("event", "word"),
    [
        (Event(-1, inotify.OVERFLOW, b""), "overflowed"),
        (Event(1, inotify.UNMOUNT, b""), "unmounted"),
        (Event(2, inotify.IGNORED, b""), "ended by itself"),
        (Event(999, inotify.MODIFY, b"x"), "not watched"),
        (Event(1, inotify.MOVE_SELF, b""), "root was moved"),
    ],
)
def test_a_doubt_has_everything_read_and_the_watches_made_anew(root: Path, scripted: Watch, event: Event, word: str) -> None:
    Scripted.extra = [event]
    hints = scripted.drain()
    assert word in hints.doubt and scripted.count == 0
    assert word in scripted.drain().doubt, "a doubt lasts until a scan is complete"
    read_whole(str(root), hints)
    hints.complete()
    assert scripted.count == 4
    (root / "b" / "file").write_bytes(b"two")
    assert changed(scripted) == {b"b"}


def test_a_queue_that_overflows_is_a_doubt(root: Path, watch: Watch) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the kernel queues {limit} events here: too many to make")
    for number in range(limit // 2 + 1):
        os.utime(root / "a" / "file", ns=(number, number))
        os.utime(root / "b" / "file", ns=(number, number))
    assert "overflowed" in watch.drain().doubt


def test_at_the_limit_of_watches_everything_is_read_and_tried_again_ever_later(root: Path, scripted: Watch) -> None:
    Scripted.extra, Scripted.refuse = [Event(-1, inotify.OVERFLOW, b"")], errno.ENOSPC
    assert "overflowed" in read_all(root, scripted).doubt
    Scripted.refuse = 0
    doubts = [read_all(root, scripted).doubt for _ in range(3)]
    assert doubts == ["the limit of watches is reached"] * 2 + [""]


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "9p", "virtiofs", "overlay", ""])
def test_a_file_system_that_others_may_change_is_never_watched(root: Path, kind: str) -> None:
    watch = Watch(str(root), read_mountinfo=lambda: MOUNT.format("/", kind) if kind else "")
    for _ in range(2):
        assert "without this kernel" in read_all(root, watch).doubt or watch.count == 0
    assert "without this kernel" in watch.drain().doubt and watch.count == 0


def test_a_changed_mount_is_a_doubt(root: Path) -> None:
    text = MOUNT.format("/", "ext4")
    watch = Watch(str(root), read_mountinfo=lambda: text)
    read_all(root, watch)
    text += MOUNT.format("/elsewhere", "tmpfs")
    assert not watch.drain().doubt, "a mount elsewhere is nothing to the root"
    text += MOUNT.format(f"{root}/a", "tmpfs")
    assert watch.drain().doubt == "mounts changed"
    watch.close()


def test_mounts_around_a_root_are_those_at_above_and_below_it() -> None:
    points = ["/", "/w", "/w/a\\040b", "/w/a\\040b/c", "/w/a\\040bc", "/x"]
    found = mounts_around("/w/a b", "".join(MOUNT.format(point, "ext4") for point in points))
    assert [line.split(" ")[4] for line in found] == ["/", "/w", "/w/a\\040b", "/w/a\\040b/c"]


def test_another_directory_in_the_roots_place_is_a_doubt(root: Path, watch: Watch) -> None:
    above = root.parent
    above.rename(above.with_name(above.name + "-moved"))
    try:
        root.mkdir(parents=True)
        assert watch.drain().doubt == "the root is another directory"
    finally:
        root.rmdir()
        above.rmdir()
        above.with_name(above.name + "-moved").rename(above)
