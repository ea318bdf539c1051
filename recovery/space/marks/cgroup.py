"""`cgroup:PATH`: a cgroup v2 leaf of its own. No process leaves it except a privileged one that moves itself; death is proved by
`populated 0`, which holds whatever pid namespace asks."""

import contextlib
import errno
import os
import re
import signal

from eventlog import durable
from eventlog.errors import DeathUnprovedError, FenceIncompleteError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from recovery.space.allowance import Allowance
from recovery.space.marks.descendants import describe
from recovery.space.marks.process import kill_owner
from recovery.space.marks.values import COMMAND, DEATH_SECS, NOTHING_TOUCHED, Joined, Target

_NUMBER = re.compile(r"\d+")
LEAVES = "crashworthy."


def find_cgroup_base() -> str:
    """A cgroup v2 directory in which this process may make leaves and join them, or "". Hybrid layouts are found too."""
    return explain_cgroup_base()[0]


def explain_cgroup_base() -> tuple[str, str]:
    """`find_cgroup_base`, and why there is none."""
    base = own_directory("cgroup2", "", "0::")
    if not base:
        return "", "no cgroup v2 hierarchy is mounted"
    if not _has_cgroup_kill(os.uname().release):
        return "", f"Linux {os.uname().release} has no cgroup.kill (5.14 has)"
    return explain_writable(base)


def explain_writable(base: str) -> tuple[str, str]:
    """`base` when leaves can be made in it and joined from it, and else why not."""
    if os.access(base, os.W_OK) and os.access(f"{base}/cgroup.procs", os.W_OK):
        return base, ""
    return "", f"{base} is not writable for this user"


def mount_of(kind: str, option: str = "") -> str:
    """Where a hierarchy is mounted as `kind` with `option`, "" where it is not."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [
            line.split(" ")[4]
            for line in file
            if f" - {kind} " in line and (not option or option in line.rstrip("\n").rpartition(" ")[2].split(","))
        ]
    return mounts[0] if mounts else ""


def own_directory(kind: str, option: str, begin: str) -> str:
    """The directory of this process in the hierarchy that is mounted as `kind` with `option`, and begins so in /proc/self/cgroup."""
    mount = mount_of(kind, option)
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        own = [line.rstrip("\n").split(":", 2)[2] for line in file if begin in line]
    if not mount or not own:
        return ""
    # Leaves made by one driver of a session must be found by the next, which may itself run inside a leaf: never nest.
    return (mount + own[0]).rstrip("/").split(f"/{LEAVES}")[0]


def _has_cgroup_kill(release: str) -> bool:
    """Whether this kernel knows cgroup.kill, which came with Linux 5.14. The topmost cgroup never shows the file, its children do."""
    numbers = [int(part) for part in _NUMBER.findall(release)[:2]]
    return numbers >= [5, 14]


def is_populated(leaf: str) -> bool:
    """True when any live process is in a cgroup or below it."""
    try:
        descriptor = os.open(f"{leaf}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return b"populated 1" in os.read(descriptor, 1 << 10)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):  # ENODEV: removed while it was read
            return False
        raise


def kill_cgroup(leaf: str, clock: Clock, seconds: float = DEATH_SECS) -> bool:
    """Kill everything in a leaf and below, and wait until it is empty; False when something still lives after `seconds`."""
    allowance = Allowance(clock, seconds)
    while is_populated(leaf):
        with contextlib.suppress(FileNotFoundError), open(f"{leaf}/cgroup.kill", "w", encoding="ascii") as file:
            file.write("1")
        if is_populated(leaf):
            kill_listed(leaf)  # cgroup.kill passes over a process whose leader has ended and which has a living thread
        if allowance.is_spent():
            return False
        clock.pause(0.001)
    return True


def make_leaf(leaf: str) -> None:
    """Make a leaf and what is above it, where they are not there."""
    try:
        os.mkdir(leaf)
    except (FileNotFoundError, FileExistsError):
        os.makedirs(leaf, exist_ok=True)


def join_leaf(leaf: str) -> None:
    """Make a leaf and put this process into it."""
    os.makedirs(leaf, exist_ok=True)
    with open(f"{leaf}/cgroup.procs", "w", encoding="ascii") as file:
        file.write("0")


def list_leaf(leaf: str, name: str = "cgroup.procs") -> list[int]:
    """The processes in a leaf and below it, as far as they can be seen from here (0: not)."""
    found: list[int] = []
    for directory, _, _ in os.walk(leaf):
        with contextlib.suppress(OSError), open(f"{directory}/{name}", encoding="ascii") as file:
            found.extend(int(line) for line in file)
    return found


def kill_listed(leaf: str) -> None:
    """SIGKILL each process in a leaf and below through its pidfd: whether it is in the leaf is asked again once it is held."""
    for pid in list_leaf(leaf):
        try:
            descriptor = os.pidfd_open(pid) if pid else -1
        except OSError:
            continue  # it has ended
        if descriptor < 0:
            continue  # of another pid namespace
        try:
            if pid in list_leaf(leaf):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def remove_leaf(leaf: str) -> None:
    """Remove an empty leaf, with the leaf of its command where there is one. A leaf still in use stays: its removal is tidiness, not
    safety."""
    try:
        durable.remove_cgroup(leaf)
    except OSError:
        for path in (leaf + COMMAND, leaf):
            with contextlib.suppress(OSError):
                durable.remove_cgroup(path)


def release_leaf(leaf: str) -> None:
    """`remove_leaf`, and the space's own cgroup once its last leaf is gone."""
    remove_leaf(leaf)
    with contextlib.suppress(OSError):
        durable.remove_cgroup(os.path.dirname(leaf))


def check_visible(leaf: str, owner: ProcessIdentity, host: Host) -> None:
    """Raise FenceIncompleteError for a leaf that is not there without having been removed empty: its hierarchy must be visible here, and
    its owner of this pid namespace (S9)."""
    base = os.path.dirname(os.path.dirname(leaf))
    if os.path.isdir(leaf) or (owner.pid_namespace == host.pid_namespace() and os.path.exists(f"{base}/cgroup.procs")):
        return
    raise DeathUnprovedError(
        f"{leaf}, where process {owner.pid} was put, cannot be seen from here, so the death of what is in it cannot be proved",
        owner.pid_namespace != host.pid_namespace(),
    )


def tell_undying(leaf: str) -> FenceIncompleteError:
    """The error for a leaf that does not become empty."""
    return FenceIncompleteError(f"processes {describe(list_leaf(leaf))} in {leaf} do not die (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")


def kill_leaf(leaf: str, target: Target, host: Host, clock: Clock) -> None:
    """Kill everything in a condemned leaf and prove it: `populated 0`."""
    if target.owner is not None:
        check_visible(leaf, target.owner, host)
    if not kill_cgroup(leaf, clock):
        raise tell_undying(leaf)
    remove_leaf(leaf)


class Leaf:
    """What the kinds have in common whose marks are leaves of a hierarchy; the value is the leaf's path. `_empty` kills all that is in a
    leaf and waits until nothing is."""

    def join(self, value: str) -> Joined:
        join_leaf(value)
        return Joined()

    def join_command(self, value: str) -> None:
        join_leaf(self._command_leaf(value))

    def list_members(self, value: str, joined: Joined) -> list[int]:
        return list_leaf(self._command_leaf(value))

    def end_members(self, value: str, joined: Joined, host: Host, clock: Clock) -> None:
        leaf = self._command_leaf(value)
        if not self._empty(leaf, clock):
            raise tell_undying(leaf)

    def keep_members(self, value: str, joined: Joined) -> None:
        """They are held by their leaf, not by the shim."""

    def release(self, value: str) -> None:
        release_leaf(value)

    def _empty(self, leaf: str, clock: Clock) -> bool:
        raise NotImplementedError

    def _command_leaf(self, value: str) -> str:
        """The leaf of an attempt's command, in which its owner is not."""
        return value + COMMAND


class Cgroup(Leaf):
    """Kind `cgroup`. The owner of an attempt is in a leaf of its own (marks.allows_reuse)."""

    def _command_leaf(self, value: str) -> str:
        return value

    def _empty(self, leaf: str, clock: Clock) -> bool:
        return kill_cgroup(leaf, clock)

    def kill(self, value: str, target: Target, host: Host, clock: Clock) -> None:
        kill_leaf(value, target, host, clock)
        if target.owner is not None and target.owner.pid_namespace == host.pid_namespace():
            kill_owner(target, host, clock)  # one that had not joined yet; a pid of another namespace means nothing here (S9)


def read_members(top: str) -> list[int]:
    """The processes in a cgroup and below it, as far as it can be read."""
    found: list[int] = []
    for directory, _, _ in os.walk(top):
        with contextlib.suppress(OSError), open(f"{directory}/cgroup.procs", encoding="ascii") as file:
            found.extend(map(int, file.read().split()))
    return found
