"""The forks' part of verify: a fork's first event agrees with its parent, where the parent is in the same log."""

from collections.abc import Iterator

from eventlog.errors import CorruptError
from eventlog.events import SessionForked
from eventlog.excludes import excludes_of, stream_excludes
from eventlog.findings import Finding
from eventlog.image import check_image, root_hash
from eventlog.reader import Reader, StreamRow
from eventlog.values import Seq, StreamId


def check_fork(reader: Reader, row: StreamRow, forked: SessionForked) -> Iterator[Finding]:
    """The event that was forked from is there, is the one that is named, and has the image with which the fork begins.

    A parent is the stream that is hashed under the names in the event: one of this log, or one that was imported. A fork whose parent (or
    whose point in it) is not here stands by itself, and its cache row names no parent.
    """
    parent = find_parent(reader, forked)
    where = f"stream {row.id} seq 1"
    if parent is None or parent.head_seq < forked.parent_seq:
        if row.parent is not None:
            yield Finding(where, f"its parent {row.parent} has no event {forked.parent_seq} of that name here", "fork", row.id, Seq(1))
        return
    expected = (parent.id, forked.parent_seq)
    # What was imported may have come before its parent did, and a row is never changed: it may name none.
    may_be_unnamed = row.parent is None and (row.origin is not None or parent.origin is not None)
    if (row.parent, row.forked_at) != expected and not may_be_unnamed:
        what = f"its row names the parent {row.parent} seq {row.forked_at}, its first event {parent.id} seq {forked.parent_seq}"
        yield Finding(where, what, "fork", row.id, Seq(1))
    found = reader.rows("SELECT hash FROM event WHERE stream = ? AND seq = ?", (parent.id, forked.parent_seq))
    if found != [(bytes.fromhex(forked.parent_hash) if _is_hex(forked.parent_hash) else b"",)]:
        what = f"it was forked from an event that is not the one at seq {forked.parent_seq} of its parent {parent.id}"
        yield Finding(where, what, "fork", row.id, Seq(1))
        return
    yield from _check_root(reader, row, forked, parent)


def find_parent(reader: Reader, forked: SessionForked) -> StreamRow | None:
    """The stream of this log that bears the names in a fork's first event, its own or those of its origin."""
    if forked.parent_log == reader.log_id:
        own = reader.stream(StreamId(forked.parent))
        return own if own is not None and own.origin is None else None
    if not reader.is_beyond_1:
        return None
    named = "SELECT id FROM stream WHERE origin_log = ? AND origin_stream = ?"
    found = reader.rows(named, (forked.parent_log, forked.parent))
    return reader.stream(StreamId(str(found[0][0]))) if found else None


def _check_root(reader: Reader, row: StreamRow, forked: SessionForked, parent: StreamRow) -> Iterator[Finding]:
    where = f"stream {row.id} seq 1"
    image = reader.image(parent.id, Seq(forked.parent_seq))
    try:
        check_image(image)
    except CorruptError as error:
        yield Finding(where, f"its parent {parent.id} has no image at seq {forked.parent_seq}: {error}", "fork", row.id, Seq(1))
        return
    excludes = stream_excludes(reader, parent.id)
    root = root_hash(image, excludes).hex()
    if root != forked.root:
        what = f"it begins with root {forked.root}, its parent {parent.id} has root {root} at seq {forked.parent_seq}"
        yield Finding(where, what, "fork", row.id, Seq(1))
    elif excludes != excludes_of(forked):
        yield Finding(where, f"it excludes other paths than its parent {parent.id}", "fork", row.id, Seq(1))


def _is_hex(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
