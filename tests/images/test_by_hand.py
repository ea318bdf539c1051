"""Every tree the generator knows, imaged and restored by the commands `recovery image` and `recovery restore`, as root and as a user.

Equal by the independent digest; but for exactly what the image lists as untracked; or refused with nothing changed.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.images.stories import (
    FULLY_TRACKED,
    HUGE,
    damage_here,
    digest,
    generator,
    hand_over,
    ignored,
    inodes,
    restore_image,
    take_image,
    untracked,
)
from tests.images.test_round_trips import UNREADABLE_FOR_ITS_OWNER
from tests.recovery.sessions import Sandbox, Zygote
from tests.recovery.workspace.support import make_tree, run_with_own_mounts

BY_HAND = [name for name in FULLY_TRACKED if name not in HUGE] + ["special-nodes", "xattrs-acl", "locked"]


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("name", BY_HAND)
def test_a_tree_comes_back_equal_but_for_what_its_image_lists(sandbox: Sandbox, name: str, who: str) -> None:
    make_tree(name, str(sandbox.root))
    if who == "user":
        hand_over(sandbox)
    if name in UNREADABLE_FOR_ITS_OWNER and (who == "user" or os.geteuid()):
        assert_no_image_is_taken(sandbox)
        return
    pictures = {options: digest(sandbox.root, *options) for options in [(), ("--ignore", "special"), ("--ignore", "xattr")]}
    take_image(sandbox)
    options = ignored(untracked(sandbox))
    assert not options or name not in FULLY_TRACKED
    before = pictures[options]
    damage_here(sandbox, name)
    assert digest(sandbox.root, *options) != before or name == "locked", "the damage shows in the digest"
    restore_image(sandbox)
    assert digest(sandbox.root, *options) == before
    seen = inodes(sandbox.root)
    assert "nothing to restore" in restore_image(sandbox).out
    assert inodes(sandbox.root) == seen


def assert_no_image_is_taken(sandbox: Sandbox) -> None:
    seen, before = inodes(sandbox.root), digest(sandbox.root, "--mtime")
    refused = sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new")
    assert refused.code == 1 and "Permission denied" in refused.sentence()
    assert (inodes(sandbox.root), digest(sandbox.root, "--mtime")) == (seen, before)


def test_case_10_an_immutable_extra_is_refused_by_name_before_anything_moves(sandbox: Sandbox) -> None:
    made = subprocess.run(["sh", "-c", generator("immutable", sandbox.root)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip("no immutable flag here")
    take_image(sandbox)
    assert {kind for _, kind in untracked(sandbox)} == {"flags"}
    before = digest(sandbox.root)
    damage_here(sandbox, "immutable")
    damaged, seen = digest(sandbox.root, "--mtime"), inodes(sandbox.root)
    refused = restore_image(sandbox, expect=1)
    assert "extra-" in refused.sentence() and "chattr" in refused.sentence()
    assert (digest(sandbox.root, "--mtime"), inodes(sandbox.root)) == (damaged, seen)
    subprocess.run(["chattr", "-i", sandbox.root / "extra-dir", sandbox.root / "extra-locked"], check=True)
    restore_image(sandbox)
    assert digest(sandbox.root) == before


def test_case_13_mounts_of_the_image_stay_and_the_rest_comes_back_equal(sandbox: Sandbox) -> None:
    def story() -> None:
        Zygote._process = None  # a warm process of this mount namespace
        make_tree("--allow-mount", "mount-inside", str(sandbox.root))
        take_image(sandbox)
        options = ignored(untracked(sandbox))
        assert options == ("--exclude", "mnt/bind", "--exclude", "mnt/fs")
        before, canary = digest(sandbox.root, *options), digest(Path(f"{sandbox.root}.outside"), "--mtime")
        damage_here(sandbox, "mount-inside")
        assert digest(sandbox.root, *options) != before
        restore_image(sandbox)
        assert digest(sandbox.root, *options) == before
        assert digest(Path(f"{sandbox.root}.outside"), "--mtime") == canary
        assert (sandbox.root / "mnt/fs/other-filesystem").read_text() == "not yours to delete\n"
        make_tree("--remove", str(sandbox.root))

    run_with_own_mounts(story)
