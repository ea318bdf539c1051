"""The scanner: what it remembers costs nothing again, and nothing it remembers is ever believed that could be another version."""

import errno
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings

from eventlog.image import ImageTree, check_image, decode_xattrs, root_hash
from recovery.workspace import file_clock, mounts, observe, stat_cache, walk
from recovery.workspace import scan as scanning
from recovery.workspace.profile import Profile
from recovery.workspace.scan import Scanner, scan
from recovery.workspace.side import RESERVED_NAME
from tests.helpers import DEADLINE_SECS
from tests.recovery.workspace.support import Space, make_tree, run_with_own_mounts
from tests.trees import generate

BOOT = "boot-1"


def settle(scanner: Scanner) -> ImageTree:
    """Scan until nothing had to be read: everything is old enough to be believed."""
    deadline = time.monotonic() + DEADLINE_SECS
    while time.monotonic() < deadline:
        found = scanner.scan()
        if scanner.hashed == 0:
            return found.image
    pytest.fail(f"waited {DEADLINE_SECS:g} s for a scan that reads no file")


def fresh(space: Space) -> ImageTree:
    return scan(space.root, side_directory_name=RESERVED_NAME).image


def make_some(space: Space) -> None:
    for number in range(30):
        space.write(f"d{number % 3}/f{number}", b"%08d" % number)
    os.symlink("d0/f0", space.at("link"))
    os.mkfifo(space.at("d1/pipe"))
    os.link(space.at("d0/f0"), space.at("d2/again"))


def assert_all_were_read(scanner: Scanner) -> None:
    """Each of the 30 files was read in each pass; there is another pass when somebody makes a mount anywhere meanwhile."""
    assert scanner.hashed in (30, 60, 90)


def cached(space: Space, boot: str = BOOT, root: str | None = None) -> Scanner:
    return Scanner(root or space.root, cache_path=space.base + "/scan.cache", boot_id=boot)


def test_an_unchanged_scan_reads_no_file_and_shares_every_directory(space: Space) -> None:
    make_some(space)
    scanner = Scanner(space.root)
    first = settle(scanner)
    second = scanner.scan().image
    assert second == first == fresh(space)
    assert all(second.directories[path] is one for path, one in first.directories.items())


def test_case_01_every_change_that_keeps_size_and_times_is_seen(space: Space) -> None:
    make_tree("same-tick", space.root)
    scanner = Scanner(space.root)
    before = settle(scanner)
    files = sorted(path for path, entry in before.items() if entry.kind == "f" and entry.link is None)
    paths = [os.path.join(os.fsencode(space.root), path) for path in files]
    for path in paths[: len(paths) // 2]:
        found = os.stat(path)
        with open(path, "r+b") as out:
            out.write(bytes(255 - byte for byte in out.read(found.st_size)))
            out.seek(0)
            out.write(b"\xfe" * found.st_size)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    os.rename(paths[-1], paths[-1] + b".x")
    os.rename(paths[-2], paths[-1])
    os.rename(paths[-1] + b".x", paths[-2])
    os.rename(paths[-3], paths[-4])
    after = scanner.scan().image
    assert after == fresh(space)
    changed = [path for path in files[: len(files) // 2] if after[path].content != before[path].content]
    assert changed == files[: len(files) // 2]


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A file system whose clock has one tick for as long as files are changed: no change moves a time. The function returned ends the tick:
    the clock is a minute later, and the times of the files stay."""
    still = 1_700_000_000 * 10**9
    later = [0]

    def frozen(found: os.stat_result) -> Any:
        fields = {name: getattr(found, name) for name in ("st_dev", "st_ino", "st_mode", "st_nlink", "st_size")}
        return SimpleNamespace(**fields, st_mtime_ns=still, st_ctime_ns=still)

    real_stat, real_fstat = os.stat, os.fstat
    monkeypatch.setattr(walk, "_stat", lambda name, **where: frozen(real_stat(name, **where)))
    for module in (walk, observe, scanning):
        monkeypatch.setattr(module, "os", Os(fstat=lambda descriptor: frozen(real_fstat(descriptor))))
    monkeypatch.setattr(file_clock, "os", Os(fstat=lambda _: SimpleNamespace(st_ctime_ns=still + later[0])))
    return lambda: later.insert(0, 60 * 10**9)


class Os:
    """The os module with some functions of our own."""

    def __init__(self, **own: Callable[..., Any]) -> None:
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def test_case_01_an_entry_as_young_as_the_clock_is_read_again(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)
    end_tick = stop_the_clock(monkeypatch)
    scanner = Scanner(space.root)
    images = [scanner.scan().image]
    for content in (b"rewrite1", b"rewrite2"):
        with open(space.at("d0/f3"), "r+b") as out:
            out.write(content)
        if content == b"rewrite2":
            end_tick()  # what was young when it was looked at stays in doubt, however old it is by now
        images.append(scanner.scan().image)
    assert [image[b"d0/f3"].content for image in images[1:]] == [blake3(b"rewrite1").digest(), blake3(b"rewrite2").digest()]
    scanner.scan()
    assert scanner.hashed == 0


def test_case_01_a_name_exchanged_within_a_tick_is_seen(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)
    end_tick = stop_the_clock(monkeypatch)
    scanner = Scanner(space.root)
    scanner.scan()
    space.write("d0/new")
    os.unlink(space.at("d1/f1"))
    image = scanner.scan().image
    assert b"d0/new" in image and b"d1/f1" not in image
    os.symlink("x", space.at("d0/newer"))
    os.rename(space.at("d2"), space.at("d3"))
    end_tick()
    assert scanner.scan() == scan(space.root, side_directory_name=RESERVED_NAME)


def test_what_lies_in_the_future_of_the_clock_is_read_again(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)
    scanner = Scanner(space.root)
    settle(scanner)
    monkeypatch.setattr(scanning, "trusted_before", lambda root: os.stat(space.at("d0/f0")).st_ctime_ns - 10**12)
    scanner.scan()
    assert_all_were_read(scanner)


def test_without_unnamed_files_nothing_is_trusted(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)

    def refuse(path: Any, flags: int, *rest: Any, **where: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return os.open(path, flags, *rest, **where)

    monkeypatch.setattr(file_clock, "os", Os(open=refuse))
    scanner = Scanner(space.root)
    for _ in range(3):
        scanner.scan()
        assert_all_were_read(scanner)


def test_reading_the_clock_changes_no_time_of_the_root(space: Space) -> None:
    before = os.stat(space.root)
    descriptor = os.open(space.root, os.O_RDONLY)
    assert file_clock.trusted_before(descriptor) > 0 or not hasattr(os, "O_TMPFILE")
    os.close(descriptor)
    after = os.stat(space.root)
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)


def test_times_of_whole_seconds_need_two_seconds(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_700_000_000 * 10**9
    descriptor = os.open(space.root, os.O_RDONLY)
    for clock, margin in ((now, 2 * 10**9), (now + 123_456_789, 20_000_000)):
        monkeypatch.setattr(file_clock, "os", Os(fstat=lambda _, clock=clock: SimpleNamespace(st_ctime_ns=clock)))
        assert file_clock.trusted_before(descriptor) == clock - margin
    os.close(descriptor)


@pytest.mark.parametrize(
    ("apart", "is_fine"), [(0, False), (1, True), (499_999, True), (500_000, False), (1_000_000, False), (10_000_000, False), (-1, False)]
)
def test_there_is_no_margin_where_changes_within_a_tick_have_times_of_their_own(
    space: Space, monkeypatch: pytest.MonkeyPatch, apart: int, is_fine: bool
) -> None:
    now = 1_700_000_000 * 10**9 + 123_456_789
    times = iter((now, now + 3_000_000, now + 3_000_000 + apart))
    monkeypatch.setattr(file_clock, "os", Os(fstat=lambda _: SimpleNamespace(st_ctime_ns=next(times))))
    descriptor = os.open(space.root, os.O_RDONLY)
    assert file_clock.trusted_before(descriptor) == (now + 3_000_000 + apart if is_fine else now - 20_000_000)
    os.close(descriptor)


def test_a_disk_without_room_for_the_two_writes_keeps_the_margin(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no room")

    now = 1_700_000_000 * 10**9 + 123_456_789
    monkeypatch.setattr(file_clock, "os", Os(fstat=lambda _: SimpleNamespace(st_ctime_ns=now), write=refuse))
    descriptor = os.open(space.root, os.O_RDONLY)
    assert file_clock.trusted_before(descriptor) == now - 20_000_000
    os.close(descriptor)


def test_case_01_a_file_rewritten_again_and_again_with_its_time_put_back_is_always_seen(space: Space) -> None:
    """As fast as this process can, within ticks: size and modification time stay, so that only the change time tells."""
    make_some(space)
    path = space.at("d0/f3")
    scanner = Scanner(space.root)
    scanner.scan()
    for number in range(200):
        content = b"%08d" % number
        with open(path, "r+b") as out:
            out.write(content)
        os.utime(path, ns=(0, 0))
        assert scanner.scan().image[b"d0/f3"].content == blake3(content).digest()


def test_a_forced_rehash_reads_every_file(space: Space) -> None:
    make_some(space)
    scanner = Scanner(space.root)
    settle(scanner)
    scanner.scan(rehash=True)
    assert_all_were_read(scanner)  # a file with two names is read once


def test_the_cache_saves_reading_and_is_private(space: Space) -> None:
    make_some(space)
    first = cached(space)
    image = settle(first)
    first.save()
    assert os.stat(space.base + "/scan.cache").st_mode & 0o777 == 0o600
    second = cached(space)
    assert second.scan().image == image and second.hashed == 0
    assert root_hash(second.scan().image) == root_hash(dict(image.items()))


def test_a_young_entry_is_not_trusted_for_having_been_saved(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)
    stop_the_clock(monkeypatch)
    first = cached(space)
    first.scan()
    first.save()
    second = cached(space)
    second.scan()
    assert_all_were_read(second)


def test_a_cache_of_another_boot_or_root_is_ignored(space: Space) -> None:
    make_some(space)
    first = cached(space)
    image = settle(first)
    first.save()
    other_boot = cached(space, "boot-2")
    assert other_boot.scan().image == image
    assert_all_were_read(other_boot)
    subprocess.run(["cp", "-a", space.root, space.root + "2"], check=True)
    other_root = cached(space, root=space.root + "2")
    assert other_root.scan().image == image
    assert_all_were_read(other_root)


@pytest.mark.parametrize("how", ("missing", "empty", "cut", "flipped head", "flipped body", "foreign"))
def test_a_damaged_cache_costs_time_only(space: Space, how: str) -> None:
    make_some(space)
    first = cached(space)
    image = settle(first)
    first.save()
    path = Path(space.base, "scan.cache")
    data = bytearray(path.read_bytes())
    match how:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "flipped head":
            data[3] ^= 1
            path.write_bytes(data)
        case "flipped body":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "foreign":
            path.write_bytes(os.urandom(1000))
    second = cached(space)
    assert second.scan().image == image
    assert_all_were_read(second)


def test_a_cache_that_cannot_be_written_is_no_error(space: Space) -> None:
    make_some(space)
    scanner = Scanner(space.root, cache_path=space.base + "/no/such/place", boot_id=BOOT)
    image = scanner.scan().image
    scanner.save()
    assert image == fresh(space)


def test_the_cache_keeps_what_an_unreadable_binding_cannot_pass_for(space: Space) -> None:
    make_some(space)
    scanner = cached(space)
    settle(scanner)
    scanner.save()
    binding = stat_cache.Binding(BOOT, os.stat(space.root).st_dev, os.stat(space.root).st_ino, RESERVED_NAME, ())
    assert stat_cache.load(space.base + "/scan.cache", binding)
    for other in (("x", *list(binding.__struct_fields__)[1:]),):
        assert not stat_cache.load(space.base + "/scan.cache", stat_cache.Binding(other[0], 1, 1, None, ()))


MAPPER = """
import mmap, sys
file = open(sys.argv[1], "r+b")
mapped = mmap.mmap(file.fileno(), 0)
mapped[0:1] = b"1"
print("dirty", flush=True)
for line in sys.stdin:
    mapped[0:1] = line.encode()[:1]
    print("stored", flush=True)
"""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """The names of the files that were read. A pass is repeated when a mount was made anywhere meanwhile, so that names tell and counts
    do not."""
    found: set[bytes] = set()
    observe_file = observe.observe_file

    def note(name: bytes, *others: Any) -> observe.Observed:
        found.add(name)
        return observe_file(name, *others)

    monkeypatch.setattr(observe, "observe_file", note)
    return found


def test_a_store_through_a_mapping_that_moves_no_time_is_seen_and_once_more_after_it_is_gone(space: Space, reads: set[bytes]) -> None:
    full = space.write("mapped", b"0" * mmap.PAGESIZE)
    space.write("other")
    with subprocess.Popen([sys.executable, "-c", MAPPER, full], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as mapper:
        assert mapper.stdin is not None and mapper.stdout is not None
        assert mapper.stdout.readline() == "dirty\n"
        scanner = Scanner(space.root)
        settle(scanner)
        for word in "2345":
            mapper.stdin.write(word + "\n")
            mapper.stdin.flush()
            assert mapper.stdout.readline() == "stored\n"
            reads.clear()
            found = scanner.scan(processes=[mapper.pid]).image
            assert reads == {b"mapped"}
            assert found == fresh(space)
        mapper.stdin.write("6\n")
        mapper.stdin.flush()
        assert mapper.stdout.readline() == "stored\n"
        mapper.stdin.close()
        mapper.wait()
    reads.clear()
    found = scanner.scan().image
    assert reads == {b"mapped"}
    assert found == fresh(space)
    assert settle(scanner) == fresh(space)


def test_processes_that_may_not_be_asked_put_every_file_in_doubt(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)
    scanner = Scanner(space.root)
    settle(scanner)
    monkeypatch.setattr(scanning, "read_mapped", lambda processes: None)
    scanner.scan()
    assert_all_were_read(scanner)


def test_a_mount_made_during_the_walk_is_not_read(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkdir(space.at("d"))
    os.mkdir(space.base + "/outside")
    Path(space.base, "outside", "canary").write_bytes(b"x")

    def check() -> None:
        mounted: list[bool] = []

        def stat_and_mount(name: bytes, **where: Any) -> os.stat_result:
            found = os.stat(name, **where)
            if name == b"d" and not mounted:
                mounted.append(True)
                subprocess.run(["mount", "--bind", space.base + "/outside", space.at("d")], check=True)
            return found

        monkeypatch.setattr(walk, "_stat", stat_and_mount)
        scanner = Scanner(space.root)
        found = scanner.scan()
        assert sorted(found.image) == [b""] and [one.kind for one in found.untracked] == ["mount"]
        subprocess.run(["umount", space.at("d")], check=True)
        assert sorted(scanner.scan().image) == [b"", b"d"]

    run_with_own_mounts(check)


def test_mounts_that_never_rest_are_asked_for_at_each_entry(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)
    asked: list[bytes] = []
    plain = walk.look_at
    monkeypatch.setattr(mounts.Mounts, "have_changed", lambda self: True)
    monkeypatch.setattr(walk, "look_at", lambda name, directory: (asked.append(name), plain(name, directory))[1])
    assert scan(space.root, side_directory_name=None).image[b"d0/f0"].size == 8
    assert b"f0" in asked


def test_mount_points_are_read_with_their_escapes() -> None:
    table = b"1 2 0:3 / /w\\040x/a\\134b rw - ext4 d rw\n1 2 0:3 / /w\\040xy rw - ext4 d rw\n1 2 0:3 / /w\\040x rw - ext4 d rw\n"
    assert mounts._points_beneath(b"/w x", table) == {b"a\\b"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(generate.trees(), generate.trees(), generate.trees())
def test_a_scanner_that_remembers_gives_what_a_fresh_one_gives(
    tmp_path_factory: pytest.TempPathFactory, first: generate.Tree, second: generate.Tree, third: generate.Tree
) -> None:
    space = Space(str(tmp_path_factory.mktemp("scanner")))
    os.mkdir(space.root)
    scanner = cached(space)
    for tree in (first, second, third, first):
        space.replace_tree(tree)
        found = scanner.scan()
        check_image(found.image)
        assert found == scan(space.root, side_directory_name=RESERVED_NAME)
        assert root_hash(found.image) == root_hash(dict(found.image.items()))
        scanner.save()
        assert cached(space).scan() == found
    generate.remove(space.root)


def test_case_02_a_remembering_scanner_survives_a_busy_tree(tmp_path: Path) -> None:
    root = str(tmp_path / "w")
    make_tree("churn", root)
    maker = Path(__file__).parents[2] / "trees" / "make_tree.py"
    scanner = Scanner(root)
    with subprocess.Popen([sys.executable, str(maker), "--live", "1.5", "churn", root], stdout=subprocess.DEVNULL) as churning:
        whole = 0
        while churning.poll() is None:
            try:
                check_image(scanner.scan().image)
                whole += 1
            except scanning.ScanError as error:
                assert "keep" in str(error)
    assert scanner.scan() == scan(root, side_directory_name=RESERVED_NAME)


def test_flags_and_attributes_that_are_not_tracked_are_listed(space: Space) -> None:
    space.write("plain")
    full = space.write("sealed")
    if os.geteuid() != 0:
        pytest.skip("inode flags and attributes outside user.* need root")
    os.setxattr(space.write("trusted"), "trusted.x", b"1")
    if subprocess.run(["chattr", "+i", full], capture_output=True).returncode != 0:
        pytest.skip("this file system has no inode flags")
    try:
        found = scan(space.root, side_directory_name=None)
    finally:
        subprocess.run(["chattr", "-i", full], check=True)
    assert {(one.path, one.kind) for one in found.untracked} == {(b"sealed", "flags"), (b"trusted", "attribute")}
    assert sorted(found.image) == [b"", b"plain", b"sealed", b"trusted"]


LEAVING = Profile(("*.o", "out/"), owners=True, acls=True)


def test_excluded_paths_are_in_no_image_and_neither_are_directories_of_nothing_else(space: Space) -> None:
    for path in ("a/x.o", "b/x.o", "b/kept", "c/d/y.o", "e/out/deep/file", "out", "top.o"):
        space.write(path)
    os.mkdir(space.at("empty"))
    scanner = Scanner(space.root, LEAVING, cache_path=space.base + "/scan.cache", boot_id=BOOT)
    for _ in range(3):
        found = scanner.scan()
        assert sorted(found.image) == [b"", b"b", b"b/kept", b"empty", b"out"]
        assert found.excluded == (b"a/x.o", b"b/x.o", b"c/d/y.o", b"e/out", b"top.o")
        assert root_hash(found.image) == root_hash(dict(found.image.items()))
    settle(scanner)
    os.rename(space.at("c/d/y.o"), space.at("c/d/y"))
    os.unlink(space.at("out"))
    os.mkdir(space.at("out"))
    found = scanner.scan()
    assert sorted(found.image) == [b"", b"b", b"b/kept", b"c", b"c/d", b"c/d/y", b"empty"]
    assert b"out" in found.excluded
    scanner.save()
    assert Scanner(space.root, LEAVING, cache_path=space.base + "/scan.cache", boot_id=BOOT).scan() == found
    assert sorted(cached(space).scan().image) != sorted(found.image)  # a cache of other excludes is another's


def test_owners_and_acls_are_tracked_by_the_profile(space: Space) -> None:
    full = space.write("f")
    acl = bytes.fromhex("0200000001000600ffffffff02000600e803000004000400ffffffff10000600ffffffff20000400ffffffff")
    try:
        os.setxattr(full, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("this file system has no ACLs")
    os.symlink("f", space.at("l"))
    tracked, plain = Scanner(space.root, LEAVING).scan(), Scanner(space.root).scan()
    check_image(tracked.image)
    own = (os.getuid(), os.getgid())
    assert all(entry.owner == own for entry in tracked.image.values())
    assert decode_xattrs(tracked.image[b"f"].acl) == ((b"system.posix_acl_access", acl),) and tracked.untracked == ()
    assert all(entry.owner is None and entry.acl is None for entry in plain.image.values())
    assert [(one.path, one.kind) for one in plain.untracked] == [(b"f", "acl")]
