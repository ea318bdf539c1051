"""The stores of the project as the suite wants them."""

from pathlib import Path

from msgspec.structs import replace

from eventlog import durable
from eventlog.values import ContentId
from recovery.checkpoints.directory import DirectoryStore, make_store
from recovery.checkpoints.memory import MemoryStore


class DirectorySubject:
    """A directory store, spoiled through its files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> DirectoryStore:
        return make_store(str(self._directory))

    def spoil(self, content: ContentId) -> None:
        _flip(Path(self.open().path_of(content)))

    def spoil_manifest(self, owner: str, manifest: str) -> None:
        _flip(Path(self.open().manifest_path(owner, manifest)))

    def lose(self, content: ContentId) -> None:
        durable.unlink(self.open().path_of(content), "conformance")

    def count(self) -> int:
        return sum(1 for path in (self._directory / "contents").rglob("*") if path.is_file())


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


class MemorySubject:
    """The store in memory, spoiled in its dictionaries."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def open(self) -> MemoryStore:
        return self._store

    def spoil(self, content: ContentId) -> None:
        blob = self._store.objects[content]
        self._store.objects[content] = replace(blob, data=blob.data[:-1] + bytes([blob.data[-1] ^ 1]))

    def spoil_manifest(self, owner: str, manifest: str) -> None:
        blob = self._store.manifests[owner, manifest]
        self._store.manifests[owner, manifest] = replace(blob, data=blob.data[:-1] + bytes([blob.data[-1] ^ 1]))

    def lose(self, content: ContentId) -> None:
        del self._store.objects[content]

    def count(self) -> int:
        return len(self._store.objects)


def make_directory(directory: Path) -> DirectorySubject:
    """The directory store."""
    return DirectorySubject(directory / "store")


def make_memory(directory: Path) -> MemorySubject:
    """The store in memory."""
    del directory
    return MemorySubject()
