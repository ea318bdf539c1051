"""The mark of an epoch: inherited by a fork, gone with an exec, told apart by space."""

import os
import select

from recovery.space.epoch_mark import carry_epoch, read_epoch
from tests.helpers import kill_process, wait_until


def start(execute: bool) -> int:
    """A process that carries epochs 3 of one space and 7 of another, and has forked a child that waits; the child's pid."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        carry_epoch("1f", 3)
        carry_epoch("2f", 7)
        child = os.fork()
        if child == 0 and execute:
            os.execvp("sleep", ["sleep", "300"])
        if child:
            os.write(writer, str(child).encode())
            os._exit(0)
        while True:
            select.select([], [], [])
    os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        return int(file.read(32) if execute else os.read(reader, 32))


def test_rule_L4_a_fork_bears_the_mark_of_its_epoch_and_a_command_does_not() -> None:
    forked, executed = start(execute=False), start(execute=True)
    try:
        assert (read_epoch(forked, "1f"), read_epoch(forked, "2f"), read_epoch(forked, "3f")) == (3, 7, None)
        wait_until(lambda: os.readlink(f"/proc/{executed}/exe") != os.readlink("/proc/self/exe"), "the exec")
        assert read_epoch(executed, "1f") is None
    finally:
        kill_process(forked)
        kill_process(executed)
    assert read_epoch(forked, "1f") is None


def test_a_process_without_a_mark_bears_none() -> None:
    assert read_epoch(os.getpid(), "1f") is None
