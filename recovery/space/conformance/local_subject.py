"""Spaces of real processes, with the suite's commands as bash scripts."""

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.errors import MisuseError
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.space.bubblewrap import Bubblewrap, choose_bubblewrap
from recovery.space.holders import Holders
from recovery.space.marks import choose_marks
from recovery.space.port import Space
from recovery.space.standalone import StandaloneSpace, make_space

DEADLINE_SECS = 60.0


class LocalSubject:
    """One space in a directory; what its commands do stands in files beside it, in its workspace."""

    def __init__(self, place: Path, mark: str, bubblewrap: Bubblewrap | None = None) -> None:
        self._space = place / "space"
        self._place = place / "work"
        self._place.mkdir(exist_ok=True)
        self._mark = mark
        self._bubblewrap = bubblewrap
        self._handles: list[StandaloneSpace] = []

    def open(self) -> Space:
        self._handles.append(self._open())
        return self._handles[-1]

    def _open(self) -> StandaloneSpace:
        paths = make_space(str(self._space), RandomIds())
        holders = Holders(str(self._space.parent / "holders"), SystemClock())
        space = StandaloneSpace(paths, choose_marks(self._mark), SystemClock(), LinuxHost(), self._bubblewrap, holders)
        space.use_workspace(str(self._place), RandomIds(), lambda _: False)
        return space

    def lay(self, path: str, content: bytes | None = None, leads_to: str = "") -> None:
        if content is None:
            (self._place / path).symlink_to(leads_to)
        else:
            (self._place / path).write_bytes(content)

    def read(self, path: str) -> bytes | None:
        found = self._place / path
        return found.read_bytes() if found.is_file() else None

    def _bash(self, script: str) -> list[bytes]:
        return [b"bash", b"-c", script.encode()]

    def _file(self, data: bytes) -> str:
        path = self._place / f"data-{len(list(self._place.iterdir()))}"
        path.write_bytes(data)
        return shlex.quote(str(path))

    def exits(self, code: int) -> list[bytes]:
        return self._bash(f"exit {code}")

    def dies(self, signal: int) -> list[bytes]:
        return self._bash(f"kill -{signal} $$")

    def prints(self, out: bytes, err: bytes = b"") -> list[bytes]:
        return self._bash(f"cat {self._file(out)}; cat {self._file(err)} >&2")

    def reads(self) -> list[bytes]:
        return [b"cat"]

    def missing(self) -> list[bytes]:
        return [os.fsencode(self._place / "no-such-program")]

    def blocks(self, name: str, out: bytes = b"") -> list[bytes]:
        said = "".join(f"\\x{byte:02x}" for byte in out)
        return self._bash(self._waiting(name, f"printf '{said}'; "))

    def _waiting(self, name: str, said: str = "") -> str:
        witness, gate = (shlex.quote(str(self._place / f"{kind}-{name}")) for kind in ("witness", "gate"))
        return f"echo $$ >> {witness}; {said}until [ -e {gate} ]; do sleep 0.01; done"

    def escapes(self, name: str) -> list[bytes]:
        return self._bash(f"setsid bash -c {shlex.quote(self._waiting(name))} & wait")

    def leaves(self, name: str) -> list[bytes]:
        witness = shlex.quote(str(self._place / f"witness-{name}"))
        beside = f"bash -c {shlex.quote(self._waiting(name))} > /dev/null 2>&1 &"
        return self._bash(f"{beside} until [ -s {witness} ]; do sleep 0.01; done")

    def release(self, name: str) -> None:
        (self._place / f"gate-{name}").touch()

    def _pids(self, name: str) -> list[int]:
        path = self._place / f"witness-{name}"
        return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def witnessed(self, name: str) -> int:
        return len(self._pids(name))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECS
        while not condition():
            assert time.monotonic() < deadline, f"waited {DEADLINE_SECS:g} s for {what}"
            time.sleep(0.005)

    def is_alive(self, name: str) -> bool:
        if self._bubblewrap is not None:  # what it says is its pid is one of its own namespace
            return any(_lives(pid) for pid in _find_processes(os.fsencode(self._place / f"witness-{name};")))
        return any(_lives(pid) for pid in self._pids(name))

    def close(self) -> None:
        for path in list(self._place.glob("witness-*")):
            self.release(path.name.removeprefix("witness-"))
        for handle in self._handles:
            handle.close()
        last = self._open()
        last.advance(last.facts().floor + 1)
        last.close()


def _find_processes(part: bytes) -> list[int]:
    """Who has this in its arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if part in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def make(place: Path) -> LocalSubject:
    """A space with the strongest kill mark of this machine."""
    return LocalSubject(place, "auto")


def make_by_environment(place: Path) -> LocalSubject:
    """A space with the weakest kill mark."""
    return LocalSubject(place, "environment")


def make_namespaced(place: Path) -> LocalSubject:
    """A namespaced space with the strongest kill mark; skipped, with the reason, where it is not to be had."""
    (place / "work").mkdir()
    try:
        bubblewrap = choose_bubblewrap(["namespaced"], str(place / "work"), os.environ.get("PATH"))
    except MisuseError as error:
        pytest.skip(str(error))
    return LocalSubject(place, "auto", bubblewrap)
