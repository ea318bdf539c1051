"""A restore killed at any instant: a new scan, plan and apply reach the same end, and nothing that was displaced is lost.

The instants are all steps of apply and, between them, all audit events of the interpreter (open, mkdir, chmod, utime, symlink ...), so
that also what no step names is cut. The child kills itself with SIGKILL; the parent checks that it died so.
"""

import os
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog import steps
from eventlog.image import root_hash
from recovery.workspace import staged
from recovery.workspace.actions import RestorePlan
from recovery.workspace.apply import apply_plan
from recovery.workspace.profile import Profile
from recovery.workspace.restore_plan import plan_restore
from recovery.workspace.scan import Scan, scan
from recovery.workspace.side import RESERVED_NAME
from tests.recovery.workspace.support import QUARANTINE, Space, run_in_child
from tests.trees.generate import Node, Tree

WANTED: Tree = {
    b"": Node("d", mode=0o755),
    b"changed": Node("f", b"as it was", 0o4755, b"v"),
    b"d": Node("d", mode=0o2775, tick=1),
    b"d/e": Node("d", mode=0o555, attribute=b"w"),
    b"d/e/f": Node("f", b"", 0o444),
    b"group": Node("f", b"one file", 0o600),
    b"d/name": Node("h", b"group"),
    b"kind": Node("d", mode=0o700),
    b"kind/inner": Node("f", b"inner"),
    b"l": Node("l", b"changed", 0o777, tick=2),
    b"made": Node("d", mode=0o555, attribute=b"v", tick=2),
    b"made/deep": Node("d", mode=0o500),
    b"made/deep/f": Node("f", b"\0" * 8192 + b"end", 0o4755, b"v"),
    b"made/deep/l": Node("l", b"../../same", 0o777),
    b"made/name": Node("h", b"group"),
    b"made/p": Node("p", mode=0o640),
    b"mode": Node("f", b"mode", 0o755, b"v", tick=3),
    b"p": Node("p", mode=0o600),
    b"same": Node("f", b"same"),
}
PRESENT: Tree = {
    b"": Node("d", mode=0o700, tick=3),
    b"changed": Node("f", b"what the call wrote", 0o644),
    b"d": Node("d", mode=0o755),
    b"d/extra": Node("d", mode=0o555),
    b"d/extra/deep": Node("f", b"extra"),
    b"group": Node("f", b"one file", 0o600),
    b"kind": Node("f", b"a file in the way"),
    b"l": Node("l", b"elsewhere", 0o777),
    b"mode": Node("f", b"mode", 0o600, b"w"),
    b"same": Node("f", b"same"),
    b"new\nline": Node("f", b"new"),
}
FEW_WANTED: Tree = {b"": Node("d", mode=0o755), b"a": Node("f", b"a"), b"d": Node("d", mode=0o555)}
FEW_PRESENT: Tree = {b"": Node("d", mode=0o755), b"a": Node("f", b"b"), b"x": Node("f", b"x")}


class Countdown:
    """Kills its own process at the pass that brings `left` to zero; 0 never does."""

    def __init__(self, left: int) -> None:
        self.left = left

    def pass_step(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def restore_and_die(space: Space, plan: RestorePlan, instant: int, *, audit: bool) -> Callable[[], None]:
    def work() -> None:
        countdown = Countdown(instant)
        steps.install(countdown)
        if audit:
            sys.addaudithook(lambda name, _: countdown.pass_step(name))
        space.apply(plan)
        os._exit(0)

    return work


def is_killed(status: int) -> bool:
    """Whether the child died of our SIGKILL; anything but that or a clean end is a failure."""
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def assert_converges(space: Space, target: Scan, found: Scan) -> None:
    """One undisturbed round ends it; every content that was there is in the tree or in some round of quarantine."""
    number = space.restore(target).round
    assert space.scan() == target
    assert space.plan(target).actions == ()
    assert os.listdir(space.side + "/staging") == []
    kept = dict(target.image)
    for one in range(1, number + 1):
        for path, entry in space.round_image(one).image.items():
            kept[b"%d/%s" % (one, path)] = entry
    alive = {(entry.content, entry.target) for entry in kept.values()}
    lost = [path for path, entry in found.image.items() if (entry.content, entry.target) not in alive]
    assert lost == []


def count_rounds(space: Space) -> int:
    return len(os.listdir(os.path.join(space.side, "quarantine", QUARANTINE)))


@pytest.mark.parametrize(
    ("audit", "staged_nodes"),
    [(False, staged.MOST_NODES), (True, staged.MOST_NODES), (False, 0)],
    ids=["steps", "calls", "steps, nothing staged whole"],
)
def test_rule_R1_a_restore_killed_at_every_instant_converges(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, audit: bool, staged_nodes: int
) -> None:
    monkeypatch.setattr(staged, "MOST_NODES", staged_nodes)
    instant = 0
    killed = True
    while killed:
        instant += 1
        base = quick_path / str(instant)
        base.mkdir()
        space = Space(str(base))
        space.replace_tree(WANTED)
        target = space.snapshot()
        space.replace_tree(PRESENT)
        found = space.scan()
        killed = is_killed(run_in_child(restore_and_die(space, space.plan(target), instant, audit=audit)))
        assert_converges(space, target, found)
    assert instant > (100 if audit else 50), "too few instants: the kills do not reach the work"


def test_rule_R1_a_restore_killed_twice_at_every_pair_of_steps_converges(quick_path: Path) -> None:
    first = 0
    pairs = 0
    killed = True
    while killed:
        first += 1
        second, killed_again = 0, True
        while killed_again:
            second += 1
            base = quick_path / f"{first}-{second}"
            base.mkdir()
            space = Space(str(base))
            space.replace_tree(FEW_WANTED)
            target = space.snapshot()
            space.replace_tree(FEW_PRESENT)
            found = space.scan()
            killed = is_killed(run_in_child(restore_and_die(space, space.plan(target), first, audit=False)))
            killed_again = is_killed(run_in_child(restore_and_die(space, space.plan(target), second, audit=False)))
            assert_converges(space, target, found)
            assert count_rounds(space) >= 1
            pairs += 1
    assert pairs > 100


def test_every_step_of_a_restore_names_its_operation(tmp_path: Path) -> None:
    class Record:
        def __init__(self) -> None:
            self.names: set[str] = set()

        def pass_step(self, step: str) -> None:
            self.names.add(step.split(":")[1])

    space = Space(str(tmp_path))
    space.replace_tree(WANTED)
    target = space.snapshot()
    space.replace_tree(PRESENT)
    record = Record()
    plan = space.plan(target)
    pack = space.lay_pack(plan)
    steps.install(record)
    try:
        apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=pack)
    finally:
        steps.install(None)
    both = {
        f"restore.{name}.{when}"
        for name in (
            "record.write", "record.sync", "displace.move", "mkdir", "place.attributes", "place.move", "link.link", "finish.attributes",
            "clear.rmdir",
        )
        for when in ("before", "after")
    }  # fmt: skip
    assert record.names == both | {"restore.place.write.half"}


PROFILE = Profile(("*.o", "cache/"), owners=True, acls=True)
STRANGER = (12345, 54321)
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, 1000 if tag == 2 else 0xFFFFFFFF)
    for tag, permissions in ((1, 6), (2, 4), (4, 4), (16, 6), (32, 0))
)
PROFILED_WANTED: Tree = {
    b"": Node("d", mode=0o755),
    b"a": Node("f", b"a", 0o640),
    b"d": Node("d", mode=0o2755),
    b"d/f": Node("f", b"f", 0o4755),
    b"l": Node("l", b"a", 0o777),
    b"same": Node("f", b"same"),
}
PROFILED_PRESENT: Tree = {
    b"": Node("d", mode=0o755),
    b"a": Node("f", b"changed", 0o644),
    b"d": Node("f", b"in the way"),
    b"extra": Node("d", mode=0o755),
    b"extra/cache": Node("d", mode=0o755),
    b"extra/cache/kept": Node("f", b"kept"),
    b"extra/gone": Node("f", b"gone"),
    b"l": Node("l", b"elsewhere", 0o777),
    b"same": Node("f", b"same"),
    b"x.o": Node("f", b"object"),
}


class ProfiledSpace(Space):
    """A workspace of a session that leaves paths out and tracks owners and ACLs; a scan is held against the image that is wanted."""

    wanted: Scan | None = None

    def scan(self) -> Scan:
        against = self.wanted.image if self.wanted else {}
        return scan(self.root, side_directory_name=RESERVED_NAME, profile=PROFILE, against=against)

    def plan(self, target: Scan) -> RestorePlan:
        return plan_restore(self.scan(), target.image, target.untracked, has_excludes=True, owners=True, acls=True)


def make_profiled(base: Path) -> tuple[ProfiledSpace, Scan]:
    """A workspace that differs from its target in contents, kinds, owners and ACLs, around what is excluded."""
    base.mkdir()
    space = ProfiledSpace(str(base))
    space.replace_tree(PROFILED_WANTED)
    for name in ("a", "d/f"):
        os.setxattr(space.at(name), "system.posix_acl_access", ACL)
    os.setxattr(space.at("d"), "system.posix_acl_default", ACL)
    for name in ("d", "d/f", "l", "same"):
        os.chown(space.at(name), *STRANGER, follow_symlinks=False)
    os.chmod(space.at("d/f"), 0o4775)
    target = space.snapshot()
    space.replace_tree(PROFILED_PRESENT)
    os.setxattr(space.at("same"), "system.posix_acl_access", ACL)
    space.wanted = target
    return space, target


@pytest.mark.parametrize("audit", [False, True], ids=["steps", "calls"])
def test_rule_R1_a_restore_around_excludes_with_owners_and_acls_killed_at_every_instant_converges(quick_path: Path, audit: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files to others needs root")
    instant, killed = 0, True
    while killed:
        instant += 1
        try:
            space, target = make_profiled(quick_path / str(instant))
        except OSError as error:
            pytest.skip(f"no ACLs to be set here: {error.strerror}")
        excluded = {path: os.stat(space.at(path)).st_ino for path in ("x.o", "extra/cache", "extra/cache/kept")}
        killed = is_killed(run_in_child(restore_and_die(space, space.plan(target), instant, audit=audit)))
        space.restore(target)
        assert root_hash(space.scan().image, PROFILE.excludes) == root_hash(target.image, PROFILE.excludes)
        assert space.plan(target).actions == ()
        assert {path: os.stat(space.at(path)).st_ino for path in excluded} == excluded
        status = os.lstat(space.at("d/f"))
        assert ((status.st_uid, status.st_gid), status.st_mode & 0o7777) == (STRANGER, 0o4775)
        kept = [Path(top, name).read_bytes() for top, _, names in os.walk(space.side + "/quarantine") for name in names
                if not os.path.islink(os.path.join(top, name))]  # fmt: skip
        assert {b"changed", b"in the way", b"gone"} <= set(kept)
    assert instant > (80 if audit else 25), "too few instants: the kills do not reach the work"
