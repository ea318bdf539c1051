"""Owner, ACL and excludes in the format: rows, changes of a bundle, names of images, what no entry may hold."""

import struct

import pytest
from msgspec.structs import replace

from eventlog.bundle_format import decode_change
from eventlog.differences import find_differences
from eventlog.errors import CorruptError
from eventlog.image import Entry, check_entry, diff, encode_change, encode_xattrs, fold_changes, put_change, root_hash
from eventlog.image_rows import change_from_row, change_to_row
from eventlog.image_values import ACL_ACCESS, ACL_DEFAULT, OWNER_MAX

ACCESS = struct.pack("<IHHI", 2, 1, 7, 0xFFFFFFFF)
ACL = encode_xattrs([(ACL_ACCESS, ACCESS)])
DEFAULT = encode_xattrs([(ACL_DEFAULT, ACCESS)])
FILE = Entry("f", 0o644, bytes(32), 3, mtime_ns=5)
ROOT = Entry("d", 0o755, mtime_ns=1)
OWNED = replace(FILE, owner=(12, OWNER_MAX), acl=ACL)


def test_owner_and_acl_come_back_from_a_row_and_from_a_bundle() -> None:
    change = put_change(b"a", OWNED)
    assert change_from_row(change_to_row(change), "here") == change
    assert decode_change(encode_change(change), "here") == change
    folded = fold_changes({b"": ROOT}, [change])
    assert folded[b"a"] == OWNED and diff({b"": ROOT, b"a": FILE}, folded) == (change,)


def test_images_that_differ_in_owner_acl_or_excludes_have_different_names() -> None:
    entries = (FILE, replace(FILE, owner=(0, 0)), replace(FILE, owner=(0, 1)), replace(FILE, acl=ACL))
    images = [{b"": ROOT, b"a": entry} for entry in entries]
    names = [root_hash(image) for image in images]
    names += [root_hash(images[0], excludes) for excludes in (("a", "b"), ("b", "a"), ("ab",), ("a",), ("a", ""))]
    assert len(set(names)) == len(names)
    assert root_hash(images[0], ()) == names[0]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (replace(FILE, owner=(-1, 0)), "owner"),
        (replace(FILE, owner=(0, OWNER_MAX + 1)), "owner"),
        (Entry("l", 0o777, target=b"t", acl=ACL), "symlink"),
        (replace(FILE, acl=DEFAULT), "kind does not have"),
        (replace(FILE, acl=encode_xattrs([(b"user.a", ACCESS)])), "kind does not have"),
        (replace(FILE, acl=encode_xattrs([(ACL_ACCESS, ACCESS[:-1])])), "form"),
        (replace(FILE, acl=encode_xattrs([(ACL_ACCESS, b"\3" + ACCESS[1:])])), "form"),
        (replace(FILE, acl=b"\0\0"), "length"),
    ],
)
def test_an_owner_or_acl_that_linux_does_not_take_is_in_no_image(entry: Entry, problem: str) -> None:
    check_entry(b"a", OWNED)
    check_entry(b"d", replace(ROOT, acl=DEFAULT))
    with pytest.raises(CorruptError, match=problem):
        check_entry(b"a", entry)


def test_a_difference_says_owner_and_acl() -> None:
    (found,) = find_differences({b"": ROOT, b"a": FILE}, {b"": ROOT, b"a": OWNED})
    assert set(found.aspects) == {"owner", "acl"}
