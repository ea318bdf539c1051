"""The store in SQLite: a directory that holds `log.sqlite` and SQLite's side files (eventlog/README, "Files")."""

import os
from collections.abc import Iterable
from pathlib import Path

from eventlog import codec
from eventlog.creation import create_log
from eventlog.ports import Ids
from eventlog.reader import Reader
from eventlog.records import Record, Redact
from eventlog.store import Capability, ReadingHandle, Store, WritingHandle
from eventlog.values import StreamId
from eventlog.writer import Writer

LOG_NAME = "log.sqlite"


class SqliteStore:
    """`eventlog.store.Store` over `creation`, `Writer` and `Reader`."""

    def __init__(self, directory: Path) -> None:
        self.path = os.path.join(directory, LOG_NAME)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"processes", "durable", "sqlite files"})

    def create(self, stream: StreamId, first: Record, blobs: Iterable[codec.Blob], ids: Ids) -> None:
        create_log(self.path, stream, first, blobs, ids)

    def open_writing(self, ids: Ids, redact: Redact | None = None) -> WritingHandle:
        return Writer.open(self.path, ids, redact)

    def open_reading(self) -> ReadingHandle:
        return Reader.open(self.path)


def make(directory: Path) -> Store:
    """The store in this directory, which exists."""
    return SqliteStore(directory)
