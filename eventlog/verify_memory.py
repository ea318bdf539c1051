"""`log.sqlite.verified`: how far a log was verified, kept beside it for `eventlog verify --since`.

One JSON object: `format` 1; `log`, the log id; `streams`, for each the `seq`, `hash` and `epoch` of the event up to which it was verified
and the `root` of the image there; `blob`, the `row` and `hash` of the newest blob, or null. It is a memory, not an anchor: it lies where
whoever changes the log can change it too.
"""

import errno
import os
from typing import BinaryIO

import msgspec

from eventlog import durable
from eventlog.anchor import Anchor, Anchored
from eventlog.reader import Position
from eventlog.values import ContentId, Epoch, LogId, Seq, StreamId
from eventlog.verify import Head, Mark
from eventlog.verify_blobs import BlobMark

SUFFIX = ".verified"
_FORMAT = 1


class _StoredHead(msgspec.Struct, frozen=True):
    seq: int
    hash: str
    epoch: int
    root: str


class _StoredBlob(msgspec.Struct, frozen=True):
    row: int
    hash: str


class _Stored(msgspec.Struct, frozen=True):
    format: int
    log: str
    streams: dict[str, _StoredHead]
    blob: _StoredBlob | None


def load_mark(path: str, log_id: LogId) -> tuple[Mark | None, str]:
    """The mark that is remembered for the log at `path`, or None and why there is none to go by. Changes nothing."""
    try:
        with _open_regular(path + SUFFIX) as file:
            stored = msgspec.json.decode(file.read(), type=_Stored)
    except FileNotFoundError:
        return None, "nothing was remembered of this log"
    except (OSError, msgspec.MsgspecError) as error:
        return None, f"what was remembered cannot be read ({error})"
    if stored.format != _FORMAT:
        return None, f"what was remembered has format {stored.format}, which is not known here"
    if stored.log != log_id:
        return None, f"what was remembered is of another log ({stored.log})"
    try:
        return _mark(stored), ""
    except ValueError as error:
        return None, f"what was remembered cannot be read ({error})"


def _open_regular(path: str) -> BinaryIO:
    """Raises OSError, also for a FIFO, which would never answer."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return open(path, "rb")


def remembered_anchor(path: str) -> Anchor | None:
    """The heads that are remembered for the log at `path`, as an anchor; None when there are none that can be read."""
    log_id = remembered_log_id(path)
    mark = None if log_id is None else load_mark(path, log_id)[0]
    if log_id is None or mark is None:
        return None
    heads = tuple(Anchored(stream, head.position.seq, head.position.hash) for stream, head in sorted(mark.heads.items()))
    return Anchor(log_id, heads)


def remembered_log_id(path: str) -> LogId | None:
    """The log id that is remembered for the log at `path`, for when the log itself cannot tell it any more."""
    try:
        with _open_regular(path + SUFFIX) as file:
            return LogId(msgspec.json.decode(file.read(), type=_Stored).log)
    except (OSError, msgspec.MsgspecError):
        return None  # no memory, or none that can be read: the caller has other ways


def _mark(stored: _Stored) -> Mark:
    heads = {
        StreamId(name): Head(Position(Seq(head.seq), bytes.fromhex(head.hash), Epoch(head.epoch)), head.root)
        for name, head in stored.streams.items()
        if head.seq > 0
    }
    blob = BlobMark(stored.blob.row, ContentId(bytes.fromhex(stored.blob.hash))) if stored.blob is not None else None
    return Mark(heads, blob)


def save_mark(path: str, log_id: LogId, mark: Mark) -> None:
    """Remember `mark` for the log at `path`, durably, all or nothing. Raises OSError."""
    streams = {
        name: _StoredHead(head.position.seq, head.position.hash.hex(), head.position.epoch, head.root) for name, head in mark.heads.items()
    }
    blob = _StoredBlob(mark.blob.row, mark.blob.content.hex()) if mark.blob is not None else None
    data = msgspec.json.encode(_Stored(_FORMAT, log_id, dict(sorted(streams.items())), blob))
    durable.publish(os.fspath(path + SUFFIX), msgspec.json.format(data, indent=1) + b"\n", "verified")
