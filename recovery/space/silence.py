"""Whether a shim that is waited for still answers (rule S5): one that is silent for too long is treated as gone, like a stopped one.

Its command's time limit and output live in it, so that a driver would wait for ever. Asked on a connection of its own, at most once in
ASK_SECS, and never waited for: who waits for the command goes on meanwhile. A shim that is busy (its ledger's lock, its sweep) answers when
it is done; it has `limit` seconds from the first question that it left open.
"""

import socket
from collections.abc import Callable

from eventlog.errors import BusyError
from eventlog.ports import Clock
from eventlog.process_identity import ProcessIdentity
from eventlog.show import show_text
from recovery.space.allowance import Allowance
from recovery.space.identity import is_stopped

ASK_SECS = 5.0
STOPPED_SECS = 10.0  # S5: a shim that somebody stopped holds its command's time limit as well
DEFAULT_SILENT_SECS = 60.0  # S5


class SilenceWatch:
    """`ask` opens a connection and sends the question; OSError when nobody listens. `limit` is in seconds (SESSION_SILENT_SECS)."""

    def __init__(self, ask: Callable[[], socket.socket], clock: Clock, limit: float) -> None:
        self._ask = ask
        self._clock = clock
        self._limit = limit
        self._open: socket.socket | None = None
        self._is_full = False
        self._asked = clock.monotonic()  # it has just shown that it lives
        self._left = Allowance(clock, limit)

    def is_silent(self) -> bool:
        """Look once, without waiting; True when the shim has left a question open for longer than the limit."""
        now = self._clock.monotonic()
        if self._is_full:
            self._ask_once()  # its first question is open since it could not be put
        if self._open is None and not self._is_full:
            if now - self._asked >= min(ASK_SECS, self._limit):
                self._begin(now)
            return False
        if self._has_answered():
            self.close()
            return False
        return self._left.is_spent()

    def _begin(self, now: float) -> None:
        self._asked = now
        self._left = Allowance(self._clock, self._limit)
        self._ask_once()

    def _ask_once(self) -> None:
        self._is_full = False
        try:
            self._open = self._ask()
            self._open.setblocking(False)
        except BlockingIOError:
            self._is_full = True  # it takes no connection, and has as many waiting as there can be
        except OSError:
            pass  # nobody listens: it is ending, or its attempt has; its death or its record is waited for as it is

    def _has_answered(self) -> bool:
        if self._open is None:
            return not self._is_full
        try:
            self._open.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True  # it has closed the connection: it lives
        return True

    def hear(self) -> None:
        """It has said something of itself, whatever was asked."""
        self.close()
        self._asked = self._clock.monotonic()

    def close(self) -> None:
        """Give the connection back."""
        self._is_full = False
        if self._open is not None:
            self._open.close()
            self._open = None


class Patience:
    """The bound of who is attached to a command and owns nothing of it: it ends no shim, under some marks its death could not be proved
    then. It says who does not answer, and what can be done."""

    def __init__(self, key: str, owner: str, who: ProcessIdentity, watch: SilenceWatch, clock: Clock, way_out: str) -> None:
        self._key = key
        self._owner = owner
        self._who = who
        self._watch = watch
        self._clock = clock
        self._way_out = way_out
        self._stopped: Allowance | None = None

    def check(self) -> None:
        """Look once, without waiting. Raises BusyError for a shim that was stopped for STOPPED_SECS or silent for longer than its limit."""
        is_silent = self._watch.is_silent()
        if not is_stopped(self._who):
            self._stopped = None
        elif self._stopped is None:
            self._stopped = Allowance(self._clock, STOPPED_SECS)
        pid = self._who.pid
        if self._stopped is not None and (is_silent or self._stopped.is_spent()):
            raise BusyError(
                f"{show_text(self._key)}: its {self._owner}, process {pid}, is stopped: it tells nothing and cannot be asked to end it; "
                f"`kill -CONT {pid}` lets it go on, or a newer epoch ends both: {self._way_out}"
            )
        if is_silent:
            raise BusyError(
                f"{show_text(self._key)}: its {self._owner}, process {pid}, does not answer; see what holds it, or end both: "
                f"{self._way_out}"
            )

    def close(self) -> None:
        """Give the watch's connection back."""
        self._watch.close()
