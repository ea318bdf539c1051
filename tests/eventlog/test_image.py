"""The image: its digests, its fold and diff, its validity. The reference below is written from eventlog/README alone."""

import struct

import pytest
from blake3 import blake3
from msgspec.structs import replace

from eventlog.errors import CorruptError
from eventlog.image import (
    Change,
    Entry,
    changes_digest,
    check_image,
    decode_xattrs,
    delete_change,
    diff,
    encode_xattrs,
    fold_changes,
    is_identity_change,
    put_change,
    root_hash,
    times_change,
)
from eventlog.show import show_path

ROOT = Entry("d", 0o755, mtime_ns=1)
HELLO = Entry("f", 0o644, blake3(b"hello").digest(), 5, mtime_ns=2)
LINK = Entry("l", 0o777, target=b"a", mtime_ns=3)
PIPE = Entry("p", 0o600, mtime_ns=4)
PAIRS = encode_xattrs([(b"user.b", b""), (b"user.a", b"\0x")])


def h(data: bytes) -> bytes:
    return blake3(data).digest()


def b(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def opt(data: bytes | None) -> bytes:
    return b"\0" if data is None else b"\1" + b(data)


def xattrs_digest(entry: Entry) -> bytes:
    return b"\0" if entry.xattrs is None else b"\1" + struct.pack(">I", 32) + h(b"crashworthy xattrs 1\0" + entry.xattrs)


def reference_entry(image: dict[bytes, Entry], path: bytes) -> bytes:
    entry = image[path]
    body = {"f": (entry.content or b"") + struct.pack(">Q", entry.size), "l": b(entry.target or b""), "p": b""}.get(entry.kind)
    if body is None:
        body = reference_directory(image, path)
    name = path.split(b"/")[-1]
    return b(name) + entry.kind.encode() + struct.pack(">H", entry.mode) + body + opt(entry.link) + xattrs_digest(entry) + b"\0\0"


def reference_directory(image: dict[bytes, Entry], path: bytes) -> bytes:
    depth = path.count(b"/") + 1 if path else 0
    prefix = path + b"/" if path else b""
    below = [one for one in image if one and one.startswith(prefix) and one.count(b"/") == depth]
    below.sort(key=lambda one: one.split(b"/")[-1])
    count = struct.pack(">Q", len(below))
    if len(below) <= 4096:
        return h(b"crashworthy directory 1\0" + count + b"".join(reference_entry(image, one) for one in below))
    whole = b"crashworthy buckets 1\0" + count
    for index in range(256):
        chosen = [one for one in below if h(one.split(b"/")[-1])[0] == index]
        entries = b"".join(reference_entry(image, one) for one in chosen)
        whole += h(b"crashworthy bucket 1\0" + struct.pack(">Q", len(chosen)) + entries)
    return h(whole)


def reference_root(image: dict[bytes, Entry]) -> bytes:
    root = image[b""]
    head = b"crashworthy image 1\0" + struct.pack(">H", root.mode) + xattrs_digest(root) + b"\0\0" + b"\0"
    return h(head + reference_directory(image, b""))


def sample() -> dict[bytes, Entry]:
    linked = replace(HELLO, link=b"d/one", xattrs=PAIRS)
    return {
        b"": replace(ROOT, xattrs=PAIRS),
        b"a": HELLO,
        b"a-b": replace(HELLO, mode=0o4755),
        b"d": replace(ROOT, mode=0o2775),
        b"d/one": linked,
        b"d/two": linked,
        b"d/e": ROOT,
        b"l\xff\n": LINK,
        b"p": PIPE,
    }


def test_root_hash_equals_the_reference_of_the_format_page() -> None:
    check_image(sample())
    assert root_hash(sample()) == reference_root(sample())


@pytest.mark.parametrize("count", [4095, 4096, 4097])
def test_root_hash_of_a_wide_directory_switches_to_buckets_above_4096_entries(count: int) -> None:
    image = {b"": ROOT, **{b"%d" % number: HELLO for number in range(count)}}
    assert root_hash(image) == reference_root(image)


def test_root_hash_of_thousands_of_levels_does_not_recurse() -> None:
    image = {b"": ROOT}
    path = b""
    for _ in range(3000):
        path = path + b"/d" if path else b"d"
        image[path] = ROOT
    check_image(image)
    deeper = {**image, path + b"/f": HELLO}
    assert root_hash(image) != root_hash(deeper)


def test_root_hash_is_the_same_whatever_the_order_of_the_mapping() -> None:
    turned = dict(sorted(sample().items(), reverse=True))
    assert root_hash(turned) == root_hash(sample())


def test_root_hash_ignores_times_and_counts_everything_else() -> None:
    image = sample()
    name = root_hash(image)
    for path, entry in image.items():
        assert root_hash({**image, path: replace(entry, mtime_ns=99)}) == name
        if entry.kind != "l":
            assert root_hash({**image, path: replace(entry, mode=entry.mode ^ 0o1)}) != name
    assert root_hash({**image, b"a": replace(HELLO, xattrs=PAIRS)}) != name
    assert root_hash({**image, b"a": replace(HELLO, size=6)}) != name
    assert root_hash({**image, b"a": replace(HELLO, link=b"a")}) != name
    assert root_hash({**image, b"l\xff\n": replace(LINK, target=b"b")}) != name
    assert root_hash({**image, b"": replace(image[b""], xattrs=None)}) != name


def test_changes_digest_equals_the_reference_of_the_format_page() -> None:
    nothing = b"\0"
    put = b(b"a") + b(b"put") + b(b"f") + struct.pack(">H", 0o644) + opt(HELLO.content) + struct.pack(">Q", 5)
    put += nothing + opt(b"a") + opt(PAIRS) + nothing * 2 + struct.pack(">q", 2)
    gone = b(b"b") + b(b"del") + b(b"") + struct.pack(">H", 0) + nothing + struct.pack(">Q", 0) + nothing * 5 + struct.pack(">q", 0)
    times = b(b"c") + b(b"times") + b(b"") + struct.pack(">H", 0) + nothing + struct.pack(">Q", 0) + nothing * 5
    times += struct.pack(">q", -7)
    changes = (put_change(b"a", replace(HELLO, link=b"a", xattrs=PAIRS)), delete_change(b"b"), times_change(b"c", -7))
    assert changes_digest(changes) == h(b"crashworthy changes 1\0" + put + gone + times)
    assert changes_digest(()) == h(b"crashworthy changes 1\0")


def test_diff_names_each_differing_path_once_in_byte_order() -> None:
    before = sample()
    after = {**before, b"a": LINK, b"p": replace(PIPE, mtime_ns=9), b"z": HELLO}
    del after[b"d/e"]
    assert diff(before, after) == (put_change(b"a", LINK), delete_change(b"d/e"), times_change(b"p", 9), put_change(b"z", HELLO))
    assert diff(before, before) == ()


def test_is_identity_change_is_false_for_times_alone() -> None:
    assert not is_identity_change((times_change(b"", 5),))
    assert is_identity_change((times_change(b"", 5), delete_change(b"a")))
    assert not is_identity_change(())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ((delete_change(b"nowhere"),), "not in the image"),
        ((times_change(b"nowhere", 1),), "not in the image"),
        ((put_change(b"a/below", HELLO),), "parent is not a directory"),
        ((put_change(b"x/below", HELLO),), "parent is not a directory"),
        ((delete_change(b"d"),), "left without its directory"),
        ((put_change(b"d", HELLO),), "left without its directory"),
        ((put_change(b"z", HELLO), put_change(b"b", HELLO)), "byte order"),
        ((put_change(b"z", HELLO), put_change(b"z", HELLO)), "byte order"),
        ((delete_change(b""),), "root"),
        ((put_change(b"", HELLO),), "root is not a directory"),
        ((put_change(b"d/../x", HELLO),), "not a path"),
        ((put_change(b"/x", HELLO),), "not a path"),
        ((put_change(b"d//x", HELLO),), "not a path"),
        ((put_change(b"x\0", HELLO),), "not a path"),
        ((put_change(b"x", replace(HELLO, content=b"short")),), "content"),
        ((Change(b"x", "put"),), "without an entry"),
        ((Change(b"a", "del", HELLO),), "carries an entry"),
    ],
)
def test_fold_refuses_changes_that_do_not_fit_the_image(changes: tuple[Change, ...], word: str) -> None:
    image = sample()
    with pytest.raises(CorruptError, match=word):
        fold_changes(image, changes)
    assert image == sample()


def test_fold_takes_a_directory_that_becomes_a_file_with_all_below_it_deleted() -> None:
    before = sample()
    after = {path: entry for path, entry in before.items() if not path.startswith(b"d/")} | {b"d": HELLO}
    assert fold_changes(before, diff(before, after)) == after


@pytest.mark.parametrize(
    "entry",
    [
        replace(HELLO, kind="x"),  # type: ignore[arg-type]
        replace(HELLO, mode=0o10000),
        replace(HELLO, target=b"t"),
        replace(HELLO, size=-1),
        replace(HELLO, xattrs=b"\0\0"),
        replace(HELLO, xattrs=encode_xattrs([(b"security.capability", b"x")])),
        replace(HELLO, xattrs=encode_xattrs([(b"user.a\0b", b"x")])),
        replace(HELLO, xattrs=encode_xattrs([(b"user.crashworthy.root", b"x")])),
        replace(HELLO, xattrs=encode_xattrs([(b"user.", b"x")])),
        replace(HELLO, xattrs=encode_xattrs([(b"user.a", bytes(65537))])),
        replace(LINK, target=b"x" * 4096),
        replace(HELLO, mtime_ns=1 << 63),
        replace(ROOT, content=bytes(32)),
        replace(ROOT, target=b"t"),
        replace(LINK, target=None),
        replace(LINK, target=b""),
        replace(LINK, mode=0o644),
        replace(PIPE, size=1),
        replace(ROOT, link=b"x"),
    ],
)
def test_check_image_refuses_an_entry_whose_columns_do_not_fit_its_kind(entry: Entry) -> None:
    with pytest.raises(CorruptError):
        check_image({b"": ROOT, b"x": entry})


@pytest.mark.parametrize(
    "image",
    [
        {},
        {b"": HELLO},
        {b"": ROOT, b"a/b": HELLO},
        {b"": ROOT, b"a": HELLO, b"a/b": HELLO},
        {b"": ROOT, b"a": replace(HELLO, link=b"a")},
        {b"": ROOT, b"a": replace(HELLO, link=b"b"), b"b": replace(HELLO, link=b"b")},
        {b"": ROOT, b"a": HELLO, b"b": replace(HELLO, link=b"a")},
        {b"": ROOT, b"a": replace(HELLO, link=b"a"), b"b": replace(HELLO, link=b"a", mode=0o600)},
        {b"": ROOT, b"a": replace(ROOT, link=b"a"), b"b": replace(ROOT, link=b"a")},
        {b"": ROOT, b"a": replace(HELLO, link=b"a"), b"b": Entry("p", 0o644, link=b"a")},
    ],
)
def test_check_image_refuses_what_is_not_whole(image: dict[bytes, Entry]) -> None:
    with pytest.raises(CorruptError):
        check_image(image)


def test_xattrs_are_sorted_and_come_back() -> None:
    assert decode_xattrs(PAIRS) == ((b"user.a", b"\0x"), (b"user.b", b""))
    assert encode_xattrs([]) is None
    assert decode_xattrs(None) == ()


@pytest.mark.parametrize("cut", range(1, 27))
def test_a_cut_encoding_of_xattrs_is_damage(cut: int) -> None:
    assert PAIRS is not None
    whole = b(b"user.a") + b(b"\0x") + b(b"user.b") + b(b"")
    assert whole == PAIRS
    if cut != len(b(b"user.a") + b(b"\0x")):
        with pytest.raises(CorruptError):
            decode_xattrs(PAIRS[:cut])


def test_xattrs_out_of_order_are_damage() -> None:
    with pytest.raises(CorruptError):
        decode_xattrs(b(b"user.b") + b(b"") + b(b"user.a") + b(b""))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"", "."),
        (b"plain/\xc3\xa9", "plain/\u00e9"),
        (b"caf\xe9", "caf\\xe9"),
        (b"a\nb\x1b[2J\x7f", "a\\x0ab\\x1b[2J\\x7f"),
        (b"a\\n", "a\\\\n"),
        (b"\xe2\x80\xaetxt.exe", "\\xe2\\x80\\xaetxt.exe"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
    ],
)
def test_case_04_shown_paths_hold_no_control_byte_and_stay_reversible(path: bytes, shown: str) -> None:
    assert show_path(path) == shown
