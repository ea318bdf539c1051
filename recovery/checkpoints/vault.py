"""One session's checkpoints: the store, whose they are, and what was learnt of it so far."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from eventlog import steps
from eventlog.errors import MisuseError, NeedsPersonError, ScanError
from eventlog.image import Image, root_hash
from eventlog.later import later
from eventlog.ports import Clock
from eventlog.show import show_text
from eventlog.values import ContentId
from recovery.checkpoints.errors import CheckpointBusyError, CheckpointDamagedError, StoreMissingError
from recovery.checkpoints.port import CheckpointStore, CheckpointWriter, check_contents
from recovery.space.places import contains, look_at
from recovery.workspace.content import read_verified
from recovery.workspace.kept import KeptContents

if TYPE_CHECKING:
    from recovery.checkpoints import directory as stores
else:
    stores = later("recovery.checkpoints.directory")  # in one mode only

STORE_NAME = "checkpoints"
"""Of the store in a state directory, where the session file names none."""

BUSY_SECS = 120.0
"""How long a driver waits for a collection: one reads every manifest in the store, of all its sessions."""
BUSY_POLL_SECS = 0.05


class ContentsChangedError(ScanError):
    """A file changed between the scan that found it and the copy of it: both are taken again (case 2)."""


class Vault:
    """`owner` is the id of the session's first ledger: unique, in the log's first event, and known before there is a log."""

    def __init__(self, store: CheckpointStore, owner: str, clock: Clock) -> None:
        self.store = store
        self.owner = owner
        self._clock = clock
        self._known: frozenset[bytes] = frozenset()
        self.took_ms = 0
        """What the newest checkpoint taken by this process took."""

    @contextmanager
    def writing(self) -> Iterator[CheckpointWriter]:
        """The store, held until the commit that names the checkpoint stands. While it is being collected, by whatever session, that end is
        waited for, BUSY_SECS at most. Raises CheckpointBusyError."""
        deadline = self._clock.monotonic() + BUSY_SECS
        with ExitStack() as held:
            while (writer := self._try_writing(held, is_last=self._clock.monotonic() >= deadline)) is None:
                steps.reach("checkpoint.busy")
                self._clock.pause(BUSY_POLL_SECS)
            yield writer

    def _try_writing(self, held: ExitStack, *, is_last: bool) -> CheckpointWriter | None:
        try:
            return held.enter_context(self.store.writing())
        except CheckpointBusyError:
            if is_last:
                raise
            return None

    def take(self, writer: CheckpointWriter, image: Image, excludes: tuple[str, ...], root: str, kept: KeptContents | None) -> str:
        """Copy what the store lacks of an image just scanned at `root`; the manifest's name, durable. A file at a time, a few chunks of it.

        Raises ContentsChangedError, FullError, CheckpointDamagedError.
        """
        began = self._clock.monotonic()
        for path, entry in image.items():
            if entry.content is not None and entry.content not in self._known:
                writer.put(ContentId(entry.content), self._read(root, path, entry.content, entry.size, kept))
        manifest = writer.finish(self.owner, image, root_hash(image, excludes), excludes)
        self._known = frozenset(entry.content for entry in image.values() if entry.content is not None)
        self.took_ms = max(0, round((self._clock.monotonic() - began) * 1000))
        return manifest

    def prove(self, manifest: str, root: str, wanted: Iterable[bytes]) -> None:
        """Read and prove a checkpoint before anything of it is used: its manifest, that it is one of the image of this root, and the
        contents of the paths `wanted`. Raises CheckpointDamagedError."""
        found = self.store.load(self.owner, manifest)
        if found.root != root:
            raise CheckpointDamagedError(self.store.name, manifest, None, f"it is one of image {found.root}, the log says {root}")
        check_contents(self.store, found, wanted)

    @staticmethod
    def _read(root: str, path: bytes, content: bytes, size: int, kept: KeptContents | None) -> Callable[[], Iterable[bytes]]:
        def pieces() -> Iterator[bytes]:
            held = kept.get(content) if kept is not None else None
            if held is not None:
                yield held
                return
            try:
                yield from read_verified(root, path, content, size)
            except ScanError as error:
                raise ContentsChangedError(str(error)) from error

        return pieces


def store_path(said: str | None, state: str) -> str:
    """Where the checkpoints of a new session go: what its file says, else into its state directory."""
    return os.path.realpath(said if said is not None else os.path.join(state, STORE_NAME))


def check_store_place(store: str, workspace: str) -> None:
    """Raise MisuseError when store and workspace contain each other: a call would write into it, an image would hold it (S1)."""
    in_store, in_workspace = look_at(store), look_at(workspace)
    if contains(in_store, in_workspace) or contains(in_workspace, in_store):
        raise MisuseError(f"the checkpoint store {show_text(store)} and the workspace {show_text(workspace)} contain each other; move one")


def make_vault(directory: str, owner: str, clock: Clock) -> Vault:
    """The vault of a session that begins. Raises MisuseError."""
    return Vault(stores.make_store(directory), owner, clock)


def open_vault(directory: str, owner: str, clock: Clock) -> Vault:
    """The vault of a session that has begun. Raises NeedsPersonError, naming the two ways out, when the store is not there."""
    try:
        return Vault(stores.open_store(directory), owner, clock)
    except StoreMissingError as error:
        raise NeedsPersonError(describe_missing(str(error))) from error


def describe_missing(why: str) -> str:
    """The sentence for a session without its checkpoints, with both ways out."""
    return (
        f"{why}. Put the store back there, or name where it is now by SESSION_CHECKPOINTS, and drive again; or give the session up and "
        "begin another one on the workspace with `recovery image NEWLOG --workspace DIR --new`"
    )
