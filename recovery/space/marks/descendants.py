"""The tree below a process, by parent pids. Complete only while its root lives as subreaper: then no descendant can leave it."""

import os

from eventlog.errors import FenceIncompleteError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, read_start_ticks, read_stat
from eventlog.show import show_text
from recovery.space.identity import kill_and_wait
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED


def list_processes() -> list[int]:
    """Every process that /proc shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def list_descendants(root: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """All descendants of `root`, by parent pid, without the trees below `spare`."""
    children: dict[int, list[int]] = {}
    for pid in list_processes():
        fields = read_stat(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            if pid not in spare:
                found.append(pid)
                todo.append(pid)
    return found


def list_living(root: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """The descendants of `root` that are no zombies."""
    return [pid for pid in list_descendants(root, spare) if not is_zombie(pid)]


def kill_descendants(root: int, host: Host, clock: Clock, spare: frozenset[int] = frozenset(), seconds: float = DEATH_SECS) -> int:
    """Kill every descendant of `root` (itself not) until two sweeps in a row find nobody; how many were killed.

    Raises FenceIncompleteError naming who lives after `seconds`.
    """
    deadline = clock.monotonic() + seconds
    killed: set[tuple[int, int]] = set()
    empty = 0
    while empty < 2:
        found = list_living(root, spare)
        empty = 0 if found else empty + 1
        for pid in found:
            ticks = read_start_ticks(pid)
            if ticks is not None:
                killed.add((pid, ticks))
                kill_and_wait(ProcessIdentity(pid, ticks, host.boot_id(), host.pid_namespace()), host, clock, 0.05)
        if found and clock.monotonic() >= deadline:
            raise FenceIncompleteError(f"processes {describe(found)} do not die (waited {seconds:g} s); {NOTHING_TOUCHED}")
    return len(killed)


def is_zombie(pid: int) -> bool:
    """True for a process all of whose threads have ended and that only waits to be reaped, and for one that is gone."""
    fields = read_stat(pid)
    if fields is None:
        return True
    if fields[0] not in ("Z", "X"):
        return False
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def describe(pids: list[int]) -> str:
    """Processes for a message: `12 (bash), 13 (sleep)`, at most ten of them, or "unknown"."""
    shown = [f"{pid} ({_name(pid)})" for pid in sorted(pids)[:10]]
    more = f" and {len(pids) - 10} more" if len(pids) > 10 else ""
    return ", ".join(shown) + more or "unknown"


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return show_text(os.fsdecode(file.read().rstrip(b"\n")))
    except OSError:
        return "gone"
