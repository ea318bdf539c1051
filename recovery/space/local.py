"""The local space, seen from the driver: start commands, wait for them, have files changed, reattach after a takeover.

The driver writes no workspace path; it asks the spawner for shims and the file worker. Losing one of them without its record halts
the driver with exit 1 (S7): a recovery in place would run beside an orphan of its own epoch.
"""

import contextlib
import os
import select
import socket
from collections.abc import Callable, Collection

import msgspec

from eventlog import steps
from eventlog.errors import (
    BusyError,
    CorruptError,
    CrashworthyError,
    FullError,
    LogMissingError,
    LostProcessError,
    MisuseError,
    NeedsPersonError,
    RestoreIncompleteError,
    ScanError,
    StaleEpochError,
)
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, is_dead, open_process
from recovery.space import protocol
from recovery.space.allowance import Allowance
from recovery.space.attach import connect_shim, name_socket, read_output
from recovery.space.bubblewrap import Bubblewrap
from recovery.space.identity import is_stopped, kill_and_wait
from recovery.space.ledger import Ledger
from recovery.space.marks import (
    MarkSetting,
    allows_reuse,
    forget_mark,
    list_command_processes,
    list_left_processes,
    name_helper_mark,
    name_mark,
    release_mark,
)
from recovery.space.output import forget_output
from recovery.space.protocol import (
    Attach,
    Begin,
    Delayed,
    Done,
    Ended,
    EndFrame,
    Failed,
    Forked,
    Hello,
    HelloAnswer,
    Message,
    RunCommand,
    Stale,
    StartShim,
    StartWorker,
    WorkerRequest,
)
from recovery.space.records import Exited
from recovery.space.request import CommandRequest
from recovery.space.shims import ShimLink, Shims
from recovery.space.silence import DEFAULT_SILENT_SECS, STOPPED_SECS, SilenceWatch

# What the file worker's errors are here again: the exit code says whether trying again can help. An error of the operating system is one.
_WORKER_FAILURES = (BusyError, CorruptError, FullError, LogMissingError, MisuseError, NeedsPersonError, RestoreIncompleteError, ScanError)
_FAILURES: dict[str, type[CrashworthyError]] = {
    error.__name__: error for error in _WORKER_FAILURES
}
FENCE_POLL_SECS = 0.25
HANDSHAKE_SECS = 5.0
STOPPED_LOOKS = 2
HELPER_END_SECS = 5.0


class SpacePaths(msgspec.Struct, frozen=True):
    """Where a space keeps its own files, all below `directory` (in the state directory, mode 0700)."""

    directory: str

    @property
    def ledger(self) -> str:
        return os.path.join(self.directory, "ledger")

    @property
    def contents(self) -> str:
        """Contents laid ready for restores, one file per content id."""
        return os.path.join(self.directory, "contents")

    def make(self) -> None:
        """Create what is missing."""
        for path in (self.directory, *(os.path.join(self.directory, name) for name in ("output", "sockets", "contents"))):
            os.makedirs(path, mode=0o700, exist_ok=True)


class LocalSpace:
    """One epoch's hold on the space: its spawner and its file worker. `check_fence` raises StaleEpochError once a newer epoch exists."""

    def __init__(
        self, spawner: socket.socket, paths: SpacePaths, ledger: Ledger, setting: MarkSetting, epoch: int, clock: Clock, host: Host,
        check_fence: Callable[[], None], name: str = "", bubblewrap: Bubblewrap | None = None,
    ) -> None:  # fmt: skip
        self._spawner = spawner
        self._paths = paths
        self._ledger = ledger
        self._setting = setting
        self._epoch = epoch
        self._clock = clock
        self._host = host
        self._check_fence = check_fence
        self._bubblewrap = bubblewrap
        self._name = name  # tells the helpers of several handles of one epoch apart
        self._has_begun = False
        self._shims = Shims()
        self._forked = 0
        self._commands = 0
        self._worker: socket.socket | None = None
        self.side: str | None = None  # the side directory, once the file worker has readied it
        self._helpers: list[ProcessIdentity] = []
        self.tell: Callable[[str], None] = lambda line: None  # one line for people
        self.silent_secs = DEFAULT_SILENT_SECS

    @property
    def space_id(self) -> str:
        header = self._ledger.state.header
        return header.ledger_id if header else ""

    def mark(self, leaf: str) -> str:
        """The kill mark with this leaf name."""
        return name_mark(self._setting, self.space_id, leaf)

    def _helper_mark(self, role: str) -> str:
        return name_helper_mark(self._setting, self.space_id, f"e{self._epoch}-{role}{self._name}")

    def _begin(self) -> None:
        """Have the spawner register under this epoch, once, before it is first asked for a process: a drive that needs none has none
        that could outlive it. Raises StaleEpochError, LostProcessError."""
        if not self._has_begun:
            begin = Begin(self._epoch, self._helper_mark("spawner"), self._paths.ledger, self._paths.directory)
            self._helpers.append(self._ask(begin).identity)
            self._has_begun = True

    @property
    def has_worker(self) -> bool:
        """Whether this epoch's file worker was started."""
        return self._worker is not None

    def start_worker(self, root: str, *, is_synced: bool = False) -> None:
        """Have the file worker forked; it registers itself before it serves. `is_synced`: see StartWorker."""
        self._begin()
        request = StartWorker(self._epoch, self._helper_mark("worker"), os.fsencode(root), self.space_id, is_synced)
        self._send(self._spawner, request, "spawner")
        identity, self._worker = self._receive_forked("file worker")
        self._helpers.append(identity)

    def start_command(self, request: CommandRequest, mark: str) -> ProcessIdentity:
        """Have a shim own a prepared command; the shim's identity. Raises StaleEpochError, LostProcessError, MisuseError for a confined one
        where nothing confines."""
        wrapper = self._wrap() if request.is_confined else []
        self._begin()
        shim = self._shims.find_idle() or self._fork_shim(mark)
        self._commands += 1
        self._send(shim.connection, RunCommand(self._epoch, mark, self._commands, request, wrapper), "shim")
        shim.key = request.key
        return shim.identity

    @property
    def can_confine(self) -> bool:
        """Whether commands for the namespaced space can be started here."""
        return self._bubblewrap is not None

    def _wrap(self) -> list[bytes]:
        if self._bubblewrap is None:
            raise MisuseError("this handle was opened on the local space; a command for the namespaced one needs SESSION_SPACE=namespaced")
        return self._bubblewrap.wrap()

    def _fork_shim(self, mark: str) -> ShimLink:
        self._forked += 1
        own = self._helper_mark(f"shim{self._forked}") if allows_reuse(mark) and self._setting.base else ""
        self._send(self._spawner, StartShim(self._epoch, own), "spawner")
        return self._shims.add(ShimLink(*self._receive_forked("shim"), own))

    def _receive_forked(self, who: str) -> tuple[ProcessIdentity, socket.socket]:
        """The spawner's answer to a start: the process, and the driver's end of its socket."""
        self._wait_readable(self._spawner.fileno())
        answer, descriptor = protocol.receive_with_descriptor(self._spawner)
        identity = self._check_forked(answer).identity
        if descriptor is None:
            raise LostProcessError(f"the spawner answered without the socket of its {who}; drive again")
        return identity, socket.socket(fileno=descriptor)

    def _ask(self, request: Begin) -> Forked:
        self._send(self._spawner, request, "spawner")
        self._wait_readable(self._spawner.fileno())
        return self._check_forked(protocol.receive(self._spawner))

    def _check_forked(self, answer: Message | None) -> Forked:
        match answer:
            case Forked():
                return answer
            case Stale():
                raise StaleEpochError(answer.message)
            case Failed():
                raise LostProcessError(f"the spawner could not start a process: {answer.message}; drive again")
            case _:
                raise self._lost("the spawner ended without an answer; drive again")

    def _send(self, connection: socket.socket, message: Message, who: str) -> None:
        try:
            protocol.send(connection, message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._lost(f"the {who} is gone; drive again") from error

    def _lost(self, message: str) -> LostProcessError:
        """The error for a process that went without its record (S7), unless it was a newer epoch's takeover that killed it: then
        StaleEpochError is raised (the log's floor is raised before any kill: T1)."""
        self._check_fence()
        return LostProcessError(message)

    def wait_command(self, key: str, shim: ProcessIdentity) -> Exited:
        """Wait for a command's exit record. Raises LostProcessError when its shim ends without one, StaleEpochError when superseded."""
        steps.reach("command.wait")
        owned = self._shims.find_owner(key)
        why = ""
        if owned is not None:
            with contextlib.closing(self._watch(key, owned.identity)) as watch:
                why = self._wait_ended(owned, watch)
        else:
            with contextlib.closing(self._watch(key, shim)) as watch:
                self._wait_claimed(key, shim, watch)
        self._ledger.refresh()
        attempt = self._ledger.state_of(key).find(key)
        if attempt is None or attempt.exit is None:
            raise self._lost(f"the shim of {key} ended without an exit record{why}; drive again: recovery decides what its command did")
        self._ledger.sync()  # a shim that was killed at its sync has left its record to us
        return attempt.exit

    def _watch(self, key: str, shim: ProcessIdentity) -> SilenceWatch:
        def ask() -> socket.socket:
            attempt = self._ledger.state.attempts[key]
            name = name_socket(attempt.prepared.mark, shim) if attempt.start is None else attempt.start.socket
            connection = connect_shim(self._paths.directory, name)
            protocol.send(connection, Hello(self._epoch))
            return connection

        return SilenceWatch(ask, self._clock, self.silent_secs)

    def _wait_ended(self, shim: ShimLink, watch: SilenceWatch) -> str:
        """Wait until a shim of this driver says that the exit of its command is recorded, or is gone; what it said of its own end, in
        brackets, "" for nothing. Raises StaleEpochError."""
        said = ""
        while True:
            self._wait_readable(shim.connection.fileno(), shim.identity, watch)
            match protocol.receive(shim.connection):
                case Ended(is_idle=is_idle):
                    shim.key = ""
                    if not is_idle:
                        self._shims.drop(shim)
                    return said
                case Delayed(key=key, message=why):
                    watch.hear()
                    self.tell(f"{key} has ended and its exit cannot be recorded ({why}); trying again")
                case Stale(message=why):
                    raise StaleEpochError(why)
                case Failed(message=why):
                    self.tell(f"the shim of {shim.key} ended: {why}")
                    said = f" ({why})"
                case _:
                    self._shims.drop(shim)
                    return said

    def _wait_claimed(self, key: str, shim: ProcessIdentity, watch: SilenceWatch) -> None:
        """Wait until the exit of a command that another driver's shim owns is recorded, or that shim is gone. It is the record that is
        waited for: the shim is attached to, and says when it stands."""
        connection = self._attach(key)
        with open_process(shim, self._host) as descriptor:
            while descriptor is not None and not is_dead(descriptor):
                if connection is None:
                    self._wait_readable(descriptor, shim, watch)
                    continue
                self._wait_readable(connection.fileno(), shim, watch)
                match protocol.receive(connection):
                    case EndFrame():
                        break
                    case None:
                        connection.close()
                        connection = None
                    case Stale(message=why):
                        raise StaleEpochError(why)
                    case _:
                        continue
        if connection is not None:
            connection.close()

    def _attach(self, key: str) -> socket.socket | None:
        """A connection that tells of the end of an attempt; None when its shim takes none."""
        attempt = self._ledger.state.find(key)
        if attempt is None or attempt.start is None:
            return None
        connection: socket.socket | None = None
        try:
            connection = connect_shim(self._paths.directory, attempt.start.socket)
            protocol.send(connection, Attach(self._epoch, key, None, None))
        except OSError:
            if connection is not None:
                connection.close()
            return None
        return connection

    def _wait_readable(self, descriptor: int, who: ProcessIdentity | None = None, watch: SilenceWatch | None = None) -> None:
        """Wait until a descriptor is readable, asking the fence at least every FENCE_POLL_SECS (driver contract: within 1 s).

        `who` is the process that is waited for: stopped for STOPPED_SECS, or silent for as long as `watch` allows, it is killed and
        treated as gone (S5).
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        stopped: Allowance | None = None
        while not poll.poll(int(FENCE_POLL_SECS * 1000)):
            self._check_fence()
            if who is not None and watch is not None and watch.is_silent():
                self.tell(f"the shim {who.pid} has not answered for {self.silent_secs:g} s and is ended")
                kill_and_wait(who, self._host, self._clock, STOPPED_SECS)
            if who is None or not is_stopped(who):
                stopped = None
                continue
            stopped = stopped or Allowance(self._clock, STOPPED_SECS)
            if stopped.is_spent():
                kill_and_wait(who, self._host, self._clock, STOPPED_SECS)

    def change_files(self, request: WorkerRequest) -> Done:
        """Have the file worker carry out one prepared request. Raises StaleEpochError, LostProcessError."""
        if self._worker is None:
            raise LostProcessError("there is no file worker; drive again")
        self._send(self._worker, request, "file worker")
        self._wait_readable(self._worker.fileno(), self._helpers[-1])
        match protocol.receive(self._worker):
            case Done() as done:
                return done
            case Stale(message=message):
                raise StaleEpochError(message)
            case Failed(message=message, error=name):
                raise _FAILURES.get(name, OSError)(message)
            case _:
                raise self._lost(f"the file worker ended during {request.key} without an answer; drive again")

    def list_processes(self) -> frozenset[int]:
        """Pids of this space's processes, spawner and file worker aside, that are known to be alive now: claimed commands with all they
        started, and what commands left behind in a cgroup of the space."""
        found = list_left_processes(self._setting, self.space_id)
        for attempt in self._ledger.state.attempts.values():
            if attempt.is_open and attempt.start is not None and attempt.fate != "condemned":
                found += list_command_processes(attempt.prepared.mark, attempt.start.identity, self._host)
        return frozenset(found)

    @property
    def has_leaves(self) -> bool:
        """Whether what a command starts is in a leaf of a cgroup, so that it is told from others."""
        return bool(self._setting.base)

    def own_processes(self) -> frozenset[int]:
        """`list_processes`, and the helpers and shims of this epoch: nobody else's."""
        shims = (attempt.start.identity.pid for attempt in self._ledger.state.attempts.values() if attempt.start is not None)
        return self.list_processes() | self._shims.pids() | {identity.pid for identity in self._helpers} | set(shims)

    def read_output(self, mark: str, exited: Exited) -> tuple[bytes, bytes]:
        """What is kept of an exited attempt's stdout (or merged output) and stderr. Raises CorruptError."""
        return read_output(self._paths.directory, mark, exited)

    def forget_attempt(self, mark: str) -> None:
        """Remove what an attempt whose outcome is in the log still holds: its output files and its mark."""
        forget_mark(mark)
        forget_output(self._paths.directory, mark.rpartition("/")[2])

    def _end_helper(self, identity: ProcessIdentity) -> None:
        """Wait a little for a helper to end by itself; it has no work any more, so one that does not is killed."""
        with open_process(identity, self._host) as descriptor:
            if descriptor is None:
                return
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if poll.poll(int(HELPER_END_SECS * 1000)):
                return
        kill_and_wait(identity, self._host, self._clock, HELPER_END_SECS)

    def drop(self) -> None:
        """Let go of spawner, file worker and shims at once and wait for nobody, as this process's death would: for an end that is none."""
        self._spawner.close()
        if self._worker is not None:
            self._worker.close()
        for _ in self._shims.close():
            pass

    def close(self, spare: Collection[str] = ()) -> None:
        """Let spawner, file worker and shims end, and give their marks back; the shims of the keys `spare` go on. For a clean end; a crash
        leaves it to the next takeover."""
        self._spawner.close()
        if self._worker is not None:
            self._worker.close()
        shims = [shim for shim in self._shims.close() if shim.key not in spare]
        for identity in (*self._helpers, *(shim.identity for shim in shims)):
            self._end_helper(identity)
        for mark in [shim.mark for shim in shims if shim.mark]:
            release_mark(mark)
        release_mark(self._helper_mark("worker"))
        release_mark(self._helper_mark("spawner"))


def greet_shim(paths: SpacePaths, name: str, key: str, identity: ProcessIdentity, epoch: int) -> bool:
    """The handshake of a claim: the shim lives, answers, and is the one the ledger names."""
    try:
        with connect_shim(paths.directory, name) as connection:
            connection.settimeout(HANDSHAKE_SECS)
            protocol.send(connection, Hello(epoch))
            if not _wait_answer(connection, identity):
                return False
            answer = protocol.receive(connection)
    except (OSError, TimeoutError):
        return False
    return isinstance(answer, HelloAnswer) and answer.key == key and answer.identity == identity


def _wait_answer(connection: socket.socket, shim: ProcessIdentity) -> bool:
    """Wait for a shim's first byte; False after HANDSHAKE_SECS, or when it was seen stopped at STOPPED_LOOKS looks: it never answers."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    looks = stopped = 0
    while looks * FENCE_POLL_SECS < HANDSHAKE_SECS and stopped < STOPPED_LOOKS:
        if poll.poll(int(FENCE_POLL_SECS * 1000)):
            return True
        looks += 1
        stopped += is_stopped(shim)
    return False
