"""Kill marks: what identifies every process of one attempt, so that all of them can be killed and their death proved (rules S8, S9).

A mark belongs to one attempt (spawner and file worker have their own) and is never used by two epochs. Two kinds here:

- `cgroup:PATH`: a cgroup v2 leaf of its own. No process leaves it except a privileged one that moves itself; death is proved by
  `populated 0`.
- `environment:TOKEN`: session, subreaper and an environment variable. Death is proved only while the shim lives as subreaper and two sweeps
  of its descendants are empty; with the shim gone it is not provable under this boot: FenceIncompleteError.
"""

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from typing import Literal

from eventlog import durable, steps
from eventlog.errors import FenceIncompleteError, MisuseError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, is_dead, open_process, read_start_ticks, read_stat
from eventlog.show import show_text
from recovery.space.identity import kill_and_wait

MarkKind = Literal["cgroup", "environment"]
ENVIRONMENT_VARIABLE = "CRASHWORTHY_MARK"
DEATH_SECS = 10.0
_NUMBER = re.compile(r"\d+")
_NOTHING_TOUCHED = "no workspace path was touched; end what is named and drive again"


@dataclass(frozen=True, slots=True)
class MarkSetting:
    """The kind of mark in force, and for cgroups the directory in which leaves are made."""

    kind: MarkKind
    base: str


def choose_marks(wanted: str) -> MarkSetting:
    """The strongest mark this machine offers, or the one `wanted` (auto, cgroup, environment). Raises MisuseError when it is not to
    be had."""
    base = find_cgroup_base()
    match wanted:
        case "auto":
            return MarkSetting("cgroup", base) if base else MarkSetting("environment", "")
        case "environment":
            return MarkSetting("environment", "")
        case "cgroup":
            if not base:
                raise MisuseError(
                    "SESSION_KILL_MARK=cgroup: no writable cgroup v2 hierarchy here; unset it, or delegate a cgroup to this user"
                )
            return MarkSetting("cgroup", base)
        case other:
            raise MisuseError(f"SESSION_KILL_MARK={show_text(other)!r} is unknown; use auto, cgroup or environment")


def find_cgroup_base() -> str:
    """A cgroup v2 directory in which this process may make leaves and join them, or "". Hybrid layouts are found too."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split(" ")[4] for line in file if " - cgroup2 " in line]
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        own = [line.rstrip("\n").split(":", 2)[2] for line in file if line.startswith("0::")]
    if not mounts or not own:
        return ""
    base = (mounts[0] + own[0]).rstrip("/")
    # Leaves made by one driver of a session must be found by the next, which may itself run inside a leaf: never nest.
    base = base.split("/crashworthy.")[0]
    usable = os.access(base, os.W_OK) and os.access(f"{base}/cgroup.procs", os.W_OK) and _has_cgroup_kill(os.uname().release)
    return base if usable else ""


def _has_cgroup_kill(release: str) -> bool:
    """Whether this kernel knows cgroup.kill, which came with Linux 5.14. The topmost cgroup never shows the file, its children do."""
    numbers = [int(part) for part in _NUMBER.findall(release)[:2]]
    return numbers >= [5, 14]


def name_mark(setting: MarkSetting, space_id: str, leaf: str) -> str:
    """The mark called `leaf` of a space."""
    if setting.kind == "cgroup":
        return f"cgroup:{setting.base}/crashworthy.{space_id}/{leaf}"
    return f"environment:{space_id}/{leaf}"


def join_mark(mark: str) -> None:
    """Put this process under `mark`; called first thing after its fork. Raises OSError when the cgroup cannot be joined."""
    kind, _, value = mark.partition(":")
    if kind == "cgroup":
        os.makedirs(value, exist_ok=True)
        with open(f"{value}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")


def command_mark(mark: str) -> str:
    """The mark under a shim's own that only its command carries, so that the shim can end survivors without ending itself."""
    kind, _, _ = mark.partition(":")
    return f"{mark}/command" if kind == "cgroup" else mark


def is_populated(leaf: str) -> bool:
    """True when any live process is in a cgroup or below it."""
    try:
        with open(f"{leaf}/cgroup.events", encoding="ascii") as file:
            return "populated 1" in file.read()
    except (FileNotFoundError, OSError) as error:
        if isinstance(error, FileNotFoundError) or error.errno == 19:  # ENODEV: removed while it was read
            return False
        raise


def kill_cgroup(leaf: str, clock: Clock, seconds: float = DEATH_SECS) -> bool:
    """Kill everything in a leaf and below, and wait until it is empty; False when something still lives after `seconds`."""
    deadline = clock.monotonic() + seconds
    while is_populated(leaf):
        with contextlib.suppress(FileNotFoundError), open(f"{leaf}/cgroup.kill", "w", encoding="ascii") as file:
            file.write("1")
        if clock.monotonic() >= deadline:
            return False
        clock.pause(0.001)
    return True


def remove_leaf(leaf: str) -> None:
    """Remove an empty leaf and the leaf of its command. A leaf still in use stays: its removal is tidiness, not safety."""
    for path in (f"{leaf}/command", leaf):
        with contextlib.suppress(OSError):
            durable.remove_cgroup(path)


def release_mark(mark: str) -> None:
    """Give back what a dead attempt's mark holds, and the space's own cgroup once its last leaf is gone."""
    kind, _, value = mark.partition(":")
    if kind == "cgroup":
        remove_leaf(value)
        with contextlib.suppress(OSError):
            durable.remove_cgroup(os.path.dirname(value))


def kill_mark(
    mark: str, owner: ProcessIdentity | None, host: Host, clock: Clock, *, has_command: bool, spare: frozenset[int] = frozenset()
) -> None:
    """Kill everything under a condemned mark and prove it dead.

    `owner` is the recorded shim, spawner or worker, None when none was recorded (then nothing of it ever ran a command).
    `has_command` tells that the owner may have executed one. `spare` are pids of claimed shims, which are children of a condemned
    spawner. Raises FenceIncompleteError; no workspace path may be touched then (I7).
    """
    steps.reach("kill.before")
    if owner is None or owner.boot_id == host.boot_id():  # another boot: the machine itself ended them
        _kill_under(mark, owner, host, clock, has_command, spare)
    steps.reach("kill.after")


def _kill_under(mark: str, owner: ProcessIdentity | None, host: Host, clock: Clock, has_command: bool, spare: frozenset[int]) -> None:
    kind, _, value = mark.partition(":")
    if kind == "cgroup":
        if owner is not None and not os.path.isdir(value) and not _is_absence_proof(value, owner, host):
            raise FenceIncompleteError(
                f"{value}, where process {owner.pid} was put, cannot be seen from here, so the death of what is in it cannot be proved; "
                "no workspace path was touched; drive again where that cgroup and that pid namespace are visible"
            )
        if not kill_cgroup(value, clock):
            raise FenceIncompleteError(f"processes {_members(value)} in {value} do not die (waited {DEATH_SECS:g} s); {_NOTHING_TOUCHED}")
        remove_leaf(value)
        if owner is None or owner.pid_namespace != host.pid_namespace():
            return  # populated 0 is proof on its own; a pid of another namespace means nothing here (S9)
    if owner is None:
        return
    if owner.pid_namespace != host.pid_namespace():
        raise FenceIncompleteError(
            f"process {owner.pid} was seen in another pid namespace and cannot be proved dead from here; {_NOTHING_TOUCHED}"
        )
    if kind != "cgroup":
        _kill_by_subreaper(owner, host, clock, has_command, spare)
    if not kill_and_wait(owner, host, clock, DEATH_SECS):
        raise FenceIncompleteError(f"process {owner.pid} does not die (waited {DEATH_SECS:g} s); {_NOTHING_TOUCHED}")


def _is_absence_proof(leaf: str, owner: ProcessIdentity, host: Host) -> bool:
    """Whether a leaf that is not there was removed empty (S9): its hierarchy is visible here, and its owner is of this pid namespace."""
    base = os.path.dirname(os.path.dirname(leaf))
    return owner.pid_namespace == host.pid_namespace() and os.path.exists(f"{base}/cgroup.procs")


def _members(leaf: str) -> str:
    found: list[str] = []
    for directory, _, _ in os.walk(leaf):
        with contextlib.suppress(OSError), open(f"{directory}/cgroup.procs", encoding="ascii") as file:
            found.extend(file.read().split())
    return ", ".join(found) or "unknown"


def _kill_by_subreaper(owner: ProcessIdentity, host: Host, clock: Clock, has_command: bool, spare: frozenset[int]) -> None:
    with open_process(owner, host) as descriptor:
        if descriptor is None or is_dead(descriptor):
            if not has_command:
                return
            raise FenceIncompleteError(
                f"shim {owner.pid} is dead and only the environment mark is in force, so the death of what its command started "
                "cannot be proved; no workspace path was touched; reboot (another boot is proof), "
                "or run where cgroup v2 is writable, and drive again"
            )
        # Stopped, it records nothing more while its descendants die; as subreaper it inherits every one of them.
        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
        kill_descendants(owner.pid, host, clock, spare)


def kill_descendants(root: int, host: Host, clock: Clock, spare: frozenset[int] = frozenset(), seconds: float = DEATH_SECS) -> int:
    """Stop and kill every descendant of `root` (itself not) until two sweeps in a row find nobody; how many were killed.

    Complete only while `root` is alive as subreaper: then no descendant can leave its tree. Raises FenceIncompleteError.
    """
    deadline = clock.monotonic() + seconds
    killed: set[tuple[int, int]] = set()
    empty = 0
    while empty < 2:
        found = [pid for pid in list_descendants(root, spare) if not _is_zombie(pid)]
        empty = 0 if found else empty + 1
        for pid in found:
            ticks = read_start_ticks(pid)
            if ticks is not None:
                killed.add((pid, ticks))
                kill_and_wait(ProcessIdentity(pid, ticks, host.boot_id(), host.pid_namespace()), host, clock, 0.05)
        if found and clock.monotonic() >= deadline:
            raise FenceIncompleteError(f"processes {', '.join(map(str, found))} do not die (waited {seconds:g} s); {_NOTHING_TOUCHED}")
    return len(killed)


def list_descendants(root: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """All descendants of `root`, by parent pid, without the trees below `spare`."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = read_stat(int(name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            if pid not in spare:
                found.append(pid)
                todo.append(pid)
    return found


def count_members(leaf: str) -> int:
    """How many processes are in a cgroup."""
    with contextlib.suppress(FileNotFoundError), open(f"{leaf}/cgroup.procs", encoding="ascii") as file:
        return len(file.read().split())
    return 0


def _is_zombie(pid: int) -> bool:
    """True for a process all of whose threads have ended and that only waits to be reaped."""
    fields = read_stat(pid)
    if fields is None:
        return True
    if fields[0] != "Z":
        return False
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def end_command(mark: str, shim: ProcessIdentity, host: Host, clock: Clock) -> None:
    """Kill the command of a living shim and all it started; the shim records its exit."""
    kind, _, leaf = command_mark(mark).partition(":")
    if kind == "cgroup":
        kill_cgroup(leaf, clock)
    else:
        kill_descendants(shim.pid, host, clock)
