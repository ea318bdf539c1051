"""Every tree the generator knows: imaged, damaged by a call that dies, restored, and equal by the independent digest."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.images.stories import (
    FULLY_TRACKED,
    HUGE,
    NOBODY,
    PARTLY_TRACKED,
    cut_call,
    damage_command,
    digest,
    digest_here,
    generator,
    give,
    ignored,
    inodes,
    make_here,
    untracked,
)
from tests.recovery.sessions import Sandbox, Zygote, bash
from tests.recovery.workspace.support import TREES, Space, make_tree, run_as_ordinary_user, run_with_own_mounts

UNREADABLE_FOR_ITS_OWNER = ("locked", "modes")
"""Trees with files or directories that their own owner may not read."""


def test_every_tree_of_the_generator_is_judged_here() -> None:
    listed = subprocess.run(["sh", "-c", generator("--list", "--json")], capture_output=True, text=True, check=True).stdout
    names = {line.split('"name": "')[1].split('"')[0] for line in listed.splitlines()}
    assert names == {*FULLY_TRACKED, *PARTLY_TRACKED}


def damage_and_recover(sandbox: Sandbox, name: str) -> None:
    before, side = digest(sandbox.root), Path(f"{sandbox.root}.outside")
    canary = digest(side, "--mtime") if side.exists() else ""
    cut_call(sandbox, damage_command(sandbox, name))
    damaged = digest(sandbox.root)
    canary_now = digest(side, "--mtime") if side.exists() else ""
    assert name in ("hardlinks", "empty-root") or not canary or canary == canary_now
    sandbox.drive()
    options = ignored(untracked(sandbox))
    if name in FULLY_TRACKED:
        assert damaged != before, "the damage shows in the digest"
        assert not [kind for _, kind in untracked(sandbox) if kind != "outside link"]
        assert digest(sandbox.root) == before
    assert (digest(side, "--mtime") if side.exists() else "") == canary_now, "a restore has no business beside the workspace"
    assert options or name in (*FULLY_TRACKED, "locked")


@pytest.mark.parametrize("name", [name for name in FULLY_TRACKED if name not in HUGE])
def test_a_fully_tracked_tree_comes_back_equal(sandbox: Sandbox, name: str) -> None:
    make_tree(name, str(sandbox.root))
    if os.geteuid() and name in UNREADABLE_FOR_ITS_OWNER:
        refuse_to_begin(sandbox)
    else:
        damage_and_recover(sandbox, name)


@pytest.mark.parametrize("name", UNREADABLE_FOR_ITS_OWNER)
def test_what_its_owner_may_not_read_is_refused_by_name_and_nothing_is_touched(sandbox: Sandbox, name: str) -> None:
    make_tree(name, str(sandbox.root))
    if os.geteuid() == 0:
        give(sandbox.base, NOBODY)
        sandbox.user = NOBODY
    refuse_to_begin(sandbox)


@pytest.mark.parametrize("name", [name for name in FULLY_TRACKED if name not in (*HUGE, *UNREADABLE_FOR_ITS_OWNER)])
def test_an_ordinary_user_restores_a_fully_tracked_tree(open_space: Space, name: str) -> None:
    """Scan, plan and apply as such a user; a whole session of one needs a kill mark that proves death, which not every machine has."""

    def story() -> None:
        make_here(name, open_space.root)
        before, target = digest_here(open_space.root), open_space.snapshot()
        make_here("--damage", name, open_space.root)
        damaged = digest_here(open_space.root)
        open_space.restore(target)
        assert digest_here(open_space.root) == before != damaged

    os.rmdir(open_space.root)
    run_as_ordinary_user(open_space.base, story)


def refuse_to_begin(sandbox: Sandbox) -> None:
    before, seen = digest(sandbox.root, "--mtime"), inodes(sandbox.root)
    refused = sandbox.run("run", sandbox.session(bash("true")))
    assert refused.code not in (0, None) and "Permission denied" in refused.sentence()
    assert (digest(sandbox.root, "--mtime"), inodes(sandbox.root)) == (before, seen)


@pytest.mark.parametrize("name", ["special-nodes", "xattrs-acl", "locked"])
def test_a_partly_tracked_tree_comes_back_equal_but_for_what_its_image_lists_as_untracked(sandbox: Sandbox, name: str) -> None:
    make_tree(name, str(sandbox.root))
    if os.geteuid() and name in UNREADABLE_FOR_ITS_OWNER:
        refuse_to_begin(sandbox)
        return
    pictures = {options: digest(sandbox.root, *options) for options in [(), ("--ignore", "special"), ("--ignore", "xattr")]}
    damage_and_recover(sandbox, name)
    options = ignored(untracked(sandbox))
    assert digest(sandbox.root, *options) == pictures[options]


def test_an_immutable_extra_is_refused_by_name_and_nothing_is_changed(sandbox: Sandbox) -> None:
    made = subprocess.run(["sh", "-c", generator("immutable", sandbox.root)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip("no immutable flag here")
    before = digest(sandbox.root)
    cut_call(sandbox, damage_command(sandbox, "immutable"))
    damaged, seen = digest(sandbox.root, "--mtime"), inodes(sandbox.root)
    refused = sandbox.drive(expect=1)
    assert "extra-" in refused.sentence()
    assert (digest(sandbox.root, "--mtime"), inodes(sandbox.root)) == (damaged, seen)
    subprocess.run(["chattr", "-i", sandbox.root / "extra-dir", sandbox.root / "extra-locked"], check=True)
    sandbox.drive()
    assert digest(sandbox.root) == before
    flags = subprocess.run(["lsattr", "-d", sandbox.root / "fixed"], capture_output=True, text=True, check=True).stdout
    assert "i" in flags.split()[0]


def test_mounts_that_were_there_stay_and_the_rest_comes_back_equal(sandbox: Sandbox) -> None:
    def story() -> None:
        Zygote._process = None  # a warm process of this mount namespace
        make_tree("--allow-mount", "mount-inside", str(sandbox.root))
        (sandbox.root / "mnt/fs/other-filesystem").stat()
        options = ("--exclude", "mnt/bind", "--exclude", "mnt/fs")
        before, canary = digest(sandbox.root, *options), digest(Path(f"{sandbox.root}.outside"), "--mtime")
        cut_call(sandbox, damage_command(sandbox, "mount-inside"))
        assert digest(sandbox.root, *options) != before
        sandbox.drive()
        assert ignored(untracked(sandbox)) == options
        assert digest(sandbox.root, *options) == before
        assert digest(Path(f"{sandbox.root}.outside"), "--mtime") == canary
        assert (sandbox.root / "mnt/fs/other-filesystem").read_text() == "not yours to delete\n"
        make_tree("--remove", str(sandbox.root))

    run_with_own_mounts(story)


def test_the_generators_share_no_code_with_the_engine() -> None:
    for name in ("make_tree.py", "tree_digest.py"):
        text = (TREES / name).read_text("utf-8")
        assert not [word for word in ("eventlog", "recovery", "chaos", "reports") if f"import {word}" in text or f"from {word}" in text]
    assert stat.S_ISREG(os.stat(TREES / "make_tree.py").st_mode)
