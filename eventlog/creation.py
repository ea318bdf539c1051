"""Making a log: whole under a name that nobody looks for, then linked to its own. A crash before that leaves no log.

Steps: `open.commit.*`, `log.create.sync.*`, `log.create.link.*`, `log.create.unlink.*`.
"""

import contextlib
import os
from collections.abc import Callable, Iterable

import apsw

from eventlog import codec, connection, durable
from eventlog.blobs import batch_blobs
from eventlog.errors import LogMissingError
from eventlog.ports import Ids
from eventlog.records import Dropped, Record, Redact
from eventlog.show import show_text
from eventlog.values import FORMAT, LogId, StreamId
from eventlog.writer import Writer


def create_log(
    path: str, stream: StreamId, opened: Record, blobs: Iterable[codec.Blob], ids: Ids, redact: Redact | None = None,
    elsewhere: Iterable[Dropped] = (),
) -> None:  # fmt: skip
    """Make a log whose one stream already holds its `session_opened`, under `path`, all or nothing (README, sync point 1). `redact` sees
    that event before it is written; `elsewhere` are contents that it names and the log will not hold.

    Raises FileExistsError when `path` exists: somebody else made it, and theirs stands. LogMissingError when it is gone and its side
    files are not: a log was here, and its WAL would be played into the new one (L5, L9). FullError when there is no room,
    UncertainCommitError when the device fails: then look whether the log is there.
    """

    def fill(writer: Writer) -> None:
        for batch in batch_blobs(blobs):
            writer.insert_blobs(batch)
        if gone := tuple(elsewhere):
            writer.record_dropped(gone)
        writer.open_stream(stream, opened, "open")

    publish_log(path, fill, ids, redact=redact)


def publish_log(path: str, fill: Callable[[Writer], None], ids: Ids, origin: str = "", redact: Redact | None = None) -> None:
    """Make a log that holds what `fill` writes into it, under `path`, all or nothing. Raises as `create_log`, and what `fill` raises.

    `origin` is the id of the log that a salvaged one was made from.
    """
    _check_no_side_files(path)
    temporary = f"{path}.new-{os.getpid()}-{ids.new_id().hex()}"
    try:
        _make(temporary, path, fill, ids, origin, redact)
    except FileExistsError:
        raise
    except OSError as error:
        raise connection.translate_system(error, path) from error


def _make(temporary: str, path: str, fill: Callable[[Writer], None], ids: Ids, origin: str, redact: Redact | None) -> None:
    """Build, sync, name. What a failure leaves under the temporary name is taken away: whoever tries again needs the room."""
    try:
        _build(temporary, path, fill, ids, origin, redact)
        descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        try:
            durable.sync_file(descriptor, "log.create")
        finally:
            os.close(descriptor)
        durable.link(temporary, path, "log.create")
    except apsw.Error as error:
        raise connection.translate(error, path) from error  # now: what was lacking is given back below
    finally:
        for name in (temporary, *(temporary + suffix for suffix in ("-wal", "-shm", "-journal"))):
            if os.path.exists(name):
                with contextlib.suppress(FileNotFoundError):  # a driver that found the log under both names has taken this one away
                    durable.unlink(name, "log.create")
    durable.sync_directory(os.path.dirname(path) or ".", "log.create")


def _check_no_side_files(path: str) -> None:
    for suffix in ("-wal", "-journal"):
        # In this order: a side file seen first and no log after it means that the log was taken away, not that it is being made.
        if os.path.exists(path + suffix) and not os.path.exists(path):
            raise LogMissingError(
                f"{show_text(path)}: the log is gone but its {show_text(path + suffix)} is there; put the log back, or move that file away"
            )


def _build(temporary: str, path: str, fill: Callable[[Writer], None], ids: Ids, origin: str, redact: Redact | None) -> None:
    """A whole log under a name that nobody looks for, its WAL emptied and gone. Messages say `path`, the name that somebody gave."""
    handle = connection.create(temporary, is_synced=False)
    try:
        connection.set_building(handle, temporary)  # nobody's log yet: it is synced whole before it gets its name
        handle.execute("BEGIN IMMEDIATE")
        rows = [("format", str(FORMAT)), ("log_id", LogId(ids.new_id().hex()))]
        rows += [("salvaged_from", origin)] if origin else []
        handle.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", rows)
        handle.execute("COMMIT")
        fill(Writer(handle, temporary, ids, redact, name=show_text(path)))
        connection.set_wal(handle, temporary)
        # Not `pragma`, which knows no arguments in parentheses. It raises when the file cannot take all of the WAL: closing would not say.
        handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        handle.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        handle.close()
