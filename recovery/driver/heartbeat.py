"""`HEARTBEAT <epoch> <unix_ms> <progress>` on stdout, from a thread of its own (driver contract). It passes no steps and touches no log."""

import threading
from collections.abc import Callable
from types import TracebackType

from eventlog.ports import Clock


class Heartbeat:
    """Beats while it is entered. `progress` is any number that grows when the session gets on."""

    def __init__(self, epoch: int, seconds: float, clock: Clock, say: Callable[[str], None], progress: Callable[[], int]) -> None:
        self._epoch = epoch
        self._seconds = seconds
        self._clock = clock
        self._say = say
        self._progress = progress
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def _beat(self) -> None:
        self._say(self.line())
        while not self._stop.wait(self._seconds):
            self._say(self.line())

    def line(self) -> str:
        """One heartbeat."""
        return f"HEARTBEAT {self._epoch} {self._clock.now_ms()} {self._progress()}"

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
