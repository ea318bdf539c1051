"""The history digest: one hash over what happened, equal for two runs that did the same.

What differs from run to run by nature is replaced by an ordinal: the first value seen of a volatile field is its 1, the next new
one its 2. Times are not identity, so `mtime_ns` and `times` rows do not count; nor do event ids, hashes and `head` columns, which
depend on all of that.
"""

import json
from typing import Any

from .encoding import counted, digest, encode_change
from .paths import bytes_of
from .values import Change, Event, Stream

VOLATILE_FIELDS = frozenset(
    {
        "at_ms",
        "boot_id",
        "directory",  # begins with the log id
        "key",  # begins with the log id
        "kill_mark",  # names a cgroup or marker made for this run
        "ledger_id",
        "log_id",
        "nonce",
        "pid",
        "pid_namespace",
        "request_digest",  # covers the working directory
        "root_identity",  # inode, birth time, random id
        "start_ticks",
        "workspace",  # a trial's own directory
    }
)
VOLATILE_COLUMNS = ("event.id", "event.prev_hash", "event.hash", "image_change.mtime_ns")
HEADING = b"crashworthy history 1\0"


class Normaliser:
    """Replaces volatile values, remembering which ordinal each got; also replaces the log id and the workspace's path where they
    stand inside other strings."""

    def __init__(self, substitutes: dict[str, str]) -> None:
        self.substitutes = substitutes
        self.ordinals: dict[str, dict[str, int]] = {}

    def normalise(self, value: Any) -> Any:
        """The value with every volatile part replaced."""
        if isinstance(value, dict):
            return {name: self._field(name, part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.normalise(part) for part in value]
        return self._text(value) if isinstance(value, str) else value

    def _field(self, name: str, value: Any) -> Any:
        if name not in VOLATILE_FIELDS:
            return self.normalise(value)
        seen = self.ordinals.setdefault(name, {})
        return f"{name}#{seen.setdefault(json.dumps(value, sort_keys=True), len(seen) + 1)}"

    def _text(self, value: str) -> str:
        for volatile, substitute in self.substitutes.items():
            value = value.replace(volatile, substitute)
        return value


def history_digest(log_id: str, stream: Stream) -> str | None:
    """The hex digest of a stream's history; None when there are no events or a payload is nested beyond reason."""
    if not stream.events:
        return None
    normaliser = Normaliser(substitutes_for(log_id, stream.events[0]))
    try:
        return digest(HEADING + b"".join(counted(encode_event(normaliser, event)) for event in stream.events)).hex()
    except RecursionError:
        return None


def substitutes_for(log_id: str, opened: Event) -> dict[str, str]:
    """The strings that are this run's own, with what stands for them."""
    workspace = bytes_of(opened.payload.get("workspace", "")).decode("utf-8", "surrogateescape")
    return {text: mark for text, mark in ((workspace, "<workspace>"), (log_id, "<log id>")) if text}


def encode_event(normaliser: Normaliser, event: Event) -> bytes:
    """One event without what is volatile in it."""
    payload = json.dumps(normaliser.normalise(event.payload), sort_keys=True)
    changes = b"".join(counted(encode_change(timeless(change))) for change in event.changes if change.op != "times")
    return f"{event.seq} {event.epoch} {event.kind} {event.version} {payload}\n".encode() + changes


def timeless(change: Change) -> Change:
    """The change without its time."""
    return Change(
        change.path,
        change.op,
        change.kind,
        change.mode,
        change.content,
        change.size,
        change.target,
        change.link,
        change.xattrs,
        change.uid,
        change.gid,
        change.acl,
        mtime_ns=0,
    )
