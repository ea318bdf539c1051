"""A workspace with its side directory and its contents, for tests of scan, plan and apply; and processes to run them in."""

import ctypes
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recovery.workspace.actions import RestorePlan
from recovery.workspace.apply import Applied, apply_plan
from recovery.workspace.content import read_verified
from recovery.workspace.pack import write_pack
from recovery.workspace.restore_plan import plan_restore
from recovery.workspace.scan import Scan, scan
from recovery.workspace.side import RESERVED_NAME
from tests.trees import generate

TREES = Path(__file__).parents[2] / "trees"
QUARANTINE = "log-7"
_NOBODY = 65534
_CLONE_NEWNS = 0x20000


class Space:
    """One workspace below `base`: the root `w`, the side directory `side`, the contents `content`."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.root = os.path.join(base, "w")
        self.side = os.path.join(base, "side")
        self.content = os.path.join(base, "content")
        os.mkdir(self.side, 0o700)
        os.mkdir(self.content, 0o700)

    def scan(self) -> Scan:
        return scan(self.root, side_directory_name=RESERVED_NAME)

    def snapshot(self) -> Scan:
        """A scan, with every content kept."""
        found = self.scan()
        for path, entry in found.image.items():
            if entry.content is not None:
                self.keep(entry.content, b"".join(read_verified(self.root, path, entry.content, entry.size)))
        return found

    def keep(self, content_id: bytes, data: bytes) -> None:
        with open(os.path.join(self.content, content_id.hex()), "wb") as out:
            out.write(data)

    def plan(self, target: Scan) -> RestorePlan:
        return plan_restore(self.scan(), target.image, target.untracked)

    def apply(self, plan: RestorePlan) -> Applied:
        return apply_plan(plan, root=self.root, side=self.side, quarantine_directory=QUARANTINE, pack=self.lay_pack(plan), step="restore")

    def lay_pack(self, plan: RestorePlan) -> str:
        """The pack of `plan`, of the contents that were kept."""
        path = os.path.join(self.base, "pack")
        write_pack(path, plan, lambda contents: (Path(self.content, content.hex()).read_bytes() for content in contents), "contents")
        return path

    def restore(self, target: Scan) -> Applied:
        return self.apply(self.plan(target))

    def round_image(self, number: int) -> Scan:
        """What one round put into quarantine."""
        return scan(os.path.join(self.side, "quarantine", QUARANTINE, str(number)), side_directory_name=None)

    def at(self, path: str) -> str:
        return os.path.join(self.root, path)

    def write(self, path: str, data: bytes = b"data", mode: int = 0o644) -> str:
        full = self.at(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as out:
            out.write(data)
        os.chmod(full, mode)
        return full

    def replace_tree(self, tree: generate.Tree) -> None:
        """Empty the root and make `tree` in it."""
        generate.remove(self.root)
        generate.make(self.root, tree)


def make_tree(*arguments: str) -> None:
    """Run make_tree.py; status 3 (made, some entries not possible here) is fine."""
    done = subprocess.run([sys.executable, str(TREES / "make_tree.py"), *arguments], capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr


def tree_digest(root: str, *arguments: str) -> str:
    """The line of tree_digest.py for `root`."""
    command = [sys.executable, str(TREES / "tree_digest.py"), root, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; its wait status. A traceback of it is printed."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - the child must never run on into the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def run_as_ordinary_user(base: str, work: Callable[[], None]) -> None:
    """Run `work` as a user without privileges who owns `base`; as ourselves when that is what we are."""
    if os.geteuid() != 0:
        work()
        return

    def demoted() -> None:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        work()

    for top, directories, files in os.walk(base):
        for name in [top, *(os.path.join(top, one) for one in directories + files)]:
            os.chown(name, _NOBODY, _NOBODY, follow_symlinks=False)
    assert run_in_child(demoted) == 0


def run_with_own_mounts(work: Callable[[], None]) -> None:
    """Run `work` in a child whose mounts nobody else sees; skips where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")

    def separated() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
            os._exit(77)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        work()

    status = run_in_child(separated)
    if os.waitstatus_to_exitcode(status) == 77:
        pytest.skip("a mount namespace is not to be had here")
    assert status == 0


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)
