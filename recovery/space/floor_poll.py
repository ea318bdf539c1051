"""Looking at the ledger's floor now and then: what a newer epoch exists for is noticed within a tenth of a second, and costs no more
than ten looks a second."""

from collections.abc import Callable

from eventlog.ports import Clock

FLOOR_POLL_SECS = 0.1


class FloorPoll:
    """The floor, looked at no more than once in FLOOR_POLL_SECS of the clock that is given."""

    def __init__(self, clock: Clock, look: Callable[[], int]) -> None:
        self._clock = clock
        self._look = look
        self._next = clock.monotonic()
        self._floor = 0

    @property
    def due_secs(self) -> float:
        """How long until the next look is due; 0 when it is."""
        return max(0.0, self._next - self._clock.monotonic())

    def look_now(self) -> int:
        """The floor as of now: for an answer, which is not counted as a poll."""
        self._floor = self._look()
        return self._floor

    def floor(self) -> int:
        """The floor as of the last look, which is made now if it is due."""
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + FLOOR_POLL_SECS
            self._floor = self._look()
        return self._floor
