"""Sessions that leave paths out of their images, and that track owners and ACLs."""

import os
import struct
from pathlib import Path

import pytest

from eventlog import events
from eventlog.forking import fork_session
from eventlog.history import AtHead
from eventlog.image import root_hash
from eventlog.ports import RandomIds, SystemClock
from eventlog.reader import Reader
from eventlog.verify import verify
from recovery.journal import only_stream
from tests.recovery.sessions import Driver, Sandbox, bash, write

EXCLUDES = ["node_modules/", "*.o", "!keep.o"]


def session(sandbox: Sandbox, *calls: dict[str, object], **settings: object) -> Path:
    """A session file with `exclude` (and `track`)."""
    return sandbox.session(*calls, **{"exclude": EXCLUDES, **settings})


def stopped(sandbox: Sandbox, step: str, *arguments: str | Path, epoch: int = 1) -> Driver:
    """A driver that was killed at a step."""
    name = f"driver@{epoch}:{step}:1"
    driver = sandbox.start(*arguments, epoch=epoch, wait=(name,))
    sandbox.steps.kill(name, driver)
    assert driver.end() == -9
    return driver


def check_log(sandbox: Sandbox) -> None:
    """The log verifies, and its head names the image with the excludes in it."""
    reader = Reader.open(str(sandbox.log))
    try:
        assert verify(reader).findings == ()
        stream = only_stream(reader)
        row = reader.stream(stream)
        assert row is not None
        image = reader.image(stream, row.head_seq)
        assert root_hash(image, EXCLUDES).hex() == sandbox.of_kind(events.Synced)[-1].root != root_hash(image).hex()
    finally:
        reader.close()


def test_excluded_paths_are_in_no_image_and_the_log_verifies(sandbox: Sandbox) -> None:
    made = bash("mkdir -p node_modules/m d/node_modules; touch node_modules/m/f a.o d/node_modules/f; echo x > keep.o")
    assert sandbox.run("run", session(sandbox, made)).code == 0
    changed = [change.path for stored in sandbox.events() for change in stored.changes if change.op == "put"]
    assert changed == [b"", b"keep.o"]
    opened = sandbox.of_kind(events.SessionOpened)[0]
    assert (opened.excludes, opened.track) == (EXCLUDES, [])
    check_log(sandbox)


def test_case_11_a_cut_call_is_undone_around_what_is_excluded(sandbox: Sandbox) -> None:
    (sandbox.root / "empty").mkdir()
    (sandbox.root / "full").mkdir()
    (sandbox.root / "full" / "f").write_text("old")
    os.utime(sandbox.root / "full" / "f", ns=(1, 10**18))
    (sandbox.root / "node_modules").mkdir()
    (sandbox.root / "node_modules" / "kept").write_text("kept")
    before = os.stat(sandbox.root / "node_modules" / "kept")
    cut = bash("mkdir -p empty/node_modules only/deep/node_modules; touch empty/node_modules/f only/deep/node_modules/f only/victim; "
               "echo new > full/f; touch a.o full/a.o; rm -r node_modules/none 2> /dev/null; kill -9 $PPID")  # fmt: skip
    assert sandbox.run("run", session(sandbox, cut, bash("true"), on_interrupted="continue")).code == 1
    sandbox.drive()
    found = {str(path.relative_to(sandbox.root)) for path in sandbox.root.rglob("*") if ".crashworthy" not in str(path)}
    assert found == {
        "a.o", "empty", "empty/node_modules", "empty/node_modules/f", "full", "full/a.o", "full/f", "node_modules",
        "node_modules/kept", "only", "only/deep", "only/deep/node_modules", "only/deep/node_modules/f",
    }  # fmt: skip
    assert (sandbox.root / "full" / "f").read_text() == "old"
    assert os.stat(sandbox.root / "full" / "f").st_mtime_ns > 10**18, "a rewritten file must not look older than an excluded output"
    after = os.stat(sandbox.root / "node_modules" / "kept")
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (before.st_ino, before.st_mtime_ns, before.st_ctime_ns)
    assert "restore_and_interrupt" in sandbox.labels()
    check_log(sandbox)


@pytest.mark.parametrize("has_it", [True, False])
def test_case_15_a_directory_with_only_excluded_content_can_be_restored_to_either_way(sandbox: Sandbox, has_it: bool) -> None:
    """To an image that has the directory, empty, and to one that lacks it: the obligation closes and the directory stays."""
    if has_it:
        (sandbox.root / "d").mkdir()
    calls = bash("mkdir -p d/node_modules; touch d/node_modules/f d/a"), bash("rm d/a"), bash("true")
    stopped(sandbox, "finish.commit.before", "run", session(sandbox, *calls))
    done = sandbox.run("restore", sandbox.state, "--at", "1", "--workspace", sandbox.root)
    assert done.code == 0, done.err
    assert os.listdir(sandbox.root / "d") == ["node_modules"]
    again = sandbox.run("restore", sandbox.state, "--at", "1", "--workspace", sandbox.root, "--dry-run")
    assert again.code == 0, again.out
    sandbox.drive("--on-interrupted", "continue")
    check_log(sandbox)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"exclude": ["[z-a]"]}, "'[z-a]' is none"),
        ({"exclude": ["# a comment"]}, "matches nothing"),
        ({"exclude": "a"}, "exclude must be a list"),
        ({"exclude": [1]}, "exclude must be a list"),
        ({"track": ["flags"]}, "cannot track 'flags'; known are owners, acls"),
        ({"track": "owners"}, "track must be a list"),
    ],
)
def test_a_bad_pattern_is_one_sentence_before_anything(sandbox: Sandbox, setting: dict[str, object], sentence: str) -> None:
    refused = sandbox.run("run", session(sandbox, bash("true"), **setting))
    assert refused.code == 78 and sentence in refused.sentence()
    assert not sandbox.state.exists()


def test_a_session_cannot_go_on_with_other_excludes(sandbox: Sandbox) -> None:
    stopped(sandbox, "finish.commit.before", "run", session(sandbox, bash("true")))
    before = sandbox.log.read_bytes()
    for other in ({"exclude": ["*.o"]}, {"track": ["owners"]}):
        refused = sandbox.run("run", session(sandbox, bash("true"), **other))
        assert refused.code == 78 and "fixed for good" in refused.sentence()
    assert sandbox.log.read_bytes() == before
    assert sandbox.run("run", session(sandbox, bash("true"))).code == 0


def test_an_image_by_hand_excludes_and_tracks(sandbox: Sandbox) -> None:
    (sandbox.root / "a.o").touch()
    (sandbox.root / "b").touch()
    order = ("image", sandbox.state, "--workspace", sandbox.root)
    begun = sandbox.run(*order, "--new", "--exclude", "*.o", "--track", "owners")
    assert begun.code == 0, begun.err
    opened = sandbox.events()[0]
    assert [change.path for change in opened.changes] == [b"", b"b"]
    assert all(change.entry is not None and change.entry.owner == (os.getuid(), os.getgid()) for change in opened.changes)
    refused = sandbox.run(*order, "--exclude", "*.o")
    assert refused.code == 78 and "with --new" in refused.sentence()
    assert sandbox.run(*order).code == 0


def test_a_fork_knows_the_excludes_of_its_parent(sandbox: Sandbox) -> None:
    assert sandbox.run("run", session(sandbox, write("a", "one"), track=["owners"])).code == 0
    made = fork_session(str(sandbox.log), None, AtHead(), "other", clock=SystemClock(), ids=RandomIds())
    reader = Reader.open(str(sandbox.log))
    try:
        first = next(iter(reader.events(made.stream))).event
        assert isinstance(first, events.SessionForked)
        assert (first.excludes, first.track) == (EXCLUDES, ["owners"])
        assert verify(reader).findings == ()
    finally:
        reader.close()


def acl_of(mask: int, user: int) -> bytes:
    """An access ACL of Linux: the owner, one more user, the group, the mask, all others."""
    nobody = 0xFFFFFFFF
    entries = [(1, 6, nobody), (2, 6, user), (4, 4, nobody), (16, mask, nobody), (32, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_owners_and_acls_are_restored_where_they_are_tracked(sandbox: Sandbox) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    for name in ("given", "listed"):
        (sandbox.root / name).write_text(name)
    os.chown(sandbox.root / "given", 12, 34)
    os.symlink("nowhere", sandbox.root / "link")
    os.chown(sandbox.root / "link", 56, 78, follow_symlinks=False)
    try:
        os.setxattr(sandbox.root / "listed", "system.posix_acl_access", acl_of(6, 12))
    except OSError:
        pytest.skip("no ACLs on this file system")
    wanted = os.getxattr(sandbox.root / "listed", "system.posix_acl_access")
    cut = bash("chown 0:0 given; chown -h 0:0 link; rm listed; echo other > listed; kill -9 $PPID")
    assert sandbox.run("run", session(sandbox, cut, on_interrupted="continue", track=["owners", "acls"])).code == 1
    assert sandbox.of_kind(events.SessionOpened)[0].untracked == []
    sandbox.drive()
    given, link = os.stat(sandbox.root / "given"), os.lstat(sandbox.root / "link")
    assert (given.st_uid, given.st_gid, link.st_uid, link.st_gid) == (12, 34, 56, 78)
    assert os.getxattr(sandbox.root / "listed", "system.posix_acl_access") == wanted
    assert (sandbox.root / "listed").read_text() == "listed"
    check_log(sandbox)


def test_what_is_not_tracked_is_listed(sandbox: Sandbox) -> None:
    (sandbox.root / "listed").touch()
    try:
        os.setxattr(sandbox.root / "listed", "system.posix_acl_access", acl_of(6, 12))
    except OSError:
        pytest.skip("no ACLs on this file system")
    assert sandbox.run("run", session(sandbox, bash("true"))).code == 0
    assert sandbox.of_kind(events.SessionOpened)[0].untracked == [events.Untracked("listed", "acl")]
