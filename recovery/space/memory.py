"""A space in memory: the ledger's own records and fold, and commands that are programs of this process. For simulation and for tests.

A program is a generator of acts. It runs only when somebody asks the world something, one act at a time and in the order of the starts, so
that a run is the same each time. A handle may be dropped at any act; nothing here depends on it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import assert_never

import msgspec
from blake3 import blake3

from eventlog.errors import InternalError, KeySpentError, MisuseError, RequestMismatchError, StaleEpochError
from eventlog.events import Exit
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity
from recovery.space.advance import choose_fates
from recovery.space.epochs import check_advance, check_at_floor, check_epoch
from recovery.space.file_request import FileRequest, digest_files
from recovery.space.keys import Attach, Mismatch, New, Replay, Spent, judge_key
from recovery.space.listing import AttemptWord, ListedAttempt, list_attempts, word_of
from recovery.space.memory_files import Files, change_file
from recovery.space.output import OutputKeeper
from recovery.space.port import CAPABILITIES, Advanced, Capability, Ended, How, Sink, SpaceFacts
from recovery.space.protocol import StreamName
from recovery.space.records import Advance, Attempt, Exited, Header, LedgerState, Prepare, ProvedDead, Record, Start, fold_record
from recovery.space.request import CommandRequest, digest_request

POLL_SECS = 0.05
NAME = "the space in memory"
_SIGKILL = 9


class Say(msgspec.Struct, frozen=True):
    """Write bytes to a stream."""

    stream: StreamName
    data: bytes


class Await(msgspec.Struct, frozen=True):
    """Go on once the condition holds."""

    condition: Callable[[], bool]


class Finish(msgspec.Struct, frozen=True):
    """End."""

    exit: Exit


Act = Say | Await | Finish
Program = Callable[[CommandRequest], Iterator[Act]]


class _Process(msgspec.Struct):
    request: CommandRequest
    acts: Iterator[Act]
    deadline: float | None
    waits_for: Callable[[], bool] | None = None
    said: list[tuple[StreamName, bytes]] = msgspec.field(default_factory=list)


class MemoryWorld:
    """What the handles of one space share: the ledger's records, the running programs. `programs` are by the first argument of a request;
    a request that names none cannot be executed."""

    def __init__(self, programs: Mapping[bytes, Program], clock: Clock, host: Host, space_id: str = "memory") -> None:
        self.programs = programs
        self.clock = clock
        self.host = host
        self.records: list[Record] = []
        self.state = LedgerState()
        self._running: dict[str, _Process] = {}
        self._outputs: dict[str, list[tuple[StreamName, bytes]]] = {}
        self.files: Files = {}
        self.append(Header(1, space_id, 1))

    def append(self, record: Record) -> None:
        """One more record of the ledger."""
        fold_record(self.state, record, "the ledger in memory")
        self.records.append(record)

    def begin(self, request: CommandRequest) -> None:
        """The starting mark, then the program."""
        now = self.clock.now_ms()
        self.append(Start(request.key, ProcessIdentity(1, 1, self.host.boot_id(), self.host.pid_namespace()), request.key, now))
        program = self.programs.get(request.arguments[0] if request.arguments else b"")
        self._outputs[request.key] = []
        if program is None:
            self._record(request.key, Exit("start_failed", error="ENOENT: no such program"))
            return
        deadline = None if request.timeout_secs is None else self.clock.monotonic() + request.timeout_secs
        self._running[request.key] = _Process(request, program(request), deadline, said=self._outputs[request.key])

    def change(self, request: FileRequest) -> None:
        """The starting mark, the change, its exit."""
        me = ProcessIdentity(1, 1, self.host.boot_id(), self.host.pid_namespace())
        self.append(Start(request.key, me, "", self.clock.now_ms()))
        refusal = change_file(self.files, request.act)
        message = refusal or f"did {request.act.__struct_config__.tag}"
        self._outputs[request.key] = [("out", message.encode())]
        self._record(request.key, Exit("exited", code=1 if refusal else 0))

    def run(self) -> None:
        """Let every program go on until it waits or ends."""
        for key, process in list(self._running.items()):
            if key in self._running and (ended := self._run_one(process)) is not None:
                del self._running[key]
                self._record(key, ended)

    def _run_one(self, process: _Process) -> Exit | None:
        while process.waits_for is None or process.waits_for():
            process.waits_for = None
            match next(process.acts, Finish(Exit("exited", code=0))):
                case Say(stream, data):
                    process.said.append((stream if process.request.separate else "out", data))
                case Await(condition):
                    process.waits_for = condition
                case Finish(exit_):
                    return exit_
                case other:
                    assert_never(other)
        if process.deadline is not None and self.clock.monotonic() >= process.deadline:
            return Exit("timed_out", signal=15)
        return None

    def kill(self, key: str, *, is_recorded: bool) -> None:
        """End a program; with its exit, or (condemned) without."""
        if self._running.pop(key, None) is not None and is_recorded:
            self._record(key, Exit("signaled", signal=_SIGKILL))

    def is_running(self, key: str) -> bool:
        """Whether the program of a key lives."""
        return key in self._running

    def said(self, key: str) -> list[tuple[StreamName, bytes]]:
        """What a command has written so far, in order."""
        return self._outputs.get(key, [])

    def output(self, key: str, stream: StreamName) -> tuple[bytes, int, str]:
        """What is kept of a stream, how much there was, and the digest of all of it."""
        keeper = OutputKeeper()
        everything = b"".join(data for one, data in self.said(key) if one == stream)
        keeper.add(everything)
        kept = keeper.kept()
        return kept.data, kept.total, blake3(everything).hexdigest()

    def _record(self, key: str, exit_: Exit) -> None:
        self.append(Exited(key, exit_, self.host.boot_id(), at_ms=self.clock.now_ms()))


class MemorySpace:
    """One handle on a `MemoryWorld`."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(CAPABILITIES)

    def facts(self) -> SpaceFacts:
        header = self._world.state.header
        if header is None:
            raise InternalError(f"{NAME}: its ledger has no header")
        return SpaceFacts(header.ledger_id, header.generation, self._world.state.floor, "memory", "memory", f"space:{header.ledger_id}")

    def advance(self, epoch: int, claim: Collection[str] = ()) -> Advanced:
        state = self._world.state
        check_advance(epoch, state.floor, NAME)
        for key in claim:
            self._find(key)
        before = {key for key, attempt in state.attempts.items() if attempt.fate == "condemned"}
        fates = choose_fates(state, claim, [key for key in state.attempts if self._world.is_running(key)])
        self._world.append(Advance(epoch, "", 0, "", fates, []))
        condemned = tuple(key for key, fate in fates.items() if fate == "condemned")
        for key in condemned:
            self._world.kill(key, is_recorded=False)
        if condemned:
            self._world.append(ProvedDead(epoch, sorted(condemned), []))
        claimed = tuple(key for key, fate in fates.items() if fate == "claimed")
        return Advanced(epoch, claimed, tuple(key for key in condemned if key not in before))

    def start(self, epoch: int, request: CommandRequest) -> How:
        digest = digest_request(request)
        if (how := self._judge(epoch, request.key, digest)) == "started":
            self._world.append(Prepare(request.key, "command", epoch, None, 1, digest, f"memory:{request.key}", None, 0, ""))
            self._world.begin(request)
            self._world.run()
        return how

    def _judge(self, epoch: int, key: str, digest: str) -> How:
        """What asking for a key comes to: `started` for one that is new. Raises what `start` raises."""
        check_at_floor(epoch, self._world.state.floor, NAME)
        match judge_key(self._world.state, key, None, digest):
            case New():
                return "started"
            case Attach():
                return "attached"
            case Replay():
                return "replayed"
            case Mismatch(digest=known):
                raise RequestMismatchError(f"{NAME}: key {key} stands for another request; use another key", known, digest)
            case Spent(reason=reason):
                raise KeySpentError(f"{NAME}: key {key} is spent: {reason}; a new attempt takes a new key")
            case other:
                assert_never(other)

    def change(self, epoch: int, request: FileRequest) -> How:
        digest = digest_files(request)
        if (how := self._judge(epoch, request.key, digest)) == "started":
            self._world.append(Prepare(request.key, "file", epoch, None, 1, digest, f"memory:{request.key}", None, 0, ""))
            self._world.change(request)
        return how

    def wait(self, epoch: int, key: str, sink: Sink | None = None) -> Ended:
        heard = 0
        while True:
            self._check_not_stale(epoch)
            self._find(key)
            self._world.run()
            said = self._world.said(key)
            while sink is not None and heard < len(said):
                stream, data = said[heard]
                heard += 1
                sink(stream, data)
            ended = self.look(key)
            if ended is not None:
                return ended
            self._world.clock.pause(POLL_SECS)

    def look(self, key: str) -> Ended | None:
        attempt = self._find(key)
        word = word_of(attempt, self._world.is_running(key))
        if word in (AttemptWord.PREPARED, AttemptWord.RUNNING):
            return None
        out, out_total, digest = self._world.output(key, "out")
        err, err_total, _ = self._world.output(key, "err")
        return Ended(key, word, attempt.epoch, None if attempt.exit is None else attempt.exit.exit, out, err, out_total, err_total, digest)

    def list(self) -> list[ListedAttempt]:
        self._world.run()
        state = self._world.state
        return list_attempts(state, [key for key in state.attempts if self._world.is_running(key)])

    def end(self, epoch: int, key: str) -> Ended:
        self._check_not_stale(epoch)
        self._find(key)
        self._world.kill(key, is_recorded=True)
        ended = self.look(key)
        if ended is None:
            raise InternalError(f"{NAME}: key {key} goes on after it was killed")
        return ended

    def close(self) -> None:
        """Nothing is held."""

    def _check_not_stale(self, epoch: int) -> None:
        floor = self._world.state.floor
        if check_epoch(epoch) < floor:
            raise StaleEpochError(f"epoch {epoch} is below the floor {floor}; a newer driver has the space")

    def _find(self, key: str) -> Attempt:
        attempt = self._world.state.find(key)
        if attempt is None:
            raise MisuseError(f"{NAME}: the space knows no key {key}; list what it knows")
        return attempt
