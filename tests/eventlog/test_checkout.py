"""The image of a point, written into a new directory: equal to the tree it was taken from, by an independent digest; hostile images do
no harm; a failure or a kill leaves nothing under the name."""

import argparse
import errno
import os
import stat
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventlog import steps
from eventlog.checkout import HOLE_BYTES, UNFINISHED_PREFIX, CheckedOut, check_out, cut_runs
from eventlog.errors import CompactedError, CorruptError, CrashworthyError, FullError, MisuseError
from eventlog.history import read_image
from eventlog.image import Entry, root_hash
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.values import Seq
from tests.eventlog import support
from tests.eventlog.support import STREAM, Calling, kill_at, record_steps, run_in_child
from tests.eventlog.tree_logs import file_of, log_of_image, log_of_tree, remove_tree, scan_tree
from tests.recovery.workspace.support import make_tree, run_as_ordinary_user, tree_digest, umask
from tests.trees import generate
from tests.trees import tree_digest as digests
from tests.trees.generate import Node, Tree

TRACKABLE = [
    "churn", "content-edges", "empty-dirs", "empty-root", "git-nested", "leftovers", "locked", "modes", "names-bytes", "same-tick",
    "symlink-escape", "symlink-maze", "type-flip",
]  # fmt: skip
DIRECTORY = Entry("d", 0o755, mtime_ns=1)
SMALL: Tree = {
    b"": Node("d", mode=0o2555),
    b"d": Node("d", mode=0o555, attribute=b"w", tick=1),
    b"d/f": Node("f", b"in it", 0o4444, b"v"),
    b"d/same": Node("h", b"d/f"),
    b"l": Node("l", b"d/f", 0o777, tick=2),
    b"p": Node("p", mode=0o622),
}


def write_out(path: str, directory: str, seq: int = 1) -> CheckedOut:
    """Check the image at a seq of the log at `path` out, as the command does."""
    reader = Reader.open(path)
    try:
        return check_out(reader, read_image(reader, STREAM, Seq(seq)), directory, CountingIds())
    finally:
        reader.close()


def write_image(path: str, image: dict[bytes, Entry], directory: str) -> CheckedOut:
    """Check an image out of a log that may never have held it."""
    reader = Reader.open(path)
    try:
        return check_out(reader, image, directory, CountingIds())
    finally:
        reader.close()


def digest_here(root: str) -> str:
    """The digest of tree_digest.py, times included, in this process."""
    options = argparse.Namespace(ignore=set(), mtime="all", owner=False, exclude=set(), one_file_system=False, list=False, keep=False)
    found: str = digests.run(root, options)[0]  # type: ignore[no-untyped-call]
    return found


def unfinished(place: Path) -> list[str]:
    return [name for name in os.listdir(place) if name.startswith(UNFINISHED_PREFIX)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[str]:
    """A log of the small tree in a directory of its own, and nothing beside it."""
    place = tmp_path / "made"
    generate.make(str(place), SMALL)
    (tmp_path / "state").mkdir()
    path = str(tmp_path / "state" / "log.sqlite")
    log_of_tree(str(place), path)
    yield path
    for name in os.listdir(tmp_path):
        remove_tree(tmp_path / name)


@pytest.mark.parametrize("name", TRACKABLE)
def test_a_tree_is_checked_out_to_its_digest_times_included(tmp_path: Path, name: str) -> None:
    if name in ("locked", "modes") and os.geteuid() != 0:
        pytest.skip("holds what an ordinary user cannot read: its scan is an error")
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    make_tree(name, source)
    image = log_of_tree(source, str(tmp_path / "log.sqlite"))
    done = write_out(str(tmp_path / "log.sqlite"), target)
    assert tree_digest(target, "--mtime") == tree_digest(source, "--mtime")
    assert scan_tree(target) == image and done.paths == len(image) - 1
    assert unfinished(tmp_path) == []
    for one in (source, target):
        remove_tree(one)


@pytest.mark.parametrize("name", ["hardlinks", "special-nodes", "mtimes", "xattrs-acl"])
def test_what_is_tracked_of_any_other_tree_is_checked_out(tmp_path: Path, name: str) -> None:
    """Sockets, devices, ACLs and names outside the workspace are not in an image; times are those that 64 bits of nanoseconds reach."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    make_tree(name, source)
    image = log_of_tree(source, str(tmp_path / "log.sqlite"))
    write_out(str(tmp_path / "log.sqlite"), target)
    assert scan_tree(target) == image
    for one in (source, target):
        remove_tree(one)


@settings(max_examples=25, deadline=None)
@given(generate.trees())
def test_any_drawn_tree_is_checked_out_to_its_digest(tree: Tree) -> None:
    base = tempfile.mkdtemp(prefix="crashworthy-test-")
    try:
        source, target, path = (os.path.join(base, name) for name in ("source", "target", "log.sqlite"))
        generate.make(source, tree)
        image = log_of_tree(source, path)
        write_out(path, target)
        found = scan_tree(target)
        assert found == image and root_hash(found) == root_hash(image)
        assert digest_here(target) == digest_here(source)
    finally:
        remove_tree(base)


def test_an_earlier_point_is_checked_out_as_it_was(tmp_path: Path) -> None:
    path = support.make_log(tmp_path)
    write_out(path, str(tmp_path / "first"), 1)
    write_out(path, str(tmp_path / "later"), 9)
    assert scan_tree(str(tmp_path / "first")) == support.IMAGE
    assert scan_tree(str(tmp_path / "later")) == support.LATER


@pytest.mark.parametrize("mask", [0o077, 0o000, 0o027])
def test_case_14_modes_are_exact_under_any_umask(tmp_path: Path, log: str, mask: int) -> None:
    with umask(mask):
        write_out(log, str(tmp_path / "target"))
    assert tree_digest(str(tmp_path / "target"), "--mtime") == tree_digest(str(tmp_path / "made"), "--mtime")


def test_an_ordinary_user_checks_out_directories_that_nobody_may_enter(tmp_path: Path) -> None:
    """More of them than are kept open: a directory closed to its owner too early could not be worked in any more."""
    closed = Entry("d", 0, mtime_ns=1)
    image = {b"": closed, **{b"%03d" % at: closed for at in range(100)}, **{b"%03d/d" % at: closed for at in range(100)}}
    image |= {b"%03d/d/f" % at: file_of(b"", 0, mtime_ns=2) for at in range(100)}
    base = tempfile.mkdtemp(prefix="crashworthy-test-")
    log_of_image(image, [b""], base + "/log.sqlite")

    def work() -> None:
        write_out(base + "/log.sqlite", base + "/target")

    try:
        run_as_ordinary_user(base, work)
        if os.geteuid() == 0:
            assert scan_tree(base + "/target") == image
        assert stat.S_IMODE(os.lstat(base + "/target").st_mode) == 0
    finally:
        remove_tree(base)


def test_paths_beyond_the_limit_of_the_system_and_names_of_255_bytes(tmp_path: Path) -> None:
    image = {b"": DIRECTORY}
    path = b""
    for depth in range(40):
        path = (path + b"/" if path else b"") + b"%03d" % depth + b"\xff" * 252
        image[path] = DIRECTORY
    image[path + b"/new\nline"] = file_of(b"deep", mtime_ns=5)
    image[path + b"/z"] = file_of(b"deep", mtime_ns=5, link=None)
    log_of_image(image, [b"deep"], str(tmp_path / "log.sqlite"))
    write_out(str(tmp_path / "log.sqlite"), str(tmp_path / "target"))
    assert len(path) > 10_000 and scan_tree(str(tmp_path / "target")) == image
    remove_tree(tmp_path / "target")


def test_case_06_runs_of_zeros_become_holes_and_memory_stays_bounded(tmp_path: Path) -> None:
    data = b"head" + bytes(48 << 20) + b"tail"
    image = {b"": DIRECTORY, b"sparse": file_of(data, mtime_ns=5), b"zeros": file_of(bytes(3 << 20), mtime_ns=5)}
    log_of_image(image, [data, bytes(3 << 20)], str(tmp_path / "log.sqlite"))
    del data
    tracemalloc.start()
    write_out(str(tmp_path / "log.sqlite"), str(tmp_path / "target"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    assert scan_tree(str(tmp_path / "target")) == image
    sparse, zeros = (os.stat(tmp_path / "target" / name) for name in ("sparse", "zeros"))
    assert sparse.st_blocks * 512 <= 4 * HOLE_BYTES and zeros.st_blocks == 0


@given(st.integers(0, 3 * HOLE_BYTES), st.lists(st.tuples(st.booleans(), st.integers(1, 3 * HOLE_BYTES)), max_size=4))
def test_holes_are_whole_blocks_of_zeros_and_nothing_is_lost(offset: int, parts: list[tuple[bool, int]]) -> None:
    piece = b"".join(bytes(size) if zeros else b"x" * size for zeros, size in parts)
    position = offset
    runs = list(cut_runs(offset, piece))
    assert b"".join(part for _, part in runs) == piece
    for is_hole, part in runs:
        if is_hole:
            assert position % HOLE_BYTES == 0 and len(part) % HOLE_BYTES == 0 and not any(part)
        position += len(part)
    assert all(first[0] != second[0] for first, second in zip(runs, runs[1:], strict=False))


def make_nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (lambda place: os.mkdir(place / "x"), "x", "there is something already"),
        (lambda place: os.mkdir(place / "x"), "x/", "there is something already"),
        (lambda place: (place / "x").touch(), "x", "there is something already"),
        (lambda place: os.symlink("nowhere", place / "x"), "x", "there is something already"),
        (make_nothing, "", "there is something already"),
        (make_nothing, ".", "there is something already"),
        (make_nothing, "..", "there is something already"),
        (make_nothing, "/", "there is something already"),
        (make_nothing, "a\0b", "there is something already"),
        (make_nothing, "no/x", "make that directory first"),
        (lambda place: (place / "f").touch(), "f/x", "make that directory first"),
        (make_nothing, "n" * 300, "File name too long"),
    ],
)
def test_only_a_name_that_is_free_is_taken(log: str, tmp_path: Path, make: Callable[[Path], None], name: str, words: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    make(place)
    before = sorted(os.listdir(place))
    here = os.getcwd()
    os.chdir(place)
    try:
        with pytest.raises(MisuseError, match=words):
            write_out(log, name)
    finally:
        os.chdir(here)
    assert sorted(os.listdir(place)) == before


HOSTILE: dict[str, dict[bytes, Entry]] = {
    "upwards": {b"": DIRECTORY, b"../x": file_of(b"1")},
    "absolute": {b"": DIRECTORY, b"/x": file_of(b"1")},
    "a NUL": {b"": DIRECTORY, b"x\0y": file_of(b"1")},
    "a dot": {b"": DIRECTORY, b"./x": file_of(b"1")},
    "below a link": {b"": DIRECTORY, b"l": Entry("l", 0o777, target=b"/"), b"l/x": file_of(b"1")},
    "below a file": {b"": DIRECTORY, b"f": file_of(b"1"), b"f/x": file_of(b"1")},
    "no root": {b"f": file_of(b"1")},
    "a group that leads outside": {b"": DIRECTORY, b"b": file_of(b"1", link=b"../a")},
    "a mode of a device": {b"": DIRECTORY, b"b": file_of(b"1", 0o20644)},
    "a capability": {b"": DIRECTORY, b"b": file_of(b"1", xattrs=b"\0\0\0\x13security.capability\0\0\0\1v")},
    "an attribute with a NUL": {b"": DIRECTORY, b"b": file_of(b"1", xattrs=b"\0\0\0\7user.\0a\0\0\0\1v")},
    "the identity of a root": {b"": replace(DIRECTORY, xattrs=b"\0\0\0\x15user.crashworthy.root\0\0\0\1v")},
    "another size": {b"": DIRECTORY, b"b": replace(file_of(b"1"), size=2)},
    "a smaller size": {b"": DIRECTORY, b"b": replace(file_of(b"1"), size=0)},
    "a content that is not there": {b"": DIRECTORY, b"b": file_of(b"other")},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_case_09_a_hostile_image_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "log.sqlite")
    log_of_image({b"": DIRECTORY, b"b": file_of(b"1")}, [b"1"], path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(CorruptError) as refused:
        write_image(path, HOSTILE[name], str(tmp_path / "target"))
    assert str(refused.value).isprintable()
    assert sorted({*os.listdir(tmp_path)} - {"log.sqlite-wal", "log.sqlite-shm"}) == [one for one in before if one == "log.sqlite"]


def test_contents_given_up_by_compaction_are_told_before_anything_is_made(tmp_path: Path) -> None:
    path = support.make_log(tmp_path)
    support.checkpoint(path)
    big = [f"x'{entry.content.hex()}'" for entry in support.IMAGE.values() if entry.content is not None and entry.size > 1000]
    support.tamper(path, f"INSERT INTO dropped VALUES ({big[0]}, 1, 'compacted', 1)", f"DELETE FROM blob WHERE hash = {big[0]}")
    passed: list[str] = []

    class Record:
        def pass_step(self, step: str) -> None:
            passed.append(step)

    steps.install(Record())
    try:
        with pytest.raises(CompactedError, match=r"caf\\xe9\\x0a/big is not whole at this point: .* given up by compaction"):
            write_out(path, str(tmp_path / "target"))
    finally:
        steps.install(None)
    assert passed == [] and unfinished(tmp_path) == [] and not (tmp_path / "target").exists()


def test_case_09_a_link_put_in_the_way_meanwhile_is_not_followed(tmp_path: Path, log: str) -> None:
    """By the same user, as nobody else can enter the unfinished directory."""
    outside = tmp_path / "outside"
    outside.mkdir()

    def swap() -> None:
        inside = tmp_path / unfinished(tmp_path)[0]
        os.rename(inside / "d", inside / "d-away")
        os.symlink(outside, inside / "d")

    steps.install(Calling("checkout.place.write.half", swap))
    try:
        write_out(log, str(tmp_path / "target"))
    except CrashworthyError:
        pass  # either is fine, as long as nothing went through the link
    finally:
        steps.install(None)
    assert os.listdir(outside) == [] and stat.S_IMODE(os.stat(outside).st_mode) != 0o555


def test_a_name_taken_meanwhile_stands_and_nothing_is_left(tmp_path: Path, log: str) -> None:
    """Also by an empty directory, which a plain rename would replace."""

    def take() -> None:
        (tmp_path / "target").mkdir(0o711)

    steps.install(Calling("checkout.move.before", take))
    try:
        with pytest.raises(MisuseError, match="something came there meanwhile"):
            write_out(log, str(tmp_path / "target"))
    finally:
        steps.install(None)
    assert stat.S_IMODE(os.stat(tmp_path / "target").st_mode) == 0o711 and unfinished(tmp_path) == []


@pytest.mark.parametrize(
    "step", ["checkout.place.write.half", "checkout.link.link.before", "checkout.finish.attributes.before", "checkout.syncfs.before"]
)
def test_no_room_left_in_the_middle_leaves_nothing(tmp_path: Path, log: str, step: str) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    steps.install(Calling(step, fill))
    try:
        with pytest.raises(FullError, match="no room left"):
            write_out(log, str(tmp_path / "target"))
    finally:
        steps.install(None)
    assert sorted(os.listdir(tmp_path)) == ["made", "state"]


def test_an_interrupted_checkout_leaves_nothing(tmp_path: Path, log: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    steps.install(Calling("checkout.finish.attributes.after", interrupt))
    try:
        with pytest.raises(KeyboardInterrupt):
            write_out(log, str(tmp_path / "target"))
    finally:
        steps.install(None)
    assert sorted(os.listdir(tmp_path)) == ["made", "state"]


def assert_all_or_nothing(tmp_path: Path, digest: str) -> None:
    """Under the name stands all of it or nothing; what else is left bears the name of an unfinished checkout."""
    target = tmp_path / "target"
    if target.exists():
        assert tree_digest(str(target), "--mtime") == digest
        remove_tree(target)
    left = unfinished(tmp_path)
    assert sorted(set(os.listdir(tmp_path)) - set(left)) == ["made", "state"] and len(left) <= 1
    for name in left:
        assert stat.S_IMODE(os.lstat(tmp_path / name).st_mode) in (0o700, 0o2555)  # the mode of the root is the last that is set
        remove_tree(tmp_path / name)


def test_a_checkout_killed_at_every_step_leaves_all_of_it_or_nothing_under_its_name(tmp_path: Path, log: str) -> None:
    digest = tree_digest(str(tmp_path / "made"), "--mtime")

    def work() -> None:
        write_out(log, str(tmp_path / "target"))

    passed = record_steps(work)
    assert_all_or_nothing(tmp_path, digest)
    names = {step.split(":")[1].removeprefix("checkout.") for step in passed}
    both = ("mkdir", "place.attributes", "link.link", "finish.attributes", "syncfs", "move", "sync")
    assert names == {f"{name}.{when}" for name in both for when in ("before", "after")} | {"place.write.half"}
    named = next(at for at, step in enumerate(passed) if ":checkout.move.after:" in step)
    for step in passed:
        kill_at(step, work)
        assert (tmp_path / "target").exists() == (passed.index(step) >= named)
        assert_all_or_nothing(tmp_path, digest)
    work()
    assert tree_digest(str(tmp_path / "target"), "--mtime") == digest


def test_a_checkout_killed_between_its_steps_leaves_all_of_it_or_nothing(tmp_path: Path, log: str) -> None:
    """At every call into the system that the interpreter tells of, from the first directory on."""
    digest = tree_digest(str(tmp_path / "made"), "--mtime")
    instant, ended = 0, False
    while not ended:
        instant += 1
        ended = run_in_child(lambda at=instant: die_at(at, log, str(tmp_path / "target"))) == 0  # type: ignore[misc]
        assert_all_or_nothing(tmp_path, digest)
    assert instant > 20


def die_at(instant: int, log: str, target: str) -> None:
    """Check out and be killed at the audit event with this number, counted from the first step on."""
    left = [instant]
    begun = []

    class Begin:
        def pass_step(self, step: str) -> None:
            begun.append(step)

    def count(name: str, _: object) -> None:
        if begun and name.startswith(("os.", "open")):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), 9)

    steps.install(Begin())
    sys.addaudithook(count)
    write_out(log, target)
