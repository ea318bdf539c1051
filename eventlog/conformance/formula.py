"""The hashes of eventlog/README, section "Events and the chain", written from that page: struct, blake3 and nothing of eventlog.codec."""

import struct
from collections.abc import Sequence

from blake3 import blake3

from eventlog.events import encode
from eventlog.image import Change
from eventlog.reader import StoredEvent


def _b(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _opt(data: bytes | None) -> bytes:
    return b"\x00" if data is None else b"\x01" + _b(data)


def changes_digest(changes: Sequence[Change]) -> bytes:
    """`changes` of that page."""
    text = b"crashworthy changes 1\x00"
    for change in changes:
        text += _b(change.path) + _b(change.op.encode("ascii"))
        if change.op == "put":
            entry = change.entry
            assert entry is not None, "a put without an entry"
            text += _b(entry.kind.encode("ascii")) + struct.pack(">H", entry.mode) + _opt(entry.content) + struct.pack(">Q", entry.size)
            text += _opt(entry.target) + _opt(entry.link) + _opt(entry.xattrs)
            text += _opt(None if entry.owner is None else struct.pack(">II", *entry.owner)) + _opt(entry.acl)
        else:
            text += _b(b"") + struct.pack(">H", 0) + _opt(None) + struct.pack(">Q", 0) + _opt(None) * 5
        text += struct.pack(">q", change.mtime_ns)
    return bytes(blake3(text).digest())


def event_hash(log_id: str, stream: str, stored: StoredEvent, previous: bytes) -> bytes:
    """`hash` of that page, for an event of the newest version of its kind."""
    text = b"crashworthy event 1\x00" + _b(log_id.encode("utf-8")) + _b(stream.encode("utf-8")) + struct.pack(">Q", stored.seq)
    text += _b(stored.id) + struct.pack(">Q", stored.epoch) + _b(stored.event.kind.encode("ascii"))
    text += struct.pack(">I", stored.event.version) + _b(encode(stored.event)) + changes_digest(stored.changes) + previous
    return bytes(blake3(text).digest())


def check_chain(log_id: str, stream: str, stored: Sequence[StoredEvent]) -> None:
    """Fail unless these are the events of a whole stream: numbered without a gap, chained, their epochs as that page says."""
    previous, floor = bytes(32), 0
    for number, one in enumerate(stored, 1):
        assert one.seq == number, f"seq {one.seq} stands where {number} belongs"
        assert one.hash == event_hash(log_id, stream, one, previous), f"seq {number}: its hash is not that of the formula"
        if one.event.kind == "driver_started":
            assert one.epoch > floor, f"seq {number}: a driver started at epoch {one.epoch}, not above {floor}"
            floor = one.epoch
        assert one.epoch == floor, f"seq {number}: epoch {one.epoch} under the floor {floor}"
        previous = one.hash
