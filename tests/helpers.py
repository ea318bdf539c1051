"""What tests of processes and trees share: waiting without sleeping, and a picture of a tree in which any change shows."""

import hashlib
import os
import select
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

POLL_SECS = 0.005
DEADLINE_SECS = 120.0
"""How long a test waits before it gives up: a test that passes never waits so long, however slow the machine. Long runs raise it."""

Node = tuple[object, ...]
T = TypeVar("T")


def wait_until(find: Callable[[], T], what: str, seconds: float = 0.0) -> T:
    """Poll until `find` returns something true, and return that. AssertionError names `what` was waited for, for `seconds` (0: for
    DEADLINE_SECS)."""
    seconds = seconds or DEADLINE_SECS
    deadline = time.monotonic() + seconds
    while True:
        found = find()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        select.select([], [], [], POLL_SECS)


def read_tree(root: str | Path) -> dict[str, Node]:
    """Every path below `root` (itself as ".") with kind, mode, times and content: two equal pictures mean that nothing was touched."""
    top = os.fspath(root)
    found = {".": _read_node(top)} if os.path.lexists(top) else {}
    for directory, names, files in os.walk(top):
        for name in names + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, top)] = _read_node(path)
    return found


def _read_node(path: str) -> Node:
    status = os.lstat(path)
    content: object = None
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
    elif stat.S_ISLNK(status.st_mode):
        content = os.readlink(path)
    return status.st_mode, status.st_ino, status.st_mtime_ns, content


def read_contents(root: str | Path) -> dict[str, bytes | None]:
    """Every path below `root`, with its bytes (None for a directory): what a workspace holds, times aside."""
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(Path(root).rglob("*"))}


def is_running(pid: int) -> bool:
    """True while a process lives (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_process(pid: int) -> None:
    """SIGKILL one process, and wait until it is dead."""
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        wait_until(lambda: select.select([descriptor], [], [], 0)[0], f"the death of process {pid}")
    finally:
        os.close(descriptor)
