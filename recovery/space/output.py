"""Keeping a command's output: bytes, bounded, in files that outlive the driver (S5, cases 34 and 35).

Of each stream the first HEAD_BYTES and the last TAIL_BYTES are kept; in between a cut output has a marker line that says how much is
missing. Total and digest are over every byte, kept or not. What is kept so far can be read while the command runs, by offset.
"""

import contextlib
import os

import msgspec
from blake3 import blake3

from eventlog import durable

HEAD_BYTES = 512 * 1024
TAIL_BYTES = 512 * 1024
STDERR_SUFFIX = ".stderr"


class Kept(msgspec.Struct, frozen=True):
    """`total` bytes were written by the command, with the BLAKE3 `digest` (hex); `data` is what is kept of them."""

    total: int
    data: bytes
    digest: str = ""

    @property
    def is_cut(self) -> bool:
        """True when bytes are missing from the middle."""
        return is_cut(self.total)


def is_cut(total: int) -> bool:
    """Whether of a stream of so many bytes some in the middle are not kept."""
    return total > HEAD_BYTES + TAIL_BYTES


class OutputKeeper:
    """Collects one stream as it comes; never more than HEAD_BYTES + 2 * TAIL_BYTES of memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._hasher = blake3()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._hasher.update(data)
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def kept(self) -> Kept:
        """What is kept so far."""
        tail = bytes(self._tail[-TAIL_BYTES:])
        missing = self.total - len(self._head) - len(tail)
        marker = b"\n[%d bytes not kept]\n" % missing if missing else b""
        return Kept(self.total, bytes(self._head) + marker + tail, self._hasher.hexdigest())

    def read(self, offset: int, size: int) -> tuple[int, bytes]:
        """At most `size` bytes from `offset` on: how many bytes before them are not held any more, and the bytes."""
        if offset < len(self._head):
            return 0, bytes(self._head[offset : offset + size])
        begin = self.total - len(self._tail)
        at = max(offset, begin)
        return at - offset, bytes(self._tail[at - begin : at - begin + size])


def save_output(path: str, kept: Kept) -> None:
    """Write kept output to its file, when there is any; SIGKILL-safe by order: the exit record that tells of it comes after."""
    if kept.data:
        durable.publish(path, kept.data, "output")


def output_path(directory: str, leaf: str) -> str:
    """The output file of the attempt with this mark leaf: stdout, or both streams merged."""
    return os.path.join(directory, "output", leaf)


def read_kept(directory: str, leaf: str) -> tuple[bytes, bytes]:
    """What is kept of an exited attempt's stdout (or merged output) and stderr. What was empty has no file."""
    path = output_path(directory, leaf)
    return _read(path), _read(path + STDERR_SUFFIX)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def forget_output(directory: str, leaf: str) -> None:
    """Remove the output files of an attempt whose outcome is in the log."""
    path = output_path(directory, leaf)
    for name in (path, path + STDERR_SUFFIX):
        if os.path.exists(name):
            with contextlib.suppress(FileNotFoundError):
                durable.unlink(name, "output")
