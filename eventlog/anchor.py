"""Anchors: heads that were once seen, kept in a file elsewhere, so that a cut tail shows.

A line is one JSON object: `log` (log id), `stream`, `seq`, `hash` (hex). A log whose newest events were taken away is valid by itself;
against an anchor it is not. The file is as good as the place where it lies: whoever can write both can make both agree.
"""

import os
from collections.abc import Iterator, Sequence

import msgspec

from eventlog import durable
from eventlog.errors import MisuseError
from eventlog.findings import Finding
from eventlog.reader import Reader
from eventlog.show import show_text
from eventlog.values import LogId, Seq, StreamId
from eventlog.verify import Mark

SIDE_SUFFIXES = ("", "-wal", "-shm", "-journal", ".verified")


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    log: str
    stream: str
    seq: int
    hash: str


class Anchored(msgspec.Struct, frozen=True):
    """A head that was seen once."""

    stream: StreamId
    seq: Seq
    hash: bytes


class Anchor(msgspec.Struct, frozen=True):
    """What a file of heads says: of which log, and which."""

    log_id: LogId
    heads: tuple[Anchored, ...]


def load_anchor(path: str, log: str) -> Anchor | None:
    """The anchor in a file, None when there is no such file yet. Raises MisuseError for one that is damaged, or is a file of the log."""
    if any(os.path.realpath(path) == os.path.realpath(log) + suffix for suffix in SIDE_SUFFIXES):
        raise MisuseError(f"{show_text(path)}: this is a file of the log itself; name another one for the anchor, on another disk at best")
    if os.path.exists(path) and not os.path.isfile(path):
        raise MisuseError(f"{show_text(path)}: the anchor cannot be read (it is no regular file); name a file")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MisuseError(f"{show_text(path)}: the anchor cannot be read ({error.strerror}); name a file") from error
    lines = [_read_line(path, number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    ids = {line.log for line in lines}
    if len(ids) != 1:
        what = "holds no heads" if not ids else "holds heads of more than one log"
        raise MisuseError(f"{show_text(path)}: the anchor {what}; it is left as it is, name another file")
    return Anchor(LogId(ids.pop()), tuple(Anchored(StreamId(line.stream), Seq(line.seq), bytes.fromhex(line.hash)) for line in lines))


def _read_line(path: str, number: int, line: bytes) -> _Line:
    try:
        found = msgspec.json.decode(line, type=_Line)
        if len(bytes.fromhex(found.hash)) == 32 and found.seq > 0:
            return found
        problem = "no head"
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        problem = str(error)
    raise MisuseError(f"{show_text(path)}: the anchor is damaged at line {number} ({problem}); it is left as it is, name another file")


def check_owner(anchor: Anchor, reader: Reader, path: str) -> None:
    """Raise MisuseError when the anchor is of another log."""
    if anchor.log_id == reader.log_id:
        return
    salvaged = reader.rows("SELECT value FROM meta WHERE key = 'salvaged_from'")
    hint = ", from which this one was salvaged" if salvaged == [(anchor.log_id,)] else ""
    raise MisuseError(
        f"{show_text(path)}: the anchor is of the log {show_text(anchor.log_id)}{hint}, and this one is {reader.log_id}; it is left as it "
        "is: name the log it belongs to, or another file"
    )


def check_anchor(reader: Reader, anchor: Anchor, name: str = "the anchor") -> Iterator[Finding]:
    """Every head that was seen still stands in the log: nothing is cut, nothing rewritten. `name` is what has seen them."""
    for seen in anchor.heads:
        row = reader.stream(seen.stream)
        where = f"stream {seen.stream}"
        if row is None:
            what = f"the session is gone; {seen.seq} events of it have been seen by {name}"
            yield Finding(where, what, "tail", seen.stream, Seq(1))
            continue
        if row.head_seq < seen.seq:
            gone = seen.seq - row.head_seq
            events = f"{gone} events are gone ({row.head_seq + 1} to {seen.seq})" if gone > 1 else f"1 event is gone ({seen.seq})"
            what = f"{events}: the head is {row.head_seq}, and {name} has seen {seen.seq}"
            yield Finding(where, what, "tail", seen.stream, Seq(row.head_seq + 1))
            continue
        if reader.rows("SELECT hash FROM event WHERE stream = ? AND seq = ?", (seen.stream, seen.seq)) != [(seen.hash,)]:
            what = f"this event is not the one that {name} has seen: it, or one before it, was rewritten"
            yield Finding(f"{where} seq {seen.seq}", what, "tail", seen.stream, seen.seq)


def move_anchor(path: str, log_id: LogId, mark: Mark, before: Anchor | None) -> bool:
    """Put the heads of a sound log into the anchor, durably, all or nothing; False when they stand there already. Raises MisuseError."""
    heads = tuple(
        Anchored(stream, head.position.seq, head.position.hash) for stream, head in sorted(mark.heads.items()) if head.position.seq
    )
    if before is not None and before.heads == heads:
        return False
    try:
        durable.publish(os.path.realpath(path), _encode(log_id, heads), "anchor")  # a symlink stays: the file it leads to is elsewhere
    except OSError as error:
        raise MisuseError(
            f"{show_text(path)}: the anchor cannot be written ({error.strerror}); name a file in a directory that can be written"
        ) from error
    return True


def _encode(log_id: LogId, heads: Sequence[Anchored]) -> bytes:
    lines = (msgspec.json.encode(_Line(log_id, head.stream, head.seq, head.hash.hex())) for head in heads)
    return b"".join(line + b"\n" for line in lines)
