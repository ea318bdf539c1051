"""What is done with a mark, whatever its kind: a mark is a string `kind:value`, and a table says which module acts on it.

A mark belongs to one attempt (spawner and file worker have their own) and is never used by two epochs.
"""

from eventlog import steps
from eventlog.errors import MisuseError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from recovery.space.marks import strays
from recovery.space.marks.cgroup import LEAVES, Cgroup, make_leaf, remove_leaf
from recovery.space.marks.environment import Environment
from recovery.space.marks.freezer import Freezer
from recovery.space.marks.pid_namespace import PidNamespace
from recovery.space.marks.process import Process
from recovery.space.marks.uts import Uts
from recovery.space.marks.values import COMMAND, Joined, Kind, MarkSetting, Target

_ACTS: dict[str, Kind] = {
    "pid-namespace": PidNamespace(),
    "cgroup": Cgroup(),
    "cgroup1": Freezer(),
    "uts": Uts(),
    "environment": Environment(),
    "process": Process(),
}


def _of(mark: str) -> tuple[Kind, str]:
    kind, _, value = mark.partition(":")
    if kind not in _ACTS:
        raise MisuseError(f"kill mark {mark!r} is of no kind that this version knows; use the version that wrote it")
    return _ACTS[kind], value


def name_mark(setting: MarkSetting, space_id: str, leaf: str) -> str:
    """The mark called `leaf` of a space, for an attempt of a command."""
    if setting.base:
        return f"{setting.kind}:{setting.base}/{LEAVES}{space_id}/{leaf}"
    return f"{setting.kind}:{space_id}/{leaf}"


def name_helper_mark(setting: MarkSetting, space_id: str, leaf: str) -> str:
    """The mark of a spawner or file worker: where their kind would be a namespace, a leaf if there is one, else their identity alone. They
    execute nothing, and what the spawner forks must not be in a namespace of its."""
    if setting.kind == "pid-namespace" and setting.base:
        return name_mark(MarkSetting("cgroup", setting.base), space_id, leaf)
    if setting.kind in ("pid-namespace", "uts"):
        return f"process:{space_id}/{leaf}"
    return name_mark(setting, space_id, leaf)


def command_mark(mark: str) -> str:
    """The mark that only a command carries, so that its shim can end survivors without ending itself: one under the attempt's, or the
    attempt's itself where the shim is in a cgroup of its own."""
    return mark if mark.startswith("cgroup:") else mark + COMMAND


def join_mark(mark: str) -> Joined:
    """Put this process under `mark`; called first thing after its fork. Raises OSError when it cannot be joined.

    What is returned is given to `list_members`, `end_members` and `keep_members`; the identity of `first` belongs in the starting mark.
    """
    kind, value = _of(mark)
    if value.endswith(COMMAND):
        kind.join_command(value.removesuffix(COMMAND))
        return Joined()
    return kind.join(value)


def allows_reuse(mark: str) -> bool:
    """Whether one shim may own attempts under several such marks, one after the other: it is under none of them itself, and only what it
    forks for an attempt is. What a process has joined once and cannot leave, or leaves at a price, ends with its attempt."""
    return mark.partition(":")[0] in ("cgroup", "environment")


def is_inherited(mark: str) -> bool:
    """Whether a process is under such a mark from its first instruction on, or by its environment, and has nothing to do for it."""
    return mark.partition(":")[0] in ("cgroup", "uts", "environment")


def has_leaf(mark: str) -> bool:
    """Whether a mark is a leaf of a hierarchy of the kernel's, which can be asked at no cost for what is in it."""
    return mark.partition(":")[2].startswith("/")


def make_mark(mark: str) -> None:
    """Have what the mark of an attempt consists of, before a starting mark says that a command may be under it: where it is not to be seen
    afterwards, it was removed empty."""
    kind, value = _of(command_mark(mark))
    if isinstance(kind, Cgroup):
        make_leaf(value)


def list_members(mark: str, joined: Joined) -> list[int]:
    """The pids of what lives under the command's part of this process's own mark, its command itself being reaped."""
    kind, value = _of(mark)
    return kind.list_members(value, joined)


def end_members(mark: str, joined: Joined, host: Host, clock: Clock) -> None:
    """Kill all that and prove it dead. Raises FenceIncompleteError."""
    kind, value = _of(mark)
    kind.end_members(value, joined, host, clock)


def end_strays(mark: str, clock: Clock) -> int:
    """Kill what this process's command started and what left the mark, where it is a leaf; how many. Of the other kinds nothing leaves."""
    value = _of(mark)[1]
    return strays.end_strays(value, clock) if has_leaf(mark) else 0


def keep_members(mark: str, joined: Joined) -> None:
    """Let all that outlive this process (S11, policy `keep`). Raises MisuseError where nothing could be proved of it then."""
    kind, value = _of(mark)
    kind.keep_members(value, joined)


def forget_mark(mark: str) -> None:
    """`release_mark` while other marks of the space are in use: what they share is not looked at."""
    kind, value = _of(mark)
    if has_leaf(mark):
        remove_leaf(value)
    else:
        kind.release(value)


def release_mark(mark: str) -> None:
    """Give back what a dead attempt's mark holds, and what it shared with others when they are all given back."""
    kind, value = _of(mark)
    kind.release(value)


def kill_mark(
    mark: str, owner: ProcessIdentity | None, host: Host, clock: Clock, *,
    has_command: bool, spare: frozenset[int] = frozenset(), first: ProcessIdentity | None = None, is_owner_spared: bool = False,
) -> None:  # fmt: skip
    """Kill everything under a condemned mark and prove it dead; what is given is told by `Target`.

    Raises FenceIncompleteError, DeathUnprovedError; no workspace path may be touched then (I7).
    """
    kind, value = _of(mark)
    steps.reach("kill.before")
    if owner is None or owner.boot_id == host.boot_id():  # another boot: the machine itself ended them
        kind.kill(value, Target(owner, first, has_command, spare, is_owner_spared), host, clock)
    steps.reach("kill.after")
