"""Properties of diff, fold and root hash over drawn images."""

from random import Random

from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from eventlog.image import Entry, check_image, diff, encode_xattrs, fold_changes, is_identity_change, root_hash
from tests.trees.generate import Tree, trees


def to_image(tree: Tree) -> dict[bytes, Entry]:
    """The image that a scan of the tree would give, worked out from the data alone."""
    names: dict[bytes, list[bytes]] = {path: [path] for path, node in tree.items() if node.kind in "flp"}
    for path, node in tree.items():
        if node.kind == "h":
            names[node.content].append(path)
    image: dict[bytes, Entry] = {}
    for path, node in tree.items():
        xattrs = None if node.attribute is None else encode_xattrs([(b"user.test", node.attribute)])
        if node.kind == "d":
            image[path] = Entry("d", node.mode, xattrs=xattrs, mtime_ns=node.tick)
    for path, group in names.items():
        node = tree[path]
        xattrs = None if node.attribute is None else encode_xattrs([(b"user.test", node.attribute)])
        link = min(group) if len(group) > 1 else None
        match node.kind:
            case "l":
                entry = Entry("l", 0o777, target=node.content, link=link, mtime_ns=node.tick)
            case "p":
                entry = Entry("p", node.mode, link=link, mtime_ns=node.tick)
            case _:
                content = blake3(node.content).digest()
                entry = Entry("f", node.mode, content, len(node.content), link=link, xattrs=xattrs, mtime_ns=node.tick)
        image.update(dict.fromkeys(group, entry))
    return image


images = trees().map(to_image)


@given(images, images)
def test_folding_a_diff_gives_the_image_after(before: dict[bytes, Entry], after: dict[bytes, Entry]) -> None:
    check_image(before)
    changes = diff(before, after)
    assert fold_changes(before, changes) == after
    assert [change.path for change in changes] == sorted({change.path for change in changes})
    assert fold_changes({}, diff({}, after)) == after


@given(images, images)
def test_the_root_hash_differs_exactly_when_identity_does(before: dict[bytes, Entry], after: dict[bytes, Entry]) -> None:
    assert is_identity_change(diff(before, after)) == (root_hash(before) != root_hash(after))


@given(images, st.randoms())
def test_the_root_hash_does_not_depend_on_order(image: dict[bytes, Entry], random: Random) -> None:
    items = list(image.items())
    random.shuffle(items)
    assert root_hash(dict(items)) == root_hash(image)
