"""Typed reading of rows. SQLite lets any column hold any type, so every value is checked before anything believes it.

The connection's text factory has to be `Text`: it keeps the stored bytes of TEXT values apart from BLOBs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .blobs import Blob
from .payloads import decode_payload, newest_version
from .values import Change, Event

Row = Sequence[Any]
Decode = Callable[[str, int, bytes], Mapping[str, Any]]
"""`payloads.decode_payload`, or what remembers its answers."""

EVENT_COLUMNS = "stream, seq, id, epoch, kind, version, payload, prev_hash, hash"
CHANGE_COLUMNS = (
    "stream, seq, idx, path, op, kind, mode, content, size, target, link, xattrs, uid, gid, acl, mtime_ns"
)
STREAM_COLUMNS = "id, parent, forked_at, floor, head_seq, head_hash"
BLOB_COLUMNS = "hash, codec, size, bytes"
LARGEST = 2**63 - 1


class Malformed(Exception):
    """A row holds a value of a type, length or range that the format does not know."""


class Text(bytes):
    """The bytes of a TEXT value."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One row of `stream`."""

    id: str
    floor: int
    head_seq: int
    head_hash: bytes


def text(value: Any, what: str) -> str:
    """A TEXT value that is UTF-8."""
    if not isinstance(value, Text):
        raise Malformed(f"{what} is no text: {value!r:.60}")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"{what} is no UTF-8: {error}") from error


def integer(value: Any, what: str, low: int = 0, high: int = LARGEST) -> int:
    """An INTEGER value from low to high."""
    if type(value) is not int or not low <= value <= high:
        raise Malformed(f"{what} is no integer from {low} to {high}: {value!r:.60}")
    return value


def binary(value: Any, what: str, length: int | None = None) -> bytes:
    """A BLOB value, of `length` bytes if given."""
    if not isinstance(value, bytes) or isinstance(value, Text):
        raise Malformed(f"{what} is no blob: {value!r:.60}")
    if length is not None and len(value) != length:
        raise Malformed(f"{what} has {len(value)} bytes, not {length}")
    return value


def optional_binary(value: Any, what: str, length: int | None = None) -> bytes | None:
    """A BLOB value or NULL."""
    return None if value is None else binary(value, what, length)


def optional_integer(value: Any, what: str, high: int) -> int | None:
    """An INTEGER from 0 to high, or NULL."""
    return None if value is None else integer(value, what, 0, high)


def read_stream(row: Row) -> StreamRow:
    """A row of STREAM_COLUMNS. Raises Malformed."""
    if row[1] is not None:
        text(row[1], "parent")
    optional_integer(row[2], "forked_at", LARGEST)
    return StreamRow(
        text(row[0], "id"), integer(row[3], "floor"), integer(row[4], "head_seq"), binary(row[5], "head_hash", 32)
    )


def read_event(row: Row, changes: tuple[Change, ...], decode: Decode = decode_payload) -> Event:
    """A row of EVENT_COLUMNS with its changes. Raises Malformed."""
    kind = text(row[4], "kind")
    text(row[6], "payload")
    stored = bytes(row[6])
    version = integer(row[5], "version", 1, newest_version(kind))
    try:
        payload = decode(kind, version, stored)
    except ValueError as error:
        raise Malformed(str(error)) from error
    return Event(
        stream=text(row[0], "stream"),
        seq=integer(row[1], "seq", 1),
        id=binary(row[2], "id", 16),
        epoch=integer(row[3], "epoch"),
        kind=kind,
        version=version,
        stored=stored,
        payload=payload,
        prev_hash=binary(row[7], "prev_hash", 32),
        hash=binary(row[8], "hash", 32),
        changes=changes,
    )


def read_change(row: Row) -> Change:
    """A row of CHANGE_COLUMNS (stream, seq and idx are the caller's). Raises Malformed."""
    return Change(
        path=binary(row[3], "path"),
        op=text(row[4], "op"),
        kind=text(row[5], "kind of a change"),
        mode=integer(row[6], "mode", 0, 0o7777),
        content=optional_binary(row[7], "content", 32),
        size=integer(row[8], "size"),
        target=optional_binary(row[9], "target"),
        link=optional_binary(row[10], "link"),
        xattrs=optional_binary(row[11], "xattrs"),
        uid=optional_integer(row[12], "uid", 2**32 - 1),
        gid=optional_integer(row[13], "gid", 2**32 - 1),
        acl=optional_binary(row[14], "acl"),
        mtime_ns=integer(row[15], "mtime_ns", -(2**63)),
    )


def read_blob(row: Row) -> tuple[bytes, Blob]:
    """A row of BLOB_COLUMNS as (name, blob). Raises Malformed."""
    return binary(row[0], "hash", 32), Blob(text(row[1], "codec"), integer(row[2], "size"), binary(row[3], "bytes"))
