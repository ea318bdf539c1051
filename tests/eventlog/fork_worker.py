"""Case 21 in a process of its own: `python -m tests.eventlog.fork_worker LOG ROUNDS`.

A driver that appends and, between appends and inside a transaction, forks in every way that does not exec at once. The children end by
a normal interpreter exit, our handle alive in them. On stdout: `inside` with the transaction open and its children gone, then a line
is waited for; at the end the number of appends that were acknowledged.
"""

import multiprocessing
import os
import pty
import subprocess
import sys
from collections.abc import Callable

from eventlog import steps
from tests.eventlog import support
from tests.eventlog.support import Calling


def end_by_exit() -> None:
    """As a child ends that knows nothing of us: it unwinds, and its interpreter clears every object away."""
    sys.exit(0)


def fork_plainly() -> None:
    child = os.fork()
    if child == 0:
        end_by_exit()
    assert os.waitpid(child, 0)[1] == 0


def fork_to_a_terminal() -> None:
    child, terminal = pty.fork()
    if child == 0:
        end_by_exit()
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)


def fork_by_multiprocessing() -> None:
    process = multiprocessing.get_context("fork").Process(target=end_by_exit)
    process.start()
    process.join()
    assert process.exitcode == 0


def fork_with_code_before_exec() -> None:
    subprocess.run(["true"], preexec_fn=lambda: None, close_fds=False, check=True)


WAYS: tuple[Callable[[], None], ...] = (fork_plainly, fork_to_a_terminal, fork_by_multiprocessing, fork_with_code_before_exec)


def main(path: str, rounds: int) -> None:
    writer = support.open_writer(path, first_id=10_000_000, busy_ms=30_000)
    writer._handle.pragma("cache_size", 1)  # pages of an open transaction go to the WAL at once: the index has something to lose
    big = "x" * 40_000
    acknowledged = 0
    for number in range(rounds):
        if number % 3 == 0:
            steps.install(Calling("note.commit.locked", WAYS[number // 3 % len(WAYS)]))  # in the middle of a transaction
        else:
            WAYS[number % len(WAYS)]()
        support.add(writer, 1, f"driver {number}", big)
        acknowledged += 1
    steps.install(Calling("note.commit.locked", hold_the_lock))
    support.add(writer, 1, f"driver {rounds}", big)
    print(acknowledged + 1, flush=True)
    writer.close()


def hold_the_lock() -> None:
    for way in WAYS:
        way()
    print("inside", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    pid = os.getpid()
    try:
        main(sys.argv[1], int(sys.argv[2]))
    finally:
        # A child that fell out of `main` by an exit must not be taken for the driver, whatever code it ends with.
        if os.getpid() != pid:
            sys.stdout = open(os.devnull, "w")
