"""The spawner as a program of its own, for a driver that is a library in somebody's process.

Such a process may have threads, descriptors of its own and hooks on fork, so that forking it without exec could copy a lock that nobody
lets go of, or hold a stranger's socket open. Here a new interpreter is executed instead, which shares nothing with it but one socket, and
which forks shims and file worker as any spawner does. It costs one start of Python for each epoch.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from eventlog import steps
from eventlog.errors import MisuseError
from eventlog.ports import LinuxHost, SystemClock
from recovery.space.spawner import serve_spawner

PACKAGES = Path(__file__).resolve().parents[2]
"""Where the packages of this project are: what is executed must find the same ones."""
END_SECS = 10.0


class Helper:
    """The executed spawner and the driver's end of its socket."""

    def __init__(self, connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        self.connection = connection
        self._process = process

    def close(self) -> None:
        """Let it end, and reap it: it is a child of this process. One that does not end is killed."""
        self.connection.close()
        try:
            self._process.wait(END_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_helper(environ: Mapping[str, str], python: str = sys.executable) -> Helper:
    """Execute the spawner with `python`. Raises MisuseError where that is no program."""
    if not python or not os.access(python, os.X_OK):
        raise MisuseError(
            f"a session needs Python as a program of its own for its spawner, and sys.executable is {python!r}; "
            "set it to the path of a Python 3.11 or newer that has crashworthy"
        )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    path = os.pathsep.join(filter(None, (str(PACKAGES), environ.get("PYTHONPATH", ""))))
    with theirs:
        process = subprocess.Popen(
            [python, "-P", "-m", "recovery.space.helper", str(theirs.fileno())],
            env={**environ, "PYTHONPATH": path},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    return Helper(ours, process)


def main() -> None:
    """Serve the driver whose socket is the descriptor in argv[1]."""
    steps.install(steps.hook_from_environment(os.environ))
    serve_spawner(socket.socket(fileno=int(sys.argv[1])), SystemClock(), LinuxHost())


if __name__ == "__main__":
    main()
