"""Verbs that change something behind a session's back: seen to be done, and told to the oracle."""

import os
from pathlib import Path

import pytest

from chaos.actions import parse_plan
from chaos.drivers import JumpingClock, Place
from chaos.played import Part
from chaos.results import Fault
from chaos.scene import Scene
from chaos.verbs.changes import doubt_jumps, jump
from chaos.verbs.edits import edit, turn
from eventlog.ports import SystemClock
from tests.chaos.fakes import BlindObserver, make_scenario

DECADE_MS = 10 * 365 * 86_400_000
HOUR_MS = 3_600_000


class Lister(BlindObserver):
    """Lists names alone."""

    def list_tree(self, tree: Path) -> dict[str, object]:
        return {str(path.relative_to(tree)): {} for path in tree.rglob("*")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A workspace with a file and a directory, and nobody at work."""
    place = Place(tmp_path)
    (place.work / "folder").mkdir(parents=True)
    (place.work / "folder" / "one.txt").write_text("one")
    (place.work / "file.txt").write_text("file")
    return Scene(make_scenario(), place, Part(()), Lister())


def carry_out(scene: Scene, plan: str) -> Fault:
    """The first action of a plan, with nobody waiting."""
    action = parse_plan(plan)[0]
    return {"edit": edit, "turn": turn, "jump": jump}[action.do](scene, action, None)


@pytest.mark.parametrize("name", ["file.txt", "folder", "new/name"])
@pytest.mark.parametrize(
    ("kind", "is_so"),
    [("directory", os.path.isdir), ("fifo", lambda path: Path(path).is_fifo()), ("symlink a b", os.path.islink)],
    ids=["directory", "fifo", "symlink"],
)
def test_anything_can_be_turned_into_anything(name: str, kind: str, is_so: object, scene: Scene) -> None:
    assert carry_out(scene, f'turn "{name}" "{kind}"').fired
    assert is_so(scene.place.work / name)  # type: ignore[operator]
    assert scene.played.edits[-1]["path"] == name
    below = [one["path"] for one in scene.played.edits[:-1]]
    assert below == (["folder/one.txt"] if name == "folder" else [])


def test_a_file_takes_the_place_of_a_directory_and_what_went_with_it_is_told(scene: Scene) -> None:
    assert carry_out(scene, 'edit "folder" "now a file"').fired
    assert (scene.place.work / "folder").read_text() == "now a file"
    assert [(one["path"], one["content"] is None) for one in scene.played.edits] == [("folder/one.txt", True), ("folder", False)]


def test_a_file_that_is_edited_stays_the_same_file(scene: Scene) -> None:
    before = (scene.place.work / "file.txt").stat().st_ino
    assert carry_out(scene, 'edit "file.txt" "other"').fired
    assert (scene.place.work / "file.txt").stat().st_ino == before


def test_a_directory_is_removed_with_all_in_it(scene: Scene) -> None:
    assert carry_out(scene, 'edit "folder"').fired
    assert not (scene.place.work / "folder").exists()
    assert [one["path"] for one in scene.played.edits] == ["folder/one.txt", "folder"]


def test_a_clock_jumps_by_the_sum_of_its_jumps_and_its_deadlines_do_not(scene: Scene) -> None:
    clock = JumpingClock(scene.place)
    assert abs(clock.now_ms() - SystemClock().now_ms()) < HOUR_MS
    assert carry_out(scene, 'jump "+10y"').fired and carry_out(scene, 'jump "-3h"').fired
    assert abs(clock.now_ms() - SystemClock().now_ms() - DECADE_MS + 3 * HOUR_MS) < HOUR_MS
    assert abs(clock.monotonic() - SystemClock().monotonic()) < HOUR_MS


@pytest.mark.parametrize("is_read", [True, False])
def test_a_jump_counts_only_when_a_driver_read_the_clock_after_it(is_read: bool, scene: Scene) -> None:
    JumpingClock(scene.place).now_ms()
    scene.played.faults.append(carry_out(scene, 'jump "+1h"'))
    if is_read:
        JumpingClock(scene.place).now_ms()
    doubt_jumps(scene)
    assert [fault.fired for fault in scene.played.faults] == [is_read]
