"""The space in memory, with the suite's commands as programs."""

from collections.abc import Callable, Iterator
from pathlib import Path

from eventlog.events import Exit
from eventlog.ports import FakeClock, FakeHost
from recovery.space.memory import Act, Await, Finish, MemorySpace, MemoryWorld, Program, Say
from recovery.space.memory_files import Link
from recovery.space.port import Space
from recovery.space.request import CommandRequest


class MemorySubject:
    """One world in memory."""

    def __init__(self) -> None:
        self._programs: dict[bytes, Program] = {}
        self.clock = FakeClock()
        self._world = MemoryWorld(self._programs, self.clock, FakeHost())
        self._released: set[str] = set()
        self._witnessed: dict[str, int] = {}
        self._living: dict[str, str] = {}

    def open(self) -> Space:
        return MemorySpace(self._world)

    def _named(self, name: bytes, program: Program) -> list[bytes]:
        self._programs[name] = program
        return [name]

    def exits(self, code: int) -> list[bytes]:
        return self._named(b"exits %d" % code, lambda _: iter([Finish(Exit("exited", code=code))]))

    def dies(self, signal: int) -> list[bytes]:
        return self._named(b"dies %d" % signal, lambda _: iter([Finish(Exit("signaled", signal=signal))]))

    def prints(self, out: bytes, err: bytes = b"") -> list[bytes]:
        return self._named(b"prints " + out + b"\0" + err, lambda _: iter([Say("out", out), Say("err", err)]))

    def reads(self) -> list[bytes]:
        return self._named(b"reads", lambda request: iter([Say("out", request.stdin or b"")]))

    def missing(self) -> list[bytes]:
        return [b"missing"]

    def blocks(self, name: str, out: bytes = b"") -> list[bytes]:
        def program(request: CommandRequest) -> Iterator[Act]:
            self._witnessed[name] = self._witnessed.get(name, 0) + 1
            self._living[name] = request.key
            yield Say("out", out)
            yield Await(lambda: name in self._released)

        return self._named(b"blocks " + name.encode(), program)

    def escapes(self, name: str) -> list[bytes]:
        return self.blocks(name)  # there are no groups to leave

    def leaves(self, name: str) -> list[bytes]:
        def program(request: CommandRequest) -> Iterator[Act]:
            self._witnessed[name] = self._witnessed.get(name, 0) + 1
            self._living[name] = request.key
            yield Finish(Exit("exited", code=0))

        return self._named(b"leaves " + name.encode(), program)

    def release(self, name: str) -> None:
        self._released.add(name)

    def witnessed(self, name: str) -> int:
        return self._witnessed.get(name, 0)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self._world.run()
        assert condition(), f"{what} did not come about"

    def is_alive(self, name: str) -> bool:
        return name in self._living and self._world.is_running(self._living[name])

    def lay(self, path: str, content: bytes | None = None, leads_to: str = "") -> None:
        self._world.files[path.encode()] = Link(leads_to.encode()) if content is None else content

    def read(self, path: str) -> bytes | None:
        found = self._world.files.get(path.encode())
        return found if isinstance(found, bytes) else None

    def close(self) -> None:
        """Nothing is left."""


def make(place: Path) -> MemorySubject:
    """A new space; `place` is not used."""
    return MemorySubject()
