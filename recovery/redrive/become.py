"""A process that becomes one driver when it is told to, and ends when nobody is left to tell it.

Everything a driver imports is imported before; nothing is opened, no thread is begun. The line on standard input is what
`starting.encode_start` makes.
"""

import gc
import json
import os
import sys

from eventlog import steps
from eventlog.errors import CrashworthyError
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.driver.entry import drive
from recovery.driver.order import Order, Ports, tell
from recovery.script import parse_on_interrupted
from recovery.settings import read_settings


def main() -> int:
    """Wait, drive, and give the driver's exit code."""
    gc.freeze()
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 0  # whoever started this is gone, and nothing was begun
    state, epoch, on_interrupted, accept_outside, out, err = json.loads(line)
    _redirect(0, "/dev/null", os.O_RDONLY)
    _redirect(1, out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _redirect(2, err, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.environ["SESSION_EPOCH"] = str(epoch)
    try:
        steps.install(steps.hook_from_environment(os.environ))
        settings = read_settings(os.environ)
        choice = parse_on_interrupted(on_interrupted, "--on-interrupted") if on_interrupted else None
    except CrashworthyError as error:
        tell(f"recovery: {error}")
        return error.exit_code
    return drive(Order(state, None, choice, accept_outside), settings, Ports(SystemClock(), RandomIds(), LinuxHost()))


def _redirect(number: int, path: str, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, number)
    os.close(descriptor)
