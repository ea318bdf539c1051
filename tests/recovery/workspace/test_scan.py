"""The scan: complete or an error; true in itself; nothing followed, nothing entered that is not the workspace's."""

import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from eventlog import kernel
from eventlog.errors import ScanError
from eventlog.image import check_image, decode_xattrs, root_hash
from recovery.workspace import observe, walk
from recovery.workspace.content import read_content, read_verified
from recovery.workspace.profile import Profile
from recovery.workspace.scan import RootMissing, Untracked, scan
from tests.recovery.workspace.support import Space, make_tree, run_as_ordinary_user, run_in_child, run_with_own_mounts


def test_a_scan_holds_each_kind_with_its_columns(space: Space) -> None:
    os.chmod(space.write("f", b"hello", 0o4750), 0o4750)
    os.setxattr(space.at("f"), "user.k", b"v")
    os.mkdir(space.at("d"), 0o700)
    os.symlink("nowhere", space.at("l"))
    os.mkfifo(space.at("p"), 0o600)
    image = space.scan().image
    check_image(image)
    assert sorted(image) == [b"", b"d", b"f", b"l", b"p"]
    file = image[b"f"]
    assert (file.kind, file.mode, file.content, file.size) == ("f", 0o4750, blake3(b"hello").digest(), 5)
    assert decode_xattrs(file.xattrs) == ((b"user.k", b"v"),)
    assert file.mtime_ns == os.stat(space.at("f")).st_mtime_ns
    assert (image[b"d"].kind, image[b"d"].mode) == ("d", 0o700)
    assert (image[b"l"].target, image[b"l"].mode) == (b"nowhere", 0o777)
    assert image[b"p"].kind == "p"


def test_a_missing_root_and_a_root_that_is_a_file_are_root_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("nowhere", "file"):
        with pytest.raises(RootMissing):
            scan(str(tmp_path / name), side_directory_name=None)


def test_case_11_the_root_may_be_given_through_a_link_and_with_dot_segments(space: Space) -> None:
    space.write("f")
    os.symlink(space.root, space.root + ".link")
    wanted = root_hash(space.scan().image)
    for spelling in (space.root + "/", space.root + "/./", space.root + "/../w", space.root + ".link"):
        assert root_hash(scan(spelling, side_directory_name=None).image) == wanted


def test_rule_R2_the_side_directory_is_left_out_at_the_root_only(space: Space) -> None:
    space.write(".crashworthy-side/staging/x")
    space.write("d/.crashworthy-side/mine")
    image = space.scan().image
    assert b".crashworthy-side" not in image
    assert b"d/.crashworthy-side/mine" in image


def test_rule_R6_the_root_identity_is_not_part_of_the_image(space: Space) -> None:
    before = root_hash(space.scan().image)
    os.setxattr(space.root, "user.crashworthy.root", b"id")
    assert root_hash(space.scan().image) == before
    os.setxattr(space.root, "user.other", b"id")
    assert root_hash(space.scan().image) != before


def test_case_12_hard_links_name_their_group_and_links_to_the_outside_are_listed(space: Space) -> None:
    os.link(space.write("z/one", b"x"), space.at("a"))
    os.link(space.write("alone", b"x"), space.base + "/outside")
    found = space.scan()
    check_image(found.image)
    assert found.image[b"a"].link == found.image[b"z/one"].link == b"a"
    assert found.image[b"alone"].link is None
    assert found.untracked == (Untracked(b"alone", "outside link"),)


def test_case_12_symlinks_and_fifos_name_their_group_too(space: Space) -> None:
    space.write("file")
    os.symlink("file", space.at("z"))
    os.mkfifo(space.at("p"), 0o640)
    for source, name in (("z", "a"), ("p", "b")):
        os.link(space.at(source), space.at(name), follow_symlinks=False)
        os.link(space.at(source), f"{space.base}/outside-{name}", follow_symlinks=False)
    found = space.scan()
    check_image(found.image)
    links = {path: entry.link for path, entry in found.image.items() if entry.link is not None}
    assert links == {b"a": b"a", b"z": b"a", b"b": b"b", b"p": b"b"}
    assert found.untracked == tuple(Untracked(path, "outside link") for path in (b"a", b"b", b"p", b"z"))


def test_case_12_a_name_that_is_excluded_is_an_outside_link_of_a_symlink(space: Space) -> None:
    os.symlink("x", space.at("kept"))
    os.link(space.at("kept"), space.at("left-out"), follow_symlinks=False)
    found = scan(space.root, side_directory_name=None, profile=Profile(("left-out",)))
    assert sorted(found.image) == [b"", b"kept"] and found.image[b"kept"].link is None
    assert found.untracked == (Untracked(b"kept", "outside link"),)


def test_case_02_a_name_that_became_another_link_while_its_group_was_read_gives_its_group_nothing(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two names of one symlink; between the look and the reading one name becomes another link, which is no second name of it."""
    os.symlink("old", space.at("a"))
    os.link(space.at("a"), space.at("b"), follow_symlinks=False)
    read = os.readlink

    def swap_and_read(name: bytes | str, *, dir_fd: int | None = None) -> bytes | str:
        if name == b"a" and read(space.at("a")) == "old":
            os.symlink("new", space.at("c"))
            os.rename(space.at("c"), space.at("a"))
        return read(name, dir_fd=dir_fd)

    monkeypatch.setattr(observe.os, "readlink", swap_and_read)
    found = space.scan()
    assert (found.image[b"a"].target, found.image[b"b"].target) == (b"new", b"old")
    assert found.image[b"a"].link is None


def test_case_05_sockets_and_devices_are_named_and_never_opened(space: Space) -> None:
    os.mkfifo(space.at("pipe"), 0)
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(space.root)
        server.bind("sock")
        os.chdir("/")
    expected = {Untracked(b"sock", "socket")}
    if os.geteuid() == 0:
        os.mknod(space.at("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        expected.add(Untracked(b"null", "character device"))
    found = space.scan()
    assert set(found.untracked) == expected
    assert sorted(found.image) == [b"", b"pipe"]


def test_thousands_of_levels_are_scanned_with_few_descriptors(space: Space) -> None:
    levels = 2500
    descriptor = os.open(space.root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("0123456789", dir_fd=descriptor)
        below = os.open("0123456789", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)

    def scan_with_few() -> None:
        taken = max(map(int, os.listdir("/proc/self/fd")))  # by whatever ran in this process before
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 110, taken + 110))
        found = space.scan()
        assert len(found.image) == levels + 2
        check_image(found.image)
        deepest = max(found.image, key=len)
        assert b"".join(read_content(space.root, deepest)) == b""

    assert run_in_child(scan_with_few) == 0
    subprocess.run(["rm", "-rf", space.root], check=True)


def test_what_an_ordinary_user_cannot_read_is_an_error_that_names_it(open_space: Space) -> None:
    space = open_space
    space.write("d/secret\n", b"", 0)

    def check() -> None:
        with pytest.raises(ScanError, match=r"cannot read d/secret\\x0a: Permission denied"):
            space.scan()
        os.chmod(space.at("d/secret\n"), 0o600)
        os.chmod(space.at("d"), 0o300)
        with pytest.raises(ScanError, match=r"cannot read d: Permission denied"):
            space.scan()

    run_as_ordinary_user(space.base, check)


def test_case_13_another_mount_is_listed_and_not_entered_also_a_bind_mount(space: Space) -> None:
    outside = space.base + "/outside"
    os.mkdir(outside)
    Path(outside, "canary").write_bytes(b"x")
    for name in ("tmp", "bind", "plain"):
        os.mkdir(space.at(name))
    space.write("file")

    def check() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "test", space.at("tmp")], check=True)
        subprocess.run(["mount", "--bind", outside, space.at("bind")], check=True)
        subprocess.run(["mount", "--bind", outside + "/canary", space.at("file")], check=True)
        found = space.scan()
        assert sorted(found.image) == [b"", b"plain"]
        assert found.untracked == tuple(Untracked(name, "mount") for name in (b"bind", b"file", b"tmp"))
        with pytest.raises(ScanError, match="another file system"):
            list(read_content(space.root, b"bind/canary"))

    run_with_own_mounts(check)


def change_during_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None], times: int) -> None:
    """Make the first `times` readings of a file see `change` between its bytes and the second look."""
    plain = observe.hash_descriptor
    left = [times]

    def hash_and_change(descriptor: int, expected: int) -> tuple[bytes, bytes | None, int]:
        result = plain(descriptor, expected)
        if left[0]:
            left[0] -= 1
            change()
        return result

    monkeypatch.setattr(observe, "hash_descriptor", hash_and_change)


def test_case_02_a_file_that_grows_under_the_read_is_read_again(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    full = space.write("f", b"a")

    def grow() -> None:
        with open(full, "ab") as out:
            out.write(b"b")

    change_during_read(monkeypatch, grow, 2)
    entry = space.scan().image[b"f"]
    assert (entry.content, entry.size) == (blake3(b"abb").digest(), 3)


def test_case_02_a_file_that_never_rests_ends_the_scan_by_name(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    full = space.write("f", b"a")

    def grow() -> None:
        with open(full, "ab") as out:
            out.write(b"b")

    change_during_read(monkeypatch, grow, 100)
    with pytest.raises(ScanError, match="f keeps changing"):
        space.scan()


def test_case_01_a_rewrite_with_size_and_mtime_put_back_is_seen_during_the_read(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    full = space.write("f", b"old")

    def rewrite() -> None:
        before = os.stat(full)
        with open(full, "r+b") as out:
            out.write(b"new")
        os.utime(full, ns=(before.st_atime_ns, before.st_mtime_ns))

    change_during_read(monkeypatch, rewrite, 1)
    assert space.scan().image[b"f"].content == blake3(b"new").digest()


def test_case_02_a_directory_swapped_for_a_link_is_not_followed(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.write("d/inner")
    os.mkdir(space.base + "/outside")
    Path(space.base, "outside", "canary").write_bytes(b"x")
    swapped: list[bool] = []

    def look_and_swap(name: bytes, **where: Any) -> os.stat_result:
        status = os.stat(name, **where)
        if name == b"d" and not swapped:
            swapped.append(True)
            os.rename(space.at("d"), space.base + "/moved")
            os.symlink("../outside", space.at("d"))
        return status

    monkeypatch.setattr(walk, "_stat", look_and_swap)
    image = space.scan().image
    assert sorted(image) == [b"", b"d"]
    assert image[b"d"].target == b"../outside"


def test_case_02_a_name_that_vanishes_is_absent(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    full = space.write("f")
    space.write("g")
    def look_and_remove(name: bytes, **where: Any) -> os.stat_result:
        status = os.stat(name, **where)
        if name == b"f":
            os.unlink(full)
        return status

    monkeypatch.setattr(walk, "_stat", look_and_remove)
    assert sorted(space.scan().image) == [b"", b"g"]


def test_case_02_every_scan_of_a_busy_tree_is_whole_or_an_error(tmp_path: Path) -> None:
    root = str(tmp_path / "w")
    make_tree("churn", root)
    maker = Path(__file__).parents[2] / "trees" / "make_tree.py"
    with subprocess.Popen([sys.executable, str(maker), "--live", "1.5", "churn", root], stdout=subprocess.DEVNULL) as churning:
        scans = 0
        while churning.poll() is None:
            try:
                check_image(scan(root, side_directory_name=None).image)
            except ScanError as error:
                assert "keep" in str(error)
            scans += 1
    assert scans > 3
    check_image(scan(root, side_directory_name=None).image)


def test_read_verified_ends_with_an_error_when_the_content_is_another(space: Space) -> None:
    space.write("f", b"x" * (1 << 20) + b"y")
    entry = space.scan().image[b"f"]
    assert entry.content is not None
    pieces = list(read_verified(space.root, b"f", entry.content, entry.size))
    assert [len(piece) for piece in pieces] == [1 << 20, 1]
    for other in (b"x" * (1 << 20) + b"z", b"x" * (1 << 20), b"x" * (1 << 21)):
        space.write("f", other)
        with pytest.raises(ScanError, match="changed since"):
            list(read_verified(space.root, b"f", entry.content, entry.size))


def test_read_content_follows_no_link_on_the_way(space: Space) -> None:
    space.write("d/f", b"x")
    os.symlink("d", space.at("l"))
    os.symlink("d/f", space.at("k"))
    for path in (b"l/f", b"k"):
        with pytest.raises(ScanError):
            list(read_content(space.root, path))
    os.mkfifo(space.at("p"))
    with pytest.raises(ScanError, match="no longer a regular file"):
        list(read_content(space.root, b"p"))


def test_case_03_a_scan_under_a_plain_c_locale_gives_the_same_image(tmp_path: Path) -> None:
    root = str(tmp_path / "w")
    make_tree("names-bytes", root)
    program = (
        "import sys; from eventlog.image import root_hash; from recovery.workspace.scan import scan\n"
        "print(root_hash(scan(sys.argv[1], side_directory_name=None).image).hex())"
    )
    found_in = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": found_in}
    done = subprocess.run([sys.executable, "-c", program, root], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == root_hash(scan(root, side_directory_name=None).image).hex()


def test_without_statx_everything_but_birth_and_mount_is_the_same(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.write("d/f")
    full = kernel.look_at(space.at("d/f"))
    wanted = space.scan()
    monkeypatch.setattr(kernel, "_call", None)
    plain = kernel.look_at(space.at("d/f"))
    assert plain.is_same_version(full) and plain.links == full.links
    assert plain.birth_ns is None and plain.mount_id is None
    assert space.scan() == wanted
