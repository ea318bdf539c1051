"""The directories of one run of a target, and the environment that tells the target of them (chaos/README, "Targets")."""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.zygote_client import SHARED_BY_FORKS
from eventlog import steps

HELPER = Path(__file__).resolve().with_name("announce.py")
NOT_HANDED_ON = ("CHAOS_", "CRASHWORTHY_", "SESSION_")
"""How variables begin that a target gets from its harness or not at all."""


@dataclass(frozen=True, slots=True)
class TargetPlace:
    """The directories of one trial, all below `directory`."""

    directory: Path

    @property
    def work(self) -> Path:
        """The target's current directory: the files it is there to change."""
        return self.directory / "work"

    @property
    def state(self) -> Path:
        """Where the target keeps what it needs to go on after a crash."""
        return self.directory / "state"

    @property
    def outside(self) -> Path:
        """For effects that nothing takes back: the witness of the standard workload."""
        return self.directory / "outside"

    @property
    def given(self) -> tuple[Path, Path, Path]:
        """The three directories that a target may use."""
        return self.work, self.state, self.outside

    def trace(self, start: int) -> Path:
        """The steps that a start passed, counted from 1."""
        return self.directory / f"trace-{start}"

    def strace(self, start: int = 1) -> Path:
        """What strace writes of a start in which it kills."""
        return self.directory / f"strace-{start}"

    @property
    def announce(self) -> Path:
        """The program with which a shell announces a step."""
        return self.directory / "announce"

    def output(self, start: int) -> Path:
        """Standard output of a start, counted from 1; of the check for 0."""
        return self.directory / (f"target-{start}.out" if start else "check.out")

    def errors(self, start: int) -> Path:
        """Standard error likewise."""
        return self.directory / (f"target-{start}.err" if start else "check.err")


def make_place(directory: Path) -> TargetPlace:
    """The three directories, empty, and the program that announces."""
    place = TargetPlace(directory)
    for one in place.given:
        one.mkdir(parents=True)
    python = shlex.join([sys.executable, "-I", "-S", str(HELPER)])
    place.announce.write_text(f'#!/bin/sh\nexec {python} "$@"\n', "utf-8")
    place.announce.chmod(0o755)
    return place


@contextmanager
def short_address() -> Iterator[str]:
    """A path for a Unix socket, which may have about a hundred bytes: trials lie deeper than that now and then."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as directory:
        yield os.path.join(directory, "steps")


def make_environment(
    given: Mapping[str, str],
    place: TargetPlace,
    attempt: int,
    workload: int = 0,
    address: str = "",
    armed: frozenset[str] = frozenset(),
    *,
    is_told: bool = True,
) -> dict[str, str]:
    """The environment of start `attempt`: the caller's own, and the contract; of steps only where `is_told` of them."""
    dropped = (*NOT_HANDED_ON, *SHARED_BY_FORKS)
    own = {name: value for name, value in given.items() if not name.startswith(dropped)}
    told = {
        "CHAOS_WORK": str(place.work),
        "CHAOS_STATE": str(place.state),
        "CHAOS_OUTSIDE": str(place.outside),
        "CHAOS_ATTEMPT": str(attempt),
        "CHAOS_ANNOUNCE": str(place.announce),
        **({"CHAOS_WORKLOAD": str(workload)} if workload else {}),
        # A driver of this engine finds the same directories under the names of its own contract.
        "SESSION_WORKSPACE": str(place.work),
        "SESSION_STATE_DIR": str(place.state),
        "SESSION_HOLDERS_DIR": str(place.directory / "holders"),
    }
    if not is_told:
        return own | told
    # A driver of this engine that finds its epoch itself calls it 0.
    wait = " ".join(sorted(armed | {step.replace(f"@{attempt}:", "@0:") for step in armed}))
    trace = str(place.trace(attempt))
    socket = {"CHAOS_STEP_TRACE": trace, "CHAOS_STEP_SOCKET": address, "CHAOS_STEP_WAIT": wait}
    engine = {steps.TRACE_VARIABLE: trace, steps.SOCKET_VARIABLE: address, steps.WAIT_VARIABLE: wait}
    return own | told | socket | engine
