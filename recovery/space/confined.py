"""A command in the namespaced space, as its shim holds it: bubblewrap's process stands for it, inner.py in there tells of it.

Ordering invariants. bubblewrap's process ends only after everything in the pid namespace is dead: what is recorded after it ended says
that nothing of the command lives. bubblewrap's own exit code decides nothing: what inner.py told does. A command of which nothing was told
but that it has begun was killed with its namespace: the kernel sends SIGKILL to what is in one whose first process dies.
"""

import contextlib
import errno
import fcntl
import marshal
import os
import signal
import socket
from collections.abc import Sequence

import msgspec

from eventlog.events import Exit
from eventlog.show import show_text
from recovery.space.request import CommandRequest
from recovery.space.running import Running, exit_of

COMPLAINT_BYTES = 1 << 12
PACKET_BYTES = 1 << 8


class StartError(Exception):
    """A command could not be executed. `reason` is "ERRNO: words: what"."""

    def __init__(self, number: int, what: str) -> None:
        name = errno.errorcode.get(number, f"errno {number}")
        self.reason = f"{name}: {os.strerror(number)}: {what}"
        super().__init__(self.reason)


def hold_input(name: str, data: bytes) -> int:
    """A file in memory with these bytes, at its beginning, that nobody can change."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def pack_request(request: CommandRequest, environment: dict[bytes, bytes]) -> bytes:
    """What inner.py is to execute, for the same interpreter: never on a command line, whose limits are the command's own."""
    return marshal.dumps((request.arguments, request.directory, list(environment.items())))


class Inside(msgspec.Struct):
    """Descriptors of a confined command about to be forked: the shim's (`control`, `complaints`) and those that go inside."""

    wrapper: Sequence[bytes]
    control: int
    complaints: int
    control_end: int
    complaints_end: int
    request: int

    @property
    def given(self) -> tuple[int, ...]:
        """What the shim has no use for once it has forked."""
        return self.control_end, self.complaints_end, self.request

    def arguments(self, errors: int) -> list[bytes]:
        """What is executed instead of the command. Called in the forked child: what goes inside is inheritable from then on, and standard
        error, which the command gets as descriptor `errors`, is for bubblewrap's complaints."""
        os.dup2(self.complaints_end, 2)
        numbers = (self.control_end, self.request, errors)
        for number in numbers:
            os.set_inheritable(number, True)
        return [*self.wrapper, *(b"%d" % number for number in numbers)]


def make_inside(wrapper: Sequence[bytes], request: CommandRequest, environment: dict[bytes, bytes], opened: list[int]) -> Inside:
    """Everything that inner.py is given; each descriptor is in `opened` from when it is open."""
    packed = hold_input("request", pack_request(request, environment))
    opened.append(packed)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, control_end = ours.detach(), theirs.detach()
    opened.extend((control, control_end))
    complaints, complaints_end = os.pipe()
    opened.extend((complaints, complaints_end))
    return Inside(wrapper, control, complaints, control_end, complaints_end, packed)


class Confined(Running):
    """A running command in its own namespaces: `pid` and `descriptor` are bubblewrap's. `about` names its program and directory."""

    control: int
    complaints: int
    about: tuple[str, str]
    _told: list[list[bytes]] = msgspec.field(default_factory=list)
    _is_killed: bool = False

    def signal(self, number: int) -> None:
        """Have inner.py signal the command and its group; a KILL that is in vain, or comes before anybody there could obey, ends the
        namespace itself."""
        self._hear()
        if number == signal.SIGKILL and (self._is_killed or not self._told):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        self._is_killed = self._is_killed or number == signal.SIGKILL
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
            os.write(self.control, bytes([number]))

    def _hear(self) -> None:
        """Take what inner.py has told."""
        while True:
            try:
                packet = os.read(self.control, PACKET_BYTES)
            except ConnectionResetError:
                continue  # it ended with a signal unread, which is said once, and before what it told
            except BlockingIOError:
                return
            if not packet:
                return
            self._told.append(packet.split())

    def end(self, timed_out: bool) -> tuple[Exit, int]:
        status = self.reap()
        self._hear()
        try:
            return self._exit(status, timed_out)
        finally:
            os.close(self.control)
            os.close(self.complaints)

    def _exit(self, status: int, timed_out: bool) -> tuple[Exit, int]:
        match self._told:
            case [[b"begun"], [b"ended", raw, left]]:
                return exit_of(int(raw), timed_out), int(left)
            case [[b"begun"]]:
                return Exit("timed_out" if timed_out else "signaled", signal=signal.SIGKILL), 0
            case [[b"failed", number, what]]:
                program, directory = self.about
                return Exit("start_failed", error=StartError(int(number), directory if what == b"directory" else program).reason), 0
            case _:  # nothing was told
                pass
        if timed_out:
            return Exit("timed_out", signal=signal.SIGKILL), 0
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        return Exit("start_failed", error=f"bubblewrap ended ({how}) before it started the command: {self._complaint()}"), 0

    def _complaint(self) -> str:
        """The last of what bubblewrap, or inner.py, said."""
        os.set_blocking(self.complaints, False)
        with contextlib.suppress(BlockingIOError):
            lines = os.read(self.complaints, COMPLAINT_BYTES).decode("utf-8", "surrogateescape").strip().splitlines()
            if lines:
                return show_text(lines[-1])
        return "it said nothing"
