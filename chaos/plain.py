"""One command run plainly, without the engine: bash, its output, how it ended, and nothing of it left.

The command runs below a process of its own that inherits every orphan of it, so that what it leaves behind (in another session,
without its environment) is found and ended before anybody looks at the workspace. The end of its process decides, not that of its
output. A time limit is kept as rule S5 has it: TERM to its group, then KILL.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from chaos.processes import end_everything
from recovery.space.kernel import become_subreaper, end_with_parent

KILL_AFTER_TERM_SECS = 2.0


@dataclass(frozen=True, slots=True)
class PlainEnd:
    """What a command wrote to stdout and stderr, and how it ended: its exit code, or minus the signal, and whether its time was up."""

    output: bytes
    code: int
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class PlainCommand:
    """What is run and how: its limit in seconds (None: none), what it reads (None: the end of its input), whether stderr is kept apart."""

    run: bytes
    work: Path
    environment: Mapping[str, str]
    limit_secs: float | None = None
    stdin: bytes | None = None
    separate: bool = False


def run_plainly(command: PlainCommand) -> PlainEnd:
    """Run `bash -c RUN` in its directory and end what it left behind; of streams that are kept apart stderr comes last. Raises OSError when
    it could not be run."""
    with tempfile.TemporaryFile() as errors:
        return _run_plainly(command, errors.fileno() if command.separate else None, errors)


def _run_plainly(command: PlainCommand, errors: int | None, kept: IO[bytes]) -> PlainEnd:
    output_read, output_write = os.pipe()
    end_read, end_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_keeper(parent, command, (output_write, output_write if errors is None else errors), end_write)
    os.close(output_write)
    os.close(end_write)
    with os.fdopen(output_read, "rb") as output, os.fdopen(end_read, "rb") as end:
        written, told = output.read(), end.read()
    os.waitpid(pid, 0)
    if not told:
        raise OSError(f"the plain run of {command.run[:80]!r} was lost; its keeper's last words are on stderr")
    kept.seek(0)
    return PlainEnd(written + kept.read(), *json.loads(told))


def _become_keeper(parent: int, order: PlainCommand, streams: tuple[int, int], end: int) -> None:
    """In the forked child: own the command to the end of all it started, then tell how it ended. Never returns."""
    try:
        end_with_parent(parent)
        become_subreaper()
        with tempfile.TemporaryFile() as given:
            given.write(order.stdin or b"")
            given.seek(0)
            command = subprocess.Popen(
                [b"bash", b"-c", order.run],
                cwd=order.work,
                env=order.environment,
                stdin=subprocess.DEVNULL if order.stdin is None else given,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,
            )
        timed_out = _wait_limited(command, order.limit_secs)
        end_everything(os.getpid(), 0)
        os.write(end, json.dumps([command.returncode, timed_out]).encode())
    except BaseException:  # noqa: BLE001
        # The last line of a forked process: nothing may run on into the runner's own code (FACTS, trap 5).
        traceback.print_exc()
    finally:
        os._exit(0)


def _wait_limited(command: "subprocess.Popen[bytes]", limit_secs: float | None) -> bool:
    """Wait for a command's end; whether it had to be told to."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(limit_secs)
        return False
    for number, patience_secs in ((signal.SIGTERM, KILL_AFTER_TERM_SECS), (signal.SIGKILL, None)):
        os.killpg(command.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(patience_secs)
            break
    return True
