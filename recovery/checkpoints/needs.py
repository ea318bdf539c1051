"""Which contents a checkpoint needs: what garbage collection may not take. Pure but for the asking that it is given."""

from collections.abc import Callable, Iterable

from eventlog.codec import Blob
from eventlog.errors import CorruptError
from eventlog.values import CHUNK_BYTES, ContentId
from recovery.checkpoints.errors import CheckpointDamagedError
from recovery.checkpoints.manifest import Checkpoint
from recovery.checkpoints.objects import chunks_of


def list_needed(checkpoint: Checkpoint, own: Iterable[ContentId], find: Callable[[ContentId], Blob], store: str) -> set[ContentId]:
    """The contents of its files, the chunks of the large ones, and its `own`: the chunks of the manifest itself.

    `find` reads one object. Raises CheckpointDamagedError where a list of chunks cannot be read: what it needs is not known.
    """
    needed = set(own)
    for path, entry in checkpoint.image.items():
        if entry.content is None or entry.content in needed:
            continue
        content = ContentId(entry.content)
        needed.add(content)
        if entry.size <= CHUNK_BYTES:
            continue
        try:
            needed.update(chunks_of(find(content)))
        except (CorruptError, CheckpointDamagedError) as error:
            raise CheckpointDamagedError(store, checkpoint.manifest, path, str(error)) from error
    return needed
