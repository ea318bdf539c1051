"""Ways of a command's children to get out of reach, as a program: `python3 shapes.py SHAPE FILE PIDS`.

Each ends in one or more writers whose directory is not the workspace and which append to FILE (an absolute path) for ever. A writer adds
its pid to PIDS with one write before it begins. Nothing is unbounded: writers give up after LIMIT rounds, forks after GENERATIONS.
"""

import ctypes
import os
import platform
import signal
import sys
import threading
import time

PAUSE_SECS = 0.02
LIMIT = 15_000  # five minutes
GENERATIONS = 4_000
BOMB_WIDTH = 4
SYS_EXIT = {"x86_64": 60}.get(platform.machine(), 93)


def announce(pids: str) -> None:
    descriptor = os.open(pids, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def append(file: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, b"x")
    os.close(descriptor)


def write_for_ever(file: str) -> None:
    for _ in range(LIMIT):
        append(file)
        time.sleep(PAUSE_SECS)
    os._exit(0)


def write(file: str, pids: str) -> None:
    os.chdir("/")
    announce(pids)
    write_for_ever(file)


def fork_away() -> None:
    """Go on in a child; the parent ends."""
    if os.fork():
        os._exit(0)


def double_fork(file: str, pids: str) -> None:
    fork_away()
    fork_away()
    write(file, pids)


def setsid(file: str, pids: str) -> None:
    fork_away()
    os.setsid()
    write(file, pids)


def setpgid(file: str, pids: str) -> None:
    fork_away()
    os.setpgid(0, 0)
    write(file, pids)


def closed_handles(file: str, pids: str) -> None:
    fork_away()
    os.closerange(0, 256)
    write(file, pids)


def renamed(file: str, pids: str) -> None:
    fork_away()
    ctypes.CDLL(None).prctl(15, b"kworker/0:1", 0, 0, 0)
    write(file, pids)


def cleaned(file: str, pids: str) -> None:
    """The one with everything: two forks, a session, no handles, no environment, another program."""
    fork_away()
    os.setsid()
    fork_away()
    os.chdir("/")
    announce(pids)
    os.closerange(0, 256)
    script = f'trap "" TERM HUP INT; for ((i = 0; i < {LIMIT}; i++)); do echo -n x >> "$0"; sleep {PAUSE_SECS}; done'
    os.execve("/bin/bash", ["bash", "-c", script, file], {"PATH": "/usr/bin:/bin"})


def stopped(file: str, pids: str) -> None:
    """It has written once, and would go on when it is continued."""
    fork_away()
    append(file)
    announce(pids)
    os.kill(os.getpid(), signal.SIGSTOP)
    write_for_ever(file)


def ignores_term(file: str, pids: str) -> None:
    fork_away()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    write(file, pids)


def restarts(file: str, pids: str) -> None:
    """A pair: each starts the other again when it ends."""
    fork_away()
    os.setsid()
    for generation in range(GENERATIONS):
        child = os.fork()
        if child == 0:
            parent = os.getppid()
            announce(pids)
            while os.getppid() == parent:
                append(file)
                time.sleep(PAUSE_SECS)
            continue  # the watcher is gone: this one watches from here on
        if generation == 0:
            announce(pids)
        os.waitpid(child, 0)
    os._exit(0)


def fork_bomb(file: str, pids: str) -> None:
    """Lines of processes that never stay: each writes, forks its successor and ends."""
    for _ in range(BOMB_WIDTH - 1):
        if os.fork() == 0:
            break
    os.chdir("/")
    announce(pids)
    for _ in range(GENERATIONS):
        append(file)
        time.sleep(PAUSE_SECS / 2)
        fork_away()
    os._exit(0)


def ended_leader(file: str, pids: str) -> None:
    """In the background of a session whose leader has ended."""
    fork_away()
    os.setsid()
    fork_away()
    write(file, pids)


def zombie_leader(file: str, pids: str) -> None:
    """The leader has ended, a thread of it has not."""
    fork_away()
    os.chdir("/")
    announce(pids)
    threading.Thread(target=write_for_ever, args=(file,)).start()
    ctypes.CDLL(None).syscall(SYS_EXIT, 0)


SHAPES = (
    double_fork, setsid, setpgid, closed_handles, renamed, cleaned, stopped, ignores_term, restarts, fork_bomb, ended_leader, zombie_leader,
)  # fmt: skip

if __name__ == "__main__":
    next(shape for shape in SHAPES if shape.__name__ == sys.argv[1])(sys.argv[2], sys.argv[3])
