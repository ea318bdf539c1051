"""`pid-namespace:VALUE`: the command runs in a pid namespace of its own. Nothing gets out of one, and when its first process dies the
kernel ends the rest and waits for it: that death is the proof, whatever became of the shim.

The shim unshares once and forks the first process, which executes nothing, inherits orphans, and dies with the shim. Its identity stands
in the starting mark. So the command is no first process itself (that one ignores signals it has no handler for), and it is the shim's own
child. It sees a /proc of its namespace where one may be mounted; mounts it makes end with it.

VALUE is `SPACE/LEAF`, or, where there is cgroup v2, the path of a leaf that holds the same processes: then both proofs are needed.
"""

import contextlib
import os
import signal

from eventlog.errors import DeathUnprovedError, FenceIncompleteError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, identify
from recovery.space.identity import kill_and_wait
from recovery.space.kernel import end_with_parent, name_process, outlive_parent
from recovery.space.marks.cgroup import join_leaf, kill_leaf, release_leaf
from recovery.space.marks.descendants import describe, list_living
from recovery.space.marks.process import check_namespace, kill_owner
from recovery.space.marks.values import COMMAND, DEATH_SECS, NOTHING_TOUCHED, Joined, Target
from recovery.space.namespaces import CLONE_NEWPID, show_own_processes, unshare_private

_KEEP = b"k"


class PidNamespace:
    """Kind `pid-namespace`; the value is a cgroup leaf's path, or the bare name of the mark."""

    def join(self, value: str) -> Joined:
        if _is_leaf(value):
            join_leaf(value)
        unshare_private(CLONE_NEWPID)
        return _fork_first()

    def join_command(self, value: str) -> None:
        if _is_leaf(value):
            join_leaf(value + COMMAND)
        # Where /proc may not be mounted (its parts are masked) the command sees the pids of outside there.
        with contextlib.suppress(OSError):
            show_own_processes()

    def list_members(self, value: str, joined: Joined) -> list[int]:
        # Its command being reaped, everything in the namespace descends from the first process.
        return [] if joined.first is None or not _has_children(joined.first) else list_living(joined.first)

    def end_members(self, value: str, joined: Joined, host: Host, clock: Clock) -> None:
        first = None if joined.first is None else identify(joined.first, host)
        if first is not None:
            _kill_namespace(first, host, clock)

    def keep_members(self, value: str, joined: Joined) -> None:
        if joined.control is not None:
            os.write(joined.control, _KEEP)

    def kill(self, value: str, target: Target, host: Host, clock: Clock) -> None:
        if _is_leaf(value):
            kill_leaf(value, target, host, clock)
            if target.owner is None or target.owner.pid_namespace != host.pid_namespace():
                return  # populated 0 is proof on its own; a pid of another namespace means nothing here (S9)
        if target.owner is None:
            return  # no starting mark: the floor stops its shim, and the first process ends with that
        check_namespace(target.owner, host)
        kill_owner(target, host, clock)  # the shim first: it records nothing more
        if target.first is not None:
            _kill_namespace(target.first, host, clock)
        elif target.has_command and not _is_leaf(value):
            raise DeathUnprovedError(
                f"the starting mark of shim {target.owner.pid} names no first process of its pid namespace, so the death of what is in it "
                "cannot be proved"
            )

    def release(self, value: str) -> None:
        if _is_leaf(value):
            release_leaf(value)


def _is_leaf(value: str) -> bool:
    return value.startswith("/")


def _kill_namespace(first: ProcessIdentity, host: Host, clock: Clock) -> None:
    """A pidfd of the first process is readable only after the kernel has reaped everything else in its namespace."""
    if not kill_and_wait(first, host, clock, DEATH_SECS):
        members = describe(list_living(first.pid) or [first.pid])
        raise FenceIncompleteError(
            f"processes {members} of the pid namespace of process {first.pid} do not die (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}"
        )


def _has_children(pid: int) -> bool:
    """Whether a process has any; True where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return bool(file.read())
    except OSError:
        return True


def _fork_first() -> Joined:
    reader, writer = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_first(reader, shim)
    os.close(reader)
    return Joined(pid, writer)


def _be_first(control: int, shim: int) -> None:
    """The first process of the namespace: inherits orphans, and ends with the shim unless told to keep them. Never returns."""
    try:
        end_with_parent(shim)
        name_process("first process")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
        os.closerange(3, control)
        os.closerange(control + 1, os.sysconf("SC_OPEN_MAX"))
        if os.read(control, 1) == _KEEP:  # else the shim is gone
            outlive_parent()
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
    finally:
        os._exit(0)
