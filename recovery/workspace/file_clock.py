"""The clock of the workspace's own file system, and which times are old enough to tell one version of a file from the next.

A file changed after it was looked at gets a change time of at least what the file system's clock showed before the look. So an entry whose
change time is older than that, by more than the clock's granularity, is told from every later version by its change time. The clock is
read from an unnamed file (O_TMPFILE) in the root: it has no name, so that no path and no directory's time changes and whoever reads it
writes nothing into the workspace. Where the file system has no unnamed files nothing is trusted: correct, and slow.

Since Linux 6.13 most local file systems stamp finer than a tick what was looked at since its last change ("multigrain timestamps" in the
kernel's documentation), and no later change anywhere gets an earlier stamp than that one. Whoever looks first and remembers the version it
saw then tells it from every later one, however young it was: there is no margin. It is proved on the unnamed file each time, and by a
write, as it is written data that must not be missed: two changes in a row whose times differ by less than the shortest tick.
"""

import contextlib
import os

_SECOND = 10**9
FINE_MARGIN_NS = 20_000_000
"""Twice the coarsest tick of a kernel (100 per second): times of the fine kind move at least so often."""
COARSE_MARGIN_NS = 2 * _SECOND
"""For file systems that keep whole or even seconds."""
_COARSE_NS = 10_000_000
"""A clock that shows a whole multiple of this keeps coarser times than the fine margin covers; a finer one shows that once in ten
million."""
_SHORTEST_TICK_NS = 1_000_000
"""Of a kernel of 1,000 ticks per second; twice as much room is left as a clock that is being set right needs."""


def trusted_before(root: int) -> int:
    """Change times (ns) below this are old enough, by the clock of the open directory `root`; 0 trusts nothing."""
    flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(b".", flags, 0o600, dir_fd=root)
        try:
            now = os.fstat(descriptor).st_ctime_ns
            return _read_fine(descriptor) or now - (COARSE_MARGIN_NS if now % _COARSE_NS == 0 else FINE_MARGIN_NS)
        finally:
            os.close(descriptor)
    return 0


def _read_fine(descriptor: int) -> int:
    """The clock now, where each change of what was looked at gets a time of its own; 0 where that is not shown."""
    try:
        os.write(descriptor, b"1")  # the file was looked at: this time is a fine one, if there are such
        first = os.fstat(descriptor).st_ctime_ns
        os.write(descriptor, b"2")
        second = os.fstat(descriptor).st_ctime_ns
    except OSError:  # no room, say
        return 0
    return second if 0 < second - first < _SHORTEST_TICK_NS // 2 else 0
