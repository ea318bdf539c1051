"""A manifest is believed in nothing: what does not fit its name, its root or its own form is damage."""

import struct

import pytest
from blake3 import blake3

from eventlog import codec
from eventlog.errors import CorruptError
from eventlog.image import Entry, encode_change, put_change, root_hash
from recovery.checkpoints.manifest import MAGIC, decode_manifest, encode_manifest

IMAGE = {
    b"": Entry("d", 0o755, mtime_ns=1), b"a": Entry("f", 0o644, b"c" * 32, 3, mtime_ns=-5), b"caf\xe9": Entry("l", 0o777, target=b"a"),
}  # fmt: skip
LINES = ("*.o", "caf\udce9/")


def sealed(data: bytes) -> tuple[bytes, str]:
    """A manifest with the name that it should have."""
    return data, blake3(data).hexdigest()


def rows(*paths: bytes) -> bytes:
    return b"".join(codec.sized(encode_change(put_change(path, IMAGE[path]))) for path in paths)


def head(root: bytes, count: int) -> bytes:
    return MAGIC + root + struct.pack(">I", 0) + struct.pack(">Q", count)


def test_a_manifest_comes_out_as_it_went_in_and_has_the_form_of_the_readme() -> None:
    data, name = sealed(b"".join(encode_manifest(IMAGE, root_hash(IMAGE, LINES), LINES)))
    found = decode_manifest(data, name)
    assert (found.image, found.excludes, found.root) == (IMAGE, LINES, root_hash(IMAGE, LINES).hex())
    plain = b"".join(encode_manifest(IMAGE, root_hash(IMAGE)))
    assert plain == head(root_hash(IMAGE), 3) + rows(b"", b"a", b"caf\xe9")


DAMAGE = {
    "another name": ((head(root_hash(IMAGE), 3) + rows(b"", b"a", b"caf\xe9"), "0" * 64), "do not hash to its name"),
    "another root": (sealed(head(b"r" * 32, 3) + rows(b"", b"a", b"caf\xe9")), "do not make up the image"),
    "a path less": (sealed(head(root_hash(IMAGE), 2) + rows(b"", b"a")), "do not make up the image"),
    "out of order": (sealed(head(root_hash(IMAGE), 3) + rows(b"", b"caf\xe9", b"a")), "not in order"),
    "a path twice": (sealed(head(root_hash(IMAGE), 3) + rows(b"", b"a", b"a")), "not in order"),
    "cut short": (sealed((head(root_hash(IMAGE), 3) + rows(b"", b"a", b"caf\xe9"))[:-1]), "ends inside a field"),
    "more than it states": (sealed(head(root_hash(IMAGE), 2) + rows(b"", b"a", b"caf\xe9")), "too many"),
    "more paths stated than there are bytes": (sealed(head(root_hash(IMAGE), 1 << 60) + rows(b"")), "ends inside a field"),
    "no manifest": (sealed(b"x" * 100), "no manifest"),
    "too many lines": (sealed(MAGIC + bytes(32) + b"\xff" * 4), "exclude lines"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_no_manifest_of_this_name_is_damage(case: str) -> None:
    (data, name), found = DAMAGE[case]
    with pytest.raises(CorruptError, match=found):
        decode_manifest(data, name)
