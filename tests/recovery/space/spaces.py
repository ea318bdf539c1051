"""A space without a session: a ledger, a spawner forked from the test's process, commands by key."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from eventlog.errors import StaleEpochError
from eventlog.ports import LinuxHost, SystemClock
from eventlog.process_identity import ProcessIdentity
from recovery.space.bubblewrap import Bubblewrap
from recovery.space.ledger import Ledger, append_fenced, create_ledger
from recovery.space.local import LocalSpace, SpacePaths
from recovery.space.marks import choose_marks
from recovery.space.records import Advance, Exited, Header, Prepare
from recovery.space.request import CommandRequest, digest_request
from recovery.space.spawner import fork_spawner
from tests.helpers import is_running
from tests.recovery.sessions import end_marked, sandbox_directory

CLOCK, HOST = SystemClock(), LinuxHost()


class LooseSpace:
    """One epoch's hold on a space of its own. `work` is where commands run; with `bubblewrap` they are confined to it."""

    def __init__(self, base: Path, mark: str = "auto", bubblewrap: Bubblewrap | None = None) -> None:
        self.base = base
        self.work = base / "work"
        self.work.mkdir()
        self.paths = SpacePaths(str(base / "space"))
        self.paths.make()
        self.id = f"test{base.name.rpartition('-')[2]}"
        create_ledger(self.paths.ledger, Header(1, self.id, 1))
        spawner = fork_spawner(CLOCK, HOST)
        self.ledger = Ledger(self.paths.ledger, CLOCK)
        self.epoch = 0
        self.advance()
        self.setting = choose_marks(mark)
        self.spawner = spawner
        if bubblewrap is not None:
            bubblewrap = msgspec.structs.replace(bubblewrap, workspace=str(self.work))
        self.is_confined = bubblewrap is not None
        self.space = LocalSpace(
            spawner, self.paths, self.ledger, self.setting, self.epoch, CLOCK, HOST, self._check_fence, bubblewrap=bubblewrap
        )  # fmt: skip
        self.told: list[str] = []
        self.space.tell = self.told.append
        self.call = 0

    def _check_fence(self) -> None:
        self.ledger.refresh()
        if self.ledger.state.floor > self.epoch:
            raise StaleEpochError(f"epoch {self.epoch} is below the floor")

    def advance(self, **fates: Any) -> int:
        """Raise the ledger's floor by one, as a takeover does; the new floor."""
        with self.ledger.transaction() as transaction:
            floor = transaction.state.floor + 1
            transaction.append(Advance(floor, "log", 0, "", fates, []))
        self.epoch = self.epoch or floor
        return floor

    def request(self, run: str, **more: Any) -> CommandRequest:
        """`bash -c RUN` under the next key."""
        self.call += 1
        environment = [(b"PATH", os.environb[b"PATH"]), (b"BASE", os.fsencode(self.base))]
        plain = {"arguments": [b"bash", b"-c", run.encode()], "directory": os.fsencode(self.work), "environment": environment,
                 "is_confined": self.is_confined}  # fmt: skip
        return CommandRequest(**{"key": f"log/s/{self.call}/1/1", **plain, **more})  # type: ignore[arg-type]

    def start(self, request: CommandRequest) -> ProcessIdentity:
        """Prepare a command and have a shim own it; the shim."""
        mark = self.space.mark(f"c{self.call}-a1")
        digest = digest_request(request)
        append_fenced(self.ledger, self.epoch, Prepare(request.key, "command", self.epoch, self.call, 1, digest, mark, None, 0, ""))
        return self.space.start_command(request, mark)

    def run(self, run: str, **more: Any) -> Exited:
        """Run a command to its exit record."""
        request = self.request(run, **more)
        return self.space.wait_command(request.key, self.start(request))

    def output(self, exited: Exited) -> tuple[bytes, bytes]:
        """What is kept of its output."""
        return self.space.read_output(self.ledger.state.attempts[exited.key].prepared.mark, exited)

    def pids(self) -> list[int]:
        """Every process below this one that is of this space: spawner and shims."""
        return [pid for pid in _children(os.getpid()) if is_running(pid)]

    def close(self) -> None:
        self.space.close()
        end_marked(self.id)


def _children(pid: int) -> Iterator[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(child) for child in file.read().split()]
    except OSError:
        return
    for child in children:
        yield child
        yield from _children(child)


@contextmanager
def open_space(mark: str = "auto", bubblewrap: Bubblewrap | None = None) -> Iterator[LooseSpace]:
    """A space, ended and removed afterwards."""
    with sandbox_directory() as base:
        made = LooseSpace(base, mark, bubblewrap)
        try:
            yield made
        finally:
            made.close()

