"""What is possible on a disk: every state that the model builds is, what was synced and is not there is not, nor what nobody wrote."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.powerloss.device import (
    DROPPED,
    KEPT,
    ROOT,
    STRICT,
    Cut,
    Entry,
    Names,
    Operation,
    Resize,
    State,
    Sync,
    Write,
    build,
    choose,
    cut_after,
)
from chaos.powerloss.files import File, Tree, build_tree, choose_fates
from chaos.powerloss.possible import Found, TooManyError, find_impossible, find_impossible_file
from tests.chaos.powerloss.test_device import EXAMPLES, IS_DIRECTORY, runs
from tests.chaos.powerloss.test_files import trees

NOTHING: frozenset[int] = frozenset()
A = 1


def found_of(state: State, is_directory: Mapping[int, bool] = IS_DIRECTORY) -> dict[str, Found]:
    """A state as it is found."""
    nodes = {ROOT: ""}
    stack = [ROOT]
    found: dict[str, Found] = {}
    while stack:
        above = stack.pop()
        for name, node in state.directories.get(above, {}).items():
            path = f"{nodes[above]}/{name}".lstrip("/")
            found[path] = Found(node, None if is_directory[node] else state.files.get(node, b""))
            if is_directory[node]:
                nodes[node] = path
                stack.append(node)
    return found


def cut_of(operations: list[Operation]) -> Cut:
    return cut_after(operations, len(operations), STRICT)


def lose_all(cut: Cut) -> dict[str, Found]:
    return found_of(build(cut, (DROPPED,) * len(cut.pending)))


def keep_all(cut: Cut) -> dict[str, Found]:
    return found_of(build(cut, (KEPT,) * len(cut.pending)))


@EXAMPLES
@given(runs(), st.integers(0, 1000))
def test_every_state_that_the_model_builds_is_possible(operations: list[Operation], seed: int) -> None:
    cut = cut_of(operations)
    for choice in choose(cut, STRICT, random.Random(seed), 4):
        assert find_impossible(cut, found_of(build(cut, choice))) == ""


@EXAMPLES
@given(runs())
def test_a_byte_that_nobody_wrote_is_impossible(operations: list[Operation]) -> None:
    cut = cut_of(operations)
    found = keep_all(cut)
    for path, one in found.items():
        if one.content:
            changed = {**found, path: replace(one, content=one.content[:-1] + b"\xfa")}
            assert find_impossible(cut, changed).startswith(f"{path} holds at byte ")


@EXAMPLES
@given(runs())
def test_a_name_that_nobody_gave_is_impossible(operations: list[Operation]) -> None:
    cut = cut_of(operations)
    assert "is there, and in no state" in find_impossible(cut, {**keep_all(cut), "never": Found(A, b"")})
    assert find_impossible(cut, {**keep_all(cut), "never": Found(None, b"")}) == "never is there, which nobody made"


NAMED: list[Operation] = [Names((Entry(ROOT, "a", A),)), Sync(ROOT, 1)]


def test_what_was_synced_and_is_not_there_is_impossible() -> None:
    cut = cut_of([*NAMED, Write(A, 0, b"synced"), Sync(A, 3)])
    assert find_impossible(cut, {}) == "a is not there, and in no state of this cut it is"
    assert find_impossible(cut, {"a": Found(A, b"")}) == "a has 0 bytes, and in no state of this cut so many"
    assert find_impossible(cut, {"a": Found(A, bytes(6))}) == "a holds at byte 0 what it holds in no state of this cut"
    assert find_impossible(cut, {"a": Found(A, b"synced")}) == ""


def test_a_model_from_which_a_state_was_taken_is_found_out() -> None:
    """The write is pending, and a disk without it is real; a model that has it settled says that there is none."""
    operations = [*NAMED, Write(A, 0, b"pending")]
    cut = cut_of(operations)
    assert find_impossible(cut, lose_all(cut)) == ""
    taken = Cut(operations, (*cut.settled, *cut.pending), ())
    assert find_impossible(taken, lose_all(cut)) == "a has 0 bytes, and in no state of this cut so many"


def test_sectors_are_kept_and_lost_one_by_one() -> None:
    cut = cut_of([*NAMED, Write(A, 0, b"\1" * 1536)])
    assert find_impossible(cut, {"a": Found(A, b"\1" * 512 + bytes(512) + b"\1" * 512)}) == ""
    assert find_impossible(cut, {"a": Found(A, b"\1" * 100 + bytes(412))}) != "", "a sector is whole"


def test_a_rename_is_there_with_both_names_or_not_at_all() -> None:
    cut = cut_of([*NAMED, Names((Entry(ROOT, "a", None), Entry(ROOT, "b", A)))])
    assert [find_impossible(cut, {name: Found(A, b"")}) for name in "ab"] == ["", ""]
    assert find_impossible(cut, {"a": Found(A, b""), "b": Found(A, b"")}) == "each name may be as it is, but not all of them at once: a, b"
    assert "not all of them at once" in find_impossible(cut, {})


def test_a_cut_file_may_have_its_old_bytes_or_none_and_no_others() -> None:
    cut = cut_of([*NAMED, Write(A, 0, b"12345678"), Sync(A, 3), Resize(A, 4), Resize(A, 6)])
    assert [find_impossible(cut, {"a": Found(A, data)}) for data in (b"12345678", b"1234", b"1234\0\0", b"123456")] == [""] * 4
    assert find_impossible(cut, {"a": Found(A, b"12345")}) == "a has 5 bytes, and in no state of this cut so many"


def test_what_nobody_could_judge_is_told() -> None:
    cut = cut_of([*NAMED, *(Write(A, number, bytes([number])) for number in range(1, 14))])
    with pytest.raises(TooManyError, match="at byte 0"):
        find_impossible(cut, {"a": Found(A, bytes(14))})


# The workspace


@EXAMPLES
@given(trees, trees, trees, st.integers(0, 100))
def test_every_tree_that_the_model_builds_is_possible(old: Tree, middle: Tree, new: Tree, seed: int) -> None:
    for then in (middle, new):
        for chosen in choose_fates(old, then, NOTHING, random.Random(seed), 4):
            assert find_impossible_file(old, (middle, new), NOTHING, build_tree(old, then, chosen)) == ""


@EXAMPLES
@given(trees, trees)
def test_a_file_that_nobody_wrote_is_impossible(old: Tree, new: Tree) -> None:
    assert find_impossible_file(old, (new,), NOTHING, {**new, "d/strange": File("f", 0o644, b"x", 99)}) != ""
    assert find_impossible_file(old, (new,), NOTHING, {**new, "a": File("f", 0o644, b"strange", 98)}) != ""


def test_a_file_in_the_place_of_one_that_was_moved_may_be_empty() -> None:
    old = {"a": File("f", 0o644, b"old", 1)}
    new = {"b": File("f", 0o644, b"old", 1), "a": File("f", 0o644, b"new", 2)}
    empty = {"b": new["b"], "a": File("f", 0o644, b"", 2)}
    assert find_impossible_file(old, (new,), NOTHING, empty) == ""
    assert find_impossible_file(old, (new,), frozenset({2}), empty) == "a, b: has none of the fates new, undone"
    assert find_impossible_file(old, (new,), NOTHING, {"a": new["a"]}) != "", "the other name of the rename is not there"
    assert empty in [build_tree(old, new, chosen) for chosen in choose_fates(old, new, NOTHING, random.Random(1), 0)]


def test_zeros_at_the_end_of_a_file_reach_no_further_than_its_size() -> None:
    made = File("f", 0o644, b"abcdef", 2)
    for content, is_possible in ((b"abc", True), (b"abc\0\0\0", True), (bytes(6), True), (b"abcdef\0", False), (bytes(7), False)):
        found = {"a": replace(made, content=content)}
        assert (find_impossible_file({}, ({"a": made},), NOTHING, found) == "") is is_possible, content


def test_what_a_look_found_between_two_syncs_may_be_all_there_is() -> None:
    made = File("f", 0o644, b"text", 1)
    assert find_impossible_file({}, ({"a.new": made}, {"a": made}), NOTHING, {"a.new": made}) == ""
    assert find_impossible_file({}, ({"a": made},), NOTHING, {"a.new": made}) != ""
