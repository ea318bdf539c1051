"""How long a death is waited for: only what was looked at counts."""

import inspect
import os
import pkgutil
import re
import signal
import subprocess
import sys
from importlib import import_module

from eventlog.ports import Clock, FakeClock
from recovery.space import identity, marks
from recovery.space.allowance import LOOK_SECS, Allowance
from recovery.space.marks.descendants import describe
from tests.helpers import wait_until


class Leaping:
    """A clock of a process that is stopped for an hour between any two looks."""

    def __init__(self) -> None:
        self.looks = 0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 3600.0

    def pause(self, seconds: float) -> None:
        pass


def count_looks(clock: Clock, seconds: float) -> int:
    allowance = Allowance(clock, seconds)
    return next(looks for looks in range(1, 1000) if allowance.is_spent())


def test_a_driver_that_was_stopped_meanwhile_looks_again() -> None:
    assert count_looks(Leaping(), 10.0) == 10.0 / LOOK_SECS


def test_time_that_passes_between_looks_is_spent() -> None:
    clock = FakeClock()
    allowance = Allowance(clock, 3.0)
    looks = 0
    while not allowance.is_spent():
        clock.pause(0.5)
        looks += 1
    assert looks == 6


def test_no_wait_for_a_death_measures_time_by_itself() -> None:
    modules = [import_module(f"{marks.__name__}.{found.name}") for found in pkgutil.iter_modules(marks.__path__)]
    measured = {
        module.__name__: re.findall(r"\w+ = clock\.monotonic\(\) \+ \w+", inspect.getsource(module)) for module in [identity, *modules]
    }
    freezing = "frozen = clock.monotonic() + FREEZE_SECS"  # no death: what is not frozen by then is killed all the same
    assert {name: found for name, found in measured.items() if found} == {"recovery.space.marks.freezer": [freezing]}


def test_who_does_not_die_is_named_with_what_keeps_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]) as process:
        try:
            wait_until(lambda: "stopped" in describe([process.pid]), "the process to be stopped")
            assert re.fullmatch(rf"{process.pid} \(python\S*, stopped\)", describe([process.pid]))
            assert describe([os.getpid()]).endswith(")") and ", " not in describe([os.getpid()])
        finally:
            process.send_signal(signal.SIGKILL)
