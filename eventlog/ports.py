"""The world, as ports: clock, ids and this machine's boot. They enter at the top and are passed down.

Real ones and fakes run the same conformance suite (tests/conformance).
"""

import math
import os
import time
from typing import Protocol


class Clock(Protocol):
    """Time. `now_ms` is for people (events are ordered by seq); `monotonic` (seconds) is for deadlines; `pause` waits a little
    between polls."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def pause(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Random 16-byte identifiers, unique for ever."""

    def new_id(self) -> bytes: ...


class Host(Protocol):
    """What tells this boot of this machine from any other."""

    def boot_id(self) -> str: ...

    def pid_namespace(self) -> int: ...


class SystemClock:
    """The operating system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class RandomIds:
    """Identifiers from the operating system's random source."""

    def new_id(self) -> bytes:
        return os.urandom(16)


class LinuxHost:
    """Boot id and pid namespace from /proc. A process lives under one boot, so that the boot id is read once."""

    def __init__(self) -> None:
        self._boot_id = ""

    def boot_id(self) -> str:
        if not self._boot_id:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                self._boot_id = file.read().strip()
        return self._boot_id

    def pid_namespace(self) -> int:
        return os.stat("/proc/self/ns/pid").st_ino


class FakeClock:
    """A clock that moves only when it is told to, or when somebody pauses."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._now_ms = now_ms
        self.pauses = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now_ms += max(1, math.ceil(seconds * 1000))


class CountingIds:
    """Identifiers 1, 2, 3 ... as 16 bytes."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def new_id(self) -> bytes:
        self._next += 1
        return (self._next - 1).to_bytes(16, "big")

    def copy(self) -> "CountingIds":
        """Counts on from here, apart from this one."""
        return CountingIds(self._next)


class FakeHost:
    """A host whose boot id can be changed, as a reboot does."""

    def __init__(self, boot: str = "boot-1", namespace: int = 1) -> None:
        self.boot = boot
        self.namespace = namespace

    def boot_id(self) -> str:
        return self.boot

    def pid_namespace(self) -> int:
        return self.namespace
