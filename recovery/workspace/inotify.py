"""inotify(7) through ctypes: a descriptor, watches on open directories, and the events queued since they were last read. No thread.

Why not a library: inotify_simple, the well-kept thin one, runs `ldconfig` to find the C library, and a driver starts no process outside
its spawner; watchfiles and watchdog have a thread of their own and do not tell an overflow from silence. fanotify without privileges sees
no more of what a scan needs, and what it would see with them must not depend on who runs the driver.
"""

import ctypes
import errno
import os
import struct
from typing import NamedTuple

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_DIRECTORY, IS_DIRECTORY = 0x01000000, 0x40000000
# A store through a shared mapping is told when the mapping ends, as CLOSE_WRITE: the mapping holds the open file.
_WANTED = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF | _ONLY_DIRECTORY
_HEAD = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, len; then len bytes of name, padded with NUL
_BUFFER_BYTES = 1 << 16
_library = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    """One event: the watch, what happened (a mask of the names above), and the name in the watched directory (empty: itself)."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """One inotify instance. Raises `OSError` where the kernel refuses one (EMFILE: too many instances)."""

    def __init__(self) -> None:
        self.descriptor = _call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)

    def add(self, directory: int) -> int:
        """Watch the open `directory`; the same number again for the same inode. Raises `OSError`, ENOSPC at the user's limit.

        By /proc/self/fd, so that it is this inode that is watched, whatever its name stands for by now.
        """
        return _call("inotify_add_watch", self.descriptor, b"/proc/self/fd/%d" % directory, ctypes.c_uint32(_WANTED))

    def remove(self, watch: int) -> None:
        """End a watch; one that has ended by itself is fine."""
        try:
            _call("inotify_rm_watch", self.descriptor, watch)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def read(self) -> list[Event]:
        """Everything that is queued now; nothing waits."""
        events: list[Event] = []
        while True:
            try:
                data = os.read(self.descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return events
            events += parse(data)

    def close(self) -> None:
        """End all watches and forget what is queued."""
        os.close(self.descriptor)


def parse(data: bytes) -> list[Event]:
    """The events in what one read gave."""
    events = []
    position = 0
    while position < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, position)
        position += _HEAD.size + length
        events.append(Event(watch, mask, data[position - length : position].rstrip(b"\0")))
    return events


def _call(name: str, *arguments: object) -> int:
    result = int(getattr(_library, name)(*arguments))
    if result >= 0:
        return result
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
