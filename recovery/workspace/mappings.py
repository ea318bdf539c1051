"""Files that processes have mapped shared: a store to a page that is dirty already moves neither of a file's times.

Told by inode number alone: on a file system of several layers the device in /proc/PID/maps is another than stat gives. A file too many is
hashed once more, which is harmless.
"""

import contextlib
from collections.abc import Iterable


def read_mapped(processes: Iterable[int]) -> frozenset[int] | None:
    """The inode numbers of all files that `processes` (pids) have mapped shared now; None when one of them may not be asked: then any file
    may be. A process that is gone has none. A mapping that is not writable counts too: mprotect makes it so."""
    found: set[int] = set()
    for pid in processes:
        try:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/maps", "rb") as file:
                found.update(int(line.split(maxsplit=5)[4]) for line in file if line.split(b" ", 2)[1][3:4] == b"s")
        except PermissionError:
            return None
    return frozenset(found - {0})
