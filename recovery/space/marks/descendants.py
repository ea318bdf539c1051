"""The tree below a process, by parent pids. Complete only while its root lives as subreaper: then no descendant can leave it."""

import contextlib
import os
import signal

from eventlog.errors import FenceIncompleteError
from eventlog.ports import Clock
from eventlog.process_identity import read_stat
from eventlog.show import show_text
from recovery.space.allowance import Allowance
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED

_STATES = {"D": ", in a system call that no signal ends", "T": ", stopped", "t": ", held by a tracer", "Z": ", ended but for a thread"}
"""By the state of proc(5): what may keep a process from dying. One that runs or sleeps is only named."""


def list_processes() -> list[int]:
    """Every process that /proc shows, the youngest first: whoever looks at them meets those that soon are gone while they are there."""
    newest = read_newest()
    return sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), key=lambda pid: (pid > newest, -pid))


def read_newest() -> int:
    """The number that was given to a process last; numbers are given in turn."""
    descriptor = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)  # a file object asks five times more of the kernel
    try:
        return int(os.read(descriptor, 256).split()[4])
    finally:
        os.close(descriptor)


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


def end_children(clock: Clock, seconds: float = DEATH_SECS) -> None:
    """Kill every descendant of this process, which is a subreaper, and reap them. Raises FenceIncompleteError naming who lives after
    `seconds`.

    Exact, whatever forks meanwhile: a living descendant has a living ancestor among our children, so none lives when we have none.
    """
    allowance = Allowance(clock, seconds)
    while reap_children():
        children = list_children(os.getpid())
        for pid in children:
            kill_child_of(os.getpid(), pid)
        if allowance.is_spent():
            who = describe(list_living(os.getpid()))
            raise FenceIncompleteError(f"processes {who} do not die (waited {seconds:g} s); {NOTHING_TOUCHED}")


def kill_descendants(root: int, clock: Clock, spare: frozenset[int] = frozenset(), seconds: float = DEATH_SECS) -> None:
    """Kill every descendant of `root`, which is a stopped subreaper and therefore reaps nobody. Raises FenceIncompleteError.

    Exact, whatever forks meanwhile: who ends hands its children to `root` before it is seen dead, and stays in the list. So when all in
    the list were seen dead, and a second reading shows nobody new, nobody lives.
    """
    allowance = Allowance(clock, seconds)
    seen: list[int] | None = None
    while True:
        children = [pid for pid in list_children(root) if pid not in spare]
        living = [pid for pid in children if not is_zombie(pid)]
        if not living and children == seen:
            return
        seen = None if living else children
        for pid in living:
            kill_child_of(root, pid)
        if living and allowance.is_spent():
            raise FenceIncompleteError(f"processes {describe(living)} do not die (waited {seconds:g} s); {NOTHING_TOUCHED}")


def list_children(root: int) -> list[int]:
    """The children of a process of one thread, zombies too."""
    try:
        with open(f"/proc/{root}/task/{root}/children", "rb") as file:
            return sorted(int(pid) for pid in file.read().split())
    except FileNotFoundError:
        # A kernel that does not tell, or a process that is gone.
        fields = ((pid, read_stat(pid)) for pid in list_processes())
        return sorted(pid for pid, stat in fields if stat is not None and int(stat[1]) == root)


def kill_child_of(root: int, pid: int) -> None:
    """SIGKILL a child through its pidfd: whether it still is one is asked once it is held."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return  # it has ended
    try:
        fields = read_stat(pid)
        if fields is not None and int(fields[1]) == root:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def reap_children() -> bool:
    """Collect what has ended; False when this process has no children at all."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


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
    """Processes for a message: `12 (bash), 13 (sleep, stopped)`, at most ten of them, or "unknown"."""
    shown = [f"{pid} ({_name(pid)}{_show_state(pid)})" for pid in sorted(pids)[:10]]
    more = f" and {len(pids) - 10} more" if len(pids) > 10 else ""
    return ", ".join(shown) + more or "unknown"


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return show_text(os.fsdecode(file.read().rstrip(b"\n")))
    except OSError:
        return "gone"


def _show_state(pid: int) -> str:
    fields = read_stat(pid)
    return _STATES.get(fields[0], "") if fields is not None else ""
