"""The log in memory with the face that the engine's driver has of it: what `eventlog.writer.Writer` has beyond the protocol of a store."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eventlog.ports import Clock, Ids
from eventlog.records import Dropped
from eventlog.store import ReadingHandle, Store
from eventlog.values import ContentId

NAME = "/simulated/state/log.sqlite"


class SimReader:
    """`eventlog.reader.Reader` over a reading handle."""

    def __init__(self, handle: ReadingHandle) -> None:
        self.name = NAME
        self.log_id = handle.log_id
        self.streams, self.stream, self.floor, self.find = handle.streams, handle.stream, handle.floor, handle.find
        self.events, self.changes, self.image = handle.events, handle.changes, handle.image
        self.has_blob, self.content, self.close = handle.has_blob, handle.content, handle.close

    def contents(self, contents: Iterable[ContentId]) -> Iterator[bytes]:
        """Whole contents one after another."""
        for content in contents:
            yield from self.content(content)


class SimWriter:
    """`eventlog.writer.Writer` over a writing handle."""

    def __init__(self, store: Store, ids: Ids) -> None:
        handle = store.open_writing(ids)
        self.path = NAME
        self.log_id = handle.log_id
        self.reader = SimReader(handle.reader)
        self.on_pinned_wal: Callable[[str], None] | None = None
        self.raise_floor, self.append, self.append_unfenced = handle.raise_floor, handle.append, handle.append_unfenced
        self.admit, self.insert_blobs, self.check_fence, self.close = handle.admit, handle.insert_blobs, handle.check_fence, handle.close

    def record_dropped(self, contents: Iterable[Dropped]) -> None:
        """Contents of which a checkpoint is kept elsewhere: none, as simulated sessions keep their contents in the log."""

    def tidy(self, clock: Clock) -> Any:
        """There is no WAL."""
