"""What a checkpoint store is: copies of images outside the log, content-addressed, each named by the digest of its manifest.

What must hold, and the suite checks (recovery.checkpoints.conformance):

- A checkpoint is there whole or not at all: its manifest gets its name last, when every content is durable under its own.
- Nothing that comes out is believed: a manifest is compared with its name and its image with its root, a content with its name, before
  the caller has the last of it. Damage is a CheckpointDamagedError, never an absent file or other bytes.
- Many writers may put at once, also the same content. What is there is not stored twice.
- Manifests belong to an owner (the log id of a session); contents belong to all. Garbage collection takes manifests of one owner that
  are not kept, and contents that no manifest of any owner needs. While anybody writes it takes nothing: a writer holds the store from
  its first content to the commit that names its checkpoint.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from eventlog.image import Image
from eventlog.values import ContentId
from recovery.checkpoints.errors import CheckpointDamagedError
from recovery.checkpoints.manifest import Checkpoint

Pieces = Callable[[], Iterable[bytes]]
"""Yields the bytes of a content in pieces; raises in the end when they are not those of its name (`read_verified`)."""


class Collected(msgspec.Struct, frozen=True):
    """What a garbage collection removed, or would remove: manifests of the owner (hex), contents, and bytes as they were stored."""

    manifests: tuple[str, ...]
    contents: int
    bytes: int


class CheckpointWriter(Protocol):
    """One checkpoint in the making. Until `finish` has returned nothing of it counts."""

    def put(self, content: ContentId, pieces: Pieces) -> bool:
        """Store a content unless it is there (or was put before by this writer); whether it was new. A few chunks are held at a time.

        Raises what `pieces` raises, and FullError.
        """
        ...

    def finish(self, owner: str, image: Image, root: bytes, excludes: Sequence[str] = ()) -> str:
        """Make everything durable, the manifest last; its name (hex). Finishing the same image again gives the same name.

        Raises CheckpointDamagedError when a content of the image was neither put nor is there, FullError.
        """
        ...


class CheckpointStore(Protocol):
    """A store. `name` is for messages."""

    name: str

    def writing(self) -> AbstractContextManager[CheckpointWriter]:
        """Hold the store for writing. What has not been finished when it is let go may be collected. Raises CheckpointBusyError."""
        ...

    def load(self, owner: str, manifest: str) -> Checkpoint:
        """The checkpoint, proved; its contents are not looked at. Raises CheckpointDamagedError, also when it is missing."""
        ...

    def has_manifest(self, owner: str, manifest: str) -> bool:
        """Whether a manifest of this name is there, unproved."""
        ...

    def content(self, content: ContentId) -> Iterator[bytes]:
        """A whole content in pieces of at most 1 MiB, each proved; nothing may be used before the iterator has ended.

        Raises CheckpointDamagedError, also when it is missing.
        """
        ...

    def list_manifests(self, owner: str) -> list[str]:
        """Names (hex) of the manifests of an owner, sorted; nothing of them is proved."""
        ...

    def collect(self, owner: str, kept: Iterable[str], *, dry_run: bool) -> Collected:
        """Remove the owner's manifests that are not in `kept`, then every content that no manifest of any owner needs. A dry run holds
        up no writer, and none holds it up: what is being written meanwhile may be in its answer.

        Raises CheckpointBusyError, and CheckpointDamagedError when a manifest that stays cannot be read: then nothing is removed, because
        nobody knows what it needs.
        """
        ...


def check_contents(store: CheckpointStore, checkpoint: Checkpoint, wanted: Iterable[bytes]) -> None:
    """Read and prove the contents of these paths of a checkpoint, each content once. Raises CheckpointDamagedError naming the path."""
    proved: set[bytes] = set()
    for path in wanted:
        entry = checkpoint.image[path]
        if entry.content is None or entry.content in proved:
            continue
        try:
            size = sum(len(piece) for piece in store.content(ContentId(entry.content)))
        except CheckpointDamagedError as error:
            raise CheckpointDamagedError(store.name, checkpoint.manifest, path, error.what) from error
        if size != entry.size:
            raise CheckpointDamagedError(store.name, checkpoint.manifest, path, f"{size} bytes where {entry.size} are stated")
        proved.add(entry.content)
