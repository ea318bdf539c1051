"""How long the death of a process is waited for, in time that was looked at.

A driver that is stopped between its kill and its next look (SIGSTOP, a suspended virtual machine, a machine that swaps) finds that its
deadline has passed although the killed process had no time to die either. Such a gap counts as one look, so that "does not die (waited
10 s)" is said only of a process that was seen alive over and over.
"""

from eventlog.ports import Clock

LOOK_SECS = 1.0
"""What the time between two looks counts as at most: 10 s are at least ten looks."""


class Allowance:
    """`seconds` to wait, of which at most LOOK_SECS are spent from one question to the next."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._left = seconds
        self._last = clock.monotonic()

    def is_spent(self) -> bool:
        """Whether the wait is over. Ask it once after each look that found what is waited for not to be so."""
        now = self._clock.monotonic()
        self._left -= min(now - self._last, LOOK_SECS)
        self._last = now
        return self._left <= 0
