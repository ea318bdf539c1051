"""The record of a run: one event for each thing that its processes did to a disk, in one file and one order.

Each event is a four-byte length and that many bytes of MessagePack. A process appends with one write under a lock on the file, after it
has looked at the trial's directories: so what others did before it, and what nobody announces (a directory made, a file of a command),
stands before it too.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

Kind = Literal["write", "truncate", "sync", "syncfs", "name", "open", "look"]


class Look(msgspec.Struct, frozen=True, array_like=True):
    """What stands under a path: `kind` is f, d, l, p or o (anything else, which is nobody's), `inode` a number that only this file ever
    has. `content` is None where it was told before
    or is not looked at."""

    kind: str
    mode: int
    inode: int
    size: int
    digest: bytes = b""
    content: bytes | None = None


class Event(msgspec.Struct, frozen=True, array_like=True):
    """One thing done, or begun (`is_end` False). `who` is ROLE@EPOCH, `point` what is synced or written, by name (chaos/README, "Power
    loss"), `path` is below the trial's directory. `changed` and `removed` are what the look before it found new. `output` and `witness`
    are the sizes that the driver's standard output and the witness had then."""

    who: str
    kind: Kind
    point: str
    path: str
    is_end: bool
    offset: int
    data: bytes
    output: int
    witness: int
    changed: dict[str, Look]
    removed: list[str]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """An event as it is appended."""
    body = _encoder.encode(event)
    return len(body).to_bytes(4, "big") + body


def read_events(data: bytes) -> Iterator[Event]:
    """The events of a record. ValueError where it is torn, msgspec's errors where it is none."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        body = data[at + 4 : at + 4 + size]
        if len(body) != size:
            raise ValueError(f"the record is torn at byte {at}")
        yield _decoder.decode(body)
        at += 4 + size
