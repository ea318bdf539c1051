"""Waiting for a lock of the log: short naps up to a bound, by a clock that is passed in.

SQLite's own wait goes up to 100 ms between two looks, so that of two writers the one that has just committed nearly always gets the lock
again. Naps that stay short give each waiter its turn, and an interrupt is answered at once.
"""

from collections.abc import Sequence

from eventlog.ports import Clock

NAPS_MS: Sequence[float] = (0.2, 0.2, 0.5, 0.5, 1, 1, 2, 2, 5)
"""The pauses between looks; the last one goes on. A commit takes 0.02 ms (memory) to some ms (disk)."""


class BusyWait:
    """A busy handler of SQLite: whether to look again, after a nap; False once `bound_ms` have passed since the first look."""

    def __init__(self, clock: Clock, bound_ms: int) -> None:
        self._clock = clock
        self._bound_secs = bound_ms / 1000
        self._since = 0.0

    def __call__(self, looks: int) -> bool:
        if looks == 0:
            self._since = self._clock.monotonic()
        left = self._since + self._bound_secs - self._clock.monotonic()
        if left <= 0:
            return False
        self._clock.pause(min(left, NAPS_MS[min(looks, len(NAPS_MS) - 1)] / 1000))
        return True
