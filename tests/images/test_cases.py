"""Known failures of other systems as whole stories: a generated tree, a session, the damage, recovery, and the independent digest."""

from pathlib import Path

import pytest

from eventlog import events
from tests.images.stories import cut_call, damage_command, digest, inodes, replace_command
from tests.recovery.sessions import Sandbox
from tests.recovery.workspace.support import make_tree


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_case_03_and_04_names_of_any_bytes_come_back_and_never_reach_a_screen_raw(sandbox: Sandbox, locale: str) -> None:
    make_tree("names-bytes", str(sandbox.root))
    before = digest(sandbox.root)
    cut_call(sandbox, damage_command(sandbox, "names-bytes"))
    plan = sandbox.run("plan", sandbox.state, LC_ALL=locale, PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert plan.code == 2
    driven = sandbox.run("drive", sandbox.state, LC_ALL=locale, PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert driven.code == 0, driven.err
    assert all(line.isascii() and line.isprintable() for driver in (plan, driven) for line in (driver.out + driver.err).split("\n"))
    assert digest(sandbox.root) == before


def test_case_01_rewrites_that_keep_size_and_time_are_all_undone(sandbox: Sandbox) -> None:
    make_tree("same-tick", str(sandbox.root))
    before = digest(sandbox.root)
    cut_call(sandbox, damage_command(sandbox, "same-tick"))
    sandbox.drive()
    assert digest(sandbox.root) == before


def test_case_09_links_that_lead_out_give_way_and_the_sibling_is_untouched(sandbox: Sandbox) -> None:
    make_tree("symlink-escape", str(sandbox.root))
    before, sibling = digest(sandbox.root), Path(f"{sandbox.root}.outside")
    canary, seen = digest(sibling, "--mtime"), inodes(sibling)
    cut_call(sandbox, damage_command(sandbox, "symlink-escape"))
    assert (sandbox.root / "out").is_symlink()
    sandbox.drive()
    assert digest(sandbox.root) == before and (sandbox.root / "kept-link").is_symlink()
    assert (digest(sibling, "--mtime"), inodes(sibling)) == (canary, seen)


def test_case_15_an_empty_image_is_put_back_over_a_full_workspace(sandbox: Sandbox) -> None:
    make_tree("empty-root", str(sandbox.root))
    make_tree("git-nested", str(sandbox.base / "other"))
    before, root = digest(sandbox.root), sandbox.root.stat().st_ino
    cut_call(sandbox, replace_command(sandbox, sandbox.base / "other"))
    assert (sandbox.root / ".git").is_dir()
    sandbox.drive()
    assert (digest(sandbox.root), sandbox.root.stat().st_ino) == (before, root)


def test_case_16_debris_goes_to_quarantine_and_a_persons_own_files_stay(sandbox: Sandbox) -> None:
    make_tree("leftovers", str(sandbox.root))
    before = digest(sandbox.root)
    cut_call(sandbox, damage_command(sandbox, "leftovers"))
    sandbox.drive()
    assert digest(sandbox.root) == before
    assert "1/.restore-stage/src/app.py" in sandbox.of_kind(events.Quarantined)[0].paths
