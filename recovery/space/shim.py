"""The shim: the small process that owns one command (S4, S5).

Ordering invariants. It joins the attempt's kill mark before anything else; under the ledger's lock it compares its epoch with the
floor and syncs the starting mark; only then does its child execute the command. When the command's process has ended (its pipe does
not count: case 31) what it left behind is ended, the output saved, and then the exit recorded: an exit record therefore says that
nothing of the attempt lives. Below the floor it exits and starts nothing. Its child gets SIGKILL when the shim dies.
"""

import contextlib
import errno
import os
import selectors
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from eventlog import durable, steps
from eventlog.events import Exit
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, identify_self
from recovery.space import marks, protocol
from recovery.space.kernel import become_subreaper, end_with_parent, name_process
from recovery.space.ledger import Ledger, append_fenced
from recovery.space.output import OutputKeeper, output_path, save_output
from recovery.space.protocol import Hello, HelloAnswer, StartShim
from recovery.space.records import Exited, Start
from recovery.space.request import CommandRequest

KILL_AFTER_TERM_SECS = 2.0
DRAIN_LIMIT_BYTES = 16 << 20


@dataclass(slots=True)
class _Command:
    """A running command: its pid and pidfd, the read end of its output."""

    pid: int
    descriptor: int
    output: int


def run_shim(request: StartShim, ledger: Ledger, directory: str, clock: Clock, host: Host) -> None:
    """Own one command from its starting mark to its exit record. Runs in a process forked for it."""
    os.setsid()
    marks.join_mark(request.mark)
    become_subreaper()
    name_process("shim")
    steps.enter(f"shim.{request.ordinal}", request.epoch)
    leaf = request.mark.rpartition("/")[2]
    identity = identify_self(host)
    with _listen(directory, leaf) as listener:
        append_fenced(ledger, request.epoch, Start(request.request.key, identity, leaf))
        _Shim(request, ledger, listener, identity, clock, host).run(output_path(directory, leaf))


@contextlib.contextmanager
def _listen(directory: str, leaf: str) -> Iterator[socket.socket]:
    """A socket on which a successor can say hello, bound through a directory descriptor (paths to sockets are at most 107 bytes)."""
    sockets = os.path.join(directory, "sockets")
    descriptor = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"/proc/self/fd/{descriptor}/{leaf}")
            listener.listen(4)
            yield listener
        durable.unlink(leaf, "socket", directory=descriptor)
    finally:
        os.close(descriptor)


class _Shim:
    def __init__(
        self, start: StartShim, ledger: Ledger, listener: socket.socket, identity: ProcessIdentity, clock: Clock, host: Host
    ) -> None:
        self._request = start.request
        self._mark = start.mark
        self._ledger = ledger
        self._listener = listener
        self._identity = identity
        self._clock = clock
        self._host = host
        self._keeper = OutputKeeper()

    def run(self, output: str) -> None:
        """Execute, wait, end survivors, save the output, record the exit."""
        try:
            command = self._execute()
        except OSError as error:
            self._record(Exit("start_failed", error=f"{error.strerror}: {os.fsdecode(self._request.arguments[0])}"), 0, output)
            return
        steps.reach("running")
        ended = self._wait(command)
        steps.reach("ended")
        survivors = self._end_survivors()
        self._drain(command.output)
        self._record(ended, survivors, output)

    def _record(self, ended: Exit, survivors: int, output: str) -> None:
        kept = self._keeper.kept()
        save_output(output, kept)
        record = Exited(self._request.key, ended, self._host.boot_id(), kept.total, len(kept.data), survivors)
        steps.reach("ledger.exit.before")
        with self._ledger.transaction() as transaction:
            # Never refused: what ended has ended. Whether it counts as clean or cut is decided by its place after a condemnation.
            transaction.append(record)

    def _execute(self) -> _Command:
        """Fork and exec the command; OSError when it could not be executed."""
        output_read, output_write = os.pipe()
        error_read, error_write = os.pipe()
        steps.reach("spawn.before")
        shim_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_command(self._request, self._mark, shim_pid, output_write, error_write)
        os.close(output_write)
        os.close(error_write)
        steps.reach("spawn.after")
        with os.fdopen(error_read, "rb") as file:
            failure = file.read()
        if failure:
            os.close(output_read)
            os.waitpid(pid, 0)
            number = int(failure)
            raise OSError(number, os.strerror(number))
        return _Command(pid, os.pidfd_open(pid), output_read)

    def _wait(self, command: _Command) -> Exit:
        """Wait for the end of the command's process, keeping its output, answering hellos, holding the time limit."""
        limit = self._request.timeout_secs
        deadline = None if limit is None else self._clock.monotonic() + limit
        sent = 0
        with selectors.DefaultSelector() as selector:
            selector.register(command.descriptor, selectors.EVENT_READ, "end")
            selector.register(command.output, selectors.EVENT_READ, "output")
            selector.register(self._listener, selectors.EVENT_READ, "hello")
            while True:
                timeout = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
                ready = {key.data for key, _ in selector.select(timeout)}
                if "output" in ready and not self._keep(command.output):
                    selector.unregister(command.output)
                if "hello" in ready:
                    self._answer_hello()
                if "end" in ready:
                    break
                if deadline is not None and self._clock.monotonic() >= deadline:
                    sent = signal.SIGKILL if sent else signal.SIGTERM
                    self._signal_group(command.pid, sent)
                    deadline = self._clock.monotonic() + KILL_AFTER_TERM_SECS
        os.close(command.descriptor)
        status = os.waitpid(command.pid, 0)[1]
        return _exit_of(status, timed_out=sent != 0)

    def _signal_group(self, pid: int, number: int) -> None:
        # The command leads its own session and is not reaped yet, so its group id cannot be anybody else's.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)

    def _keep(self, output: int) -> bool:
        data = os.read(output, 1 << 16)
        self._keeper.add(data)
        return bool(data)

    def _drain(self, output: int) -> None:
        """Take what is in the pipe now; whoever still holds its other end is not waited for."""
        os.set_blocking(output, False)
        with contextlib.suppress(BlockingIOError):
            taken = 0
            while taken < DRAIN_LIMIT_BYTES and (data := os.read(output, 1 << 16)):
                self._keeper.add(data)
                taken += len(data)
        os.close(output)

    def _answer_hello(self) -> None:
        # Whatever a caller does or sends, the shim goes on: it owns a command.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(1.0)
                if isinstance(protocol.receive(connection), Hello):
                    protocol.send(connection, HelloAnswer(self._request.key, self._identity))

    def _end_survivors(self) -> int:
        """End what the command left behind (policy `kill`, rule S11); how many there were."""
        steps.reach("sweep.before")
        kind, _, leaf = marks.command_mark(self._mark).partition(":")
        if kind == "cgroup":
            survivors = marks.count_members(leaf)
            if not marks.kill_cgroup(leaf, self._clock):
                raise OSError(f"processes of {self._request.key} in {leaf} do not die")
        else:
            survivors = marks.kill_descendants(os.getpid(), self._host, self._clock)
        self._reap()
        steps.reach("sweep.after")
        return survivors

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _exit_of(status: int, timed_out: bool) -> Exit:
    """Code and signal kept apart; no exit is ever invented (I8, case 33)."""
    if os.WIFSIGNALED(status):
        return Exit("timed_out" if timed_out else "signaled", signal=os.WTERMSIG(status))
    if timed_out:
        return Exit("timed_out", code=os.WEXITSTATUS(status))
    return Exit("exited", code=os.WEXITSTATUS(status))


def _keep_from_command() -> None:
    """Nothing that whoever started the driver left open reaches a command (case 36): neither its input nor a lock of its own."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the directory's own descriptor is closed by now
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def _become_command(request: CommandRequest, mark: str, shim_pid: int, output: int, errors: int) -> None:
    """In the forked child: execute the command, or tell the shim the errno. Never returns."""
    try:
        end_with_parent(shim_pid)
        os.setsid()
        marks.join_mark(marks.command_mark(mark))
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _keep_from_command()
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(request.directory)
        environment = dict(request.environment)
        environment[marks.ENVIRONMENT_VARIABLE.encode()] = mark.encode("utf-8", "surrogateescape")
        os.execvpe(request.arguments[0], request.arguments, environment)
    except OSError as error:
        os.write(errors, str(error.errno or errno.EIO).encode())
    except BaseException:  # noqa: BLE001
        # Whatever kept the command from being executed is a failed start, never an exit of the command (I8).
        os.write(errors, str(errno.EIO).encode())
    finally:
        os._exit(127)
