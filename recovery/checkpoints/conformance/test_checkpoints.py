"""A checkpoint is there whole or not at all, under the name of its manifest, and comes out as it went in."""

from collections.abc import Iterator

import pytest

from eventlog.codec import content_id
from eventlog.errors import ScanError
from eventlog.image import root_hash
from eventlog.values import CHUNK_BYTES
from recovery.checkpoints.conformance.fixtures import FILES, LARGE, OWNER, make_image, read, take
from recovery.checkpoints.conformance.subject import Subject
from recovery.checkpoints.errors import CheckpointDamagedError
from recovery.checkpoints.manifest import encode_manifest


def test_what_went_in_comes_out(subject: Subject) -> None:
    manifest = take(subject.open())
    found = subject.open().load(OWNER, manifest)
    assert found.image == make_image(FILES) and found.manifest == manifest and found.root == root_hash(make_image(FILES)).hex()
    for data in FILES.values():
        assert read(subject.open(), content_id(data)) == data


def test_a_checkpoint_is_named_by_the_digest_of_its_manifest(subject: Subject) -> None:
    image = make_image(FILES)
    assert take(subject.open()) == content_id(b"".join(encode_manifest(image, root_hash(image)))).hex()


def test_the_excludes_of_a_session_are_part_of_its_checkpoints(subject: Subject) -> None:
    lines = ("*.o", "caf\udce9/")
    manifest = take(subject.open(), excludes=lines)
    found = subject.open().load(OWNER, manifest)
    assert found.excludes == lines and found.root == root_hash(make_image(FILES), lines).hex()
    assert manifest != take(subject.open())


def test_the_same_image_again_is_the_same_checkpoint_and_stores_nothing(subject: Subject) -> None:
    first = take(subject.open())
    count = subject.count()
    assert take(subject.open()) == first and subject.count() == count
    assert subject.open().list_manifests(OWNER) == [first]


def test_a_content_is_stored_once_whoever_puts_it_how_often(subject: Subject) -> None:
    store = subject.open()
    with store.writing() as one, store.writing() as other:
        assert one.put(content_id(b"x"), lambda: [b"x"]) and not one.put(content_id(b"x"), lambda: [b"x"])
        image = make_image({b"a": b"x"})
        other.put(content_id(b"x"), lambda: [b"x"])
        names = {writer.finish(OWNER, image, root_hash(image)) for writer in (one, other)}
    assert len(names) == 1 and subject.count() == 1
    with store.writing() as third:
        assert not third.put(content_id(b"x"), lambda: pytest.fail("what is there is not read again"))


def test_a_large_content_is_held_a_few_pieces_at_a_time_on_its_way_in_and_out(subject: Subject) -> None:
    asked: list[int] = []

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(LARGE), 1 << 16):
            asked.append(start)
            yield LARGE[start : start + (1 << 16)]

    with subject.open().writing() as writer:
        writer.put(content_id(LARGE), pieces)
        image = make_image({b"large": LARGE})
        writer.finish(OWNER, image, root_hash(image))
    assert len(asked) == len(LARGE) >> 16
    sizes = [len(piece) for piece in subject.open().content(content_id(LARGE))]
    assert sum(sizes) == len(LARGE) and max(sizes) <= CHUNK_BYTES and len(sizes) > 1


def test_what_is_not_finished_is_no_checkpoint(subject: Subject) -> None:
    with subject.open().writing() as writer:
        writer.put(content_id(b"x"), lambda: [b"x"])
    assert subject.open().list_manifests(OWNER) == []
    with pytest.raises(CheckpointDamagedError, match="missing"):
        read(subject.open(), content_id(b"x"))


def test_a_content_whose_bytes_turn_out_to_be_others_is_not_stored(subject: Subject) -> None:
    def changed() -> Iterator[bytes]:
        yield b"hal"
        raise ScanError("a changed since it was scanned")

    store = subject.open()
    with pytest.raises(ScanError), store.writing() as writer:
        writer.put(content_id(b"half"), changed)
    with store.writing() as writer:
        assert writer.put(content_id(b"half"), lambda: [b"half"])


def test_a_checkpoint_is_not_finished_without_a_content_of_its_image(subject: Subject) -> None:
    image = make_image({b"a": b"x"})
    with subject.open().writing() as writer, pytest.raises(CheckpointDamagedError):
        writer.finish(OWNER, image, root_hash(image))
    assert subject.open().list_manifests(OWNER) == []


def test_owners_do_not_see_each_others_manifests(subject: Subject) -> None:
    manifest = take(subject.open())
    assert subject.open().list_manifests("b" * 32) == [] and not subject.open().has_manifest("b" * 32, manifest)
    assert subject.open().has_manifest(OWNER, manifest)
    with pytest.raises(CheckpointDamagedError, match="missing"):
        subject.open().load("b" * 32, manifest)
