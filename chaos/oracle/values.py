"""The values everything here speaks about: rows of a log, entries of a tree, findings. Nothing in this module acts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class EvidenceMissing(Exception):
    """An oracle cannot judge: what it needs could not be read. Its verdict is unknown."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands where evidence should be; `reason` says why it could not be gathered."""

    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """One row of `image_change`. `xattrs` is the encoded pairs, `content` a digest, paths are bytes."""

    path: bytes
    op: str
    kind: str
    mode: int
    content: bytes | None
    size: int
    target: bytes | None
    link: bytes | None
    xattrs: bytes | None
    uid: int | None
    gid: int | None
    acl: bytes | None
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Event:
    """One row of `event` with its changes. `payload` is `stored` (the bytes in the log) decoded and checked for shape."""

    stream: str
    seq: int
    id: bytes
    epoch: int
    kind: str
    version: int
    stored: bytes
    payload: Mapping[str, Any]
    prev_hash: bytes
    hash: bytes
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing in a log that is not valid."""

    stream: str | None
    seq: int | None
    text: str
    path: bytes | None = None
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """The images of a stream. `roots[n]` is the root hash after seq n + 1 (None: the image has no root directory), `image` the one
    at the head, `origins` the seq that last put or removed each path."""

    roots: tuple[bytes | None, ...]
    image: Mapping[bytes, Change]
    origins: Mapping[bytes, int]
    defects: tuple[Defect, ...]


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: its cached columns, its events in order of seq, their fold. `complete` is False when rows had to be left out."""

    id: str
    floor: int
    head_seq: int
    head_hash: bytes
    events: tuple[Event, ...]
    fold: Fold
    complete: bool

    def root_at(self, seq: int) -> bytes | None:
        """The root hash of the image after `seq`; None when there is no such event or no such image."""
        return self.fold.roots[seq - 1] if 1 <= seq <= len(self.fold.roots) else None

    def event_at(self, seq: int) -> Event | None:
        """The event `seq`, None when there is none."""
        return self.events[seq - 1] if 1 <= seq <= len(self.events) else None

    def of_kind(self, *kinds: str) -> list[Event]:
        """The events of these kinds in order."""
        return [event for event in self.events if event.kind in kinds]


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree as it is compared. `kind`: f file, d directory, l symlink, p FIFO, s socket, c and b devices, m mount
    point (not entered). `content`, `xattrs` and `acl` are digests; `link` is the first path of the link group; `owner` is (uid, gid)."""

    kind: str
    mode: int
    content: bytes | None = None
    size: int = 0
    target: bytes | None = None
    link: bytes | None = None
    xattrs: bytes | None = None
    owner: tuple[int, int] | None = None
    acl: bytes | None = None


Listing = Mapping[bytes, Entry]


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended. Code and signal are kept apart: exit code 137 is not signal 9."""

    kind: str
    code: int | None = None
    signal: int | None = None


class Verdict(Enum):
    """How an oracle ends."""

    PASS = "pass"
    UNKNOWN = "unknown"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What an oracle says: the verdict, why, and for a difference where, what was expected, what is there, which event set it."""

    verdict: Verdict
    detail: str
    path: bytes | None = None
    expected: str | None = None
    found: str | None = None
    event: str | None = None


def passed(detail: str) -> Finding:
    """A finding that all was as it must be; `detail` says how much was looked at."""
    return Finding(Verdict.PASS, detail)


def unknown(detail: str) -> Finding:
    """A finding that nothing can be said."""
    return Finding(Verdict.UNKNOWN, detail)


def failed(
    detail: str, *, path: bytes | None = None, expected: str | None = None, found: str | None = None, event: str | None = None
) -> Finding:
    """A finding that something is wrong."""
    return Finding(Verdict.FAIL, detail, path, expected, found, event)


def name_event(event: Event | None) -> str | None:
    """`SEQ KIND` or `SEQ KIND call N`, for people."""
    if event is None:
        return None
    call = event.payload.get("call")
    return f"{event.seq} {event.kind}" if call is None else f"{event.seq} {event.kind} call {call}"


def hex_of(digest: bytes | None) -> str:
    """The hex of a digest, `none` for None."""
    return "none" if digest is None else digest.hex()
