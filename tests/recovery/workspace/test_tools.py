"""write and edit: temp and rename inside the root, or a failure that changed nothing."""

import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog import steps
from eventlog.image import decode_xattrs
from recovery.workspace.tools import ToolResult, edit_file, write_file
from tests.recovery.workspace.support import Space, run_as_ordinary_user, run_in_child, umask


def write(space: Space, path: bytes, content: bytes = b"new", mode: int | None = None) -> ToolResult:
    return write_file(space.root, path, content, mode, space.side, "tool")


def edit(space: Space, path: bytes, old: bytes, new: bytes) -> ToolResult:
    return edit_file(space.root, path, old, new, space.side, "tool")


def assert_refused(space: Space, act: Callable[[], ToolResult], word: str) -> None:
    """`act` fails with `word` in its message, and neither the workspace nor staging is changed."""
    before = space.scan()
    result = act()
    assert not result.ok and word in result.message, result.message
    assert space.scan() == before
    assert not os.path.exists(space.side + "/staging") or os.listdir(space.side + "/staging") == []


def test_a_new_file_gets_0644_and_its_parents_the_mode_of_the_umask(space: Space) -> None:
    with umask(0o027):
        result = write(space, b"a/b/c")
    assert result == ToolResult(True, "made a/b/c (3 bytes)", False)
    assert Path(space.at("a/b/c")).read_bytes() == b"new"
    assert stat.S_IMODE(os.stat(space.at("a/b/c")).st_mode) == 0o644
    assert stat.S_IMODE(os.stat(space.at("a/b")).st_mode) == 0o750
    assert os.listdir(space.side + "/staging") == []


def test_a_mode_that_is_given_is_exact(space: Space) -> None:
    with umask(0o077):
        write(space, b"f", mode=0o4777)
    assert stat.S_IMODE(os.stat(space.at("f")).st_mode) == 0o4777


def test_rule_S6_a_replaced_file_keeps_its_twelve_bits_and_attributes(space: Space) -> None:
    full = space.write("f", b"old", 0o600)
    os.setxattr(full, "user.k", b"v")
    os.chmod(full, 0o4711)
    assert write(space, b"f").message == "replaced f (3 bytes)"
    assert edit(space, b"f", b"new", b"edited").ok
    entry = space.scan().image[b"f"]
    assert (entry.mode, decode_xattrs(entry.xattrs)) == (0o4711, ((b"user.k", b"v"),))
    assert Path(full).read_bytes() == b"edited"


def test_rule_S6_a_hard_link_is_broken_and_the_result_says_so(space: Space) -> None:
    os.link(space.write("a", b"old"), space.at("b"))
    result = write(space, b"a")
    assert result.ok and result.broke_link and "hard links" in result.message
    assert Path(space.at("b")).read_bytes() == b"old"
    assert not write(space, b"a").broke_link


@pytest.mark.parametrize("target", ["real/f", "./real/../real/f", "real/deeper/../f", "other", "up/real/f"])
def test_rule_S6_a_link_inside_the_root_is_followed_and_stays_a_link(space: Space, target: str) -> None:
    space.write("real/f", b"old")
    os.mkdir(space.at("real/deeper"))
    os.symlink("real/f", space.at("other"))
    os.symlink("real/..", space.at("up"))
    os.symlink(target, space.at("l"))
    result = write(space, b"l")
    assert result.message == "replaced real/f (3 bytes)"
    assert os.readlink(space.at("l")) == target
    assert Path(space.at("real/f")).read_bytes() == b"new"


def test_a_directory_link_on_the_way_is_resolved_inside_the_root(space: Space) -> None:
    space.write("real/deep/f", b"old")
    os.symlink("real", space.at("l"))
    os.symlink("../real/deep", space.at("real/k"))
    assert write(space, b"l/k/new/g").message == "made real/deep/new/g (3 bytes)"
    assert write(space, b"l/deep/f").message == "replaced real/deep/f (3 bytes)"


def test_a_dangling_link_makes_the_file_it_names(space: Space) -> None:
    os.symlink("missing/f", space.at("l"))
    assert write(space, b"l").message == "made missing/f (3 bytes)"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        (b"", "relative"),
        (b"/no/such/place", "relative"),
        (b"a\0b", "relative"),
        (b"d", "directory"),
        (b"d/", "directory"),
        (b".", "directory"),
        (b"d/..", "directory"),
        (b"../f", "leads out"),
        (b"d/../../f", "leads out"),
        (b"absolute", "leads out"),
        (b"out", "leads out"),
        (b"out-directory/f", "leads out"),
        (b"loop", "too many links"),
        (b"pipe", "FIFO"),
        (b"f/below", "Not a directory"),
        (b"through-file/below", "Not a directory"),
        (b"slash", "Not a directory"),
        (b"missing/../f", "missing"),
        (b".crashworthy-side", "reserved"),
        (b".crashworthy-side/staging/x", "reserved"),
        (b"d/../.crashworthy-side-2/x", "reserved"),
        (b"to-side", "reserved"),
        (b"x" * 300, "File name too long"),
    ],
)
def test_rule_S6_what_must_not_be_written_is_refused_and_nothing_changes(space: Space, path: bytes, word: str) -> None:
    os.mkdir(space.at("d"))
    space.write("f", b"old")
    os.mkfifo(space.at("pipe"))
    Path(space.base, "outside").write_bytes(b"canary")
    for name, target in {
        "absolute": space.root + "/f", "out": "../outside", "out-directory": "d/../..", "loop": "loop", "through-file": "f",
        "slash": "f/", "to-side": ".crashworthy-side/x",
    }.items():  # fmt: skip
        os.symlink(target, space.at(name))
    assert_refused(space, lambda: write(space, path), word)
    assert_refused(space, lambda: edit(space, path, b"old", b"new"), word)
    assert Path(space.base, "outside").read_bytes() == b"canary"


def test_parents_made_for_a_name_that_cannot_be_are_taken_back(space: Space) -> None:
    assert_refused(space, lambda: write(space, b"made/for/" + b"x" * 300), "File name too long")
    assert_refused(space, lambda: write(space, b"made/" + b"x" * 300 + b"/f"), "File name too long")


def test_a_link_chain_of_40_is_followed_and_one_of_41_is_not(space: Space) -> None:
    space.write("0", b"end")
    for number in range(1, 42):
        os.symlink(str(number - 1), space.at(str(number)))
    assert write(space, b"40").ok
    assert_refused(space, lambda: write(space, b"41"), "too many links")


def test_case_04_a_refusal_shows_the_name_escaped(space: Space) -> None:
    os.mkdir(space.at("a\n\x1b"))
    assert write(space, b"a\n\x1b").message == "cannot write a\\x0a\\x1b: it is a directory"


@pytest.mark.parametrize(
    ("old", "word"), [(b"", "empty"), (b"nowhere", "not in it"), (b"twice", "more than once"), (b"aa", "more than once")]
)
def test_edit_needs_exactly_one_occurrence_overlaps_counted(space: Space, old: bytes, word: str) -> None:
    space.write("f", b"twice twice aaa once")
    assert_refused(space, lambda: edit(space, b"f", old, b"x"), word)
    assert edit(space, b"f", b"once", b"\0x").ok
    assert Path(space.at("f")).read_bytes() == b"twice twice aaa \0x"


def test_edit_of_a_missing_file_is_a_failure(space: Space) -> None:
    assert_refused(space, lambda: edit(space, b"f", b"a", b"b"), "no such file")


def test_a_directory_that_forbids_writing_is_a_failure_that_leaves_no_parents(open_space: Space) -> None:
    space = open_space

    def work() -> None:
        space.write("ro/f", b"old")
        os.chmod(space.at("ro"), 0o555)
        assert_refused(space, lambda: write(space, b"ro/f"), "Permission denied")
        assert_refused(space, lambda: write(space, b"ro/new/f"), "Permission denied")

    run_as_ordinary_user(space.base, work)


class Countdown:
    def __init__(self, left: int) -> None:
        self.left = left

    def pass_step(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("audit", [False, True], ids=["steps", "calls"])
def test_rule_S6_a_write_killed_at_every_instant_leaves_the_old_file_or_the_new_one(space: Space, audit: bool) -> None:
    target_before, instant, killed = b"old content", 0, True
    seen = set()
    while killed:
        instant += 1
        full = space.write("d/f", target_before, 0o640)
        space.write("mine", b"mine")

        def work(instant: int = instant) -> None:
            countdown = Countdown(instant)
            steps.install(countdown)
            if audit:
                sys.addaudithook(lambda name, _: countdown.pass_step(name))
            write(space, b"d/f", b"new content")
            write(space, b"made/%d/f" % instant)
            os._exit(0)

        killed = os.WIFSIGNALED(run_in_child(work))
        content = Path(full).read_bytes()
        assert content in (target_before, b"new content")
        assert stat.S_IMODE(os.stat(full).st_mode) == 0o640
        seen.add(content)
        files = {path for path, entry in space.scan().image.items() if entry.kind == "f"}
        assert {path for path in files if not path.startswith(b"made/")} == {b"d/f", b"mine"}
    assert seen == {target_before, b"new content"}
    assert instant > 12
