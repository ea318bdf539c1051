"""An ImageTree is the plain dictionary of its paths in everything; it only shares and remembers."""


import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from eventlog import image_hash
from eventlog.errors import CorruptError
from eventlog.image import Change, Entry, ImageTree, check_image, delete_change, diff, fold_changes, put_change, root_hash
from eventlog.image_tree import Directory
from tests.eventlog.test_image_properties import images

Plain = dict[bytes, Entry]


def file_entry(word: bytes) -> Entry:
    return Entry("f", 0o644, blake3(word).digest(), len(word))


def directory_of(count: int) -> Plain:
    return {b"": Entry("d", 0o755), b"d": Entry("d", 0o755)} | {b"d/%05d" % number: file_entry(b"%d" % number) for number in range(count)}


@given(images, images, images)
def test_a_tree_is_its_dictionary_in_diff_fold_root_and_validity(first: Plain, second: Plain, third: Plain) -> None:
    tree, folded = ImageTree.of(first), ImageTree.of(first)
    assert tree == first and first == tree and len(tree) == len(first) and dict(tree.items()) == first and set(tree) == set(first)
    assert root_hash(tree) == root_hash(first)
    for before, after in ((first, second), (second, third), (third, first)):
        changes = diff(before, after)
        assert diff(ImageTree.of(before), ImageTree.of(after)) == changes
        assert diff(folded, ImageTree.of(after)) == changes
        folded = fold_changes(folded, changes)
        assert folded == after and folded == ImageTree.of(after)
        assert root_hash(folded) == root_hash(after)
        assert diff(folded, ImageTree.of(after)) == ()
        check_image(folded)
    assert tree == first and root_hash(tree) == root_hash(first)  # what was derived from it left it as it was


@given(images, images)
def test_a_tree_that_succeeds_another_has_the_same_hash(before: Plain, after: Plain) -> None:
    one, other = ImageTree.of(before), ImageTree.of(after)
    root_hash(one)
    following = one.succeed(other[b""], {path: one.directories[path] if path in one.directories and one.directories[path].equals(directory)
                                         else directory for path, directory in other.directories.items()})  # fmt: skip
    assert following == after and root_hash(following) == root_hash(after)


@given(images, images, images, st.booleans())
def test_a_tree_with_other_directories_is_the_tree_of_them(before: Plain, after: Plain, last: Plain, hashed: bool) -> None:
    following = ImageTree.of(before)
    for image in (after, last, before):
        if hashed:
            root_hash(following)
        known, wanted = dict(following), ImageTree.of(image)
        changed: dict[bytes, Directory | None] = dict.fromkeys(following.directories.keys() - wanted.directories.keys())
        changed |= {path: one for path, one in wanted.directories.items() if one.entries != following.names_in(path)}
        made = following.with_directories(wanted[b""], changed)
        assert following == known and root_hash(made) == root_hash(image)
        assert made == wanted and made.directories.keys() == wanted.directories.keys()
        assert diff(following, made) == diff(known, image)
        following = made


def test_a_diff_of_a_copied_directory_asks_what_was_written_and_finds_the_same() -> None:
    image = directory_of(300)
    tree, twin = ImageTree.of(image), ImageTree.of(image)
    assert twin == tree and tree.directories[b"d"].is_known_equal(twin.directories[b"d"])
    changes = (put_change(b"d/00003", file_entry(b"new")), delete_change(b"d/00004"), put_change(b"d/new", file_entry(b"new")))
    for base in (tree, twin):
        folded = fold_changes(base, changes)
        assert set(folded.directories[b"d"].list_differing(base.directories[b"d"])) == {b"00003", b"00004", b"new"}
        for before in (tree, twin):
            assert diff(before, folded) == changes and diff(folded, before) == diff(dict(folded), image)
        undone = fold_changes(folded, diff(folded, base))
        assert diff(base, undone) == () and diff(folded, undone) == diff(dict(folded), image)


def test_a_directory_that_lost_its_names_and_nothing_else_is_hashed_anew() -> None:
    image = directory_of(2) | {b"d/e": Entry("d", 0o755), b"d/e/f": file_entry(b"f")}
    tree = ImageTree.of(image)
    root_hash(tree)
    emptied = {path: entry for path, entry in image.items() if path != b"d/e/f"}
    for nothing in (None, Directory({})):
        made = tree.with_directories(image[b""], {b"d/e": nothing})
        assert made == emptied and root_hash(made) == root_hash(emptied)
        refilled = made.with_directories(image[b""], {b"d/e": tree.directories[b"d/e"]})
        assert refilled == image and root_hash(refilled) == root_hash(image)


@given(images, st.lists(st.one_of(
    st.sampled_from([b"a", b"b", b"a/b", b"a/a", b"b/a/b"]).map(delete_change),
    st.sampled_from([b"a", b"b", b"a/b", b"a/a"]).map(lambda path: put_change(path, file_entry(path))),
    st.sampled_from([b"a", b"b", b"a/b"]).map(lambda path: put_change(path, Entry("d", 0o755))),
), max_size=4))  # fmt: skip
def test_changes_that_fit_no_dictionary_fit_no_tree(image: Plain, changes: list[Change]) -> None:
    changes.sort(key=lambda change: change.path)
    try:
        wanted = fold_changes(image, changes)
    except CorruptError:
        with pytest.raises(CorruptError):
            fold_changes(ImageTree.of(image), changes)
        return
    folded = fold_changes(ImageTree.of(image), changes)
    assert folded == wanted and root_hash(folded) == root_hash(wanted)


@pytest.mark.parametrize("count", (255, 257, 4095, 4096, 4097))
def test_large_directories_are_hashed_alike_when_they_grow_and_shrink_over_a_bound(count: int) -> None:
    image = directory_of(count)
    tree = ImageTree.of(image)
    assert root_hash(tree) == root_hash(image)
    for changes in ([put_change(b"d/x", file_entry(b"x"))], [put_change(b"d/y", file_entry(b"y"))], [delete_change(b"d/00003")],
                    [delete_change(b"d/x"), delete_change(b"d/y")], [put_change(b"d/00004", Entry("d", 0o700))],
                    [put_change(b"d/00004/in", file_entry(b"in"))], [put_change(b"d/00004/in", file_entry(b"on"))]):  # fmt: skip
        image, tree = dict(fold_changes(image, changes)), fold_changes(tree, changes)
        assert root_hash(tree) == root_hash(image) == root_hash(ImageTree.of(image))


def test_only_the_directories_of_a_change_are_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    image: Plain = {b"": Entry("d", 0o755)}
    for number in range(50):
        image[b"%d" % number] = Entry("d", 0o755)
        image.update({b"%d/%d" % (number, name): file_entry(b"%d" % name) for name in range(20)})
    tree = ImageTree.of(image)
    root_hash(tree)
    encoded: list[bytes] = []
    plain = image_hash._encode_entry

    def encode(name: bytes, entry: Entry, below: bytes) -> bytes:
        encoded.append(name)
        return plain(name, entry, below)

    monkeypatch.setattr(image_hash, "_encode_entry", encode)
    root_hash(fold_changes(tree, [put_change(b"7/3", file_entry(b"new"))]))
    assert len(encoded) == 20 + 50
