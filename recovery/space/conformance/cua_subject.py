"""A space on a cua-spacesd of its own, with the suite's commands as bash scripts."""

import os
from pathlib import Path

import pytest

from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.space.conformance.local_subject import LocalSubject
from recovery.space.cua import Address, CuaSpace, open_cua
from recovery.space.cua_server import is_installed, start_server


class CuaSubject(LocalSubject):
    """One daemon and one space on it; what its commands do stands in files beside it."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, "auto")
        self.server = start_server(str(place / "server"), os.defpath, RandomIds(), SystemClock())
        self._spaces: list[CuaSpace] = []

    def open(self) -> CuaSpace:
        address = Address(self.server.url, self.server.token)
        self._spaces.append(open_cua(str(self._space), address, RandomIds(), SystemClock(), LinuxHost()))
        return self._spaces[-1]

    def close(self) -> None:
        for path in list(self._place.glob("witness-*")):
            self.release(path.name.removeprefix("witness-"))
        for space in self._spaces:
            space.close()
        self.server.stop()


def make(place: Path) -> CuaSubject:
    """A space on a daemon that listens on loopback; skipped where the package is not installed."""
    if not is_installed():
        pytest.skip("the cua package is not installed")
    return CuaSubject(place)
