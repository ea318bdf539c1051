"""Processes that become drivers: started, imported and idle, until they are told what to drive.

Order: the process is there and waits for one line on its standard input; its identity is counted in the redriver's record; only then it is
told. A redriver that dies before leaves a process that reads the end of its input and ends, having done nothing. Each is executed anew: no
handle of the redriver, no lock, no thread is in it (DESIGN section 4).
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

import msgspec

from eventlog.errors import required
from eventlog.ports import Host
from eventlog.process_identity import ProcessIdentity, identify

OUTPUT_DIRECTORY = "redrive"
_IDLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "idle.py")
_PATHS_SAY_ALL = frozenset({"_frozen_importlib", "_frozen_importlib_external", "_distutils_hack"})
"""Where those finders come from that find modules by `sys.path`, in the interpreter, or (the last one) `distutils` alone."""
_OF_SITE = frozenset({"sitecustomize", "usercustomize"})
FILES_KEPT = 20
"""Drivers whose output stays."""


class Start(msgspec.Struct, frozen=True):
    """What one driver is told: whose state, under which epoch, where its output goes."""

    state: str
    epoch: int
    on_interrupted: str
    accept_outside: str
    out: str
    err: str


def encode_start(start: Start) -> bytes:
    """The line that says so."""
    told = [start.state, start.epoch, start.on_interrupted, start.accept_outside, start.out, start.err]
    return json.dumps(told).encode() + b"\n"


class IdleDriver:
    """A process that waits to be told."""

    def __init__(self, process: "subprocess.Popen[bytes]", identity: ProcessIdentity) -> None:
        self._process = process
        self.identity = identity
        self._descriptor = os.pidfd_open(process.pid)

    def tell(self, start: Start) -> None:
        """Let it begin. One that died meanwhile is met as a driver that ended."""
        pipe = required(self._process.stdin, "a process that waits to be told was started without a pipe")
        with contextlib.suppress(BrokenPipeError):
            pipe.write(encode_start(start))
            pipe.flush()
        with contextlib.suppress(BrokenPipeError):
            pipe.close()

    @property
    def descriptor(self) -> int:
        """Its pidfd: readable when it has ended."""
        return self._descriptor

    def poll(self) -> int | None:
        """Its exit code, minus the signal; None while it lives."""
        return self._process.poll()

    def close(self) -> None:
        """Give up what is held of it; one that was not told ends by itself."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        os.close(self._descriptor)


def idle_command(finders: Sequence[object], environment: Mapping[str, str]) -> list[str]:
    """The command of an idle process. Without `site`, which costs a start a tenth of its time, where the paths of this process say all
    about where its modules are: nobody finds some in another way (as some editable installations do), no module of the person's own
    (`sitecustomize`) has to be there, nothing measures what starts (coverage), and its first lines are a file, not part of an archive."""
    is_told_by_paths = all(getattr(finder, "__module__", "") in _PATHS_SAY_ALL for finder in finders)
    is_left_alone = not _OF_SITE.intersection(sys.modules) and not any(name.startswith("COVERAGE_") for name in environment)
    if not (is_told_by_paths and is_left_alone and os.path.isfile(_IDLE)):
        return [sys.executable, "-m", "recovery.redrive.idle"]
    return [sys.executable, "-S", "-P", _IDLE, *(os.path.abspath(path) for path in sys.path)]


def start_idle(environment: Mapping[str, str], host: Host) -> IdleDriver:
    """Start a process that waits to be told. Raises OSError."""
    process = subprocess.Popen(
        idle_command(sys.meta_path, environment), env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        start_new_session=True,  # what is typed at the redriver's terminal is for the redriver
    )  # fmt: skip
    identity = identify(process.pid, host)  # a zombie has one too: it is our child and not waited for
    if identity is None:
        raise ProcessLookupError(f"started process {process.pid} is not in /proc")
    return IdleDriver(process, identity)


def output_paths(state: str, epoch: int) -> tuple[str, str]:
    """Where the driver of an epoch writes: standard output and error."""
    directory = os.path.join(state, OUTPUT_DIRECTORY)
    return os.path.join(directory, f"out-{epoch}"), os.path.join(directory, f"err-{epoch}")


def output_size(state: str, epoch: int) -> int | None:
    """How many bytes of standard output there are; None where it cannot be looked at."""
    try:
        return os.stat(output_paths(state, epoch)[0]).st_size
    except OSError:
        return None


def last_sentence(state: str, epoch: int) -> str:
    """The last line that a driver said to people; "" without one."""
    path = output_paths(state, epoch)[1]
    try:
        with open(path, "rb") as file:
            _seek_tail(file)
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("recovery: ") if said else ""


def _seek_tail(file: IO[bytes]) -> None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 65536))


def old_outputs(state: str) -> list[str]:
    """The files of drivers older than the newest FILES_KEPT."""
    directory = os.path.join(state, OUTPUT_DIRECTORY)
    epochs = sorted({int(name[4:]) for name in os.listdir(directory) if name[:4] in ("out-", "err-") and name[4:].isdigit()})
    return [path for epoch in epochs[:-FILES_KEPT] for path in output_paths(state, epoch) if os.path.lexists(path)]
