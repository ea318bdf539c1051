"""The stat cache on disk: what a scanner remembers, kept beside the log so that the next process need not read every file again.

    8 bytes magic and version | 32 bytes BLAKE3 of the rest | MessagePack array: Binding, directories

Mode 0600, written under a temporary name and renamed, not synced: a file torn by a crash fails its checksum. What is missing, damaged, of
another version, boot, root or set of excludes is as if it were not there. Nothing in it is trusted more than what the process itself saw.
"""

import contextlib
import os
from typing import Any

import msgspec
from blake3 import blake3

from eventlog import durable
from eventlog.image import Entry, Kind
from eventlog.image_tree import Directory
from recovery.workspace.listing import Key, Listing

_MAGIC = b"CWSCAN\0\2"
_DIGEST = 32
STEP = "scan.cache"


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """What a cache is good for: one boot, one root (device and inode), one set of what is left out and tracked."""

    boot_id: str
    device: int
    inode: int
    reserved: bytes | None
    excludes: tuple[str, ...]
    track: tuple[str, ...] = ()


_Owner = tuple[int, int]
_Fields = tuple[
    Kind, int, bytes | None, int, bytes | None, bytes | None, bytes | None, int, _Owner | None, bytes | None
]  # of Entry, in its order


class _Stored(msgspec.Struct, array_like=True):
    """One directory: `entries` are the entries as tuples of their fields, in the order of Entry."""

    path: bytes
    stamp: Key | None
    keys: dict[bytes, Key | None]
    entries: dict[bytes, _Fields]
    linked: dict[bytes, _Fields]
    versions: dict[bytes, Key]
    untracked: dict[bytes, tuple[str, ...]]
    below: dict[bytes, tuple[int, int]]
    excluded: set[bytes]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Binding, list[_Stored]])


def save(path: str, binding: Binding, known: dict[bytes, Listing]) -> None:
    """Write the cache whole, or leave it as it was: losing it costs time only, so that no error comes out of this."""
    body = _encoder.encode((binding, [_store(name, listing) for name, listing in known.items()]))
    temporary = f"{path}.new"  # one name, so that killed writers leave one file at most; two at once spoil it for the checksum to find
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            durable.write_all(descriptor, _MAGIC + blake3(body).digest() + body, STEP)
        except OSError:
            durable.unlink(temporary, STEP)
            raise
        finally:
            os.close(descriptor)
        durable.rename(temporary, path, STEP)


def load(path: str, binding: Binding) -> dict[bytes, Listing]:
    """What was saved for exactly this binding; nothing when that is not to be had."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        body = memoryview(data)[len(_MAGIC) + _DIGEST :]
        if data[: len(_MAGIC)] != _MAGIC or blake3(body).digest() != data[len(_MAGIC) : len(_MAGIC) + _DIGEST]:
            return {}
        bound, stored = _decoder.decode(body)
    except (OSError, msgspec.MsgspecError):
        return {}
    return {one.path: _restore(one) for one in stored} if bound == binding else {}


def _store(path: bytes, listing: Listing) -> _Stored:
    entries = {name: _fields(entry) for name, entry in listing.directory.entries.items()}
    linked = {name: _fields(entry) for name, entry in listing.linked.items()}
    return _Stored(path, listing.stamp, listing.keys, entries, linked, listing.versions, listing.untracked, listing.below, listing.excluded)


def _fields(entry: Entry) -> Any:
    return msgspec.structs.astuple(entry)


def _restore(stored: _Stored) -> Listing:
    entries = {name: Entry(*fields) for name, fields in stored.entries.items()}
    linked = {name: Entry(*fields) for name, fields in stored.linked.items()}
    return Listing(stored.stamp, stored.keys, Directory(entries), linked, stored.versions, stored.untracked, stored.below, stored.excluded)
