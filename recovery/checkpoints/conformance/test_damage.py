"""Damage is told, never handed out (I9)."""

import pytest

from eventlog.codec import content_id
from recovery.checkpoints.conformance.fixtures import FILES, LARGE, OWNER, read, take
from recovery.checkpoints.conformance.subject import Subject
from recovery.checkpoints.errors import CheckpointDamagedError
from recovery.checkpoints.port import check_contents


def test_a_sound_checkpoint_is_found_sound(subject: Subject) -> None:
    manifest = take(subject.open())
    found = subject.open().load(OWNER, manifest)
    check_contents(subject.open(), found, found.image)


def test_a_spoiled_manifest_is_named_and_its_whole_image_is_lost(subject: Subject) -> None:
    manifest = take(subject.open())
    subject.spoil_manifest(OWNER, manifest)
    with pytest.raises(CheckpointDamagedError, match="the whole image") as caught:
        subject.open().load(OWNER, manifest)
    assert (caught.value.manifest, caught.value.path) == (manifest, None)


@pytest.mark.parametrize("path", [b"d/b", b"large"])
def test_a_spoiled_content_is_told_with_checkpoint_and_path(subject: Subject, path: bytes) -> None:
    manifest = take(subject.open())
    subject.spoil(content_id(FILES[path]))
    found = subject.open().load(OWNER, manifest)
    with pytest.raises(CheckpointDamagedError) as caught:
        check_contents(subject.open(), found, found.image)
    assert (caught.value.manifest, caught.value.path) == (manifest, path)
    with pytest.raises(CheckpointDamagedError):
        read(subject.open(), content_id(FILES[path]))


@pytest.mark.parametrize("path", [b"d/b", b"large"])
def test_rule_C7_a_spoiled_content_that_is_put_again_is_whole_in_the_next_checkpoint(subject: Subject, path: bytes) -> None:
    take(subject.open())
    subject.spoil(content_id(FILES[path]))
    again = take(subject.open())
    found = subject.open().load(OWNER, again)
    check_contents(subject.open(), found, found.image)


@pytest.mark.parametrize("data", [b"alpha", LARGE], ids=["small", "large"])
def test_a_lost_content_is_told(subject: Subject, data: bytes) -> None:
    manifest = take(subject.open())
    subject.lose(content_id(data))
    found = subject.open().load(OWNER, manifest)
    with pytest.raises(CheckpointDamagedError, match="missing") as caught:
        check_contents(subject.open(), found, found.image)
    assert caught.value.manifest == manifest


def test_a_checkpoint_that_was_never_taken_is_missing(subject: Subject) -> None:
    take(subject.open())
    with pytest.raises(CheckpointDamagedError, match="missing"):
        subject.open().load(OWNER, "0" * 64)
