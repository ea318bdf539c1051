"""What the file worker tells of the files it made, so that the scan that ends a restore need not read them again."""

import os
import shutil
from pathlib import Path

import pytest
from blake3 import blake3

from recovery.workspace.made import Made, read_made, write_made
from recovery.workspace.restore_plan import plan_restore
from recovery.workspace.scan import Scanner
from tests.recovery.workspace.support import Space


def test_what_was_made_in_staging_is_not_read_again_unless_it_changed(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("same", "written", "renewed"):
        space.write(f"d/e/{name}", b"content")
    target = space.snapshot()
    shutil.rmtree(space.at("d"))
    scanner = Scanner(space.root)
    scanner.scan()
    monkeypatch.setattr("recovery.workspace.apply.trusted_before", lambda _: 1 << 62)
    monkeypatch.setattr("recovery.workspace.scan.trusted_before", lambda _: 1 << 62)
    made = space.restore(target).made
    assert [one.path for one in made] == [b"d/e/renewed", b"d/e/same", b"d/e/written"]
    for name in ("written", "renewed"):
        path = space.at(f"d/e/{name}")
        before = os.stat(path)
        if name == "renewed":
            os.unlink(path)
        with open(path, "r+b" if name == "written" else "wb") as file:
            file.write(b"CONTENT")
        os.chmod(path, 0o644)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    scanner.learn(made)
    found = scanner.scan().image
    assert scanner.hashed == 2
    assert found[b"d/e/same"] == target.image[b"d/e/same"]
    assert {found[b"d/e/written"].content, found[b"d/e/renewed"].content} == {blake3(b"CONTENT").digest()}


def test_what_was_made_too_young_to_be_told_from_a_later_version_is_read_again(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.write("d/f")
    target = space.snapshot()
    shutil.rmtree(space.at("d"))
    monkeypatch.setattr("recovery.workspace.apply.trusted_before", lambda _: 0)
    assert space.restore(target).made == ()


def test_files_with_attributes_owners_or_acls_are_read_again_however_they_were_made(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    os.setxattr(space.write("d/f"), "user.a", b"b")
    space.write("d/g")
    target = space.snapshot()
    shutil.rmtree(space.at("d"))
    monkeypatch.setattr("recovery.workspace.apply.trusted_before", lambda _: 1 << 62)
    assert [one.path for one in space.restore(target).made] == [b"d/g"]
    shutil.rmtree(space.at("d"))
    plan = plan_restore(space.scan(), target.image, target.untracked, acls=True)
    assert space.apply(plan).made == ()


@pytest.mark.parametrize("damage", [b"", b"\x91", b"\x91\x93\xc4\x01f"])
def test_a_word_on_what_was_made_that_cannot_be_read_is_none(tmp_path: Path, damage: bytes) -> None:
    path = str(tmp_path / "made")
    assert read_made(path) == ()
    one = Made(b"f", (1, 2, 3, 4, 5, 6, 7), b"c" * 32)
    write_made(path, [one])
    assert read_made(path) == (one,)
    Path(path).write_bytes(damage)
    assert read_made(path) == ()
