"""Points of a stream, as people name them, and the image at a point. Asks through a reader; writes nothing.

    12             the event with that seq
    head           the newest event there is now
    call:3         after call 3: the event that settled it (also `call:3:after`)
    call:3:before  before call 3: the intent of its last attempt, so that what lies between the two is what the call did

Everything is read through the verified chain (I9): an image is folded from events whose hashes were checked.
"""

import re
from collections.abc import Iterator
from typing import Literal, assert_never

import msgspec

from eventlog import events
from eventlog.errors import CompactedError, CorruptError, MisuseError
from eventlog.image import Entry, Image, fold_into
from eventlog.reader import Reader, StoredEvent, StreamRow
from eventlog.show import show_path, show_text
from eventlog.values import CallNumber, ContentId, Seq, StreamId

Side = Literal["before", "after"]
_CALL = re.compile(r"call:([0-9]{1,18})(?::(before|after))?\Z")
_SEQ = re.compile(r"[0-9]{1,18}\Z")


class AtHead(msgspec.Struct, frozen=True):
    """The newest event."""


class AtSeq(msgspec.Struct, frozen=True):
    """One event."""

    seq: Seq


class AtCall(msgspec.Struct, frozen=True):
    """Before or after a call."""

    call: CallNumber
    side: Side


Point = AtHead | AtSeq | AtCall


def parse_point(text: str) -> Point:
    """The point that `text` names, in the syntax of this module. Raises MisuseError."""
    if text == "head":
        return AtHead()
    if _SEQ.match(text):
        return AtSeq(Seq(int(text)))
    found = _CALL.match(text)
    if found is None:
        raise MisuseError(f"{show_text(text)!r} names no point of a session; write a seq such as 12, or head, call:3 or call:3:before")
    return AtCall(CallNumber(int(found[1])), "before" if found[2] == "before" else "after")


def find_point(reader: Reader, row: StreamRow, point: Point) -> Seq:
    """The seq of a point of a stream. Raises MisuseError when there is none such, CorruptError."""
    match point:
        case AtHead():
            return row.head_seq
        case AtSeq(seq):
            if not 1 <= seq <= row.head_seq:
                raise MisuseError(f"session {show_text(row.id)} has no event {seq}; its events are 1 to {row.head_seq}")
            return seq
        case AtCall(call, side):
            return _find_call(reader, row, call, side)
        case _:
            assert_never(point)


def _find_call(reader: Reader, row: StreamRow, call: CallNumber, side: Side) -> Seq:
    before = after = None
    newest = 0
    for stored in reader.events(row.id):
        match stored.event:
            case events.SessionForked() as event if any(one.call == call for one in event.calls):
                name, parent = show_text(row.id), show_text(event.parent)
                raise MisuseError(f"session {name}: call {call} was settled before the fork; look for it in session {parent}")
            case events.AttemptStarted() as event:
                before, newest = stored.seq if event.call == call else before, max(newest, event.call)
            case events.CallSettled() as event if event.call == call:
                after = stored.seq
            case _:
                pass
    if before is None:
        known = f"its newest call is {newest}" if newest else "it has no calls"
        raise MisuseError(f"session {show_text(row.id)} has no call {call}; {known}")
    if side == "before":
        return before
    if after is None:
        raise MisuseError(f"session {show_text(row.id)}: call {call} is not settled; use call:{call}:before or head")
    return after


def read_upto(reader: Reader, stream: StreamId, seq: Seq) -> Iterator[StoredEvent]:
    """The events of a stream up to a seq, verified."""
    for stored in reader.events(stream):
        yield stored
        if stored.seq >= seq:
            return


def read_image(reader: Reader, stream: StreamId, seq: Seq) -> dict[bytes, Entry]:
    """The image as of an event, folded from verified events. Raises CorruptError."""
    image: dict[bytes, Entry] = {}
    for stored in read_upto(reader, stream, seq):
        fold_into(image, stored.changes)
    return image


def check_contents(reader: Reader, image: Image) -> None:
    """Raise unless the log has every content of an image: CompactedError for one given up by compaction, CorruptError for one missing."""
    for path in sorted(image):
        content = image[path].content
        if content is None or reader.has_blob(ContentId(content)):
            continue
        try:
            reader.blob(ContentId(content))
        except (CompactedError, CorruptError) as error:
            raise type(error)(f"{show_path(path)} is not whole at this point: {error}") from error
