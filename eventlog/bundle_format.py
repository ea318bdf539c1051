"""The records of a bundle, both ways. Pure; eventlog/README, "Bundles", is the specification, to the byte.

A bundle is a magic line and one zstd stream of records `u8 kind | u32 length | body`. Every body has one form only: what decodes here
encodes to the same bytes, so that the same events and contents always make the same bundle.
"""

import re
import struct
from collections.abc import Iterator

import msgspec

from eventlog import codec, events
from eventlog.errors import CorruptError
from eventlog.image import Change, decode_owner, encode_change
from eventlog.image_rows import change_from_row
from eventlog.image_values import SIZE_MAX
from eventlog.reader import Origin, StoredEvent, VerbatimEvent
from eventlog.records import Reason
from eventlog.values import ContentId, Epoch, LogId, Seq, StreamId

FORMAT = 1
MAGIC_WORDS = b"crashworthy bundle "
PLAIN_MAGIC = MAGIC_WORDS + b"1\n"
MOVED_MAGIC = MAGIC_WORDS + b"1 moved\n"
MAGIC_BYTES = 64
"""The magic line of any format ends within these."""

HEADER, EVENT, CHANGE, CONTENT, PIECE, GIVEN_UP, TRAILER = b"HECDPGT"

PIECE_BYTES = 1 << 20
MOST_RECORD_BYTES = 16 << 20
"""No event or change is larger: it bounds what a reader allocates for a length it has only been told."""
MOST_BYTES = {
    HEADER: 8 << 10,
    EVENT: MOST_RECORD_BYTES,
    CHANGE: MOST_RECORD_BYTES,
    CONTENT: 40,
    PIECE: PIECE_BYTES,
    GIVEN_UP: 64,
    TRAILER: 72,
}
MOST_NAME_BYTES = 4096

LEVEL = 3
WINDOW_LOG = 21
WINDOW_BYTES = 1 << WINDOW_LOG
"""The window of level 3 for large inputs, stated so that a reader can refuse any larger one: it is memory."""
FEED_BYTES = 1 << 17
"""What the compressor is fed at a time. The compressed bytes depend on it, and a bundle of the same events must be the same file."""

EVENTS_ALLOWANCE, EVENTS_RATIO = 32 << 20, 64
"""What is not content expands to at most EVENTS_ALLOWANCE + EVENTS_RATIO x the size of the file. A reader holds the image in memory, in
about five times these bytes, and a bomb would fill it. Real ones stay far below: an event has 48 bytes that nothing compresses (its id and
its hash), a file 32 (its content), a directory its time; 600,000 empty directories fit the allowance alone."""

_LOG_ID = re.compile(r"[0-9a-f]{32}")
_HEX = re.compile(r"[0-9a-f]{64}")
_u16, _u32, _u64, _i64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">q")
RECORD_HEAD = struct.Struct(">BI")


class Header(msgspec.Struct, frozen=True):
    """What a bundle holds: the events of `origin` up to `head_seq`, whose hash is `head_hash`; `floor` is the floor there."""

    origin: Origin
    head_seq: Seq
    head_hash: bytes
    floor: Epoch


class GivenUp(msgspec.Struct, frozen=True):
    """A content that an event refers to and that the exporting log had given up on record."""

    content: ContentId
    size: int
    reason: Reason


class Counts(msgspec.Struct, frozen=True):
    """What a bundle holds, in numbers; `content_bytes` uncompressed."""

    events: int = 0
    changes: int = 0
    contents: int = 0
    given_up: int = 0
    content_bytes: int = 0


def encode_record(kind: int, body: bytes) -> bytes:
    """One record. Raises CorruptError when it is larger than a reader takes."""
    if len(body) > MOST_BYTES[kind]:
        raise CorruptError(f"a record of {len(body)} bytes; the most that a bundle takes is {MOST_BYTES[kind]}")
    return RECORD_HEAD.pack(kind, len(body)) + body


def encode_header(header: Header) -> bytes:
    names = codec.sized(header.origin.log_id.encode()) + codec.sized(header.origin.stream.encode())
    return _u32.pack(FORMAT) + names + _u64.pack(header.head_seq) + header.head_hash + _u64.pack(header.floor)


def decode_header(body: bytes) -> Header:
    """Raises CorruptError."""
    fields = Fields(body)
    if (found := fields.u32()) != FORMAT:
        raise CorruptError(f"its header states format {found}, its first line {FORMAT}")
    log_id, stream = fields.text(), fields.text()
    header = Header(Origin(LogId(log_id), StreamId(stream)), Seq(fields.number()), fields.take(32), Epoch(fields.number()))
    fields.end()
    if not _LOG_ID.fullmatch(log_id):
        raise CorruptError("the id of its log is not 32 lower-case hex digits")
    if not stream or "\0" in stream or len(stream.encode()) > MOST_NAME_BYTES:
        raise CorruptError("the id of its session is not one")
    if header.head_seq < 1:
        raise CorruptError("it holds no events")
    return header


def encode_event(verbatim: VerbatimEvent) -> bytes:
    stored = verbatim.stored
    return b"".join(
        (
            _u64.pack(stored.seq),
            stored.id,
            _u64.pack(stored.epoch),
            codec.sized(verbatim.kind.encode()),
            _u32.pack(verbatim.version),
            codec.sized(verbatim.payload),
            stored.hash,
            _u32.pack(len(stored.changes)),
        )
    )


class EventFields(msgspec.Struct, frozen=True):
    """An event record, nothing of it checked against anything yet."""

    seq: int
    id: bytes
    epoch: int
    kind: str
    version: int
    payload: bytes
    hash: bytes
    changes: int


def decode_event(body: bytes) -> EventFields:
    """Raises CorruptError."""
    fields = Fields(body)
    found = EventFields(
        fields.number(), fields.take(16), fields.number(), fields.text(), fields.u32(), fields.sized(), fields.take(32), fields.u32()
    )
    fields.end()
    return found


def decode_change(body: bytes, where: str) -> Change:
    """A row of the changes digest as a change. Raises CorruptError for one that is not in its one form."""
    fields = Fields(body)
    path, operation, kind, mode = fields.sized(), fields.text(), fields.text(), fields.u16()
    content, size, target, link, xattrs = fields.optional(), fields.u64(), fields.optional(), fields.optional(), fields.optional()
    owner, acl, mtime_ns = fields.optional(), fields.optional(), fields.i64()
    fields.end()
    user, group = decode_owner(owner) or (None, None)
    row = (path, operation, kind, mode, content, size, target, link, xattrs, user, group, acl, mtime_ns)
    change = change_from_row(row, where)
    if encode_change(change) != body:
        raise CorruptError(f"{where}: an image change is written in another form than its own")
    return change


def encode_content(content: ContentId, size: int) -> bytes:
    return content + _u64.pack(size)


def decode_content(body: bytes) -> tuple[ContentId, int]:
    """Raises CorruptError."""
    fields = Fields(body)
    found = ContentId(fields.take(32)), fields.number()
    fields.end()
    return found


def encode_given_up(given_up: GivenUp) -> bytes:
    return given_up.content + _u64.pack(given_up.size) + codec.sized(given_up.reason.encode())


def decode_given_up(body: bytes) -> GivenUp:
    """Raises CorruptError."""
    fields = Fields(body)
    content, size, reason = ContentId(fields.take(32)), fields.number(), fields.text()
    fields.end()
    return GivenUp(content, size, checked_reason(reason))


def checked_reason(reason: object) -> Reason:
    """Raises CorruptError for anything but a reason to give a content up."""
    match reason:
        case "compacted" | "lost" | "checkpointed":
            return reason
        case _:
            raise CorruptError(f"a content was given up for the unknown reason {reason!r}")


_TRAILER = struct.Struct(">5Q32s")


def encode_trailer(counts: Counts, digest: bytes) -> bytes:
    return _TRAILER.pack(counts.events, counts.changes, counts.contents, counts.given_up, counts.content_bytes, digest)


def decode_trailer(body: bytes) -> tuple[Counts, bytes]:
    """Raises CorruptError."""
    if len(body) != _TRAILER.size:
        raise CorruptError("its trailer has another length than a trailer")
    *numbers, digest = _TRAILER.unpack(body)
    return Counts(*numbers), digest


def contents_of(stored: StoredEvent) -> Iterator[tuple[ContentId, int]]:
    """The contents that an event refers to, with the size it states for each. Raises CorruptError for what names no content."""
    for change in stored.changes:
        if change.entry is not None and change.entry.content is not None:
            yield ContentId(change.entry.content), change.entry.size
    if isinstance(stored.event, events.CallSettled) and stored.event.output is not None:
        output = stored.event.output
        if not _HEX.fullmatch(output.blob) or not 0 <= output.kept <= SIZE_MAX:
            raise CorruptError(f"output names no content ({output.blob[:80]!r}, {output.kept} bytes)")
        yield ContentId(bytes.fromhex(output.blob)), output.kept


def want_contents(wanted: dict[ContentId, int], stored: StoredEvent) -> None:
    """Add what an event refers to. Raises CorruptError when two events state two sizes for one content."""
    for content, size in contents_of(stored):
        if wanted.setdefault(content, size) != size:
            raise CorruptError(f"content {content.hex()} is stated with {wanted[content]} and with {size} bytes")


class Fields:
    """The fields of one body, in order; every length is compared with what is there before anything is taken."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._body) - self._at:
            raise CorruptError(f"a record ends inside a field, at byte {self._at}")
        self._at += count
        return self._body[self._at - count : self._at]

    def u16(self) -> int:
        return int(_u16.unpack(self.take(2))[0])

    def u32(self) -> int:
        return int(_u32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_u64.unpack(self.take(8))[0])

    def i64(self) -> int:
        return int(_i64.unpack(self.take(8))[0])

    def number(self) -> int:
        """A u64 that SQLite can hold."""
        if (found := self.u64()) > SIZE_MAX:
            raise CorruptError(f"a number is out of range ({found})")
        return found

    def sized(self) -> bytes:
        return self.take(self.u32())

    def optional(self) -> bytes | None:
        match self.take(1):
            case b"\0":
                return None
            case b"\1":
                return self.sized()
            case other:
                raise CorruptError(f"byte {other.hex()} where 00 or 01 belongs")

    def text(self) -> str:
        try:
            return self.sized().decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptError(f"text that is not UTF-8 ({error.reason})") from error

    def end(self) -> None:
        if self._at != len(self._body):
            raise CorruptError(f"a record has {len(self._body) - self._at} bytes too many")
