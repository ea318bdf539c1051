"""A checkpoint store in a directory, for many sessions and writers at once (recovery/README, "Checkpoint stores", has it byte for byte).

    STORE/format                     "crashworthy checkpoint store 1\\n"
    STORE/lock                       flock: shared by who writes checkpoints, exclusive for garbage collection
    STORE/contents/<2 hex>/<64 hex>  one content each (objects.py), named by its BLAKE3
    STORE/manifests/<owner>/<64 hex> one manifest each, as a content
    STORE/incoming/<16 hex>/         what one writer has not finished

Sync points. A content is written into the writer's own directory. `finish` makes all of them durable, then renames each to its name, then
makes the names durable, and only then writes, syncs and renames the manifest and syncs its directory: a manifest that can be found needs
nothing that could be lost. That holds for contents that somebody else has put as well: their bytes were durable before they got their
names, and the names, with those of the directories they are in, are synced again by whoever relies on them. Killed in between it leaves
contents that nobody names, which the next collection takes. A rename replaces a content by the same one, so that writers need not know of
each other.

A collection takes the lock alone: whoever holds it shared may be about to name what nobody names yet. A dry run takes nothing, and holds it
shared.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from eventlog import durable
from eventlog.blobs import encode_content
from eventlog.codec import Blob
from eventlog.errors import CorruptError, FullError, MisuseError
from eventlog.image import Image
from eventlog.show import show_path, show_text
from eventlog.values import ContentId
from recovery.checkpoints.errors import CheckpointBusyError, CheckpointDamagedError, StoreMissingError
from recovery.checkpoints.manifest import Checkpoint, decode_manifest, encode_manifest
from recovery.checkpoints.needs import list_needed
from recovery.checkpoints.objects import chunks_of, decode_object, encode_object, prove_object, read_object
from recovery.checkpoints.port import Collected, Pieces

FORMAT = b"crashworthy checkpoint store 1\n"
SYNC_EACH = 32
"""So many new contents are synced one by one; more by one sync of the file system."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_HEX = frozenset("0123456789abcdef")


def make_store(directory: str) -> "DirectoryStore":
    """The store in `directory`, which is made when nothing is there; its names are on disk afterwards. Raises MisuseError for a directory
    that is something else."""
    if os.path.exists(os.path.join(directory, "format")):  # whoever made it may have been killed before he synced that name
        durable.sync_directory(directory, "checkpoint.store")
        durable.make_directories(directory, "checkpoint.store", is_certain=True)
    else:
        durable.make_directories(directory, "checkpoint.store", is_certain=True)
        others = set(os.listdir(directory)) - {"contents", "manifests", "incoming", "lock"}
        if any(not name.startswith("format") for name in others):
            raise MisuseError(f"{show_text(directory)} is no checkpoint store and not empty; name another `store`")
        for name in ("contents", "manifests", "incoming"):
            os.makedirs(os.path.join(directory, name), mode=0o700, exist_ok=True)
        durable.sync_directory(directory, "checkpoint.store")  # the format says that these are there, after a loss of power too
        durable.publish(os.path.join(directory, "format"), FORMAT, "checkpoint.store")
    return open_store(directory)


def open_store(directory: str) -> "DirectoryStore":
    """The store that is in `directory`. Raises StoreMissingError, MisuseError."""
    try:
        with open(os.path.join(directory, "format"), "rb") as file:
            found = file.read(len(FORMAT) + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreMissingError(f"{show_text(directory)}: the checkpoint store is missing; put it back: it is never made anew") from error
    if found != FORMAT:
        raise MisuseError(f"{show_text(directory)} is no checkpoint store that this version knows; name another `store`")
    return DirectoryStore(directory)


class DirectoryStore:
    """See the module. It holds no file open but while somebody writes."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.name = show_text(directory)
        self.durable: frozenset[bytes] = frozenset()
        """The contents of the newest checkpoint that this handle finished: their names are known to be on disk."""
        self.named: set[str] = set()
        """The directories whose names this handle knows to be on disk."""

    def path_of(self, content: ContentId) -> str:
        """Where a content is, or would be."""
        name = content.hex()
        return os.path.join(self.directory, "contents", name[:2], name)

    def manifest_path(self, owner: str, manifest: str) -> str:
        """Where a manifest is, or would be."""
        return os.path.join(self.directory, "manifests", owner, manifest)

    @contextmanager
    def writing(self) -> Iterator["DirectoryWriter"]:
        with self._locked(fcntl.LOCK_SH):
            writer = DirectoryWriter(self)
            try:
                yield writer
            finally:
                writer.close()

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        descriptor = os.open(os.path.join(self.directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError as error:
                busy = "it is being collected" if kind == fcntl.LOCK_SH else "a checkpoint is being written into it"
                raise CheckpointBusyError(f"{self.name}: {busy}; try again when that has ended") from error
            yield
        finally:
            os.close(descriptor)

    def load(self, owner: str, manifest: str) -> Checkpoint:
        try:
            name = ContentId(bytes.fromhex(manifest))
            blob = self._read(self.manifest_path(owner, manifest), name)
            return decode_manifest(b"".join(read_object(blob, self.find)), manifest)
        except FileNotFoundError as error:
            raise CheckpointDamagedError(self.name, manifest, None, "its manifest is missing") from error
        except (CorruptError, CheckpointDamagedError, UnicodeError) as error:
            raise CheckpointDamagedError(self.name, manifest, None, str(error)) from error

    def has_manifest(self, owner: str, manifest: str) -> bool:
        return os.path.exists(self.manifest_path(owner, manifest))

    def content(self, content: ContentId) -> Iterator[bytes]:
        try:
            yield from read_object(self.find(content), self.find)
        except CorruptError as error:
            raise CheckpointDamagedError(self.name, "", b"", str(error)) from error

    def find(self, content: ContentId) -> Blob:
        """One object, its content not proved yet. Raises CheckpointDamagedError, CorruptError."""
        try:
            return self._read(self.path_of(content), content)
        except FileNotFoundError as error:
            raise CheckpointDamagedError(self.name, "", b"", f"the content {content.hex()} is missing") from error

    def is_whole(self, content: ContentId) -> bool:
        """Whether a content is there and what its name says: no checkpoint may rely on one that was damaged since it was put (C7)."""
        if not os.path.exists(self.path_of(content)):
            return False
        try:
            prove_object(content, self.find)
        except (CorruptError, CheckpointDamagedError):
            return False
        return True

    def _read(self, path: str, content: ContentId) -> Blob:
        try:
            with open(path, "rb") as file:
                return decode_object(content, file.read())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CheckpointDamagedError(self.name, "", b"", f"{content.hex()} cannot be read: {error.strerror}") from error

    def list_manifests(self, owner: str) -> list[str]:
        try:
            names = os.listdir(os.path.join(self.directory, "manifests", owner))
        except FileNotFoundError:
            return []
        return sorted(name for name in names if _is_name(name))

    def list_owners(self) -> list[str]:
        """Who has manifests here."""
        return sorted(os.listdir(os.path.join(self.directory, "manifests")))

    def collect(self, owner: str, kept: Iterable[str], *, dry_run: bool) -> Collected:
        with self._locked(fcntl.LOCK_SH if dry_run else fcntl.LOCK_EX):
            gone = sorted(set(self.list_manifests(owner)) - set(kept))
            needed: set[ContentId] = set()
            for one in self.list_owners():
                for name in self.list_manifests(one):
                    if one != owner or name not in gone:
                        own = chunks_of(self._read(self.manifest_path(one, name), ContentId(bytes.fromhex(name))))
                        needed |= list_needed(self.load(one, name), own, self.find, self.name)
            unneeded = [path for content, path in self._walk() if content not in needed]
            paths = [*(self.manifest_path(owner, name) for name in gone), *self._leftovers(), *unneeded]
            size = sum(map(_size_of, paths))
            if not dry_run:
                self._remove(paths, owner)
            return Collected(tuple(gone), len(unneeded), size)

    def _walk(self) -> Iterator[tuple[ContentId, str]]:
        base = os.path.join(self.directory, "contents")
        for shelf in sorted(os.listdir(base)):
            for name in sorted(os.listdir(os.path.join(base, shelf))):
                if _is_name(name):
                    yield ContentId(bytes.fromhex(name)), os.path.join(base, shelf, name)

    def _leftovers(self) -> list[str]:
        """What killed writers left: nobody writes while the lock is held alone. A dry run meets what is being written as well."""
        found = []
        base = os.path.join(self.directory, "incoming")
        for writer in sorted(os.listdir(base)):
            with contextlib.suppress(FileNotFoundError):  # a writer beside a dry run has ended
                found += [os.path.join(base, writer, name) for name in sorted(os.listdir(os.path.join(base, writer)))]
        for owner in self.list_owners():
            directory = os.path.join(self.directory, "manifests", owner)
            found += [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if not _is_name(name)]
        return found

    def _remove(self, paths: list[str], owner: str) -> None:
        """Manifests first, and durably: no manifest is ever there without its contents."""
        directory = os.path.join(self.directory, "manifests", owner)
        count = sum(os.path.dirname(path) == directory for path in paths)
        for number, path in enumerate(paths):
            durable.unlink(path, "checkpoint.collect")
            if number + 1 == count:
                durable.sync_directory(directory, "checkpoint.collect")
        base = os.path.join(self.directory, "incoming")
        for writer in os.listdir(base):
            durable.remove_directory(os.path.join(base, writer), "checkpoint.collect")


class DirectoryWriter:
    """One writer's unfinished contents, in a directory of its own."""

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store
        self._directory = ""
        self._waiting: dict[ContentId, str] = {}

    def put(self, content: ContentId, pieces: Pieces) -> bool:
        if content in self._waiting or self._store.is_whole(content):
            return False
        with _full_is_named(self._store.name):
            for blob in encode_content(pieces(), content):  # the one that bears the name comes last, when its chunks are there
                self._write(blob)
        return True

    def finish(self, owner: str, image: Image, root: bytes, excludes: Sequence[str] = ()) -> str:
        met = self._meet(image)
        with _full_is_named(self._store.name):
            made = list(encode_content(encode_manifest(image, root, excludes)))
            for blob in made[:-1]:
                self._write(blob)
            self._name_contents(met)
            path = self._store.manifest_path(owner, made[-1].content.hex())
            self._make_directories([os.path.dirname(path)])
            durable.publish(path, encode_object(made[-1]), "checkpoint.manifest")
        self._store.durable = frozenset(entry.content for entry in image.values() if entry.content is not None)
        return made[-1].content.hex()

    def _meet(self, image: Image) -> set[str]:
        """The shelves of contents that others put, whose names may not be on disk yet. Raises CheckpointDamagedError for one that is not
        there."""
        shelves = set()
        seen: set[bytes] = set(self._store.durable)
        for path, entry in image.items():
            if entry.content is None or entry.content in seen or entry.content in self._waiting:
                continue
            seen.add(entry.content)
            place = self._store.path_of(ContentId(entry.content))
            if not os.path.exists(place):
                what = f"the content {entry.content.hex()} of {show_path(path)} was never put"
                raise CheckpointDamagedError(self._store.name, "", path, what)
            shelves.add(os.path.dirname(place))
        return shelves

    def _write(self, blob: Blob) -> None:
        if blob.content in self._waiting or self._store.is_whole(blob.content):
            return
        if not self._directory:
            self._directory = os.path.join(self._store.directory, "incoming", os.urandom(8).hex())
            os.mkdir(self._directory, 0o700)
        path = os.path.join(self._directory, blob.content.hex())
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._waiting[blob.content] = path
        try:
            durable.write_all(descriptor, encode_object(blob), "checkpoint.content")
        finally:
            os.close(descriptor)

    def _name_contents(self, met: set[str]) -> None:
        """Everything durable, then named, then the names durable, those of the shelves `met` as well."""
        own = {os.path.dirname(self._store.path_of(content)) for content in self._waiting}
        shelves = own | met
        if not shelves:
            return
        is_many = max(len(self._waiting), len(shelves)) > SYNC_EACH
        if self._waiting:
            self._sync(self._waiting.values(), is_many, "checkpoint.content")
        self._make_directories(sorted(shelves))
        for content, path in self._waiting.items():
            durable.rename(path, self._store.path_of(content), "checkpoint.content")
        self._waiting = {}
        self._sync(sorted(shelves), is_many, "checkpoint.names")

    def _sync(self, paths: Iterable[str], is_many: bool, step: str) -> None:
        for path in [self._store.directory] if is_many else paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if is_many:
                    durable.sync_filesystem(descriptor, step)
                else:
                    durable.sync_file(descriptor, step)
            finally:
                os.close(descriptor)

    def _make_directories(self, paths: Iterable[str]) -> None:
        """The names of these directories are on disk afterwards, also of those that somebody else made: he may have been killed before he
        synced them."""
        unsure = [path for path in paths if path not in self._store.named]
        met: set[str] = set()
        for path in unsure:
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                met.add(os.path.dirname(path))
            else:
                durable.sync_directory(os.path.dirname(path), "checkpoint.names")
        for directory in sorted(met):
            durable.sync_directory(directory, "checkpoint.names")
        self._store.named.update(unsure)

    def close(self) -> None:
        """Take away what was not finished."""
        for path in self._waiting.values():
            with contextlib.suppress(FileNotFoundError):
                durable.unlink(path, "checkpoint.leftover")
        if self._directory:
            with contextlib.suppress(OSError):  # gone, or something is in it that a collection will take
                durable.remove_directory(self._directory, "checkpoint.leftover")


@contextmanager
def _full_is_named(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise FullError(f"{name}: no room for a checkpoint ({error.strerror}); make room there and drive again") from error
        raise


def _size_of(path: str) -> int:
    """0 where it is gone: what is being written beside a dry run gets another name."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _is_name(name: str) -> bool:
    return len(name) == 64 and set(name) <= _HEX
