"""The contents of images, wherever they are: in the log, else in a checkpoint of the session (rules C7, C8). Each is proved by its name."""

from collections.abc import Iterable, Iterator

import msgspec

from eventlog.errors import MisuseError
from eventlog.history import check_contents
from eventlog.image import Image
from eventlog.reader import Reader
from eventlog.values import ContentId
from recovery.checkpoints.vault import Vault
from recovery.state import SessionState


class Contents(msgspec.Struct, frozen=True):
    """`vault` is None where the log has them all."""

    reader: Reader
    vault: Vault | None

    def read(self, contents: Iterable[bytes]) -> Iterator[bytes]:
        """The bytes of whole contents one after another. Raises CorruptError, CompactedError, CheckpointDamagedError."""
        if self.vault is None:
            yield from self.reader.contents(map(ContentId, contents))
            return
        for content in map(ContentId, contents):
            yield from self.reader.content(content) if self.reader.has_blob(content) else self.vault.store.content(content)

    def check(self, state: SessionState, root: str, image: Image, seq: int) -> None:
        """Raise unless every content of an image is to be had: CompactedError, CorruptError, CheckpointDamagedError; MisuseError where no
        checkpoint was taken of it."""
        if self.vault is None or state.modes.newest is None:
            check_contents(self.reader, image)
            return
        lacking = {path: entry for path, entry in image.items() if entry.content and not self.reader.has_blob(ContentId(entry.content))}
        if not lacking:
            return
        taken = state.modes.find_taken(root)
        if taken is None:
            raise MisuseError(f"seq {seq}: no checkpoint was taken of the image there; `recovery checkpoints list LOG` names others")
        self.vault.prove(taken.manifest, root, lacking)
