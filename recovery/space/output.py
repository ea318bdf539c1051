"""Keeping a command's output: bytes, bounded, in a file that outlives the driver (S5, cases 34 and 35).

The first HEAD_BYTES and the last TAIL_BYTES are kept; in between a `cut` output has a marker line that says how much is missing.
"""

import os
from dataclasses import dataclass

from eventlog import durable

HEAD_BYTES = 512 * 1024
TAIL_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Kept:
    """`total` bytes were written by the command; `data` is what is kept of them."""

    total: int
    data: bytes

    @property
    def is_cut(self) -> bool:
        """True when bytes are missing from the middle."""
        return self.total > HEAD_BYTES + TAIL_BYTES


class OutputKeeper:
    """Collects output as it comes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
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
        return Kept(self.total, bytes(self._head) + marker + tail)


def save_output(path: str, kept: Kept) -> None:
    """Write kept output to its file; SIGKILL-safe by order: the exit record that tells of it comes after."""
    durable.publish(path, kept.data, "output")


def output_path(directory: str, leaf: str) -> str:
    """The output file of the attempt with this mark leaf."""
    return os.path.join(directory, "output", leaf)


def read_kept(directory: str, leaf: str) -> bytes:
    """The kept output of an attempt that ended; nothing where there is no file."""
    try:
        with open(output_path(directory, leaf), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
