"""Crash points: named instants that code passes, where a harness may hold a process until it is killed.

A step is `ROLE@EPOCH:NAME:N`; N counts the passes of NAME in this process since it started. Without a hook a pass costs
one comparison. Steps at COMMIT, fsync, rename, unlink, spawn and kill are emitted by the one module that does
these things, never by hand at call sites.

The step socket is the contract with any harness: a process that passes a step it was told to announce connects to a
Unix stream socket, sends one line `STEP PID\n`, and, when told to wait there, reads until one byte arrives. It never times out: the
harness kills or releases it. Every pass is also appended to the trace file as one line `STEP PID\n` (one O_APPEND write).
"""

import os
import socket
from collections.abc import Mapping
from typing import Protocol

TRACE_VARIABLE = "CRASHWORTHY_STEP_TRACE"
SOCKET_VARIABLE = "CRASHWORTHY_STEP_SOCKET"
WAIT_VARIABLE = "CRASHWORTHY_STEP_WAIT"
TELL_VARIABLE = "CRASHWORTHY_STEP_TELL"


class Hook(Protocol):
    """What a harness installs to learn of steps."""

    def pass_step(self, step: str) -> None:
        """Called at each pass; may not return (the process is killed while it waits)."""


class Process:
    """Who a process is to the harness. One per process by nature: a crash point is a property of the process. A simulation, which has
    several in one, says each time which of them goes on (`become`)."""

    __slots__ = ("counts", "epoch", "hook", "role")

    def __init__(self) -> None:
        self.hook: Hook | None = None
        self.role = "driver"
        self.epoch = 0
        self.counts: dict[str, int] = {}


_process = Process()


def become(process: Process) -> None:
    """Go on as another process of a simulation: its role, its epoch, its counts, its hook."""
    global _process
    _process = process


def install(hook: Hook | None) -> None:
    """Make `hook` learn of every step of this process and of the processes it forks; None removes it."""
    _process.hook = hook


def is_watched() -> bool:
    """Whether a hook is installed, so that a pass of a step may be seen."""
    return _process.hook is not None


def enter(role: str, epoch: int) -> None:
    """State this process's role and epoch (after a fork) and count its steps from zero; passes the step `start`."""
    _process.role = role
    _process.epoch = epoch
    _process.counts = {}
    reach("start")


def current_epoch() -> int:
    """The epoch that this process stated, or the one that forked it; 0 before any."""
    return _process.epoch


def reach(name: str) -> None:
    """Pass the step `name`."""
    hook = _process.hook
    if hook is None:
        return
    count = _process.counts.get(name, 0) + 1
    _process.counts[name] = count
    hook.pass_step(f"{_process.role}@{_process.epoch}:{name}:{count}")


class StepSocket:
    """The hook that speaks the step-socket contract of this module.

    `trace` and `address` are paths ("" for none); `wait` and `tell` are sets of full step names.
    """

    def __init__(self, trace: str, address: str, wait: frozenset[str], tell: frozenset[str]) -> None:
        self._trace = trace
        self._descriptor = -1
        self._address = address
        self._wait = wait
        self._tell = tell

    def pass_step(self, step: str) -> None:
        line = f"{step} {os.getpid()}\n".encode()
        if self._trace:
            if self._descriptor < 0:  # kept open, for the processes forked from here too
                self._descriptor = os.open(self._trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(self._descriptor, line)
        waits = step in self._wait
        if not waits and step not in self._tell:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self._address)
            connection.sendall(line)
            if waits:
                connection.recv(1)


def hook_from_environment(environ: Mapping[str, str]) -> Hook | None:
    """The hook that a harness asked for through the environment, or None. Lists are separated by spaces."""
    trace, address = environ.get(TRACE_VARIABLE, ""), environ.get(SOCKET_VARIABLE, "")
    if not trace and not address:
        return None
    wait = frozenset(environ.get(WAIT_VARIABLE, "").split())
    tell = frozenset(environ.get(TELL_VARIABLE, "").split())
    return StepSocket(trace, address, wait, tell)
