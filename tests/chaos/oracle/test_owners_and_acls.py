"""Owners and ACLs in the oracle's eyes: what differs in one of them alone differs, and none stands where it is not tracked."""

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from chaos.oracle.chain import track_defects
from chaos.oracle.differences import describe, entry_of, first_difference
from chaos.oracle.encoding import encode_pairs
from chaos.oracle.tree import list_tree
from chaos.oracle.values import Change, Event, Stream

FILE = Change(b"f", "put", "f", 0o640, b"c" * 32, 1, None, None, None, 12345, 54321, b"an acl", 0)
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, 1000 if tag == 2 else 0xFFFFFFFF)
    for tag, permissions in ((1, 6), (2, 4), (4, 4), (16, 6), (32, 0))
)


@pytest.mark.parametrize("other", [{"uid": 1}, {"gid": 1}, {"acl": b"another"}, {"acl": None}, {"uid": None, "gid": None}])
def test_entries_that_differ_in_owner_or_acl_alone_differ(other: dict[str, Any]) -> None:
    one, two = entry_of(FILE), entry_of(replace(FILE, **other))
    assert first_difference({b"f": one}, {b"f": two}) == b"f"
    assert describe(one) != describe(two)


def test_an_entry_of_an_image_is_that_of_the_file_with_its_owner_and_acl(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files to others needs root")
    path = tmp_path / "f"
    path.write_bytes(b"x")
    os.chown(path, 12345, 54321)
    try:
        os.setxattr(path, "system.posix_acl_access", ACL)
    except OSError as error:
        pytest.skip(f"no ACLs to be set here: {error.strerror}")
    kept = os.getxattr(path, "system.posix_acl_access")
    found = list_tree(os.fsencode(tmp_path))[b"f"]
    image = entry_of(replace(FILE, acl=encode_pairs([(b"system.posix_acl_access", kept)])))
    assert (found.owner, found.acl) == (image.owner, image.acl) and found.acl is not None
    os.chown(path, 12345, 1)
    assert list_tree(os.fsencode(tmp_path))[b"f"].owner == (12345, 1)
    os.removexattr(path, "system.posix_acl_access")
    assert list_tree(os.fsencode(tmp_path))[b"f"].acl is None


NO_OWNER = {"uid": None, "gid": None}


@pytest.mark.parametrize(
    ("track", "other", "said"),
    [
        (["owners", "acls"], {}, []),
        (["owners", "acls"], {"acl": None}, []),
        ([], NO_OWNER | {"acl": None}, []),
        (["acls"], NO_OWNER, []),
        (["acls"], {}, ["an owner"]),
        (["owners"], NO_OWNER | {"acl": None}, ["no owner"]),
        (["owners"], {}, ["an ACL where none may be"]),
        (["owners", "acls"], {"kind": "l"}, ["an ACL where none may be"]),
    ],
)
def test_owners_and_acls_stand_where_they_are_tracked_and_nowhere_else(track: list[str], other: dict[str, Any], said: list[str]) -> None:
    event = Event("s", 1, b"i" * 16, 1, "session_opened", 1, b"", {"track": track}, b"", b"", (replace(FILE, **other),))
    stream = Stream("s", 1, 1, b"", (event,), cast(Any, None), True)
    found = list(track_defects(stream))
    assert len(found) == len(said) and all(words in str(one) for words, one in zip(said, found, strict=True))
