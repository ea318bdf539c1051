"""Other processes for the suite: modules of it, started with the import path of this one; and forks."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable

LIFE_SECS = 120
"""Far above what any of them takes: only one that hangs meets it."""


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start `python -m MODULE ARGUMENTS`, with pipes as its standard input and output."""
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def hear(process: subprocess.Popen[str]) -> str:
    """The next line that a process says; "" when it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tell(process: subprocess.Popen[str]) -> None:
    """Send a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end of a process; the lines that it still said. Fails unless it ended well."""
    said = _hear_rest(process)
    assert process.returncode == 0, f"{process.args!r} ended with {process.returncode}"
    return said.splitlines()


def kill(process: subprocess.Popen[str]) -> list[str]:
    """SIGKILL; the whole lines that it still said before."""
    process.kill()
    said = _hear_rest(process)
    assert process.returncode == -signal.SIGKILL, f"{process.args!r} ended with {process.returncode}, not by SIGKILL"
    return said[: said.rfind("\n") + 1].splitlines()


def _hear_rest(process: subprocess.Popen[str]) -> str:
    """All that was not heard yet. Not `communicate`, which would miss the lines that were read ahead."""
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        said = process.stdout.read()
    process.wait()
    return said


def limit_life() -> None:
    """Called by each process that is started here: one that hangs ends by itself, and whoever listens to it goes on."""
    signal.alarm(LIFE_SECS)


def run_forked(work: Callable[[], None]) -> int:
    """Run `work` in a fork of this process; its exit code, 0 when it returned."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - a fork must never run on into pytest
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
