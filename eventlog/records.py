"""What goes into a log and what is answered: records, places, and the two hooks of a writer. Values only.

What each append makes is a Struct: a frozen dataclass takes up to ten times as long to make."""

from collections.abc import Callable
from typing import Literal

import msgspec

from eventlog import events
from eventlog.errors import BusyError
from eventlog.image import Change
from eventlog.values import ContentId, Seq


class Record(msgspec.Struct, frozen=True):
    """An event to append, with the image changes that are one commit with it (I2).

    `id` is 16 bytes, for an append that may be sent more than once; without one, each append is an event of its own. In one append all
    records have an id or none has.
    """

    event: events.Event
    changes: tuple[Change, ...] = ()
    id: bytes | None = None


class Appended(msgspec.Struct, frozen=True):
    """Where a record came to stand."""

    seq: Seq
    id: bytes
    hash: bytes


Reason = Literal["compacted", "lost", "checkpointed"]
"""Why a log lacks a content."""


class Dropped(msgspec.Struct, frozen=True):
    """A content that the log does not hold, on record: `reason` is compacted, lost or checkpointed."""

    content: ContentId
    size: int
    reason: str
    at_ms: int


class Admitted(msgspec.Struct, frozen=True):
    """Where an input stands, and whether this call put it there."""

    appended: Appended
    is_new: bool


Unlock = Callable[[BusyError], bool]
"""Asked when a lock was not to be had within its bound: True when whoever held it is gone, and the lock is to be tried for again (L4)."""

Redact = Callable[[events.Event], events.Event]
"""Takes out of an event what must not be written down. It is called before anything is encoded, hashed or locked."""
