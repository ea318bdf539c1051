"""`uts:NAME`: the shim and its command have a UTS namespace of their own, which every process inherits, whatever it clears and leaves.

Inode numbers of namespaces are used again once nobody is in one, so the number alone could name a stranger: a namespace of ours is known
by its NIS domain name, a digest of the mark, which nothing reads and a further unshare copies.

While the shim lives, death is proved through it, as with the environment mark. Else by a look at every process and then, again and
again, at those that were given a number since the look before, until one such look meets nobody who is gone already. Whoever lived when
that look began was met alive: so no member did, and none can come any more. A look at everything alone would lose to a line of
processes that each start the next and end. A process with rights over its namespace could give itself another name: not defended, as a
move out of a cgroup is not.
"""

import contextlib
import os
import signal
import sys
from types import TracebackType

from blake3 import blake3

from eventlog.errors import FenceIncompleteError
from eventlog.ports import Clock, Host
from eventlog.process_identity import read_stat
from recovery.space.allowance import Allowance
from recovery.space.marks.descendants import describe, end_children, list_living, list_processes, read_newest
from recovery.space.marks.process import check_namespace, kill_owner
from recovery.space.marks.subreaper import kill_by_subreaper
from recovery.space.marks.values import DEATH_SECS, NOTHING_TOUCHED, Joined, Target
from recovery.space.namespaces import CLONE_NEWUTS, name_domain, unshare_private

# Enters the namespaces behind two descriptors (its user namespace first, where that is another) and prints the domain name there.
_READER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.setns(int(sys.argv[1]), 0x10000000)
if libc.setns(int(sys.argv[2]), 0x04000000):
    sys.exit(77 if ctypes.get_errno() == 1 else 1)
name = ctypes.create_string_buffer(65)
libc.getdomainname(name, 65)
sys.stdout.buffer.write(name.value)
"""
_MAY_NOT = 77  # EPERM
READER_SECS = 30.0
LOOKS = 100
"""How many looks at the youngest are taken before a kill is given up, however late it is: the look at everything may have taken long."""


def domain_name(value: str) -> str:
    """What the namespace of a mark is called."""
    return "crashworthy." + blake3(value.encode("utf-8", "surrogateescape")).hexdigest(20)


class Uts:
    """Kind `uts`; the value is the bare name of the mark."""

    def join(self, value: str) -> Joined:
        unshare_private(CLONE_NEWUTS)
        name_domain(domain_name(value))
        return Joined()

    def join_command(self, value: str) -> None:
        """Nothing more: it is inherited."""

    def list_members(self, value: str, joined: Joined) -> list[int]:
        return list_living(os.getpid())  # the owner lives, as subreaper

    def end_members(self, value: str, joined: Joined, host: Host, clock: Clock) -> None:
        end_children(clock)

    def keep_members(self, value: str, joined: Joined) -> None:
        """They are held by their namespace, not by the shim."""

    def kill(self, value: str, target: Target, host: Host, clock: Clock) -> None:
        if target.owner is not None:
            check_namespace(target.owner, host)
            is_proved = not target.is_owner_spared and kill_by_subreaper(target.owner, target.spare, host, clock)
            kill_owner(target, host, clock)
            if is_proved:
                return
        with _Namespaces(domain_name(value)) as namespaces:
            _kill_members(namespaces, clock)

    def release(self, value: str) -> None:
        """The kernel gives the namespace back with its last process."""


def _kill_members(namespaces: "_Namespaces", clock: Clock) -> None:
    allowance = Allowance(clock, DEATH_SECS)
    while True:
        newest = read_newest()
        members, _ = namespaces.kill_among(list_processes())
        is_over = False
        looks = 0
        while not is_over:
            looks += 1
            last = read_newest()
            found, are_all_seen = namespaces.kill_among(list_numbers(newest, last))
            members += found
            newest = last
            is_over = are_all_seen and not found
            if not is_over and looks >= LOOKS and allowance.is_spent():
                who = f"processes {describe(members)} do not die" if members else "processes come and go too fast to tell whose they are"
                raise FenceIncompleteError(f"{who} (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")
        if not members:
            return
        if allowance.is_spent():
            raise FenceIncompleteError(f"processes {describe(members)} do not die (waited {DEATH_SECS:g} s); {NOTHING_TOUCHED}")
        clock.pause(0.001)


def list_numbers(after: int, last: int) -> list[int]:
    """The numbers that processes were given after one, up to another, the latest first; they begin anew after the highest."""
    if after <= last:
        return list(range(last, after, -1))
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        highest = int(file.read())
    return [*range(last, 0, -1), *range(highest, after, -1)]


class _Namespaces:
    """The UTS namespaces seen during one kill, by inode number. They are held open, so that no number is used again meanwhile."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._own = os.stat("/proc/self/ns/uts").st_ino
        self._known: dict[int, tuple[int, bool]] = {}

    def __enter__(self) -> "_Namespaces":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for descriptor, _ in self._known.values():
            os.close(descriptor)

    def kill_among(self, pids: list[int]) -> tuple[list[int], bool]:
        """Kill the members among these; them, and whether all of these were seen alive."""
        members, are_all_seen = [], True
        for pid in pids:
            task = _living_task(pid)
            belongs = self._is_member(task) if task else None
            if belongs:
                members.append(pid)
                self.kill(pid)
            are_all_seen = are_all_seen and belongs is not None
        return members, are_all_seen

    def kill(self, pid: int) -> None:
        """SIGKILL a member through its pidfd, once it is held and still a member."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return  # it has ended
        try:
            task = _living_task(pid)
            if task and self._is_member(task):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)

    def _is_member(self, task: str) -> bool | None:
        """None for one that has ended by now."""
        try:
            number = os.stat(f"{task}/ns/uts").st_ino
            return number != self._own and self._is_named(number, task)
        except PermissionError:
            return False  # nobody that this user could have put there
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _is_named(self, number: int, task: str) -> bool:
        if number not in self._known:
            # Both from one living process, and only then asked: of one that ends meanwhile nothing is remembered.
            user = os.open(f"{task}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            try:
                descriptor = os.open(f"{task}/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
                number = os.fstat(descriptor).st_ino
                if number in self._known:
                    os.close(descriptor)
                else:
                    self._known[number] = (descriptor, _read_name(user, descriptor) == self._name)
            finally:
                os.close(user)
        return self._known[number][1]


def _living_task(pid: int) -> str:
    """The directory in /proc of a thread of this process that has not ended, "" when there is none: a leader may be a zombie."""
    fields = read_stat(pid)
    if fields is None:
        return ""
    if fields[0] not in ("Z", "X"):
        return f"/proc/{pid}"
    try:
        others = [name for name in os.listdir(f"/proc/{pid}/task") if name != str(pid)]
    except OSError:
        return ""
    return f"/proc/{pid}/task/{others[0]}" if others else ""


def _read_name(user: int, descriptor: int) -> str:
    """The domain name of a UTS namespace, asked by a program of its own that enters it; "" where this user may not: then it is nobody's
    that this user could have made. Raises FenceIncompleteError when it cannot be asked."""
    import subprocess  # only where such a namespace is met: every start of a driver would wait for it

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _READER, str(user), str(descriptor)],
        pass_fds=[user, descriptor], capture_output=True, timeout=READER_SECS, check=False,
    )  # fmt: skip
    if done.returncode not in (0, _MAY_NOT):
        said = done.stderr.decode("utf-8", "replace").strip()
        raise FenceIncompleteError(f"a UTS namespace cannot be asked for its name ({said or done.returncode}); {NOTHING_TOUCHED}")
    return done.stdout.decode("ascii", "replace") if done.returncode == 0 else ""
