"""What each test of the suite is given: a new store, and images to put into it."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from eventlog.codec import content_id
from eventlog.image import Entry, root_hash
from eventlog.values import ContentId
from recovery.checkpoints.conformance.subject import DEFAULT, Subject, find_subject
from recovery.checkpoints.port import CheckpointStore

OWNER = "a" * 32
LARGE = os.urandom(3 << 20)
"""More than a chunk, and nothing that packs."""
FILES: Mapping[bytes, bytes] = {b"a": b"alpha", b"d/b": b"beta", b"d/same": b"alpha", b"large": LARGE, b"empty": b""}


@pytest.fixture
def subject_name(request: pytest.FixtureRequest) -> str:
    """`module:factory` of the store under test; whoever imports the tests overrides it."""
    return str(request.config.getoption("--checkpoints", default="")) or DEFAULT


@pytest.fixture
def subject(subject_name: str, tmp_path: Path) -> Subject:
    """The store under test, with nothing in it."""
    return find_subject(subject_name)(tmp_path)


def make_image(files: Mapping[bytes, bytes]) -> dict[bytes, Entry]:
    """An image of files by path, with the directories above them."""
    image = {b"": Entry("d", 0o755, mtime_ns=1)}
    for path, data in files.items():
        above = path.rpartition(b"/")[0]
        if above:
            image[above] = Entry("d", 0o700, mtime_ns=2)
        image[path] = Entry("f", 0o644, content_id(data), len(data), mtime_ns=3)
    return image


def take(store: CheckpointStore, files: Mapping[bytes, bytes] = FILES, owner: str = OWNER, excludes: tuple[str, ...] = ()) -> str:
    """One checkpoint; its name."""
    image = make_image(files)
    with store.writing() as writer:
        for data in files.values():
            writer.put(content_id(data), lambda data=data: [data])  # type: ignore[misc]
        return writer.finish(owner, image, root_hash(image, excludes), excludes)


def read(store: CheckpointStore, content: ContentId) -> bytes:
    """A whole content."""
    return b"".join(store.content(content))
