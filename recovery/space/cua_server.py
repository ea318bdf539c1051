"""Starting a `cua-spacesd` of one's own: on loopback, with a random token, and with a home and a data directory that are nobody else's.

Below its directory (0700): `token` (0600), `said` (what it printed, with the address that it took), `home`, `data` (its own ledger and
epoch). The daemon and its client send usage data unless told not to; both are told not to. It is a process of its own: it goes on when
who started it ends, and is stopped by `Server.stop` or by its pid.
"""

import contextlib
import importlib.util
import os
import re
import subprocess
from pathlib import Path

import msgspec

from eventlog import durable
from eventlog.errors import LostProcessError, MisuseError
from eventlog.ports import Clock, Ids
from eventlog.show import show_text

START_SECS = 60.0
POLL_SECS = 0.02
ABSENT = "the cua package is not installed; `pip install 'crashworthy[cua]'` installs it"
NO_USAGE_DATA = {"DO_NOT_TRACK": "1", "CUA_TELEMETRY": "0"}
_ADDRESS = re.compile(r"\bserving addr=(127\.0\.0\.1:[0-9]+)\b")
_OPTIONS = ["--listen", "127.0.0.1:0", "--quic-port", "0", "--no-desktop", "--no-driver", "--no-mcp", "--no-access-log"]


class Server(msgspec.Struct, frozen=True):
    """A daemon that was started here: where it listens, the token that it wants, its process."""

    url: str
    token: str
    process: "subprocess.Popen[bytes]"

    def stop(self) -> None:
        """End the daemon. Commands that run are not ended by that: nobody watches them any more."""
        self.process.kill()
        self.process.wait()


def is_installed() -> bool:
    """Whether the package can be imported, without importing it."""
    return importlib.util.find_spec("cua") is not None


def find_program() -> str:
    """The daemon that the installed package carries. Raises MisuseError where there is none."""
    spec = importlib.util.find_spec("cua")
    if spec is None or spec.origin is None:
        raise MisuseError(ABSENT)
    found = sorted((Path(spec.origin).parent / "bin").glob("cua-spacesd-*"))
    if not found:
        raise MisuseError("the installed cua package carries no cua-spacesd for this machine; name the address of a daemon that runs")
    return str(found[0])


def start_server(directory: str, path: str, ids: Ids, clock: Clock) -> Server:
    """Start a daemon whose files are below `directory` (made where it is missing; one that was used before is gone on with). `path` is
    the PATH of the daemon and of what it runs.

    Raises MisuseError (no package), LostProcessError when it does not come up within START_SECS.
    """
    program = find_program()
    for name in ("", "home", "data"):
        os.makedirs(os.path.join(directory, name), mode=0o700, exist_ok=True)
    token = ids.new_id().hex() + ids.new_id().hex()
    durable.publish(os.path.join(directory, "token"), token.encode(), "cua.token")
    said = os.path.join(directory, "said")
    places = ["--token-file", os.path.join(directory, "token"), "--data-dir", os.path.join(directory, "data")]
    with open(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as output:
        process = subprocess.Popen(
            [program, "serve", *_OPTIONS, *places],
            env={"PATH": path, "HOME": os.path.join(directory, "home"), **NO_USAGE_DATA},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", umask=0o077, start_new_session=True,
        )  # fmt: skip
    try:
        return Server(f"http://{_wait_address(said, process, clock)}", token, process)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _wait_address(said: str, process: "subprocess.Popen[bytes]", clock: Clock) -> str:
    deadline = clock.monotonic() + START_SECS
    while True:
        has_ended = process.poll() is not None  # before the look: what it said last is read then
        text = ""
        with contextlib.suppress(FileNotFoundError):
            text = Path(said).read_text("utf-8", "replace")
        if found := _ADDRESS.search(text):
            return found[1]
        if has_ended or clock.monotonic() >= deadline:
            how = f"ended with {process.returncode}" if has_ended else f"did not serve within {START_SECS:g} s"
            raise LostProcessError(f"cua-spacesd {how}; {show_text(said)} has what it said")
        clock.pause(POLL_SECS)
