"""The shim: the small process that owns one command at a time (S4, S5).

Ordering invariants. It is under a mark of its own from its birth. For a command it makes the attempt's mark, then, under the ledger's
lock, compares its epoch with the floor and writes the starting mark; once that is on disk its child executes the command, under the
attempt's mark. When the command's process has ended (its pipe does not count: case 31) what it left behind is ended, the output saved,
and then the exit recorded: an exit record therefore says that nothing of the attempt lives, but for what it says was kept (`left`). Nobody
is told of an exit before its record stands.
Below the floor it exits and starts nothing. Its child gets SIGKILL when the shim dies.

It is used again for the next command of its epoch, which has a mark of its own; one that a newer epoch has claimed or superseded ends
after its command, and one whose driver is gone too. Of a kind of mark that a process joins for good (marks.allows_reuse) it is under the
attempt's own, and ends with it.
"""

import contextlib
import errno
import os
import select
import selectors
import signal
import socket
from collections.abc import Iterator

from eventlog import durable, steps
from eventlog.errors import BusyError, CrashworthyError, StaleEpochError
from eventlog.events import Exit
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, identify, identify_self
from recovery.space import marks, protocol
from recovery.space.attach import name_socket
from recovery.space.command import keep_from_commands, start
from recovery.space.confined import StartError
from recovery.space.floor_poll import FloorPoll
from recovery.space.kernel import become_subreaper, name_process
from recovery.space.ledger import Ledger, LedgerTransaction
from recovery.space.output import STDERR_SUFFIX, Kept, OutputKeeper, output_path, save_output
from recovery.space.protocol import Delayed, Ended, RunCommand, Stale, StartShim, StreamName
from recovery.space.readers import Readers
from recovery.space.records import Exited, Start
from recovery.space.running import Running
from recovery.space.starting import append_start

KILL_AFTER_TERM_SECS = 2.0
DRAIN_SECS = 0.05
DRAIN_LIMIT_BYTES = 16 << 20
READ_BYTES = 1 << 16
RECORD_PAUSE_SECS = 0.25
RECORD_SECS = 30.0
"""How long a shim tries to record an exit that the disk does not take: far above a passing shortage, below the stall of a driver."""
LONGEST_SLEEP_SECS = 86_400.0  # what a selector takes is bounded by milliseconds in 32 bits; a longer time limit is looked at once a day
QUEUE = 256  # who connects is let in at once: a queue that is full says that its shim takes nobody any more
NEVER = 1 << 62


def run_shim(born: StartShim, driver: socket.socket, ledger: Ledger, directory: str, clock: Clock, host: Host) -> None:
    """Own the commands that the driver sends, one after the other. Runs in a process forked for it, already under its own mark; returns
    when the driver is gone or its epoch over."""
    os.setsid()
    become_subreaper()
    name_process("shim")
    ledger.reopen()
    keep_from_commands()
    identity = identify_self(host)
    while isinstance(order := protocol.receive(driver), RunCommand):
        if not _Shim(order, born.mark, driver, ledger, directory, identity, clock, host).own():
            return


@contextlib.contextmanager
def _listen(directory: str, name: str) -> Iterator[socket.socket]:
    """A socket on which others can say hello and attach, bound through a directory descriptor (paths to sockets are at most 107 bytes)."""
    sockets = os.path.join(directory, "sockets")
    descriptor = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            _bind(listener, f"/proc/self/fd/{descriptor}/{name}", name, descriptor)
            listener.listen(QUEUE)
            yield listener
        durable.unlink(name, "socket", directory=descriptor)
    finally:
        os.close(descriptor)


def _bind(listener: socket.socket, path: str, name: str, directory: int) -> None:
    """Bind; where a shim of this number that died left its socket behind, in the place of that. OSError where one listens."""
    try:
        listener.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            if other.connect_ex(path) == 0:
                raise
        durable.unlink(name, "socket", directory=directory)
        listener.bind(path)


class _Shim:
    """The owner of one command."""

    def __init__(
        self, order: RunCommand, own_mark: str, driver: socket.socket, ledger: Ledger, directory: str, identity: ProcessIdentity,
        clock: Clock, host: Host,
    ) -> None:  # fmt: skip
        self._order = order
        self._request = order.request
        self._own_mark = own_mark
        self._driver = driver
        self._ledger = ledger
        self._directory = directory
        self._leaf = order.mark.rpartition("/")[2]
        self._socket = name_socket(order.mark, identity)
        self._identity = identity
        self._clock = clock
        self._host = host
        self._keepers: dict[StreamName, OutputKeeper] = {"out": OutputKeeper()}
        if order.request.separate:
            self._keepers["err"] = OutputKeeper()
        self._streams: dict[StreamName, int] = {}
        self._command: Running | None = None
        self._joined = marks.Joined()

    def own(self) -> bool:
        """From the starting mark to the exit record; whether this shim may own another command. Raises what keeps it from its records."""
        may_go_on = marks.allows_reuse(self._order.mark)
        try:
            if may_go_on:
                marks.make_mark(self._order.mark)
            else:
                self._joined = marks.join_mark(self._order.mark)
            steps.enter(f"shim.{self._order.ordinal}", self._order.epoch)
            with _listen(self._directory, self._socket) as listener:
                append_start(self._ledger, self._order.epoch, self._starting_mark())
                poll = FloorPoll(self._clock, self._look_at_floor)
                readers = Readers(listener, self._request.key, self._identity, self._keepers, poll, self._end_command)
                self._run(readers)
        except StaleEpochError as error:
            self._tell(Stale(str(error)))
            return False
        except (CrashworthyError, OSError) as error:
            self._tell(protocol.tell_failure(error))
            raise
        is_current = max(self._ledger.floor, readers.newest_epoch) <= self._order.epoch
        is_idle = may_go_on and is_current
        steps.reach("idle")
        # Told last: a step that the shim passes after this would find the driver gone on, and whoever is frozen there would hold nobody.
        return self._tell(Ended(self._request.key, is_idle)) and is_idle

    def _starting_mark(self) -> Start:
        first = None if self._joined.first is None else identify(self._joined.first, self._host)
        now = self._clock.now_ms()
        return Start(self._request.key, self._identity, self._socket, now, first, self._own_mark, marks.read_newest())

    def _tell(self, message: protocol.Message) -> bool:
        """Tell the driver, when it is there; False when it is gone."""
        try:
            protocol.send(self._driver, message)
            return True
        except OSError:
            return False

    def _look_at_floor(self) -> int:
        try:
            self._ledger.refresh()
        except CrashworthyError:
            return NEVER  # of a ledger that cannot be read nobody is current; the command goes on, and its record will say what is wrong
        return self._ledger.floor

    def _run(self, readers: Readers) -> None:
        """Execute, wait, end survivors, save the output, record the exit, let readers go."""
        try:
            command = start(self._request, self._order.mark, self._order.wrapper)
        except StartError as error:
            readers.finish(self._record(Exit("start_failed", error=error.reason), 0, is_held=False))
            return
        self._command = command
        self._streams["out"] = command.output
        if command.errors is not None:
            self._streams["err"] = command.errors
        steps.reach("running")
        ended, gone = self._wait(command, readers)
        steps.reach("ended")
        is_held = self._drain(DRAIN_SECS)
        survivors, left, named = self._handle_survivors()
        survivors += gone
        self._drain(0)
        for descriptor in self._streams.values():
            os.close(descriptor)
        readers.finish(self._record(ended, survivors, is_held, left, named))

    def _wait(self, command: Running, readers: Readers) -> tuple[Exit, int]:
        """Wait for the end of the command's process, keeping its output, serving readers, holding the time limit: its exit, and how many
        processes ended with it."""
        limit = self._request.timeout_secs
        deadline = None if limit is None else self._clock.monotonic() + limit
        sent = 0
        with selectors.PollSelector() as selector:  # a few descriptors for a short while: nothing is told to the kernel in advance
            selector.register(command.descriptor, selectors.EVENT_READ, "end")
            for name, descriptor in self._streams.items():
                selector.register(descriptor, selectors.EVENT_READ, name)
            readers.serve_from(selector)
            while True:
                ready = selector.select(self._patience(deadline, readers))
                names = {key.data for key, _ in ready}
                for name in sorted(names & self._streams.keys()):
                    if not self._keep(name):
                        selector.unregister(self._streams[name])
                        os.close(self._streams.pop(name))
                for key, mask in ready:
                    if callable(key.data):
                        key.data(mask)
                readers.push()
                if "end" in names:
                    break
                if deadline is not None and self._clock.monotonic() >= deadline:
                    sent = signal.SIGKILL if sent else signal.SIGTERM
                    command.signal(sent)
                    deadline = self._clock.monotonic() + KILL_AFTER_TERM_SECS
        return command.end(timed_out=sent != 0)

    def _patience(self, deadline: float | None, readers: Readers) -> float | None:
        """How long the loop may sleep; None for ever."""
        until = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
        return min((secs for secs in (until, readers.wait_secs, LONGEST_SLEEP_SECS) if secs is not None), default=None)

    def _end_command(self) -> None:
        if self._command is not None:
            self._command.signal(signal.SIGKILL)

    def _keep(self, name: StreamName) -> bool:
        """Take what can be read now, a piece of it; False at the stream's end."""
        try:
            data = os.read(self._streams[name], READ_BYTES)
        except BlockingIOError:
            return True
        self._keepers[name].add(data)
        return bool(data)

    def _drain(self, secs: float) -> bool:
        """Take what is in the pipes, and what comes within `secs`; True when somebody still holds their other end then. Nobody is waited
        for longer, however much it writes."""
        if not self._streams:
            return False
        deadline = self._clock.monotonic() + secs
        room = DRAIN_LIMIT_BYTES
        poll = select.poll()
        held = dict(self._streams)
        for descriptor in held.values():
            poll.register(descriptor, select.POLLIN)
        while held and room > 0:
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, deadline - self._clock.monotonic()) * 1000)}
            if not ready:
                break
            for name, descriptor in list(held.items()):
                if descriptor in ready and not self._keep(name):
                    poll.unregister(descriptor)
                    del held[name]
                room -= READ_BYTES if descriptor in ready else 0
        return bool(held)

    def _handle_survivors(self) -> tuple[int, int, str]:
        """What the command left behind, handled by policy (rule S11); how many were ended, how many are kept, and who they are."""
        steps.reach("sweep.before")
        # Who has no child and inherits every orphan has no descendant at all: nothing is looked for then, and a leaf is only asked.
        has_children = self._reap()
        members = marks.list_members(self._order.mark, self._joined) if has_children else []
        survivors, named = len(members), marks.describe(members) if members else ""
        if survivors and self._request.left_behind == "keep":
            marks.keep_members(self._order.mark, self._joined)
            return marks.end_strays(self._order.mark, self._clock), survivors, named  # what left the mark no takeover would find
        if has_children or marks.has_leaf(self._order.mark):
            marks.end_members(self._order.mark, self._joined, self._host, self._clock)
            if has_children and self._reap():
                survivors += marks.end_strays(self._order.mark, self._clock)
        steps.reach("sweep.after")
        return survivors, 0, named

    def _reap(self) -> bool:
        """Collect what has ended; False when no child is left, living or dead."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def _record(self, ended: Exit, survivors: int, is_held: bool, left: int = 0, named: str = "") -> Exited:
        """Save the output, then record the exit; the record."""
        kept = {name: keeper.kept() for name, keeper in self._keepers.items()}
        out, err = kept["out"], kept.get("err", Kept(0, b""))  # no digest: there is no such stream
        missing = self._save(out, err)
        if missing:
            out, err = Kept(out.total, b"", out.digest), Kept(err.total, b"", err.digest)
        record = Exited(
            self._request.key, ended, self._identity.boot_id, out.total, len(out.data), survivors, digest=out.digest,
            stderr_total=err.total, stderr_kept=len(err.data), stderr_digest=err.digest, left=left, held_output=is_held,
            at_ms=self._clock.now_ms(), missing=missing, named=named,
        )  # fmt: skip
        steps.reach("ledger.exit.before")
        self._append(record)
        return record

    def _save(self, out: Kept, err: Kept) -> str:
        """Write the output files; why they could not be written, "" when they were."""
        path = output_path(self._directory, self._leaf)
        try:
            save_output(path, out)
            save_output(path + STDERR_SUFFIX, err)
        except OSError as error:
            return f"{errno.errorcode.get(error.errno or errno.EIO, 'EIO')}: {error.strerror}"
        return ""

    def _append(self, record: Exited) -> None:
        """Never refused: what ended has ended. Whether it counts as clean or cut is decided by its place after a condemnation.

        A record that the disk does not take is tried again for RECORD_SECS; then the shim ends without it, so that the attempt is lost and
        never a success. Under a mark whose proof is the shim itself it is tried for ever.
        """
        deadline = self._clock.monotonic() + RECORD_SECS
        is_again = False
        while True:
            try:
                with self._ledger.transaction() as transaction:
                    if not (is_again and _has_exit(transaction, record.key)):
                        transaction.append_shared(record)
                return
            except (OSError, BusyError) as error:
                is_again = True
                self._tell(Delayed(record.key, str(error)))
                if self._clock.monotonic() >= deadline and not self._order.mark.startswith("environment:"):
                    raise
                self._clock.pause(RECORD_PAUSE_SECS)


def _has_exit(transaction: LedgerTransaction, key: str) -> bool:
    """Whether a record stands that could not be synced: the end of this transaction tries that again."""
    attempt = transaction.state_of(key).find(key)
    return attempt is not None and attempt.exit is not None
