"""Garbage collection takes what nobody needs, and nothing else."""

import pytest

from eventlog.codec import content_id
from eventlog.image import root_hash
from recovery.checkpoints.conformance.fixtures import FILES, LARGE, OWNER, make_image, read, take
from recovery.checkpoints.conformance.subject import Subject
from recovery.checkpoints.errors import CheckpointBusyError, CheckpointDamagedError

OTHER = "b" * 32
LATER = {**FILES, b"a": b"alpha 2", b"large": LARGE[1:]}


def test_what_is_kept_is_whole_after_a_collection_and_the_rest_is_gone(subject: Subject) -> None:
    old, new = take(subject.open()), take(subject.open(), LATER)
    before = subject.count()
    done = subject.open().collect(OWNER, [new], dry_run=False)
    assert done.manifests == (old,) and done.contents == before - subject.count() > 0 and done.bytes > 0
    assert subject.open().list_manifests(OWNER) == [new]
    for data in LATER.values():
        assert read(subject.open(), content_id(data)) == data
    assert subject.open().collect(OWNER, [new], dry_run=False) == type(done)((), 0, 0)


def test_a_dry_run_says_the_same_and_takes_nothing(subject: Subject) -> None:
    old, new = take(subject.open()), take(subject.open(), LATER)
    before = subject.count()
    said = subject.open().collect(OWNER, [new], dry_run=True)
    assert subject.count() == before and subject.open().list_manifests(OWNER) == sorted([old, new])
    assert subject.open().collect(OWNER, [new], dry_run=False) == said


def test_what_another_owner_needs_stays(subject: Subject) -> None:
    take(subject.open())
    theirs = take(subject.open(), {b"only": b"alpha", b"large": LARGE}, OTHER)
    subject.open().collect(OWNER, [], dry_run=False)
    assert subject.open().list_manifests(OWNER) == [] and subject.open().list_manifests(OTHER) == [theirs]
    assert read(subject.open(), content_id(b"alpha")) == b"alpha" and read(subject.open(), content_id(LARGE)) == LARGE
    with pytest.raises(CheckpointDamagedError):
        read(subject.open(), content_id(b"beta"))


def test_nothing_is_taken_while_somebody_writes(subject: Subject) -> None:
    with subject.open().writing() as writer:
        writer.put(content_id(b"x"), lambda: [b"x"])
        with pytest.raises(CheckpointBusyError):
            subject.open().collect(OWNER, [], dry_run=False)
        image = make_image({b"a": b"x"})
        manifest = writer.finish(OWNER, image, root_hash(image))
        with pytest.raises(CheckpointBusyError):
            subject.open().collect(OWNER, [], dry_run=False)  # it stands, and the commit that names it may not yet
    assert subject.open().list_manifests(OWNER) == [manifest] and read(subject.open(), content_id(b"x")) == b"x"


def test_a_dry_run_is_not_held_up_by_who_writes(subject: Subject) -> None:
    take(subject.open())
    with subject.open().writing() as writer:
        writer.put(content_id(b"x"), lambda: [b"x"])
        assert len(subject.open().collect(OWNER, [], dry_run=True).manifests) == 1


def test_contents_that_no_checkpoint_names_are_taken(subject: Subject) -> None:
    manifest = take(subject.open(), {b"a": b"x"})
    take(subject.open(), {b"b": b"y"})
    subject.open().collect(OWNER, [manifest], dry_run=False)
    assert subject.count() == 1


def test_nothing_is_taken_where_a_checkpoint_that_stays_cannot_be_read(subject: Subject) -> None:
    old, new = take(subject.open()), take(subject.open(), LATER)
    subject.spoil_manifest(OWNER, new)
    before = subject.count()
    with pytest.raises(CheckpointDamagedError):
        subject.open().collect(OWNER, [new], dry_run=False)
    assert subject.count() == before and old in subject.open().list_manifests(OWNER)
