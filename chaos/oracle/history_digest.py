"""The history: what happened, one readable object an event, without what differs from run to run by nature; and its digest.

Two runs that did the same have equal histories. What is volatile stands in `VOLATILE` and, with the reason, in chaos/README ("History
digest"): times are left out, since even their being equal is chance; other volatile fields of a payload become ordinals (the first
value seen of a field is its 1, the next new one its 2); the log id and the workspace's path become marks, wherever they stand in a
string; volatile columns are left out, and with the times the `times` rows. Everything else counts.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .encoding import counted, digest, xattrs_digest
from .paths import bytes_of, escape_path
from .values import Change, Event, Stream

LOG_ID_MARK = "<log id>"
WORKSPACE_MARK = "<workspace>"
TIMES = frozenset({"at_ms"})
VOLATILE = TIMES | {
    "boot_id",
    "identity",
    "ledger_id",
    "root_identity",
    LOG_ID_MARK,
    WORKSPACE_MARK,
    "event.id",
    "event.prev_hash",
    "event.hash",
    "image_change.mtime_ns",
}
HEADING = b"crashworthy history 2\0"
History = list[dict[str, Any]]


class Normaliser:
    """Replaces what is volatile in payloads, remembering which ordinal each value got. `marks`: the bytes that are this run's own, with
    what stands for them."""

    def __init__(self, volatile: frozenset[str], marks: Mapping[bytes, str]) -> None:
        self.volatile = volatile
        self.marks = {text: mark for text, mark in marks.items() if text and mark in volatile}
        self.ordinals: dict[str, dict[str, int]] = {}

    def normalise_payload(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """A payload with every volatile part replaced, and without its times."""
        return {name: self._field(name, value) for name, value in payload.items() if name not in self.volatile & TIMES}

    def normalise(self, value: Any) -> Any:
        """A value inside a payload: only the marks are volatile there."""
        if isinstance(value, dict):
            decoded = bytes_in(value)
            return {name: self.normalise(part) for name, part in value.items()} if decoded is None else self._bytes(decoded)
        if isinstance(value, list):
            return [self.normalise(part) for part in value]
        return self._text(value) if isinstance(value, str) else value

    def _field(self, name: str, value: Any) -> Any:
        if name not in self.volatile:
            return self.normalise(value)
        seen = self.ordinals.setdefault(name, {})
        return f"{name}#{seen.setdefault(json.dumps(value, sort_keys=True), len(seen) + 1)}"

    def _text(self, value: str) -> str:
        return self._replace(value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _bytes(self, value: bytes) -> Any:
        replaced = self._replace(value)
        try:
            return replaced.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(replaced).decode()}

    def _replace(self, value: bytes) -> bytes:
        for text, mark in self.marks.items():
            value = value.replace(text, mark.encode())
        return value


def bytes_in(value: Mapping[str, Any]) -> bytes | None:
    """The bytes of a `{"b64": ...}` object; None for every other one."""
    try:
        return bytes_of(value)
    except ValueError:
        return None


def normaliser_for(log_id: str, stream: Stream, volatile: frozenset[str] = VOLATILE) -> Normaliser:
    """The normaliser of a stream that has events."""
    try:
        workspace = bytes_of(stream.events[0].payload.get("workspace", ""))
    except ValueError:
        workspace = b""
    return Normaliser(volatile, {workspace: WORKSPACE_MARK, log_id.encode(): LOG_ID_MARK})


def normalised_events(log_id: str, stream: Stream, volatile: frozenset[str] = VOLATILE) -> History:
    """The history of a stream. Raises RecursionError when a payload is nested beyond reason."""
    if not stream.events:
        return []
    normaliser = normaliser_for(log_id, stream, volatile)
    return [event_object(normaliser, event) for event in stream.events]


def event_object(normaliser: Normaliser, event: Event) -> dict[str, Any]:
    """One event without what is volatile in it."""
    chained = {"id": event.id, "prev_hash": event.prev_hash, "hash": event.hash}
    timeless = "image_change.mtime_ns" in normaliser.volatile
    return {
        "seq": event.seq,
        "epoch": event.epoch,
        "kind": event.kind,
        "version": event.version,
        **{name: value.hex() for name, value in chained.items() if f"event.{name}" not in normaliser.volatile},
        "payload": normaliser.normalise_payload(event.payload),
        "changes": [change_text(change, timeless) for change in event.changes if not (timeless and change.op == "times")],
    }


def change_text(change: Change, timeless: bool) -> str:
    """A change in one line: the op, then `name=value` for each column that has one. No value holds a blank."""
    values = {
        "path": word(change.path),
        "kind": word(change.kind.encode()) or None,
        "mode": f"{change.mode:04o}" if change.op == "put" or change.mode else None,
        "content": None if change.content is None else change.content.hex(),
        "size": str(change.size) if change.content is not None or change.size else None,
        "target": None if change.target is None else word(change.target),
        "link": None if change.link is None else word(change.link),
        "xattrs": hex_or_none(xattrs_digest(change.xattrs)),
        "uid": None if change.uid is None else str(change.uid),
        "gid": None if change.gid is None else str(change.gid),
        "acl": None if change.acl is None else digest(change.acl).hex(),
        "mtime_ns": None if timeless else str(change.mtime_ns),
    }
    return " ".join([word(change.op.encode()), *(f"{name}={value}" for name, value in values.items() if value is not None)])


def word(data: bytes) -> str:
    """Bytes in a form without blanks."""
    return escape_path(data).replace(" ", "%20")


def hex_or_none(name: bytes | None) -> str | None:
    """The hex of a digest."""
    return None if name is None else name.hex()


def history_digest(history: Sequence[Mapping[str, Any]]) -> str | None:
    """The hex digest of a history, over exactly its objects; None when there are no events."""
    if not history:
        return None
    return digest(HEADING + b"".join(counted(json.dumps(event, sort_keys=True).encode()) for event in history)).hex()
