"""Who has keyed commands done: a handle of its own on a space, in this process, or as a process of its own that is told when to begin.

`python -m benchmarks.space_client DIRECTORY NAME COUNT` warms its shim, prints `ready`, waits for a line, has COUNT commands done one after
the other, and prints `done`.
"""

import os
import subprocess
import sys
import time
from collections import deque

from eventlog.events import Exit
from eventlog.ports import LinuxHost, SystemClock
from recovery.space.keys import announce
from recovery.space.ledger import Ledger
from recovery.space.local import LocalSpace, SpacePaths
from recovery.space.marks import choose_marks
from recovery.space.records import Prepare
from recovery.space.request import CommandRequest, digest_request
from recovery.space.spawner import fork_spawner

CLOCK, HOST = SystemClock(), LinuxHost()
TRUE = [b"/bin/true"]
WARM = 4


class Client:
    """One handle on a space, of epoch 1: a spawner, shims, a view of the ledger. `name` tells its keys and marks from the others'."""

    def __init__(self, directory: str, name: str = "", mark: str = "auto") -> None:
        self.work = directory
        self.paths = SpacePaths(os.path.join(directory, "space"))
        self.name = name
        spawner = fork_spawner(CLOCK, HOST)
        self.ledger = Ledger(self.paths.ledger, CLOCK)
        self.setting = choose_marks(mark)
        self.space = LocalSpace(spawner, self.paths, self.ledger, self.setting, 1, CLOCK, HOST, lambda: None, name=name)
        self.count = 0

    def request(self, arguments: list[bytes]) -> CommandRequest:
        self.count += 1
        return CommandRequest(f"log/bench{self.name}/{self.count}/1/1", arguments, os.fsencode(self.work), [])

    def start(self, request: CommandRequest) -> str:
        """Announce a command by hand, as a driver does, and have a shim own it; its mark."""
        mark = self.space.mark(f"c{self.count}{self.name}-a1")
        announce(self.ledger, Prepare(request.key, "command", 1, None, 1, digest_request(request), mark, None, 0, ""))
        self.shim = self.space.start_command(request, mark)
        return mark

    def run(self) -> None:
        """One keyed `true`, from its announcement to its exit record and the end of its mark."""
        request = self.request(TRUE)
        mark = self.start(request)
        exited = self.space.wait_command(request.key, self.shim)
        if exited.exit != Exit("exited", code=0):
            raise RuntimeError(f"{exited}")
        self.space.forget_attempt(mark)

    def run_fresh(self) -> None:
        """The same where no shim is idle, so that one has to be forked."""
        while (idle := self.space._shims.find_idle()) is not None:
            self.space._shims.drop(idle)
        self.run()

    def run_many(self, count: int, at_once: int) -> float:
        """Commands per second of this one client with so many of them in flight, each waited for in its turn."""
        flying: deque[tuple[str, str]] = deque()
        began = time.perf_counter()
        for _ in range(count):
            if len(flying) == at_once:
                self.finish(*flying.popleft())
            request = self.request(TRUE)
            flying.append((request.key, self.start(request)))
        while flying:
            self.finish(*flying.popleft())
        return count / (time.perf_counter() - began)

    def finish(self, key: str, mark: str) -> None:
        self.space.wait_command(key, self.shim)
        self.space.forget_attempt(mark)

    def close(self) -> None:
        self.space.close()
        self.ledger.close()


def run_clients(directory: str, count: int, clients: int) -> float:
    """Commands per second of so many clients, each a process that has one command done after the other; they begin together."""
    share = count // clients
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.space_client", directory, f"-{number}", str(share)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(clients)
    ]  # fmt: skip
    for process in processes:
        _expect(process, "ready")
    began = time.perf_counter()
    for process in processes:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()
    for process in processes:
        _expect(process, "done")
    seconds = time.perf_counter() - began
    for process in processes:
        process.communicate()
    return share * clients / seconds


def _expect(process: "subprocess.Popen[str]", word: str) -> None:
    line = process.stdout.readline() if process.stdout is not None else ""
    if line != f"{word}\n":
        raise RuntimeError(f"a client said {line!r} where it was to say {word!r}")


def main(directory: str, name: str, count: str) -> None:
    client = Client(directory, name)
    for _ in range(WARM):
        client.run()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(count)):
        client.run()
    print("done", flush=True)
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
