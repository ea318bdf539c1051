"""What left the cgroup of its attempt and is the attempt's all the same: a privileged process may move itself to another one, but not
out of the tree below its shim, which is a subreaper.

Asked only by a shim that still has a child once its leaf is empty, so that it costs a command that leaves nothing behind nothing.
"""

import os

from eventlog.errors import FenceIncompleteError, InternalError
from eventlog.ports import Clock
from recovery.space.allowance import Allowance
from recovery.space.marks.cgroup import LEAVES
from recovery.space.marks.descendants import describe, is_zombie, kill_child_of, list_children, reap_children
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED


def end_strays(value: str, clock: Clock, seconds: float = DEATH_SECS) -> int:
    """Kill the children of this process that are in no leaf of the space whose leaf `value` is; how many there were. What an earlier
    attempt was allowed to keep is in a leaf of its own and stays. Who ends hands its children up, so that the whole tree comes by here.

    Raises FenceIncompleteError naming who lives after `seconds`.
    """
    space = os.path.basename(os.path.dirname(value))
    if not space.startswith(LEAVES):
        raise InternalError(f"{value} is no leaf of a space: whose children are strays cannot be told")
    allowance = Allowance(clock, seconds)
    seen: set[int] = set()
    while reap_children():
        strays = [pid for pid in list_children(os.getpid()) if not is_zombie(pid) and not _is_in_leaf(pid, space)]
        seen.update(strays)
        if not strays:
            break
        for pid in strays:
            kill_child_of(os.getpid(), pid)
        if allowance.is_spent():
            raise FenceIncompleteError(f"processes {describe(strays)} do not die (waited {seconds:g} s); {NOTHING_TOUCHED}")
        clock.pause(0.001)
    return len(seen)


def _is_in_leaf(pid: int, space: str) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            return f"/{space}/" in file.read()
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended
