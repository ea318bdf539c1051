"""A plan carried out on a real tree."""

import contextlib
import errno
import os
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from eventlog import steps
from eventlog.attributes import read_acl
from eventlog.errors import CorruptError, FullError, RestoreIncompleteError
from eventlog.image import root_hash
from recovery.workspace.actions import Displace, FinishDirectory, PlaceFile, PlaceLink, PlacePipe, RestorePlan, SetAttributes
from recovery.workspace.apply import apply_plan
from recovery.workspace.quarantine import list_quarantine
from recovery.workspace.restore_plan import plan_restore
from recovery.workspace.scan import Scan
from tests.recovery.workspace.support import QUARANTINE, Space, make_tree, run_as_ordinary_user, run_with_own_mounts, tree_digest, umask

TRACKABLE = [
    "churn", "content-edges", "empty-dirs", "empty-root", "git-nested", "hardlinks", "leftovers", "locked", "modes", "names-bytes",
    "same-tick", "special-nodes", "symlink-escape", "symlink-maze", "type-flip",
]  # fmt: skip
UNREADABLE = ("locked", "modes")


@pytest.fixture(params=["disk", "tmpfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Space]:
    """A space on the disk and one on tmpfs, without a root yet."""
    if request.param == "disk":
        yield Space(str(tmp_path))
    elif not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs at /dev/shm")
    else:
        with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as base:
            yield Space(base)


def damage_and_restore(space: Space, name: str) -> tuple[Scan, Scan]:
    make_tree(name, space.root)
    target = space.snapshot()
    make_tree("--damage", name, space.root)
    space.restore(target)
    after = space.scan()
    assert root_hash(after.image) == root_hash(target.image)
    assert space.plan(target).actions == ()
    return target, after


@pytest.mark.parametrize("name", TRACKABLE)
def test_a_damaged_tree_is_restored_to_its_digest_times_included(place: Space, name: str) -> None:
    if name in UNREADABLE and os.geteuid() != 0:
        pytest.skip("holds what an ordinary user cannot read: its scan is an error, see test_scan")
    make_tree(name, place.root)
    before = tree_digest(place.root, "--mtime")
    target = place.snapshot()
    assert tree_digest(place.root, "--mtime") == before
    make_tree("--damage", name, place.root)
    outside = place.root + ".outside"
    untouched = tree_digest(outside, "--mtime") if os.path.isdir(outside) else ""
    place.restore(target)
    assert tree_digest(place.root, "--mtime") == before
    assert place.scan() == target
    if untouched:
        assert tree_digest(outside, "--mtime") == untouched
    assert place.plan(target).actions == ()


def test_case_08_times_before_1970_and_after_2106_are_restored_as_far_as_64_bits_of_nanoseconds_reach(place: Space) -> None:
    target, after = damage_and_restore(place, "mtimes")
    assert after == target


def test_case_14_user_attributes_are_restored_and_acls_are_not_tracked(place: Space) -> None:
    make_tree("xattrs-acl", place.root)
    before = tree_digest(place.root, "--ignore", "xattr", "--file-mtime")
    target = place.snapshot()
    make_tree("--damage", "xattrs-acl", place.root)
    place.restore(target)
    assert place.scan().image == target.image
    assert tree_digest(place.root, "--ignore", "xattr", "--file-mtime") == before


@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_case_14_modes_are_exact_under_any_umask(space: Space, mask: int) -> None:
    with umask(mask):
        make_tree("modes", space.root)
        if os.geteuid() != 0:
            os.unlink(space.at("f/4000"))  # not readable, so not scannable
        target = space.snapshot()
        make_tree("--damage", "modes", space.root)
        space.restore(target)
        subprocess.run(["rm", "-rf", space.root], check=True)
        os.mkdir(space.root)
        space.restore(target)
    assert space.scan() == target


def test_a_plain_file_is_made_with_its_mode_and_the_umask_is_as_it_was(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call less for each file; one that has set-id bits or attributes gets its mode after what it is written with."""
    for name, mode in (("plain", 0o644), ("closed", 0o000), ("set-id", 0o4755), ("tagged", 0o444)):
        os.chmod(space.write(name, b"content"), mode)
    os.chmod(space.at("tagged"), 0o600)
    os.setxattr(space.at("tagged"), "user.tag", b"v")
    os.chmod(space.at("tagged"), 0o444)
    if os.geteuid() != 0:
        os.chmod(space.at("closed"), 0o400)  # one that nobody may read is not scannable
    target = space.snapshot()
    for name in ("plain", "closed", "set-id", "tagged"):
        os.unlink(space.at(name))
    changed = []
    fchmod = os.fchmod
    monkeypatch.setattr(os, "fchmod", lambda descriptor, mode: (changed.append(mode), fchmod(descriptor, mode)))
    with umask(0o077):
        space.restore(target)
        assert os.umask(0o077) == 0o077, "the umask of whoever restores is as it was"
    assert sorted(changed) == [0o444, 0o4755]
    assert space.scan() == target


def test_case_08_a_file_that_is_right_is_not_touched(space: Space) -> None:
    kept = space.write("d/kept", b"same")
    changed = space.write("d/changed", b"before")
    target = space.snapshot()
    looked = os.stat(kept)
    Path(changed).write_bytes(b"after")
    space.restore(target)
    again = os.stat(kept)
    assert (again.st_ino, again.st_mtime_ns, again.st_ctime_ns) == (looked.st_ino, looked.st_mtime_ns, looked.st_ctime_ns)


@pytest.mark.parametrize("compiled", [True, False])
def test_case_08_make_sees_no_stale_output_after_a_restore(space: Space, compiled: bool) -> None:
    """The documented rule: recorded times for all that is restored, outputs included."""
    space.write("Makefile", b"out: in\n\tcp in out\n")
    source, output = space.write("in", b"one"), space.write("out", b"one")
    os.utime(source, ns=(1, 10**18))
    os.utime(output, ns=(1, 10**18 + 10**9))
    target = space.snapshot()
    Path(source).write_bytes(b"two")
    if compiled:
        Path(output).write_bytes(b"two")
    space.restore(target)
    done = subprocess.run(["make", "-q", "out"], cwd=space.root, capture_output=True)
    assert done.returncode == 0 and Path(output).read_bytes() == Path(source).read_bytes() == b"one"


def test_case_09_the_second_restore_does_nothing_and_reports_nothing(space: Space) -> None:
    make_tree("symlink-maze", space.root)
    target = space.snapshot()
    make_tree("--damage", "symlink-maze", space.root)
    space.restore(target)
    before = {path: os.lstat(os.path.join(os.fsencode(space.root), path)).st_ctime_ns for path in target.image}
    again = space.restore(target)
    assert (again.restored, again.displaced) == (0, 0)
    assert before == {path: os.lstat(os.path.join(os.fsencode(space.root), path)).st_ctime_ns for path in target.image}


def test_case_09_a_directory_swapped_for_a_link_after_the_plan_stops_the_restore(space: Space) -> None:
    space.write("d/f", b"old")
    target = space.snapshot()
    space.write("d/f", b"new")
    plan = space.plan(target)
    os.mkdir(space.base + "/outside")
    Path(space.base, "outside", "f").write_bytes(b"canary")
    os.rename(space.at("d"), space.base + "/moved")
    os.symlink(space.base + "/outside", space.at("d"))
    with pytest.raises(RestoreIncompleteError, match="d/f"):
        space.apply(plan)
    assert Path(space.base, "outside", "f").read_bytes() == b"canary"
    assert os.listdir(space.base + "/outside") == ["f"]
    space.restore(target)
    assert space.scan() == target


def test_case_15_the_root_itself_is_neither_removed_nor_replaced(space: Space) -> None:
    target = space.snapshot()
    space.write("a/b")
    inode = os.stat(space.root).st_ino
    space.restore(target)
    assert os.stat(space.root).st_ino == inode
    assert os.listdir(space.root) == []


def test_rule_R3_victims_keep_their_relative_path_content_and_mode_in_their_round(space: Space) -> None:
    target = space.snapshot()
    space.write("a/b/c", b"victim", 0o640)
    os.symlink("x", space.at("l"))
    assert space.restore(target).round == 1
    quarantined = space.round_image(1).image
    entry = quarantined[b"a/b/c"]
    assert (entry.content, entry.mode) == (blake3(b"victim").digest(), 0o640)
    assert quarantined[b"l"].target == b"x"
    space.write("a/b/c", b"second victim")
    assert space.restore(target).round == 2
    assert space.round_image(1).image == quarantined
    assert space.round_image(2).image[b"a/b/c"].content == blake3(b"second victim").digest()
    assert list_quarantine(space.side, QUARANTINE) == (b"1/a/b/c", b"1/l", b"2/a/b/c")
    assert list_quarantine(space.side, "log-8") == ()


def test_rule_R3_an_empty_directory_victim_is_listed(space: Space) -> None:
    target = space.snapshot()
    os.mkdir(space.at("empty"))
    space.restore(target)
    assert list_quarantine(space.side, QUARANTINE) == (b"1/empty",)


def test_rule_R3_a_move_never_replaces_what_came_to_the_target_name_meanwhile(space: Space) -> None:
    space.write("f", b"old")
    target = space.snapshot()
    os.unlink(space.at("f"))
    plan = space.plan(target)
    space.write("f", b"somebody else's")
    with pytest.raises(RestoreIncompleteError, match=r"f \(PlaceFile\): File exists"):
        space.apply(plan)
    assert Path(space.at("f")).read_bytes() == b"somebody else's"


def test_rule_R4_too_little_room_moves_nothing_and_says_both_numbers(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.write("f", b"x" * 1000)
    target = space.snapshot()
    space.write("f", b"new")
    before = space.scan()
    real = os.statvfs(space.side)
    tight = os.statvfs_result([*real[:4], 1, *real[5:10]])
    monkeypatch.setattr(os, "statvfs", lambda _: tight)
    plan = space.plan(target)
    plan = type(plan)(plan.actions, plan.restored, plan.displaced, 10**15)
    with pytest.raises(FullError, match=f"needs {10**15} bytes and {real.f_frsize} are free"):
        space.apply(plan)
    assert space.scan() == before


def test_room_that_runs_out_in_the_middle_loses_nothing_and_can_be_repeated(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.write("f", b"old")
    target = space.snapshot()
    space.write("f", b"new")

    def fail(descriptor: int, data: bytes, step: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        plan = space.plan(target)
        pack = space.lay_pack(plan)
        patched.setattr("eventlog.durable.write_all", fail)
        with pytest.raises(FullError, match="f .* No space left"):
            apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=pack)
    assert space.round_image(1).image[b"f"].content == blake3(b"new").digest()
    space.restore(target)
    assert space.scan() == target
    assert os.listdir(space.side + "/staging") == []


@pytest.mark.parametrize("kept", [b"other", b"ol", None])
def test_content_that_is_not_what_its_name_says_is_never_placed(space: Space, kept: bytes | None) -> None:
    space.write("f", b"old")
    target = space.snapshot()
    content = target.image[b"f"].content
    assert content is not None
    os.unlink(space.at("f"))
    plan = space.plan(target)
    pack = Path(space.lay_pack(plan))
    if kept is None:
        pack.unlink()
    else:
        pack.write_bytes(kept)
    with pytest.raises(CorruptError, match="missing" if kept is None else content.hex()):
        apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=str(pack))
    assert not os.path.lexists(space.at("f"))


def test_rule_R2_a_side_directory_inside_the_root_serves_as_well_and_is_never_a_victim(space: Space) -> None:
    space.side = space.at(".crashworthy-side")
    os.mkdir(space.side, 0o700)
    space.write("d/f", b"old")
    target = space.snapshot()
    space.write("d/f", b"new")
    space.write("extra")
    space.restore(target)
    assert space.scan() == target
    assert list_quarantine(space.side, QUARANTINE) == (b"1/d/f", b"1/extra")


def test_case_16_leftovers_of_killed_rounds_go_and_nothing_else(space: Space) -> None:
    target = space.snapshot()
    for name in ("log-7-1/1", "log-7-1/2", "log-7-1/3/d/e/f", "log-7-1/3/g", "tool-1-0"):
        full = os.path.join(space.side, "staging", name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        Path(full).write_bytes(b"half")
    Path(space.side, "other").write_bytes(b"x")
    space.restore(target)
    assert os.listdir(space.side + "/staging") == []
    assert sorted(os.listdir(space.side)) == ["other", "quarantine", "staging"]


def test_case_16_a_directory_deeper_in_staging_is_not_ours_and_stops_the_restore(space: Space) -> None:
    target = space.snapshot()
    os.makedirs(space.side + "/staging/a/b")
    with pytest.raises(RestoreIncompleteError, match="a/b"):
        space.restore(target)


def test_below_a_directory_with_the_set_group_id_bit_new_directories_get_its_group(space: Space) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files to other groups needs root")
    group = 12345
    os.chown(space.root, -1, group)
    os.chmod(space.root, 0o2775)
    space.write("d/e/f")
    target = space.snapshot()
    shutil.rmtree(space.at("d"))
    space.restore(target)
    assert space.scan() == target
    assert {os.stat(space.at(path)).st_gid for path in ("d", "d/e", "d/e/f")} == {group}


def test_case_06_holes_stay_holes(space: Space) -> None:
    full = space.write("sparse", b"start")
    os.truncate(full, 64 << 20)
    target = space.snapshot()
    os.unlink(full)
    space.restore(target)
    assert space.scan() == target
    assert os.stat(full).st_blocks * 512 < 8 << 20


def test_case_10_an_ordinary_user_restores_read_only_directories(open_space: Space) -> None:
    space = open_space

    def work() -> None:
        space.write("ro/sub/leaf", b"leaf", 0o444)
        space.write("ro/empty/gone", b"x")
        space.write("ro/x", b"x", 0o444)
        for path in ("ro/sub", "ro/empty", "ro"):
            os.chmod(space.at(path), 0o555)
        target = space.snapshot()
        for path in ("ro", "ro/sub", "ro/empty"):
            os.chmod(space.at(path), 0o755)
        os.chmod(space.at("ro/sub/leaf"), 0o644)
        Path(space.at("ro/sub/leaf")).write_bytes(b"changed")
        os.setxattr(space.at("ro/x"), "user.k", b"v") if os.access(space.at("ro/x"), os.W_OK) else None
        space.write("ro/extra/deep", b"added")
        os.unlink(space.at("ro/empty/gone"))
        for path in ("ro/extra", "ro/sub", "ro"):
            os.chmod(space.at(path), 0o555)
        space.restore(target)
        assert space.scan() == target
        assert stat.S_IMODE(os.stat(space.side + f"/quarantine/{QUARANTINE}/1/ro/extra").st_mode) == 0o555

    run_as_ordinary_user(space.base, work)


def test_case_10_attributes_of_a_read_only_file_are_set_by_an_ordinary_user(open_space: Space) -> None:
    space = open_space

    def work() -> None:
        full = space.write("f", b"x")
        os.setxattr(full, "user.k", b"v")
        os.chmod(full, 0o444)
        target = space.snapshot()
        os.chmod(full, 0o644)
        os.setxattr(full, "user.k", b"w")
        os.setxattr(full, "user.l", b"w")
        os.chmod(full, 0o400)
        space.restore(target)
        assert space.scan() == target  # the other attributes went to quarantine with their file

    run_as_ordinary_user(space.base, work)


def test_case_10_what_cannot_be_moved_is_named(space: Space) -> None:
    target = space.snapshot()
    full = space.write("fixed")
    if subprocess.run(["chattr", "+i", full], capture_output=True).returncode != 0:
        pytest.skip("no immutable flag here")
    try:
        with pytest.raises(RestoreIncompleteError, match="cannot change it: fixed; nothing was moved"):
            space.restore(target)
    finally:
        subprocess.run(["chattr", "-i", full], check=True)
    space.restore(target)
    assert space.scan() == target


def test_case_12_the_file_outside_is_not_changed_through_its_link(space: Space) -> None:
    outside = Path(space.base, "outside")
    outside.write_bytes(b"canary")
    outside.chmod(0o644)
    os.link(outside, space.at("leads-out"))
    target = space.snapshot()
    outside.chmod(0o600)
    space.restore(target)
    assert root_hash(space.scan().image) == root_hash(target.image)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600


def test_case_12_a_group_of_symlinks_comes_back_and_what_they_lead_to_gets_no_name(space: Space) -> None:
    outside = Path(space.base, "outside")
    outside.write_bytes(b"canary")
    os.symlink(outside, space.at("a"))
    os.mkfifo(space.at("p"))
    for source, name in (("a", "b"), ("p", "q")):
        os.link(space.at(source), space.at(name), follow_symlinks=False)
    target = space.snapshot()
    for name in ("a", "b", "q"):
        os.unlink(space.at(name))
    os.symlink(outside, space.at("a"))
    os.symlink(outside, space.at("b"))
    os.mkfifo(space.at("q"))
    space.restore(target)
    assert space.scan() == target
    assert os.lstat(space.at("a")).st_ino == os.lstat(space.at("b")).st_ino and outside.stat().st_nlink == 1
    assert os.lstat(space.at("p")).st_ino == os.lstat(space.at("q")).st_ino
    assert space.plan(target).actions == ()


def test_case_12_what_is_in_quarantine_is_not_written_through_the_tree(space: Space) -> None:
    os.link(space.write("a", b"same"), space.at("b"))
    os.unlink(space.at("b"))
    space.write("b", b"same")
    target = space.snapshot()
    os.unlink(space.at("b"))
    os.link(space.at("a"), space.at("b"))
    space.restore(target)
    Path(space.at("a")).write_bytes(b"later")
    assert {entry.content for entry in space.round_image(1).image.values() if entry.kind == "f"} == {blake3(b"same").digest()}


def test_case_13_mounts_are_refused_before_anything_moves(space: Space) -> None:
    make_tree("mount-inside", space.root)
    target = space.snapshot()
    make_tree("--damage", "mount-inside", space.root)
    outside = space.root + ".outside"
    before = tree_digest(outside, "--mtime")

    def work() -> None:
        subprocess.run(["mount", "--bind", outside, space.at("mnt/bind")], check=True)
        found = space.scan()
        with pytest.raises(RestoreIncompleteError, match="mnt/bind"):
            space.restore(target)
        assert space.scan() == found

    run_with_own_mounts(work)
    assert tree_digest(outside, "--mtime") == before
    assert not os.path.exists(space.side + "/quarantine")
    space.restore(target)
    assert space.scan() == target


def test_case_13_a_mount_made_after_the_plan_is_not_entered(space: Space) -> None:
    space.write("d/f", b"old")
    target = space.snapshot()
    space.write("d/f", b"new")
    plan = space.plan(target)
    outside = space.base + "/outside"
    os.mkdir(outside)
    Path(outside, "f").write_bytes(b"canary")

    def work() -> None:
        subprocess.run(["mount", "--bind", outside, space.at("d")], check=True)
        with pytest.raises(RestoreIncompleteError, match="d/f .* another file system"):
            space.apply(plan)

    run_with_own_mounts(work)
    assert Path(outside, "f").read_bytes() == b"canary"


def test_a_socket_left_by_an_interrupted_call_goes_and_one_that_was_there_stays(space: Space) -> None:
    def bind(path: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            os.chdir(space.root)
            server.bind(path)
            os.chdir("/")

    os.mkdir(space.at("d"))
    bind("d/kept")
    target = space.snapshot()
    bind("left")
    space.restore(target)
    assert space.scan() == target
    assert list_quarantine(space.side, QUARANTINE) == (b"1/left",)


def test_a_tree_of_thousands_of_levels_is_displaced_and_made_again(space: Space) -> None:
    make_deep = (
        "import os, sys\n"
        "os.chdir(sys.argv[1])\n"
        "for _ in range(1200):\n    os.mkdir('012345'); os.chdir('012345')\n"
        "open('leaf', 'w').write(sys.argv[2])\n"
    )
    subprocess.run(["python3", "-c", make_deep, space.root, "old"], check=True)
    target = space.snapshot()
    os.rename(space.at("012345"), space.base + "/away")
    space.write("012345", b"in the way")
    space.restore(target)
    assert space.scan() == target
    subprocess.run(["rm", "-rf", space.base], check=True)


@pytest.mark.parametrize("compiled", [True, False])
def test_case_08_make_takes_no_excluded_stale_output_for_up_to_date(space: Space, compiled: bool) -> None:
    """The documented rule: current times for rewritten files where outputs are excluded."""
    space.write("Makefile", b"out: in\n\tcp in out\n")
    source, output = space.write("in", b"one"), space.write("out", b"one")
    os.utime(source, ns=(1, 10**18))
    os.utime(output, ns=(1, 10**18 + 10**9))

    def look() -> Scan:
        found = space.snapshot()
        return Scan({path: entry for path, entry in found.image.items() if path != b"out"}, found.untracked, (b"out",))

    target = look()
    Path(source).write_bytes(b"two")
    if compiled:
        Path(output).write_bytes(b"two")
        os.utime(output, ns=(1, os.stat(source).st_mtime_ns))
    inode = os.stat(output).st_ino
    space.apply(plan_restore(look(), target.image, target.untracked))
    assert os.stat(output).st_ino == inode and Path(output).read_bytes() == (b"two" if compiled else b"one")
    subprocess.run(["make", "out"], cwd=space.root, capture_output=True, check=True)
    assert Path(output).read_bytes() == Path(source).read_bytes() == b"one"
    assert plan_restore(look(), target.image, target.untracked).actions in ((), (FinishDirectory(b"", *_root_of(target)),))


def _root_of(target: Scan) -> tuple[int, int, bytes | None]:
    entry = target.image[b""]
    return entry.mode, entry.mtime_ns, entry.xattrs


def test_case_11_excluded_content_of_a_victim_stays_with_its_inodes(space: Space) -> None:
    target = space.snapshot()
    kept = space.write("d/node_modules/m", b"excluded")
    space.write("d/a", b"victim")
    os.chmod(space.at("d"), 0o555)
    looked = os.stat(kept)
    found = space.scan()
    image = {path: entry for path, entry in found.image.items() if b"node_modules" not in path}
    space.apply(plan_restore(Scan(image, (), (b"d/node_modules",)), target.image, ()))
    again = os.stat(kept)
    assert (again.st_ino, again.st_mtime_ns, again.st_ctime_ns) == (looked.st_ino, looked.st_mtime_ns, looked.st_ctime_ns)
    assert os.listdir(space.at("d")) == ["node_modules"]
    assert stat.S_IMODE(os.stat(space.at("d")).st_mode) == 0o555
    assert list_quarantine(space.side, QUARANTINE) == (b"1/d/a",)


@pytest.mark.parametrize("flag", ["i", "a"])
def test_case_10_a_fixed_node_is_named_before_anything_moves(space: Space, flag: str) -> None:
    space.write("x", b"old")
    target = space.snapshot()
    space.write("x", b"new")
    space.write("y")
    full = space.write("d/fixed")
    if subprocess.run(["chattr", f"+{flag}", os.path.dirname(full)], capture_output=True).returncode != 0:
        pytest.skip("no such flag here")
    try:
        found = space.scan()
        with pytest.raises(RestoreIncompleteError, match="cannot change it: d; nothing was moved"):
            space.restore(target)
        assert space.scan() == found
    finally:
        subprocess.run(["chattr", f"-{flag}", os.path.dirname(full)], check=True)


def test_owners_are_given_and_set_id_bits_survive(space: Space) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files away needs root")
    content = blake3(b"x").digest()
    space.keep(content, b"x")
    os.mkdir(space.at("d"))
    kept = space.write("kept", b"y")
    plan = RestorePlan(
        (
            PlaceFile(b"new", content, 1, 0o6755, 1, None, (12, 34)),
            PlaceLink(b"link", b"new", 1, (13, 35)),
            PlacePipe(b"pipe", 0o640, 1, (14, 36)),
            SetAttributes(b"kept", "f", 0o4711, 1, None, (15, 37)),
            FinishDirectory(b"d", 0o2770, 1, None, (16, 38)),
        ),
        5, 0, 0,
    )  # fmt: skip
    space.apply(plan)
    found = {name: os.lstat(space.at(name)) for name in ("new", "link", "pipe", "kept", "d")}
    owners = {name: (one.st_uid, one.st_gid) for name, one in found.items()}
    assert owners == {"new": (12, 34), "link": (13, 35), "pipe": (14, 36), "kept": (15, 37), "d": (16, 38)}
    assert [stat.S_IMODE(found[name].st_mode) for name in ("new", "kept", "d")] == [0o6755, 0o4711, 0o2770]
    assert os.path.exists(kept)


def test_an_owner_that_this_user_may_not_give_is_refused_in_one_sentence_before_anything_moves(open_space: Space) -> None:
    space = open_space

    def work() -> None:
        space.write("victim")
        found = space.scan()
        plan = RestorePlan((Displace(b"victim", "f"), PlacePipe(b"p", 0o600, 1, (0, 0))), 1, 1, 0)
        with pytest.raises(RestoreIncompleteError, match="p belongs to user 0, group 0 .* nothing was moved. Run the restore as root"):
            space.apply(plan)
        assert space.scan() == found and os.listdir(space.side + "/staging") == []

    run_as_ordinary_user(space.base, work)


def _encode_acl(named: int, mask: int) -> bytes:
    """An ACL as the kernel takes it: owner rw, user 1 `named`, group r, `mask`, others nothing."""
    rows = ((0x01, 6, 0xFFFFFFFF), (0x02, named, 1), (0x04, 4, 0xFFFFFFFF), (0x10, mask, 0xFFFFFFFF), (0x20, 0, 0xFFFFFFFF))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)


def _set_acl(path: str, kind: str, acl: bytes) -> None:
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", acl)
    except OSError as error:
        pytest.skip(f"no ACLs to be set here: {error.strerror}")


def test_case_14_a_default_acl_above_staging_bends_no_mode(space: Space) -> None:
    space.write("f", b"old", 0o666)
    target = space.snapshot()
    os.unlink(space.at("f"))
    _set_acl(space.side, "default", _encode_acl(7, 4))
    space.restore(target)
    assert space.scan() == target
    assert read_acl(space.at("f")) is None


def test_case_14_acls_are_set_and_taken_away_and_the_mode_is_exact(space: Space) -> None:
    content = blake3(b"x").digest()
    space.keep(content, b"x")
    model = space.write("model", b"x", 0o640)
    _set_acl(model, "access", _encode_acl(6, 6))
    acl = read_acl(model)
    assert acl is not None
    mode = stat.S_IMODE(os.stat(model).st_mode)
    space.write("set", b"y")
    _set_acl(space.write("taken", b"y"), "access", _encode_acl(7, 7))
    plan = RestorePlan(
        (
            PlaceFile(b"new", content, 1, mode, 1, None, None, acl),
            SetAttributes(b"set", "f", mode, 1, None, None, acl),
            SetAttributes(b"taken", "f", 0o604, 1, None, None, b""),
        ),
        3, 0, 0,
    )  # fmt: skip
    space.apply(plan)
    assert read_acl(space.at("new")) == read_acl(space.at("set")) == acl
    assert [stat.S_IMODE(os.stat(space.at(name)).st_mode) for name in ("new", "set", "taken")] == [mode, mode, 0o604]
    assert read_acl(space.at("taken")) is None


def test_case_09_a_directory_swapped_for_a_link_at_any_step_leads_nowhere(tmp_path: Path) -> None:
    """A process that swaps while the restore works, at each of its steps in turn: what the link leads to is never touched."""
    instant, swapped = -1, True
    while swapped:
        instant += 1
        base = tmp_path / str(instant)
        base.mkdir()
        space = Space(str(base))
        space.write("d/e/f", b"old")
        space.write("d/e/mode", b"same", 0o600)
        target = space.snapshot()
        space.write("d/e/f", b"new")
        space.write("d/e/extra", b"new")
        os.chmod(space.at("d/e/mode"), 0o644)
        outside = base / "outside"
        (outside / "e").mkdir(parents=True)
        for name in ("f", "mode", "extra"):
            (outside / "e" / name).write_bytes(b"canary")
        before = tree_digest(str(outside), "--mtime")
        plan = space.plan(target)
        pack = space.lay_pack(plan)
        swapper = Swapper(max(instant, 1), space.at("d"), str(base / "moved"), str(outside))
        if instant == 0:
            swapper.pass_step("between plan and apply")
        steps.install(swapper)
        try:
            with contextlib.suppress(RestoreIncompleteError):
                apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=pack)
        finally:
            steps.install(None)
        swapped = swapper.left <= 0
        assert tree_digest(str(outside), "--mtime") == before
    assert instant > 15, "too few instants: the swaps do not reach the work"


class Swapper:
    """At the pass that brings `left` to zero: moves the directory away and puts a link to the outside in its place."""

    def __init__(self, left: int, directory: str, away: str, outside: str) -> None:
        self.left = left
        self._names = (directory, away, outside)

    def pass_step(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            directory, away, outside = self._names
            os.rename(directory, away)
            os.symlink(outside, directory)
