"""A checkpoint store in memory: for tests, simulations, and as the plainest example of the protocol."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from eventlog.blobs import encode_content
from eventlog.codec import Blob
from eventlog.errors import CorruptError
from eventlog.image import Image
from eventlog.values import ContentId
from recovery.checkpoints.errors import CheckpointBusyError, CheckpointDamagedError
from recovery.checkpoints.manifest import Checkpoint, decode_manifest, encode_manifest
from recovery.checkpoints.needs import list_needed
from recovery.checkpoints.objects import chunks_of, prove_object, read_object
from recovery.checkpoints.port import Collected, Pieces


class MemoryStore:
    """Contents and manifests in two dictionaries; a commit is one assignment."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.objects: dict[ContentId, Blob] = {}
        self.manifests: dict[tuple[str, str], Blob] = {}
        self._writers = 0

    @contextmanager
    def writing(self) -> Iterator["MemoryWriter"]:
        self._writers += 1
        try:
            yield MemoryWriter(self)
        finally:
            self._writers -= 1

    def load(self, owner: str, manifest: str) -> Checkpoint:
        if (owner, manifest) not in self.manifests:
            raise CheckpointDamagedError(self.name, manifest, None, "its manifest is missing")
        try:
            return decode_manifest(b"".join(read_object(self.manifests[owner, manifest], self._find)), manifest)
        except (CorruptError, CheckpointDamagedError) as error:
            raise CheckpointDamagedError(self.name, manifest, None, str(error)) from error

    def has_manifest(self, owner: str, manifest: str) -> bool:
        return (owner, manifest) in self.manifests

    def content(self, content: ContentId) -> Iterator[bytes]:
        try:
            yield from read_object(self._find(content), self._find)
        except CorruptError as error:
            raise CheckpointDamagedError(self.name, "", b"", str(error)) from error

    def list_manifests(self, owner: str) -> list[str]:
        return sorted(name for one, name in self.manifests if one == owner)

    def collect(self, owner: str, kept: Iterable[str], *, dry_run: bool) -> Collected:
        if self._writers and not dry_run:
            raise CheckpointBusyError(f"{self.name}: a checkpoint is being written; try again when it stands")
        gone = sorted(set(self.list_manifests(owner)) - set(kept))
        staying = [(one, name) for one, name in self.manifests if one != owner or name not in gone]
        needed: set[ContentId] = set()
        for one, name in staying:
            needed |= list_needed(self.load(one, name), chunks_of(self.manifests[one, name]), self._find, self.name)
        lost = [content for content in self.objects if content not in needed]
        size = sum(len(self.objects[content].data) for content in lost) + sum(len(self.manifests[owner, name].data) for name in gone)
        if not dry_run:
            for name in gone:
                del self.manifests[owner, name]
            for content in lost:
                del self.objects[content]
        return Collected(tuple(gone), len(lost), size)

    def is_whole(self, content: ContentId) -> bool:
        """Whether a content is there and what its name says."""
        try:
            prove_object(content, self._find)
        except (CorruptError, CheckpointDamagedError):
            return False
        return True

    def _find(self, content: ContentId) -> Blob:
        if content not in self.objects:
            raise CheckpointDamagedError(self.name, "", b"", f"the content {content.hex()} is missing")
        return self.objects[content]


class MemoryWriter:
    """What is put is held apart until `finish`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._put: dict[ContentId, Blob] = {}

    def put(self, content: ContentId, pieces: Pieces) -> bool:
        if content in self._put or self._store.is_whole(content):
            return False
        made = list(encode_content(pieces(), content))
        self._put |= {blob.content: blob for blob in made}
        return True

    def finish(self, owner: str, image: Image, root: bytes, excludes: Sequence[str] = ()) -> str:
        for path, entry in image.items():
            if entry.content is not None and entry.content not in self._put and entry.content not in self._store.objects:
                raise CheckpointDamagedError(self._store.name, "", path, f"the content {entry.content.hex()} was never put")
        made = list(encode_content(encode_manifest(image, root, excludes)))
        self._store.objects |= self._put | {blob.content: blob for blob in made[:-1]}
        self._store.manifests[owner, made[-1].content.hex()] = made[-1]
        return made[-1].content.hex()
