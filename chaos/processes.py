"""What was alive, and the kill itself: from outside, by pidfd, with the wait status read back (never believed).

A driver is the runner's own child: its status comes from waitpid. A shim, spawner or file worker is somebody else's child: its
parent is stopped for the moment of the kill so that it cannot reap, and the zombie's exit code is read from /proc, then the parent
goes on. A process whose parent is gone is the runner's, as subreaper.
"""

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.results import Alive
from eventlog.process_identity import open_pidfd

DEATH_SECS = 20.0
STOP_POLL_SECS = 0.001


def _read(path: str) -> bytes:
    """A file of /proc, as every look at every process reads several: opened as plainly as can be."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def read_stat(pid: int) -> list[str]:
    """/proc/PID/stat after the name (state first), empty when there is no such process."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text[text.rindex(b")") + 2 :].decode("ascii").split()


def list_descendants(root: int, without: int = 0) -> list[int]:
    """Every descendant of `root` that has not ended, leaving out the tree of `without`."""
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in _children(todo.pop()):
            if pid != without:
                todo.append(pid)
                if read_stat(pid)[:1] not in (["Z"], []):
                    found.append(pid)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


def list_alive(root: int, without: int, roles: Mapping[int, str]) -> tuple[Alive, ...]:
    """The live processes of a trial by role: what passed a step of the engine, a `command` or what one started, else a `fork`."""
    commands: set[int] = set()
    alive = []
    for pid in list_descendants(root, without):  # parents first
        if is_command(pid) or int((read_stat(pid) or ["", "0"])[1]) in commands:
            commands.add(pid)
        alive.append(Alive(pid, "command" if pid in commands else roles.get(pid, "fork"), _name(pid)))
    return tuple(alive)


def is_command(pid: int) -> bool:
    """Whether the process was executed with a call's key in its environment: forks of the engine never are."""
    try:
        return b"\0CALL_KEY=" in b"\0" + _read(f"/proc/{pid}/environ")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def _name(pid: int) -> str:
    try:
        return _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill_child(pid: int) -> None:
    """SIGKILL a child of this process. Its wait status is the caller's to read."""
    os.kill(pid, signal.SIGKILL)


def kill_other(pid: int) -> int:
    """SIGKILL a process that need not be a child; the signal it died of by its own exit status, 0 when it did not die of one."""
    parent = int((read_stat(pid) or ["", "0"])[1])
    descriptor = os.pidfd_open(pid)
    stopped = parent if parent not in (0, 1, os.getpid()) else 0
    try:
        if stopped:
            os.kill(stopped, signal.SIGSTOP)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        wait_readable(descriptor, DEATH_SECS, f"the death of process {pid}")
        status = _zombie_status(pid)
    finally:
        os.close(descriptor)
        if stopped:
            os.kill(stopped, signal.SIGCONT)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def read_death(pid: int) -> int:
    """The signal that an ended, unreaped process died of by its own exit status; 0 when it lives, is reaped, or did not die of one."""
    fields = read_stat(pid)
    status = int(fields[-1]) if fields[:1] == ["Z"] else 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _zombie_status(pid: int) -> int:
    """The wait status a zombie holds for its parent (the last field of its stat)."""
    fields = read_stat(pid)
    if fields[:1] != ["Z"]:
        raise TimeoutError(f"process {pid} was reaped before its status could be read")
    return int(fields[-1])


def wait_readable(descriptor: int, seconds: float, what: str) -> None:
    """Wait until a descriptor is readable; TimeoutError says what was waited for."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(int(seconds * 1000)):
        raise TimeoutError(f"waited {seconds:g} s for {what}")


def end_everything(root: int, without: int) -> list[int]:
    """SIGKILL what is left of a trial and reap it; the pids that were still alive."""
    left = list_descendants(root, without)
    while remaining := list_descendants(root, without):
        for pid in remaining:
            descriptor = open_pidfd(pid)
            if descriptor is None:
                continue
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                wait_readable(descriptor, DEATH_SECS, f"the death of process {pid}")
            except ProcessLookupError:
                pass
            finally:
                os.close(descriptor)
        reap_all(without)
    reap_all(without)
    return left


def reap_all(without: int) -> None:
    """Reap every ended child but `without`."""
    for pid in _children(os.getpid()):
        if pid != without and read_stat(pid)[:1] == ["Z"]:
            os.waitpid(pid, 0)


def stop_process(pid: int, seconds: float) -> bool:
    """SIGSTOP a process and wait until it is seen stopped; False when it ended instead. TimeoutError when it does neither."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while (state := (read_stat(pid) or ["X"])[0]) not in ("T", "Z", "X"):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {seconds:g} s for process {pid} to stop")
        select.select([], [], [], STOP_POLL_SECS)
    return state == "T"


def is_running(pid: int) -> bool:
    """Whether there is a process of this number that has not ended."""
    return read_stat(pid)[:1] not in ([], ["Z"], ["X"])


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return (read_stat(pid) or ["X"])[0] == "T"


def holds_write_lock(pid: int, path: Path | None = None) -> bool:
    """Whether a process holds a POSIX write lock on a file (None: on anything), by the kernel's own list."""
    for line in Path("/proc/locks").read_text("ascii").splitlines():
        fields = line.split()
        if fields[1:2] == ["POSIX"] and "WRITE" in fields and str(pid) in fields[4:5]:
            if path is None or (path.exists() and fields[5].rpartition(":")[2] == str(path.stat().st_ino)):
                return True
    return False


def wait_all_ended(pids: Sequence[int], seconds: float) -> bool:
    """Wait until every one of some processes has ended; False when one has not after `seconds`."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        descriptor = open_pidfd(pid)
        if descriptor is None:
            continue
        try:
            wait_readable(descriptor, max(0.0, deadline - time.monotonic()), f"the end of process {pid}")
        except TimeoutError:
            return False
        finally:
            os.close(descriptor)
    return True
