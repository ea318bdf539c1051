"""Asking a `cua-spacesd`: its Python client with a plain face, its answers as typed values, its failures as errors of this project.

Only what is asked by key is believed: the record of an exec id says whether and how a command ended. A stream of output is found by the
tag that a command was started under (tags live no longer than the daemon's process) and is whole when its SHA-256 is the record's; it is
never asked how the command ended, and nothing is ever asked by pid.
"""

import asyncio
import hashlib
import importlib
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import msgspec

from eventlog.errors import LostProcessError, MisuseError, StaleEpochError
from eventlog.events import Exit
from eventlog.show import show_text
from recovery.space.cua_server import ABSENT, NO_USAGE_DATA
from recovery.space.output import OutputKeeper
from recovery.space.protocol import StreamName
from recovery.space.request import CommandRequest

POLL_SECS = 0.1
"""How often a wait looks whether it may go on: the fence is seen at most so much later."""
LONGEST_TIMEOUT_MS = (1 << 32) - 1
_EMPTY_SHA256 = hashlib.sha256().hexdigest()
_GONE = ("Transport", "SpacesdNotAvailable", "Timeout", "Closed", "Cancelled")
_REFUSED = ("Unauthenticated", "PermissionDenied")
T = TypeVar("T")


class RefusedError(MisuseError):
    """The daemon answered, and said no: nothing was done."""


class _NotThereError(RefusedError):
    """It does not know what was named."""


class End(msgspec.Struct, frozen=True, rename="camel"):
    """How the daemon says that a command ended."""

    exit_code: int | None = None
    signal_number: int = 0
    timed_out: bool = False
    error: str = ""
    lost: bool = False


class Chunk(msgspec.Struct, frozen=True):
    """A piece of the kept end of a command's output."""

    offset: int = 0
    stdout: bytes = b""
    stderr: bytes = b""


class ExecRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What the daemon's ledger holds of an exec id. `output_*` are over both streams, in the order in which the daemon read them."""

    state: str
    epoch: int = 0
    pid: int = 0
    end: End | None = None
    output_bytes: int = 0
    output_sha256: str = _EMPTY_SHA256
    tail: list[Chunk] = []

    @property
    def is_running(self) -> bool:
        """It has started, or is about to."""
        return self.state not in ("EXEC_STATE_EXITED", "EXEC_STATE_LOST")

    def to_exit(self) -> Exit | None:
        """The exit that this record proves; None where it proves none (it runs, or nobody knows): none is made up."""
        end = self.end
        if self.state != "EXEC_STATE_EXITED" or end is None or end.lost:
            return None
        signal = end.signal_number or None
        if end.timed_out and (signal is None) != (end.exit_code is None):
            return Exit("timed_out", signal=signal, code=end.exit_code)
        if end.exit_code is not None and signal is None:
            return Exit("exited", code=end.exit_code)
        if end.exit_code is None and signal is not None:
            return Exit("signaled", signal=signal)
        return Exit("start_failed", error=end.error) if end.error and not self.pid else None


class _Answer(msgspec.Struct, frozen=True):
    record: ExecRecord | None = None
    epoch: int = 0


class Collected:
    """What was heard of a command's output. `separate` keeps the streams apart."""

    def __init__(self, separate: bool) -> None:
        self._separate = separate
        self._sha256 = hashlib.sha256()
        self._total = 0
        self.keepers: dict[StreamName, OutputKeeper] = {"out": OutputKeeper()}
        if separate:
            self.keepers["err"] = OutputKeeper()

    def add(self, stream: StreamName, data: bytes) -> StreamName:
        """Take a piece; the stream that it is kept under."""
        self._sha256.update(data)
        self._total += len(data)
        name: StreamName = stream if self._separate else "out"
        self.keepers[name].add(data)
        return name

    def count_missing(self, record: ExecRecord) -> int | None:
        """How many bytes of the whole were not heard; None when not even that is known. 0: every byte is here, by number and digest."""
        missing = record.output_bytes - self._total
        return None if missing < 0 or (missing == 0 and self._sha256.hexdigest() != record.output_sha256) else missing


class Probe(msgspec.Struct, frozen=True):
    """What a daemon says of itself: its version, protocol and features, and the methods that are there."""

    version: str
    protocol: tuple[int, int]
    features: frozenset[str]
    methods: frozenset[str]


class Daemon:
    """One connection. Used by one thread."""

    def __init__(self, url: str, token: str, home: str) -> None:
        """Connect. `home` is where the client library keeps its own files. It sends usage data unless the environment of this process says
        no, so that is said there before it is loaded. Raises MisuseError (no package, refused token), LostProcessError (no answer)."""
        self.name = f"cua-spacesd at {show_text(url)}"
        os.environ.update(NO_USAGE_DATA, CUA_HOME=home)
        try:
            self._cua: Any = importlib.import_module("cua")
        except ImportError as error:
            raise MisuseError(f"{ABSENT} ({error})") from error
        self._loop = asyncio.new_event_loop()
        try:
            self._client: Any = self._wait(self._connect(url, token, home))
        except RefusedError as error:
            self._loop.close()
            raise LostProcessError(f"{error}; see that it is a cua-spacesd, and open the space again") from error
        except BaseException:
            self._loop.close()
            raise

    async def _connect(self, url: str, token: str, home: str) -> Any:
        box = await self._cua.embedded(state_dir=home).sandboxes().connect_url(url, token, "crashworthy")
        client = await box.spacesd(None)
        await client.health()
        return client

    def close(self) -> None:
        """Give the connection back."""
        self._loop.close()

    def _wait(self, asked: Awaitable[T]) -> T:
        async def ask() -> T:
            return await asked

        try:
            return self._loop.run_until_complete(ask())
        except self._cua.CuaError as error:
            kind = type(error).__name__
            if kind in _GONE:
                raise LostProcessError(f"{self.name} does not answer ({error}); start it again, then open the space again") from error
            if kind in _REFUSED:
                raise MisuseError(f"{self.name} refuses the token ({error}); give the one that it was started with") from error
            refusal = _NotThereError if kind == "NotFound" else RefusedError
            raise refusal(f"{self.name} refuses: {error}") from error

    def _call(self, method: str, **fields: object) -> bytes:
        answer: str = self._wait(self._client.call_json(f"ProcessService/{method}", json.dumps(fields)))
        return answer.encode()

    def probe(self) -> Probe:
        """What it says of itself."""
        found = self._wait(self._client.capabilities())
        return Probe(
            found.version,
            (found.protocol_version, found.protocol_revision),
            frozenset(one.name for one in found.features if one.supported),
            frozenset(method.rpartition(".")[2] for method in self._client.json_methods()),
        )

    def epoch(self) -> int:
        """The daemon's own epoch, 0 before the first."""
        return msgspec.json.decode(self._call("AdvanceEpoch"), type=_Answer, strict=False).epoch

    def advance(self, epoch: int) -> None:
        """Raise the daemon's epoch: it kills the process groups of what it started under lower ones. Raises StaleEpochError below it."""
        try:
            self._call("AdvanceEpoch", epoch=str(epoch))
        except RefusedError as error:
            self._raise_stale(epoch, error)
            raise

    def _raise_stale(self, epoch: int, error: RefusedError) -> None:
        known = self.epoch()  # asked for, as its words may change
        if known > epoch:
            raise StaleEpochError(f"{self.name}: epoch {epoch} is below its epoch {known}; a newer driver has the space") from error

    def record(self, exec_id: str) -> ExecRecord | None:
        """What it holds of an exec id; None when it holds nothing: never started there, or forgotten."""
        return msgspec.json.decode(self._call("GetExecRecord", requestId=exec_id), type=_Answer, strict=False).record

    def start(self, exec_id: str, request: CommandRequest, epoch: int) -> None:
        """Have a command started under an exec id. Raises StaleEpochError, RefusedError, LostProcessError."""
        timeout = None if request.timeout_secs is None else min(max(1, round(request.timeout_secs * 1000)), LONGEST_TIMEOUT_MS)
        program, *arguments = [one.decode() for one in request.arguments]
        command = self._cua.SpacesdCommand(
            program=program, args=arguments, env={name.decode(): value.decode() for name, value in request.environment},
            cwd=request.directory.decode(), timeout_ms=timeout, tag=exec_id, request_id=exec_id, epoch=epoch,
        )  # fmt: skip

        async def begin() -> None:
            await (await self._client.spawn(command)).detach()

        try:
            self._wait(begin())
        except RefusedError as error:
            self._raise_stale(epoch, error)
            raise

    def kill(self, exec_id: str) -> bool:
        """SIGKILL to the process group of a command by its tag; False when there is no such process (any more)."""
        try:
            self._call("SignalProcess", process={"tag": exec_id}, signal="SIGNAL_KILL", processGroup=True)
        except _NotThereError:
            return False
        return True

    def follow(self, exec_id: str, hear: Callable[[StreamName, bytes], None], check: Callable[[], None]) -> Literal["ended", "unknown"]:
        """Everything that is retained of a command's output, then what comes, until its end is told; `unknown` when the daemon has no such
        process (any more). `check` is called at least every POLL_SECS while nothing comes; what it raises ends the following.
        A daemon that died is tried for some seconds by its client; then LostProcessError is raised."""
        try:
            process = self._wait(self._client.attach(None, exec_id, self._cua.ReplayMode.ALL()))
        except _NotThereError:
            return "unknown"
        try:
            while (event := self._next_event(process, check)) is not None and event.kind != self._cua.ProcessEventKind.EXIT:
                hear("err" if event.kind == self._cua.ProcessEventKind.STDERR else "out", event.data)
        finally:
            self._wait(process.detach())
        return "ended"

    def _next_event(self, process: Any, check: Callable[[], None]) -> Any:
        async def ask() -> Any:
            return await process.next_event()

        async def look(task: "asyncio.Task[Any]") -> bool:
            return bool((await asyncio.wait({task}, timeout=POLL_SECS))[0])

        task = self._loop.create_task(ask())
        try:
            while not self._wait(look(task)):
                check()
            return self._wait(task)
        finally:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
