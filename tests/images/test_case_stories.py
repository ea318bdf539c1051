"""Known failures of other systems, from outside: `recovery image`, the damage by hand, `recovery restore`, and the independent digest."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.images.stories import (
    damage_here,
    digest,
    hand_over,
    ignored,
    inodes,
    restore_image,
    take_image,
    untracked,
)
from tests.recovery.sessions import Sandbox
from tests.recovery.workspace.support import TREES, make_tree, run_with_own_mounts

LIVE_SECS = 2.0
MOST_EVENTS = 20
NOBODY_NAMED = 0xFFFFFFFF
DEFAULT_ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, 1000 if tag == 2 else NOBODY_NAMED)
    for tag, permissions in ((1, 7), (2, 7), (4, 5), (16, 5), (32, 0))
)
"""As setfacl -d -m u::rwx,u:1000:rwx,g::r-x,m::r-x,o::--- makes it (linux/posix_acl_xattr.h)."""


def write(path: Path, content: bytes = b"data\n", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def command(sandbox: Sandbox, program: str, *arguments: str | Path, umask: int = 0o022, expect: int = 0) -> str:
    """A command as a process of its own, with its own umask; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", program, *map(str, arguments)],
        env=sandbox.environment(None, ()), cwd=sandbox.base, capture_output=True, text=True, umask=umask, check=False,
    )  # fmt: skip
    assert done.returncode == expect and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_case_02_an_image_of_a_tree_that_moves_is_true_in_itself_or_refused(sandbox: Sandbox) -> None:
    """What the tree's own process wrote is known, so that each image checked out from the log is judged without the engine."""
    make_tree("churn", str(sandbox.root))
    take_image(sandbox)
    live = [sys.executable, str(TREES / "make_tree.py"), "--live", str(LIVE_SECS), "churn", str(sandbox.root)]
    with subprocess.Popen(live, stdout=subprocess.DEVNULL) as churning:
        while churning.poll() is None and len(sandbox.events()) < MOST_EVENTS:
            before = len(sandbox.events())
            done = sandbox.run("image", sandbox.state, "--workspace", sandbox.root)
            assert done.code in (0, 1), done.err
            if done.code == 1:
                assert "keep" in done.sentence() and not any(one.event.kind == "workspace_observed" for one in sandbox.events()[before:])
    take_image(sandbox)
    seen = [stored.seq for stored in sandbox.events() if stored.event.kind in ("session_opened", "workspace_observed")]
    for seq in seen[-5:]:
        tree = sandbox.base / f"at-{seq}"
        command(sandbox, "eventlog", "checkout", sandbox.state, "--at", str(seq), "--to", tree)
        assert_true_in_itself(tree)
    assert digest(sandbox.base / f"at-{seen[-1]}") == digest(sandbox.root)
    command(sandbox, "eventlog", "verify", sandbox.state)


def assert_true_in_itself(tree: Path) -> None:
    """Nothing but what the tree's process can have written, in the order in which it wrote it; towards its end it makes some files anew."""
    assert {path.name: path.read_text() for path in (tree / "stable").iterdir()} == {f"{i:02}": f"stable {i}\n" for i in range(20)}
    grown = (tree / "grow").read_bytes().splitlines(keepends=True) if (tree / "grow").exists() else []
    assert grown == [b"start\n", *(b"line %d\n" % (1 + at // 50) for at in range(len(grown) - 1))][: len(grown)]
    assert len(grown) % 50 in (0, 1), "a block of lines is one write"
    if (tree / "flip").is_symlink():
        assert os.readlink(tree / "flip") == "stable"
    elif (tree / "flip" / "in").exists():
        assert (tree / "flip" / "in").read_text()[:2] in ("in", "")
    for path in (tree / "swap").iterdir() if (tree / "swap").exists() else ():
        assert path.read_text() in ("a\n", "b\n", "")


def test_case_05_nothing_but_regular_files_is_opened_and_loops_are_entries(sandbox: Sandbox) -> None:
    """A scan that opened a FIFO would never end."""
    sandbox.root.mkdir()
    trees = {"nodes": "special-nodes", "maze": "symlink-maze"}
    for place, name in trees.items():
        make_tree(name, str(sandbox.root / place))
    os.mkfifo(sandbox.root / "closed", 0)
    take_image(sandbox)
    kinds = {kind for _, kind in untracked(sandbox)}
    assert "socket" in kinds and kinds <= {"socket", "character device", "block device"}
    options = ignored(untracked(sandbox))
    before = digest(sandbox.root, *options)
    for place, name in trees.items():
        make_tree("--damage", name, str(sandbox.root / place))
    (sandbox.root / "closed").unlink()
    assert digest(sandbox.root, *options) != before
    restore_image(sandbox)
    assert digest(sandbox.root, *options) == before


def test_case_08_each_kind_gives_way_to_each_other(sandbox: Sandbox) -> None:
    make_tree("type-flip", str(sandbox.root))
    kept = write(sandbox.root / "kept")
    before, was = digest(sandbox.root), kept.stat()
    take_image(sandbox)
    damage_here(sandbox, "type-flip")
    assert digest(sandbox.root) != before
    restore_image(sandbox)
    now = kept.stat()
    assert digest(sandbox.root) == before
    assert (now.st_ino, now.st_mtime_ns, now.st_ctime_ns) == (was.st_ino, was.st_mtime_ns, was.st_ctime_ns), "a right file was touched"


@pytest.mark.parametrize("outputs", ["in the image", "excluded"])
def test_case_08_make_takes_no_stale_output_for_up_to_date(sandbox: Sandbox, outputs: str) -> None:
    """The interrupted work edited the source, and compiled or not: what make says after the restore is the source of the image."""
    write(sandbox.root / "Makefile", b"out/program: source\n\tmkdir -p out; cp source out/program\n")
    write(sandbox.root / "source", b"one\n")
    build = ["make", "-s", "-C", str(sandbox.root)]
    subprocess.run(build, check=True)
    take_image(sandbox, *(["--exclude", "out/"] if outputs == "excluded" else []))
    before = digest(sandbox.root)
    for compiled in (False, True):
        write(sandbox.root / "source", b"two\n")
        if compiled:
            subprocess.run(build, check=True)
        restore_image(sandbox)
        assert (sandbox.root / "source").read_bytes() == b"one\n"
        subprocess.run(build, check=True)
        assert (sandbox.root / "out/program").read_bytes() == b"one\n", f"compiled: {compiled}"
    assert digest(sandbox.root) == before


def test_case_10_an_ordinary_users_read_only_directories_come_back_read_only(sandbox: Sandbox) -> None:
    inner = sandbox.root / "closed" / "inner"
    write(inner / "leaf", mode=0o444)
    for path in (inner, inner.parent):
        path.chmod(0o555)
    hand_over(sandbox)
    take_image(sandbox)
    before = digest(sandbox.root)
    (inner / "leaf").chmod(0o644)
    (inner / "leaf").write_bytes(b"changed\n")
    os.chown(write(inner / "extra"), sandbox.user, sandbox.user)
    assert digest(sandbox.root) != before
    restore_image(sandbox)
    assert digest(sandbox.root) == before
    assert [path.stat().st_mode & 0o7777 for path in (inner.parent, inner, inner / "leaf")] == [0o555, 0o555, 0o444]


@pytest.mark.parametrize("way", ["trailing slash", "dot segments", "link"])
def test_case_11_what_is_excluded_or_beside_the_root_is_not_touched(sandbox: Sandbox, way: str) -> None:
    """A process stands in the root all the while."""
    root = sandbox.root / "a" / "b"
    for path in ("src/main", "node_modules/m/index", "only/.venv/bin/python"):
        write(root / path)
    write(sandbox.root / "a" / "c" / "beside")
    (sandbox.base / "link").symlink_to(root)
    given = {"trailing slash": f"{root}/", "dot segments": f"{root}/./src/..", "link": str(sandbox.base / "link")}[way]
    excludes = ("--exclude", "node_modules/", "--exclude", ".venv/")
    with subprocess.Popen(["cat"], cwd=root, stdin=subprocess.PIPE) as standing:
        command(sandbox, "recovery", "image", sandbox.state, "--workspace", given, "--new", *excludes)
        before, beside, inode = digest(root), inodes(sandbox.root / "a" / "c"), root.stat().st_ino
        (root / "src" / "main").unlink()
        for path in ("src/extra", "extra/file", "node_modules/m/new", "extra/node_modules/x"):
            write(root / path)
        excluded = {path: path.stat() for path in root.rglob("*") if {"node_modules", ".venv"} & set(path.parts)}
        command(sandbox, "recovery", "restore", sandbox.state, "--at", "1", "--workspace", given)
        assert standing.poll() is None and os.readlink(f"/proc/{standing.pid}/cwd") == str(root.resolve())
        assert standing.stdin is not None
        standing.stdin.close()
    assert (root.stat().st_ino, inodes(sandbox.root / "a" / "c")) == (inode, beside)
    for path, was in excluded.items():
        now = path.stat()
        assert (now.st_ino, now.st_mtime_ns, now.st_ctime_ns) == (was.st_ino, was.st_mtime_ns, was.st_ctime_ns), path
    assert sorted(path.name for path in root.iterdir()) == ["extra", "node_modules", "only", "src"]
    assert [path.name for path in (root / "extra").iterdir()] == ["node_modules"]
    left_out = ("--exclude", "node_modules/m/new", "--exclude", "extra")
    assert digest(root, *left_out) == before


def test_case_12_link_groups_come_back_and_the_file_outside_is_not_written(sandbox: Sandbox) -> None:
    make_tree("hardlinks", str(sandbox.root))
    outside = Path(f"{sandbox.root}.outside")
    take_image(sandbox)
    assert (b"leads-out", "outside link") in untracked(sandbox)
    before = digest(sandbox.root)
    damage_here(sandbox, "hardlinks")
    (sandbox.root / "cross/y/g").unlink()
    write(sandbox.root / "cross/y/g", b"x\n")  # equal content, a file of its own
    canary, seen = digest(outside, "--mtime"), inodes(outside)
    assert digest(sandbox.root) != before
    restore_image(sandbox)
    assert digest(sandbox.root) == before
    assert (digest(outside, "--mtime"), inodes(outside)) == (canary, seen)
    joined = [(sandbox.root / "joined" / name).stat() for name in "ab"]
    assert joined[0].st_ino != joined[1].st_ino


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_case_13_a_mount_in_the_way_is_refused_by_name_before_anything_moves(sandbox: Sandbox, kind: str) -> None:
    def story() -> None:
        write(sandbox.root / "tracked")
        repository = sandbox.base / "repository"
        write(repository / "canary")
        command(sandbox, "recovery", "image", sandbox.state, "--workspace", sandbox.root, "--new")
        before = digest(sandbox.root)
        point = sandbox.root / "extra" / "point"
        point.mkdir(parents=True)
        source = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"] if kind == "tmpfs" else ["--bind", str(repository)]
        subprocess.run(["mount", *source, str(point)], check=True)
        write(point / "canary")
        write(sandbox.root / "tracked", b"changed\n")
        seen, canary = inodes(sandbox.root), inodes(repository)
        told = command(sandbox, "recovery", "restore", sandbox.state, "--at", "1", "--workspace", sandbox.root, expect=1)
        assert "extra/point" in told and "mount" in told
        assert (inodes(sandbox.root), inodes(repository)) == (seen, canary)
        subprocess.run(["umount", str(point)], check=True)
        command(sandbox, "recovery", "restore", sandbox.state, "--at", "1", "--workspace", sandbox.root)
        assert digest(sandbox.root) == before and inodes(repository) == canary

    run_with_own_mounts(story)


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_case_14_modes_come_back_exactly_under_any_umask(sandbox: Sandbox, umask: int) -> None:
    if os.geteuid():
        pytest.skip("the tree has modes whose files only root can read")
    make_tree("modes", str(sandbox.root))
    before = digest(sandbox.root)
    command(sandbox, "recovery", "image", sandbox.state, "--workspace", sandbox.root, "--new", umask=umask)
    for way in ("damage", "remove"):
        if way == "damage":
            damage_here(sandbox, "modes")
        else:
            subprocess.run(["find", str(sandbox.root), "-mindepth", "1", "-delete"], check=True)
        assert digest(sandbox.root) != before
        command(sandbox, "recovery", "restore", sandbox.state, "--at", "1", "--workspace", sandbox.root, umask=umask)
        assert digest(sandbox.root) == before


def test_case_14_a_default_acl_bends_no_mode_and_an_executable_bit_is_a_change(sandbox: Sandbox) -> None:
    """The directory above the workspace, where staging is made, bends the mode of every file made in it; so does the root."""
    for mode in (0o400, 0o640, 0o666, 0o777, 0o4711, 0o6755):
        write(sandbox.root / f"file-{mode:o}", b"alike\n", mode)
    write(sandbox.root / "d" / "inner", mode=0o664).parent.chmod(0o2775)
    try:
        for directory in (sandbox.base, sandbox.root):
            os.setxattr(directory, "system.posix_acl_default", DEFAULT_ACL)
    except OSError as error:
        pytest.skip(f"no ACLs to be set here: {error.strerror}")
    before = digest(sandbox.root)
    take_image(sandbox)
    assert untracked(sandbox) == [(b"", "acl")]
    (sandbox.root / "file-640").chmod(0o740)
    assert digest(sandbox.root) != before
    restore_image(sandbox)
    assert digest(sandbox.root) == before
    for path in sorted(sandbox.root.iterdir()):
        subprocess.run(["rm", "-r", str(path)], check=True)
    restore_image(sandbox)
    assert digest(sandbox.root) == before, "also the ACLs: what is made below the root inherits none of its own"


def steps_of_a_new_image(sandbox: Sandbox) -> list[str]:
    trace = sandbox.base / "trace"
    write(sandbox.root / "a", b"one\n")
    done = sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new", CRASHWORTHY_STEP_TRACE=str(trace))
    assert done.code == 0, done.err
    return [line.split()[0] for line in trace.read_text().splitlines()]


NEW_IMAGE_STEPS = [
    "registry.sync.before:1", "registry.sync.after:1",
    *(f"holder.{name}" for name in ("write.half:1", "sync.before:1", "sync.after:1", "rename.before:1", "rename.after:1")),
    "holder.sync.before:2", "holder.sync.after:2", "state.sync.before:1", "state.sync.after:1",
    "blobs.commit.locked:1", "blobs.commit.after:1", "open.commit.before:1", "open.commit.locked:1", "open.commit.after:1",
    *(f"log.create.{name}" for name in (
        "sync.before:1", "sync.after:1", "link.before:1", "link.after:1", "unlink.before:1", "unlink.after:1",
        "sync.before:2", "sync.after:2",
    )),
    "scan.cache.write.half:1", "scan.cache.rename.before:1", "scan.cache.rename.after:1",
    *(f"holder.begun.{name}" for name in ("write.half:1", "sync.before:1", "sync.after:1", "rename.before:1", "rename.after:1")),
    "holder.begun.sync.before:2", "holder.begun.sync.after:2",
]  # fmt: skip


def test_every_step_of_a_new_image_is_killed_below(sandbox: Sandbox) -> None:
    assert [step.removeprefix("driver@0:") for step in steps_of_a_new_image(sandbox)] == NEW_IMAGE_STEPS


@pytest.mark.parametrize("step", NEW_IMAGE_STEPS)
def test_a_new_image_killed_at_a_step_leaves_a_log_that_opens_or_none(sandbox: Sandbox, step: str) -> None:
    write(sandbox.root / "a", b"one\n")
    before, seen = digest(sandbox.root, "--mtime"), inodes(sandbox.root)
    name = f"driver@0:{step}"
    image = ("image", sandbox.state, "--workspace", sandbox.root)
    driver = sandbox.start(*image, "--new", wait=(name,))
    sandbox.steps.kill(name, driver)
    assert driver.end() == -9
    was_made = NEW_IMAGE_STEPS.index(step) >= NEW_IMAGE_STEPS.index("log.create.link.after:1")
    following = sandbox.run(*image)
    if was_made:
        assert following.code == 0 and "there is something already" in sandbox.run(*image, "--new").sentence()
    else:
        assert following.code == 78 and "--new` begins one" in following.sentence()
        assert sandbox.run(*image, "--new").code == 0
    assert (digest(sandbox.root, "--mtime"), inodes(sandbox.root)) == (before, seen)
    write(sandbox.root / "a", b"two\n")
    restore_image(sandbox)
    assert digest(sandbox.root, "--mtime") == before
    assert not list(sandbox.state.glob("log.sqlite.new-*"))
