"""Whole stories of an image, judged from outside: a generated tree is imaged by a session, a call damages it and dies, it is restored.

Everything goes through the commands, the log and the file worker as they are; tree and digest come from tests/trees, which share no code
with the engine. The paths beside the workspace that the generator makes (`work.tree.json`, `work.outside`) are no part of it.
"""

import argparse
import base64
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest

from eventlog import events
from eventlog.values import JsonBytes
from tests.recovery.sessions import Driver, Sandbox, bash
from tests.recovery.workspace.support import TREES, make_tree, run_in_child
from tests.trees import make_tree as maker
from tests.trees import tree_digest as digester

FULLY_TRACKED = (
    "churn", "content-edges", "empty-dirs", "empty-root", "git-nested", "hardlinks", "leftovers", "modes", "mtimes", "names-bytes",
    "same-tick", "sparse-huge", "symlink-escape", "symlink-maze", "type-flip",
)  # fmt: skip
PARTLY_TRACKED = ("immutable", "locked", "mount-inside", "special-nodes", "xattrs-acl")
HUGE = ("sparse-huge",)
"""Trees of several gigabytes: only in the soak."""
NOBODY = 65534
DIGEST = [sys.executable, "-B", str(TREES / "tree_digest.py"), "--skip-xattr", "user.crashworthy.root"]
"""The digest, without the identity that a session gives to the root itself (it is in no image)."""
CUT = "shim.1@1:ended:1"
ASPECT_OF = {"socket": "special", "character device": "special", "block device": "special", "attribute": "xattr", "acl": "xattr"}
"""Which aspect of the digest an untracked kind is. Flags and outside links are in no digest; a mount is left out by its path."""


def generator(*arguments: str | Path) -> str:
    """The shell command that runs the generator."""
    return shlex.join([sys.executable, "-B", str(TREES / "make_tree.py"), *map(str, arguments)])


def damage_command(sandbox: Sandbox, name: str) -> str:
    """The shell command of a call that damages the tree `name`."""
    return generator("--damage", name, sandbox.root)


def replace_command(sandbox: Sandbox, other: Path) -> str:
    """The shell command of a call that puts the tree at `other` in the place of everything in the workspace."""
    program = "import os, sys, make_tree\nfor name in os.listdir(sys.argv[1]): make_tree.remove(os.path.join(sys.argv[1], name))"
    empty = f"PYTHONPATH={shlex.quote(str(TREES))} {shlex.join([sys.executable, '-B', '-c', program, str(sandbox.root)])}"
    return f"{empty} && cp -a {shlex.quote(str(other))}/. {shlex.quote(str(sandbox.root))}"


def give(base: Path, user: int) -> None:
    """Make `user` the owner of all below `base`, without following a link."""
    for top, directories, files in os.walk(os.fsencode(base)):
        for path in [top, *(os.path.join(top, name) for name in directories + files)]:
            mode = os.lstat(path).st_mode
            os.chown(path, user, user, follow_symlinks=False)
            if not os.path.islink(path):
                os.chmod(path, mode & 0o7777)  # a change of owner clears setuid and setgid


def digest(root: Path, *arguments: str) -> str:
    """The digest of a tree (`differences` says where two differ); what the tool could not read is marked in it."""
    done = subprocess.run([*DIGEST, str(root), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stdout + done.stderr
    return done.stdout.split()[0]


def make_here(*arguments: str) -> None:
    """`make_tree` in this process, which may have become one that cannot start the interpreter."""
    with mock.patch.object(sys, "argv", ["make_tree.py", *arguments]):
        assert maker.main() in (0, 3)  # type: ignore[no-untyped-call]


def digest_here(root: str) -> str:
    """`digest` in this process."""
    options = argparse.Namespace(ignore=set(), mtime=None, owner=False, exclude=set(), one_file_system=False, list=False, keep=False)
    found: str = digester.run(root, options)[0]  # type: ignore[no-untyped-call]
    return found


def differences(root: Path, other: Path) -> str:
    """What the digest tool says about two trees that should be equal."""
    return subprocess.run([*DIGEST, str(root), "--diff", str(other)], capture_output=True, text=True, check=False).stdout


def inodes(root: Path) -> dict[bytes, tuple[int, ...]]:
    """Inode, mode, size and modification time of every path: equal means that nothing was moved or written."""
    found = {}
    for top, directories, files in os.walk(os.fsencode(root)):
        for path in [top, *(os.path.join(top, name) for name in directories + files)]:
            status = os.lstat(path)
            found[path] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def cut_call(sandbox: Sandbox, command: str) -> Driver:
    """Run a session of one call, and kill the call's shim when the command has ended: its exit is lost, the call is to be undone."""
    driver = sandbox.start("run", sandbox.session(bash(command), on_interrupted="continue"), epoch=1, wait=(CUT,))
    sandbox.steps.kill(CUT, driver)
    assert driver.end() == 1
    return driver


def take_image(sandbox: Sandbox, *more: str) -> Driver:
    """`recovery image LOG --workspace DIR`, with `--new` first when there is no log yet."""
    new = [] if sandbox.log.exists() else ["--new"]
    done = sandbox.run("image", sandbox.state, "--workspace", sandbox.root, *new, *more)
    assert done.code == 0, done.out + done.err
    return done


def restore_image(sandbox: Sandbox, seq: int = 1, expect: int = 0) -> Driver:
    """`recovery restore LOG --at SEQ --workspace DIR`."""
    done = sandbox.run("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root)
    assert done.code == expect, done.out + done.err
    return done


def hand_over(sandbox: Sandbox) -> None:
    """Have every command of this sandbox run as an ordinary user who owns all of it. Skips without the right to."""
    if os.geteuid() != 0:
        pytest.skip("another user's commands need root; as an ordinary user the other tests are those")
    give(sandbox.base, NOBODY)
    sandbox.user = NOBODY


def damage_here(sandbox: Sandbox, name: str) -> None:
    """Damage the tree `name` by hand, as the sandbox's user."""
    if not sandbox.user:
        make_tree("--damage", name, str(sandbox.root))
        return

    def damage() -> None:
        os.setgroups([])
        os.setgid(sandbox.user)
        os.setuid(sandbox.user)
        make_here("--damage", name, str(sandbox.root))

    assert run_in_child(damage) == 0


def untracked(sandbox: Sandbox) -> list[tuple[bytes, str]]:
    """What the first image of the session says that it does not hold: path and kind."""
    opened = sandbox.of_kind(events.SessionOpened)[0]
    return [(_raw(one.path), one.kind) for one in opened.untracked]


def _raw(path: JsonBytes) -> bytes:
    return path.encode() if isinstance(path, str) else base64.b64decode(path["b64"])


def ignored(nodes: Iterable[tuple[bytes, str]]) -> tuple[str, ...]:
    """The digest's options that leave out exactly what an image lists as untracked."""
    nodes = list(nodes)
    aspects = sorted({ASPECT_OF[kind] for _, kind in nodes if kind in ASPECT_OF})
    options = ["--ignore", ",".join(aspects)] if aspects else []
    for path, kind in nodes:
        if kind == "mount":
            options += ["--exclude", os.fsdecode(path)]
    return tuple(options)


def remove_trees(*roots: Path) -> None:
    """Take generated trees away, whatever is in them."""
    for root in roots:
        if Path(f"{root}.tree.json").exists():
            make_tree("--remove", str(root))
