"""The clock of the workspace's own file system, and which times are old enough to tell one version of a file from the next.

A file changed after it was looked at gets a change time of at least what the file system's clock showed before the look. So an entry whose
change time is older than that, by more than the clock's granularity, is told from every later version by its change time. The clock is
read from an unnamed file (O_TMPFILE) in the root: it has no name, so that no path and no directory's time changes and whoever reads it
writes nothing into the workspace. Where the file system has no unnamed files nothing is trusted: correct, and slow.
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


def trusted_before(root: int) -> int:
    """Change times (ns) below this are old enough, by the clock of the open directory `root`; 0 trusts nothing."""
    flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(b".", flags, 0o600, dir_fd=root)
        try:
            now = os.fstat(descriptor).st_ctime_ns
        finally:
            os.close(descriptor)
        return now - (COARSE_MARGIN_NS if now % _COARSE_NS == 0 else FINE_MARGIN_NS)
    return 0
