"""Ledgers for tests: made, opened, read, laid down as bytes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from eventlog.events import Exit
from eventlog.ports import SystemClock
from eventlog.process_identity import ProcessIdentity
from recovery.space.ledger import Ledger, LedgerView, create_ledger
from recovery.space.ledger_lines import encode_line
from recovery.space.records import Advance, Exited, Header, LedgerState, Prepare, Record, Start

ME = ProcessIdentity(1, 1, "boot", 1)
PREPARED = Prepare("k", "command", 1, 1, 1, "digest", "mark", None, 1, "hash")
STARTED = Start("k", ME, "")
EXITED = Exited("k", Exit("exited", code=0), "boot")
OPENED: list[Ledger] = []


def open_ledger(path: str | Path) -> Ledger:
    """A ledger of this process, closed after the test."""
    OPENED.append(Ledger(str(path), SystemClock()))
    return OPENED[-1]


def make_ledger(directory: Path, *records: Record) -> Ledger:
    """A ledger of epoch 1 that holds these records."""
    path = str(directory / "ledger")
    create_ledger(path, Header(1, "id", 1))
    made = open_ledger(path)
    for record in (Advance(1, "log", 1, "hash", {}, []), *records):
        with made.transaction() as transaction:
            transaction.append(record)
    return made


def view(path: str | Path) -> LedgerState:
    """The state of a ledger, read whole."""
    found = LedgerView(str(path))
    found.close()
    return found.state


def lay(path: Path, data: bytes) -> Path:
    """A ledger file of these bytes, whose note of the end says nothing (as after a loss of power)."""
    path.write_bytes(data)
    Path(f"{path}.end").write_bytes(b"")
    return path


def prepare_key(key: str, call: int | None = None, epoch: int = 1, digest: str = "digest") -> Prepare:
    return Prepare(key, "command", epoch, call, 1, digest, f"environment:id/{key}", None, 1, "hash")


def start_key(key: str) -> Start:
    return Start(key, ME, "")


def end_key(key: str) -> Exited:
    return Exited(key, Exit("exited", code=0), "boot")


def grow(directory: Path, keys: int, call: int | None = None) -> Ledger:
    """A ledger of epoch 1 with this many ended keys, its lines written at once; `call` numbers them from there on, else they are by
    hand."""
    path = str(directory / "ledger")
    create_ledger(path, Header(1, "id", 1))
    lines = [Path(path).read_bytes()]

    def add(record: Record) -> None:
        lines.append(encode_line(lines[-1][:32], record))

    add(Advance(1, "log", 1, "hash", {}, []))
    for number in range(keys):
        key = f"log/n/{number}/1/1"
        for record in (prepare_key(key, None if call is None else call + number), start_key(key), end_key(key)):
            add(record)
    Path(path).write_bytes(b"".join(lines))
    return open_ledger(path)


class KillAt:
    """A hook that kills its process with SIGKILL at one pass of one step."""

    def __init__(self, name: str, number: int = 1) -> None:
        self._name = f"{name}:{number}"

    def pass_step(self, step: str) -> None:
        if step.partition(":")[2] == self._name:
            os.kill(os.getpid(), signal.SIGKILL)


class Names:
    """A hook that keeps the names of the steps passed, each with its ordinal."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []

    def pass_step(self, step: str) -> None:
        _, name, number = step.split(":")
        self.found.append((name, int(number)))


class WaitAt:
    """A hook that tells one pipe when its process passes a step, and goes on when another can be read."""

    def __init__(self, name: str, told: int, until: int) -> None:
        self._name, self._told, self._until = name, told, until

    def pass_step(self, step: str) -> None:
        if step.split(":")[1] == self._name:
            os.write(self._told, b".")
            os.read(self._until, 1)


def fork(work: Callable[[], None]) -> int:
    """A child that does `work` and ends with 0, or 1 when it fails; its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid
