"""The stat cache on disk: what a scanner remembers, kept beside the log so that the next process need not read every file again.

    8 bytes magic and version | 32 bytes BLAKE3 of the rest | MessagePack array: Binding, directories

Mode 0600, written under a temporary name and renamed, not synced: a file torn by a crash fails its checksum. What is missing, damaged, of
another version, boot, root or set of excludes is as if it were not there. Nothing in it is trusted more than what the process itself saw.
"""

import contextlib
import os

import msgspec
from blake3 import blake3

from eventlog import durable
from eventlog.collection import collection_paused
from eventlog.image import Entry
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


class _Stored(msgspec.Struct, array_like=True):
    """One directory: a Listing with its path, and its entries in the place of its directory."""

    path: bytes
    stamp: Key | None
    keys: dict[bytes, Key | None]
    entries: dict[bytes, Entry]
    linked: dict[bytes, Entry]
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
        with collection_paused():
            bound, stored = _decoder.decode(body)
            return {one.path: _restore(one) for one in stored} if bound == binding else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def _store(path: bytes, one: Listing) -> _Stored:
    return _Stored(path, one.stamp, one.keys, one.directory.entries, one.linked, one.versions, one.untracked, one.below, one.excluded)


def _restore(one: _Stored) -> Listing:
    return Listing(one.stamp, one.keys, Directory(one.entries), one.linked, one.versions, one.untracked, one.below, one.excluded)
