"""The one idle process that a warm redriver keeps for whichever of its sessions needs the next driver."""

import contextlib
from collections.abc import Mapping

from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity
from recovery.redrive.starting import IdleDriver, start_idle


class Pool:
    """Holds one idle process, or none (`is_warm` False). An idle one that died is not handed out."""

    def __init__(self, environment: Mapping[str, str], host: Host, is_warm: bool) -> None:
        self._environment = environment
        self._host = host
        self._is_warm = is_warm
        self._idle: IdleDriver | None = None
        self.refill()

    def refill(self) -> None:
        """See to it that one is ready, or getting ready."""
        if self._idle is not None and self._idle.poll() is not None:
            self._idle.close()
            self._idle = None
        if self._is_warm and self._idle is None:
            self._idle = start_idle(self._environment, self._host)

    def expect(self) -> None:
        """A start is likely: one gets ready meanwhile, also where none is kept."""
        if self._idle is None:
            with contextlib.suppress(OSError):  # `take` meets it again, and says so
                self._idle = start_idle(self._environment, self._host)

    @property
    def waiting(self) -> ProcessIdentity | None:
        """The process that waits to be told, if there is one."""
        return self._idle.identity if self._idle is not None and self._idle.poll() is None else None

    def take(self) -> IdleDriver:
        """One that has not been told anything yet. Raises OSError."""
        idle, self._idle = self._idle, None
        if idle is not None and idle.poll() is None:
            return idle
        if idle is not None:
            idle.close()
        return start_idle(self._environment, self._host)

    def close(self) -> None:
        """Let the idle one go: it ends when its input does."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None
