"""The plan of a restore, as a pure function of what is there and what should be."""



import pytest
from msgspec.structs import replace

from eventlog.errors import RestoreIncompleteError
from eventlog.image import Entry
from recovery.workspace import staged
from recovery.workspace.actions import (
    Displace,
    FinishDirectory,
    LinkFile,
    MakeDirectory,
    PlaceDirectory,
    PlaceFile,
    PlaceLink,
    RestorePlan,
    SetAttributes,
    StageDirectory,
    decode_plan,
    encode_plan,
)
from recovery.workspace.restore_plan import describe, plan_restore
from recovery.workspace.values import Scan, Untracked

ROOT = Entry("d", 0o755, mtime_ns=1)
ONE = Entry("f", 0o644, b"1" * 32, 10, mtime_ns=2)
TWO = Entry("f", 0o644, b"2" * 32, 20, mtime_ns=2)
FINISH_ROOT = FinishDirectory(b"", 0o755, 1, None)
Image = dict[bytes, Entry]


Nodes = tuple[Untracked, ...]


def plan(found: Image, target: Image, found_untracked: Nodes = (), target_untracked: Nodes = ()) -> RestorePlan:
    return plan_restore(Scan({b"": ROOT, **found}, found_untracked), {b"": ROOT, **target}, target_untracked)


def test_equal_trees_need_nothing() -> None:
    image = {b"a": ONE, b"d": ROOT, b"d/b": TWO}
    assert plan(image, image) == RestorePlan((), 0, 0, 0)


def test_a_changed_file_is_displaced_and_placed_and_its_directory_finished() -> None:
    made = plan({b"a": TWO, b"b": ONE}, {b"a": ONE, b"b": ONE})
    assert made.actions == (Displace(b"a", "f"), PlaceFile(b"a", b"1" * 32, 10, 0o644, 2, None), FINISH_ROOT)
    assert (made.restored, made.displaced, made.needed_bytes) == (1, 1, 2 * 4096)


def test_an_extra_directory_is_displaced_as_one_move() -> None:
    made = plan({b"x": ROOT, b"x/a": ONE, b"x/d": ROOT, b"x/d/b": ONE, b"x-": ONE}, {b"x-": ONE})
    assert made.actions == (Displace(b"x", "d"), FINISH_ROOT)


def test_a_mode_alone_is_set_in_place_and_times_alone_count_no_path() -> None:
    made = plan({b"a": replace(ONE, mode=0o600)}, {b"a": ONE})
    assert made.actions == (SetAttributes(b"a", "f", 0o644, 2, None),)
    assert made.restored == 1
    timed = plan({b"a": replace(ONE, mtime_ns=9)}, {b"a": ONE})
    assert timed.actions == (SetAttributes(b"a", "f", 0o644, 2, None),)
    assert timed.restored == 0


def test_directories_are_made_parents_first_and_finished_deepest_first() -> None:
    made = plan({}, {b"d": ROOT, b"d/e": ROOT})
    assert [type(action) for action in made.actions] == [StageDirectory, MakeDirectory, PlaceDirectory] + [FinishDirectory] * 3
    assert [action.path for action in made.actions] == [b"d", b"d/e", b"d", b"d/e", b"d", b""]


def test_a_new_directory_is_filled_in_staging_and_put_in_place_whole() -> None:
    made = plan({}, {b"a": ONE, b"d": ROOT, b"d-": ONE, b"d/e": ROOT, b"d/e/f": ONE, b"d/l": Entry("l", 0o777, target=b"a"), b"e": ROOT})
    assert [(type(action), action.path) for action in made.actions] == [
        (MakeDirectory, b"e"),
        (StageDirectory, b"d"), (MakeDirectory, b"d/e"), (PlaceFile, b"d/e/f"), (PlaceLink, b"d/l"), (PlaceDirectory, b"d"),
        (PlaceFile, b"a"), (PlaceFile, b"d-"),
        (FinishDirectory, b"e"), (FinishDirectory, b"d/e"), (FinishDirectory, b"d"), (FinishDirectory, b""),
    ]  # fmt: skip


def test_a_further_name_in_a_staged_directory_is_linked_once_all_is_in_place() -> None:
    group = replace(ONE, link=b"d/a")
    made = plan({}, {b"d": ROOT, b"d/a": group, b"d/b": group})
    assert [type(action) for action in made.actions] == [StageDirectory, PlaceFile, PlaceDirectory, LinkFile] + [FinishDirectory] * 2


@pytest.mark.parametrize(("nodes", "size"), [(3, 100), (10, 15)], ids=["nodes", "bytes"])
def test_of_a_large_directory_what_is_small_enough_below_it_is_staged(monkeypatch: pytest.MonkeyPatch, nodes: int, size: int) -> None:
    monkeypatch.setattr(staged, "MOST_NODES", nodes)
    monkeypatch.setattr(staged, "MOST_BYTES", size)
    made = plan({}, {b"d": ROOT, b"d/e": ROOT, b"d/e/f": ONE, b"d/g": ONE})
    assert [(type(action), action.path) for action in made.actions][:5] == [
        (MakeDirectory, b"d"), (StageDirectory, b"d/e"), (PlaceFile, b"d/e/f"), (PlaceDirectory, b"d/e"), (PlaceFile, b"d/g"),
    ]  # fmt: skip


def test_case_12_a_missing_name_is_linked_to_the_inode_that_is_there() -> None:
    group = replace(ONE, link=b"a")
    made = plan({b"b": ONE}, {b"a": group, b"b": group})
    assert made.actions == (LinkFile(b"a", b"b"), FINISH_ROOT)


def test_case_12_joined_files_are_all_replaced_so_that_quarantine_shares_no_inode_with_the_tree() -> None:
    group = replace(ONE, link=b"a")
    made = plan({b"a": group, b"b": group}, {b"a": ONE, b"b": ONE})
    assert [type(action) for action in made.actions] == [Displace, Displace, PlaceFile, PlaceFile, FinishDirectory]


def test_case_12_of_two_alike_files_that_were_one_the_first_stays() -> None:
    group = replace(ONE, link=b"a")
    made = plan({b"a": ONE, b"b": ONE}, {b"a": group, b"b": group})
    assert made.actions == (Displace(b"b", "f"), LinkFile(b"b", b"a"), FINISH_ROOT)


def test_case_12_a_file_linked_to_the_outside_is_never_changed_in_place() -> None:
    outside = (Untracked(b"a", "outside link"),)
    made = plan({b"a": replace(ONE, mode=0o600)}, {b"a": ONE}, outside, outside)
    assert [type(action) for action in made.actions] == [Displace, PlaceFile, FinishDirectory]
    assert plan({b"a": replace(ONE, mtime_ns=9)}, {b"a": ONE}, outside, outside).actions == ()


@pytest.mark.parametrize("one", [Entry("l", 0o777, target=b"t"), Entry("p", 0o600)])
def test_case_12_groups_of_symlinks_and_fifos_are_joined_and_split(one: Entry) -> None:
    group = replace(one, link=b"a")
    joined = plan({b"a": one, b"b": one}, {b"a": group, b"b": group})
    assert joined.actions == (Displace(b"b", one.kind), LinkFile(b"b", b"a"), FINISH_ROOT)
    split = plan({b"a": group, b"b": group}, {b"a": one, b"b": one})
    assert [type(action) for action in split.actions] == [Displace, Displace, *2 * [type(split.actions[2])], FinishDirectory]
    made = plan({}, {b"a": group, b"b": group})
    assert [action.path for action in made.actions] == [b"a", b"b", b""] and made.actions[1] == LinkFile(b"b", b"a")
    assert plan({b"a": group, b"b": group}, {b"a": group, b"b": group}).actions == ()


def test_untracked_nodes_of_the_target_stay_and_others_are_victims() -> None:
    mine, new = Untracked(b"mine", "socket"), Untracked(b"new", "socket")
    assert plan({}, {}, (mine, new), (mine,)).actions == (Displace(b"new", "socket"), FINISH_ROOT)
    in_the_way = plan({}, {b"mine": ONE}, (mine,), (mine,))
    assert [type(action) for action in in_the_way.actions] == [Displace, PlaceFile, FinishDirectory]


@pytest.mark.parametrize(
    ("found", "target", "kept"),
    [
        ({}, {b"m": ROOT}, False),
        ({}, {b"m": ROOT, b"m/x": ONE}, False),
        ({b"d": ROOT}, {b"d": ROOT}, False),
        ({b"d": ROOT}, {}, True),
        ({b"d": ROOT}, {b"d": ONE}, True),
    ],
)
def test_case_13_a_mount_in_the_way_is_refused_by_name(found: Image, target: Image, kept: bool) -> None:
    mount = Untracked(b"d/m" if b"d" in found else b"m", "mount")
    with pytest.raises(RestoreIncompleteError, match=f"mount at {mount.path.decode()} "):
        plan(found, target, (mount,), (mount,) if kept else ())


def test_a_mount_that_was_there_all_along_stays() -> None:
    mount = Untracked(b"d/m", "mount")
    assert plan({b"d": ROOT}, {b"d": ROOT}, (mount,), (mount,)).actions == ()


def test_a_plan_survives_being_written_as_json() -> None:
    group = replace(ONE, link=b"\xff\n", xattrs=b"\0\0\0\1x\0\0\0\0")
    link, pipe = Entry("l", 0o777, target=b"\xfe", mtime_ns=-5), Entry("p", 0o600, mtime_ns=3)
    target = {b"\xff\n": group, b"z": group, b"l": link, b"p": pipe, b"d": ROOT, b"m": ONE}
    made = plan({b"l": ONE, b"m": replace(ONE, mode=0)}, target)
    assert {type(action).__name__ for action in made.actions} == {
        "Displace", "MakeDirectory", "PlaceFile", "PlaceLink", "PlacePipe", "LinkFile", "SetAttributes", "FinishDirectory",
    }  # fmt: skip
    assert decode_plan(encode_plan(made)) == made


def test_case_04_a_described_plan_has_one_line_per_action_and_no_control_byte() -> None:
    target = {b"a\nb": Entry("l", 0o777, target=b"\x1b[2J", mtime_ns=1), b"d": ROOT}
    made = plan({b"a\nb": ONE}, target)
    lines = describe(made)
    assert lines == [
        "quarantine file a\\x0ab",
        "make directory d",
        "make symlink a\\x0ab -> \\x1b[2J",
        "set mode 0755, attributes and time of directory d",
        "set mode 0755, attributes and time of directory .",
    ]
    assert isinstance(made.actions[2], PlaceLink)


def test_case_11_a_directory_with_excluded_content_stays_and_its_other_children_move() -> None:
    found = Scan({b"": ROOT, b"d": ROOT, b"d/a": ONE, b"d/sub": ROOT, b"d/sub/b": ONE}, (), (b"d/node_modules",))
    made = plan_restore(found, {b"": ROOT}, ())
    assert made.actions == (Displace(b"d/a", "f"), Displace(b"d/sub", "d"), FinishDirectory(b"d", 0o755, 1, None))


def test_case_15_a_directory_that_holds_only_excluded_content_is_filled_and_not_made_again() -> None:
    found = Scan({b"": ROOT}, (), (b"d/e/node_modules",))
    made = plan_restore(found, {b"": ROOT, b"d": ROOT, b"d/e": ROOT, b"d/e/f": ONE}, ())
    assert [(type(action), action.path) for action in made.actions] == [
        (PlaceFile, b"d/e/f"),
        (FinishDirectory, b"d/e"),
        (FinishDirectory, b"d"),
    ]


@pytest.mark.parametrize("kind", ["f", "l", "p"])
def test_rule_R3_excluded_content_in_a_directory_that_must_become_another_kind_is_refused_by_name(kind: str) -> None:
    wanted = {"f": ONE, "l": Entry("l", 0o777, target=b"x"), "p": Entry("p", 0o600)}[kind]
    found = Scan({b"": ROOT, b"d": ROOT, b"d/a": ONE}, (), (b"d/node_modules",))
    with pytest.raises(RestoreIncompleteError, match="d must become .* holds the excluded d/node_modules; nothing was moved"):
        plan_restore(found, {b"": ROOT, b"d": wanted}, ())


def test_rule_R3_an_excluded_directory_at_the_name_of_a_file_of_the_image_is_refused_by_name() -> None:
    with pytest.raises(RestoreIncompleteError, match="the excluded build is where the image has another node"):
        plan_restore(Scan({b"": ROOT}, (), (b"build",)), {b"": ROOT, b"build": ONE}, ())


def test_case_08_with_excludes_a_written_file_gets_the_current_time_and_a_file_that_stays_keeps_its_own() -> None:
    found = Scan({b"": ROOT, b"a": TWO, b"b": replace(ONE, mtime_ns=9), b"c": replace(ONE, mode=0o600, mtime_ns=9)}, ())
    made = plan_restore(found, {b"": ROOT, b"a": ONE, b"b": ONE, b"c": ONE}, (), has_excludes=True)
    assert made.actions == (
        Displace(b"a", "f"),
        PlaceFile(b"a", b"1" * 32, 10, 0o644, None, None),
        SetAttributes(b"c", "f", 0o644, None, None),
        FINISH_ROOT,
    )


@pytest.mark.parametrize("kind", ["flags", "attribute", "acl"])
def test_an_untracked_aspect_of_a_tracked_path_makes_no_victim(kind: str) -> None:
    assert plan({b"a": ONE}, {b"a": ONE}, (Untracked(b"a", kind),)).actions == ()
