"""`HEARTBEAT <epoch> <unix_ms> <progress>` on stdout, from a thread of its own (driver contract). It passes no steps and touches no log.

A driver that was frozen and superseded must say nothing more when it wakes (case 23): each beat looks at the ledger's floor first, and none
comes from below it. The thread opens the ledger for that look itself; the ledger's lock is a file of its own, which it never opens.
"""

import threading
from collections.abc import Callable
from types import TracebackType

from eventlog.errors import CrashworthyError
from eventlog.ports import Clock
from recovery.space.ledger import LedgerView


def watch_floor(ledger: str, epoch: int) -> Callable[[], bool]:
    """Whether the floor of the ledger at this path is above `epoch`. A ledger that cannot be read says nothing of that."""

    def is_superseded() -> bool:
        try:
            view = LedgerView(ledger)
        except (CrashworthyError, OSError):
            return False
        try:
            return view.floor > epoch
        finally:
            view.close()

    return is_superseded


class Heartbeat:
    """Beats while it is entered, until `is_superseded`. `progress` is any number that grows when the session gets on."""

    def __init__(
        self, epoch: int, seconds: float, clock: Clock, say: Callable[[str], None], progress: Callable[[], int],
        is_superseded: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._epoch = epoch
        self._seconds = seconds
        self._clock = clock
        self._say = say
        self._progress = progress
        self._is_superseded = is_superseded
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def _beat(self) -> None:
        while not self._is_superseded():
            self._say(self.line())
            if self._stop.wait(self._seconds):
                return

    def line(self) -> str:
        """One heartbeat."""
        return f"HEARTBEAT {self._epoch} {self._clock.now_ms()} {self._progress()}"

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
