"""The files that commands changed: each path has one of the declared fates, and a rename and what it replaced have the same one."""

import random
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.powerloss.files import FATES, File, Tree, Unit, build_tree, choose_fates, find_units, list_fates

EXAMPLES = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
NOTHING: frozenset[int] = frozenset()


def file(content: bytes = b"text", inode: int = 1) -> File:
    return File("f", 0o644, content, inode)


def directory(inode: int = 100) -> File:
    return File("d", 0o755, b"", inode)


entries = st.builds(file, st.sampled_from([b"", b"one", b"other"]), st.integers(1, 6))
trees = st.dictionaries(st.sampled_from(["a", "b", "d/a", "d/b"]), entries).map(lambda found: {"d": directory(), **found})


def trees_of(old: Tree, new: Tree) -> list[Mapping[str, File]]:
    return [build_tree(old, new, chosen) for chosen in choose_fates(old, new, NOTHING, random.Random(1), 4)]


@EXAMPLES
@given(trees, trees)
def test_what_did_not_change_is_in_every_tree(old: Tree, new: Tree) -> None:
    same = {path for path in old if old[path] == new.get(path)}
    assert all(tree.get(path) == old[path] for tree in trees_of(old, new) for path in same)


@EXAMPLES
@given(trees, trees)
def test_the_first_tree_is_the_new_one_and_one_is_the_old_one(old: Tree, new: Tree) -> None:
    found = trees_of(old, new)
    assert found[0] == new and old in found


@EXAMPLES
@given(trees, trees)
def test_only_declared_fates_are_chosen(old: Tree, new: Tree) -> None:
    assert all(set(chosen.values()) <= set(FATES) for chosen in choose_fates(old, new, NOTHING, random.Random(1), 4))


def test_a_file_that_was_written_has_each_fate() -> None:
    old, new = {"a": file(b"old")}, {"a": file(b"newer")}
    found = {tree["a"].content for tree in trees_of(old, new)}
    assert found == {b"old", b"newer", b"", bytes(5), b"ne"}


def test_a_file_that_was_made_may_be_absent() -> None:
    assert {} in trees_of({}, {"a": file()})


def test_a_file_that_was_synced_is_never_torn() -> None:
    old, new = {"a": file(b"old", 1)}, {"a": file(b"new", 2)}
    assert list_fates(Unit(("a",)), old, new, frozenset({2})) == ("new", "old")


def test_a_rename_is_undone_with_what_it_replaced() -> None:
    old = {"a.new": file(b"new", 2), "a": file(b"old", 1)}
    new = {"a": file(b"new", 2)}
    assert find_units(old, new) == [Unit(("a", "a.new"))]
    assert trees_of(old, new) == [new, old, old]


def test_nothing_stands_in_a_directory_that_is_absent() -> None:
    new = {"d": directory(), "d/a": file()}
    assert all("d" in tree or "d/a" not in tree for tree in trees_of({}, new))
