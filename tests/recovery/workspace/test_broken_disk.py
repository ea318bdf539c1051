"""Scans and restores on a disk that fails one call after the other: told with the path, nothing recorded, nothing lost.

Every call that a scan makes to look at a tree fails once, and every operation of the durable module in a restore. No faked file system
stands behind them: both ask the kernel in ways that one does not have (statx, renameat2, directories by descriptor).
"""

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from eventlog import durable
from eventlog.errors import FullError, RestoreIncompleteError, ScanError
from recovery.workspace import content, observe, walk
from recovery.workspace.apply import apply_plan
from recovery.workspace.scan import Scan, Scanner
from recovery.workspace.side import RESERVED_NAME
from tests.recovery.workspace.support import QUARANTINE, Space

LOOKING = ("open", "listdir", "stat", "fstat", "read", "readv", "readlink", "listxattr", "getxattr")


class BrokenOs:
    """The os module, of whose calls the N-th that looks at something fails; 0: none does."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.count = 0
        self.failed = ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self.wrap(name, found) if name in LOOKING else found

    def wrap(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.number:
                self.failed = name
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return work(*arguments, **options)

        return call


def break_disk(patched: pytest.MonkeyPatch, broken: BrokenOs) -> None:
    for module in (walk, observe, content):
        patched.setattr(module, "os", broken)
    patched.setattr(walk, "_stat", broken.wrap("stat", os.stat))


def make_some(space: Space) -> None:
    for name in ("a", "d/b", "d/e/c"):
        space.write(name, name.encode() * 100)
    os.symlink("a", space.at("link"))
    os.mkfifo(space.at("d/pipe"))
    os.link(space.at("a"), space.at("d/again"))
    os.setxattr(space.at("d/b"), "user.note", b"kept")


def test_invariant_I11_a_scan_whose_any_call_fails_records_nothing_and_names_a_path(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    make_some(space)
    target = space.scan()
    met: set[str] = set()
    number = 0
    while True:
        number += 1
        scanner = Scanner(space.root, side_directory_name=RESERVED_NAME)
        broken = BrokenOs(number)
        with monkeypatch.context() as patched:
            break_disk(patched, broken)
            try:
                found: Scan | None = scanner.scan()
            except ScanError as error:
                found = None
                assert os.strerror(errno.EIO) in str(error), f"call {number}, {broken.failed}"
        if not broken.failed:
            break
        met.add(broken.failed)
        assert found is None, f"call {number}, {broken.failed}: the scan went on as if nothing had happened"
        assert scanner.scan() == target, f"call {number}, {broken.failed}: what failed is remembered"
    assert met >= {"open", "listdir", "stat", "fstat", "read", "readlink", "listxattr"}, met


class Failing:
    """An observer of the durable module that fails its N-th operation."""

    def __init__(self, number: int, code: int) -> None:
        self.number, self.code = number, code
        self.count = 0
        self.failed = ""

    def begin(self, operation: durable.Operation) -> None:
        self.count += 1
        if self.count == self.number:
            self.failed = operation.kind
            raise OSError(self.code, os.strerror(self.code))

    def end(self, operation: durable.Operation) -> None:
        pass


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS], ids=["broken", "full", "read-only"])
def test_rule_R3_a_restore_whose_any_operation_fails_says_so_loses_nothing_and_can_be_repeated(space: Space, code: int) -> None:
    make_some(space)
    target = space.snapshot()
    met: set[str] = set()
    number = 0
    while True:
        number += 1
        space.write("a", b"changed %d" % number)
        space.write("new/file", b"made %d" % number)
        os.rename(space.at("d/e"), space.at("moved"))
        kept = {(b"a", b"changed %d" % number), (b"new/file", b"made %d" % number)}
        plan = space.plan(target)
        pack = space.lay_pack(plan)  # before the disk fails
        failing = Failing(number, code)
        before = list_rounds(space)
        durable.observe(failing)
        try:
            apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=pack)
        except (RestoreIncompleteError, FullError) as error:
            assert os.strerror(code) in str(error), f"operation {number}, {failing.failed}"
        else:
            assert not failing.failed, f"operation {number}, {failing.failed}: the restore said that it was done"
        finally:
            durable.observe(None)
        space.restore(target)
        assert space.scan() == target, f"operation {number}, {failing.failed}"
        assert kept <= find_displaced(space, before), f"operation {number}, {failing.failed}: something displaced is gone"
        if not failing.failed:
            break
        met.add(failing.failed)
    assert met >= {"create", "write", "sync", "move", "link", "rmdir"}, met


def list_rounds(space: Space) -> set[str]:
    top = os.path.join(space.side, "quarantine", QUARANTINE)
    return set(os.listdir(top)) if os.path.isdir(top) else set()


def find_displaced(space: Space, before: set[str]) -> set[tuple[bytes, bytes]]:
    """What the rounds since then put into quarantine, by path."""
    top = os.path.join(space.side, "quarantine", QUARANTINE)
    found = set()
    for name in list_rounds(space) - before:
        for parent, _, files in os.walk(os.path.join(top, name)):
            for one in (os.path.join(parent, file) for file in files):
                if os.path.isfile(one) and not os.path.islink(one):
                    with open(one, "rb") as file:
                        found.add((os.fsencode(os.path.relpath(one, os.path.join(top, name))), file.read()))
    return found
