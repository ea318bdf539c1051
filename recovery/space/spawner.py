"""The spawner: the one process of an epoch that forks without exec, forked itself before any thread, log handle or user code.

Order: told its epoch, it joins its own kill mark, takes the mark of its epoch, then registers in the ledger under the lock (refused
below the floor); only then can it fork. A takeover therefore either finds it registered, or it never forks anything. It ends when its
driver's socket closes; its shims go on. Every fork ends in `os._exit`.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable

from eventlog import steps
from eventlog.errors import CrashworthyError, StaleEpochError, tell_bug
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, identify, identify_self
from recovery.space import protocol, shim
from recovery.space.command import fork_under
from recovery.space.epoch_mark import carry_epoch
from recovery.space.kernel import name_process
from recovery.space.ledger import Ledger, append_fenced
from recovery.space.marks import join_mark
from recovery.space.protocol import Begin, Failed, Forked, Stale, StartShim, StartWorker
from recovery.space.records import Register
from recovery.workspace import worker

TROUBLE_FILE = "trouble"  # what spawner, shims and file worker have to say when they end in an error, in the space's directory


def fork_spawner(clock: Clock, host: Host) -> socket.socket:
    """Fork the spawner; the driver's end of its socket. Called before the process has threads or opens a log."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if fork_process(lambda: _serve_forked(ours, theirs, clock, host)):
        theirs.close()
    return ours


def _redirect(number: int, path: str, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, number)
    os.close(descriptor)


def fork_process(body: Callable[[], None], mark: str = "") -> int:
    """Fork; the child runs `body` and always ends in os._exit (FACTS, trap 5: an exception must not run on into the parent's code). With a
    `mark` it is under that mark before `body` begins."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started us
            stream.flush()
    steps.reach("spawn.before")
    pid, is_placed = fork_under(mark) if mark else (os.fork(), True)
    if pid:
        steps.reach("spawn.after")
        return pid
    code = 70
    try:
        gc.disable()
        if not is_placed:
            join_mark(mark)
        body()
        code = 0
    except CrashworthyError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001
        # The last line of a forked process: whatever it was, the evidence goes to stderr and the process ends.
        tell_bug(error)
    finally:
        os._exit(code)


def _serve_forked(ours: socket.socket, theirs: socket.socket, clock: Clock, host: Host) -> None:
    ours.close()
    os.setsid()
    serve_spawner(theirs, clock, host)


def serve_spawner(theirs: socket.socket, clock: Clock, host: Host) -> None:
    """Be the spawner of the driver at the other end, in a process of a session of its own, until that is gone."""
    # Whoever reads the driver's output to its end must not wait for processes that outlive the driver.
    _redirect(0, "/dev/null", os.O_RDONLY)
    _redirect(1, "/dev/null", os.O_WRONLY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin = protocol.receive(theirs)
    if isinstance(begin, Begin):
        # A driver that is gone before it is answered has no more wishes.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            _Spawner(theirs, begin, clock, host).serve()


class _Spawner:
    def __init__(self, driver: socket.socket, begin: Begin, clock: Clock, host: Host) -> None:
        self._driver = driver
        self._begin = begin
        self._clock = clock
        self._host = host
        _redirect(2, os.path.join(begin.directory, TROUBLE_FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        name_process("spawner")
        steps.enter("spawner", begin.epoch)
        join_mark(begin.mark)
        self._ledger = Ledger(begin.ledger, clock)
        if self._ledger.state.header is not None:
            carry_epoch(self._ledger.state.header.ledger_id, begin.epoch)

    def serve(self) -> None:
        """Register, then fork what is asked for until the driver is gone."""
        self._answer(lambda: self._register(), None)
        while (request := protocol.receive(self._driver)) is not None:
            _reap()
            match request:
                case StartShim():
                    self._start_shim(request)
                case StartWorker():
                    self._start_worker(request)
                case _:
                    protocol.send(self._driver, Failed(f"the spawner does not know {type(request).__name__}"))

    def _answer(self, act: Callable[[], ProcessIdentity], descriptor: int | None) -> None:
        try:
            answer: Forked | Stale | Failed = Forked(act())
        except StaleEpochError as error:
            answer = Stale(str(error))
        except (CrashworthyError, OSError) as error:
            answer = Failed(str(error))
        protocol.send(self._driver, answer, [descriptor] if descriptor is not None else None)

    def _register(self) -> ProcessIdentity:
        identity = identify_self(self._host)
        append_fenced(self._ledger, self._begin.epoch, Register("spawner", self._begin.epoch, self._begin.mark, identity))
        return identity

    def _start_shim(self, request: StartShim) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            self._answer(lambda: self._fork_shim(request, ours, theirs), ours.fileno())

    def _fork_shim(self, request: StartShim, theirs: socket.socket, connection: socket.socket) -> ProcessIdentity:
        # The shim takes over this process's view of the ledger: the cost of a start does not grow with the number of keys (S3).
        self._ledger.refresh()
        return self._identity(fork_process(lambda: self._run_shim(request, theirs, connection), request.mark))

    def _run_shim(self, request: StartShim, theirs: socket.socket, connection: socket.socket) -> None:
        # As for the worker: any other holder of the driver's end would keep the shim from seeing that its driver is gone.
        theirs.close()
        self._driver.close()
        shim.run_shim(request, connection, self._ledger, self._begin.directory, self._clock, self._host)

    def _start_worker(self, request: StartWorker) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            self._answer(lambda: self._identity(fork_process(lambda: self._run_worker(request, ours, theirs))), ours.fileno())

    def _run_worker(self, request: StartWorker, theirs: socket.socket, connection: socket.socket) -> None:
        # Any other holder of the driver's end would keep the worker from seeing that its driver is gone.
        theirs.close()
        self._driver.close()
        worker.serve(request, connection, self._ledger, self._clock, self._host)

    def _identity(self, pid: int) -> ProcessIdentity:
        identity = identify(pid, self._host)
        if identity is None:
            raise ProcessLookupError(f"forked process {pid} is not in /proc")
        return identity


def _reap() -> None:
    """Collect ended children, so that they do not pile up."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
