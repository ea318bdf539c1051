"""The side directory and the identity of the root."""

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from eventlog import durable
from eventlog.errors import MisuseError, NeedsPersonError
from recovery.workspace.side import (
    RootIdentity,
    Side,
    is_same_root,
    prepare_side,
    read_root_identity,
    set_root_identity,
    take_root,
)
from tests.recovery.workspace.support import Space, run_with_own_mounts


def test_rule_R2_the_side_directory_lies_beside_the_root_and_is_private(space: Space) -> None:
    before = space.scan()
    side = prepare_side(space.root, "id")
    assert side == Side(space.base + "/.crashworthy-id", inside=False)
    assert stat.S_IMODE(os.stat(side.path).st_mode) == 0o700
    assert prepare_side(space.root, "id") == side
    assert space.scan() == before, "the trial rename left a trace, if only a time"
    assert os.listdir(space.root) == []


def test_rule_R2_it_lies_inside_when_a_rename_from_beside_fails(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    before = space.scan().image
    with monkeypatch.context() as patched:
        patched.setattr(durable, "move", refuse)
        side = prepare_side(space.root, "id")
    assert side == Side(space.root + "/.crashworthy-side", inside=True)
    assert sorted(space.scan().image) == sorted(before)
    assert prepare_side(space.root, "id") == side, "an inside directory, once made, stays in use"


def test_rule_R2_it_lies_inside_a_root_that_is_a_mount_also_of_the_same_file_system(space: Space) -> None:
    os.mkdir(space.base + "/real")

    def work() -> None:
        subprocess.run(["mount", "--bind", space.base + "/real", space.root], check=True)
        assert prepare_side(space.root, "id").inside

    run_with_own_mounts(work)
    assert os.listdir(space.base + "/real") == [".crashworthy-side"]
    assert not os.path.exists(space.base + "/.crashworthy-id")


def test_rule_R2_a_trial_that_was_killed_between_its_renames_leaves_nothing_for_long(space: Space) -> None:
    Path(space.at(".crashworthy-side")).write_bytes(b"")
    assert sorted(space.scan().image) == [b""]
    assert not prepare_side(space.root, "id").inside
    assert os.listdir(space.root) == []


@pytest.mark.parametrize("plant", [lambda path: Path(path).write_bytes(b"x"), lambda path: os.symlink("content", path)])
def test_rule_R2_something_else_under_the_name_is_not_used(space: Space, plant: Callable[[str], None]) -> None:
    plant(space.base + "/.crashworthy-id")
    assert prepare_side(space.root, "id").inside
    assert os.listdir(space.content) == []


def test_rule_R2_neither_place_usable_is_misuse(space: Space) -> None:
    Path(space.base, ".crashworthy-id").write_bytes(b"x")
    Path(space.at(".crashworthy-side")).write_bytes(b"somebody's")
    with pytest.raises(MisuseError, match="no side directory"):
        prepare_side(space.root, "id")
    assert Path(space.at(".crashworthy-side")).read_bytes() == b"somebody's"


def test_rule_R6_a_root_is_known_by_its_id_wherever_it_is_moved(space: Space) -> None:
    assert read_root_identity(space.root).id is None
    if not set_root_identity(space.root, "abc"):
        pytest.skip("no user attributes here")
    recorded = read_root_identity(space.root)
    assert recorded.id == "abc"
    os.rename(space.root, space.base + "/moved")
    os.mkdir(space.root)
    assert is_same_root(recorded, read_root_identity(space.base + "/moved"))
    assert not is_same_root(recorded, read_root_identity(space.root))


def test_rule_R6_a_root_that_lost_its_attribute_is_known_by_inode_and_birth(space: Space) -> None:
    recorded = msgspec.structs.replace(read_root_identity(space.root), id="abc")
    if recorded.birth_ns is None:
        pytest.skip("no birth time here")
    assert is_same_root(recorded, read_root_identity(space.root))
    shutil.rmtree(space.root)
    os.mkdir(space.root)
    assert not is_same_root(recorded, read_root_identity(space.root)), "also when the inode number is used again"


@pytest.mark.parametrize(
    ("recorded", "found", "same"),
    [
        (RootIdentity("a", 1, 1, "f"), RootIdentity("a", 2, 2, "g"), True),
        (RootIdentity("a", 1, 1, "f"), RootIdentity("b", 1, 1, "f"), False),
        (RootIdentity("a", 1, 1, "f"), RootIdentity(None, 1, 1, "f"), True),
        (RootIdentity("a", 1, 1, "f"), RootIdentity(None, 1, 2, "f"), False),
        (RootIdentity("a", 1, 1, "f"), RootIdentity(None, 2, 1, "f"), False),
        (RootIdentity("a", 1, 1, "f"), RootIdentity(None, 1, 1, "g"), False),
        (RootIdentity(None, 1, None, "f"), RootIdentity(None, 1, None, "f"), False),
        (RootIdentity(None, 1, 1, "f"), RootIdentity("new", 1, 1, "f"), True),
    ],
)
def test_rule_R6_the_table_of_same_roots(recorded: RootIdentity, found: RootIdentity, same: bool) -> None:
    assert is_same_root(recorded, found) is same


def test_rule_R6_no_room_for_attributes_is_a_clear_no(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "setxattr", refuse)
    assert not set_root_identity(space.root, "abc")


def test_rule_D3_a_directory_with_content_becomes_a_root_only_when_a_person_accepts_it(tmp_path: Path) -> None:
    """Asked by who marks it: somebody may have put a directory there since it was seen to be lost."""
    theirs, missing, file = tmp_path / "theirs", tmp_path / "above" / "missing", tmp_path / "file"
    theirs.mkdir()
    (theirs / "x").write_text("x")
    file.write_text("x")
    for path, why in ((theirs, "is not empty any more"), (file, "is not a directory")):
        with pytest.raises(NeedsPersonError, match=why):
            take_root(str(path), "abc", is_accepted=False)
    assert read_root_identity(str(theirs)).id is None and file.read_text() == "x"
    made, taken = (take_root(str(missing), "abc", is_accepted=False), take_root(str(theirs), "def", is_accepted=True))
    assert (made.inode, taken.inode) == (missing.stat().st_ino, theirs.stat().st_ino)
    assert made.id in ("abc", None) and taken.id in ("def", None) and (theirs / "x").read_text() == "x"
