"""Real sessions in a directory of their own: session files, drivers as processes, the steps they stop at, what log and ledger say."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eventlog import events
from eventlog.ports import SystemClock
from eventlog.reader import Reader, StoredEvent
from recovery.journal import only_stream
from recovery.space.ledger import LedgerView
from recovery.space.marks import find_cgroup_base, kill_cgroup
from recovery.space.marks.freezer import explain_freezer_base, kill_frozen
from recovery.space.records import LedgerState
from tests.helpers import is_running, kill_process, wait_until

PROJECT = Path(__file__).resolve().parents[2]
Table = dict[str, Any]


def bash(run: str, **more: Any) -> Table:
    return {"tool": "bash", "run": run, **more}


def write(path: str, content: str, **more: Any) -> Table:
    return {"tool": "write", "path": path, "content": content, **more}


def edit(path: str, old: str, new: str, **more: Any) -> Table:
    return {"tool": "edit", "path": path, "old": old, "new": new, **more}


def to_toml(value: Any) -> str:
    """A TOML value; JSON strings and numbers are TOML too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {to_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


class Steps:
    """The harness's end of the step socket (eventlog/steps.py): processes that were told to wait at a step do so here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._waiting: dict[str, tuple[int, socket.socket]] = {}

    def wait(self, step: str, driver: "Driver | None" = None) -> int:
        """Wait until a process stands at `step`; its pid. Fails when `driver` ends before."""

        def arrived() -> bool:
            self._accept()
            if step not in self._waiting and driver is not None:
                assert driver.code is None, f"the driver ended with {driver.code} before {step}: {driver.err}"
            return step in self._waiting

        wait_until(arrived, f"a process at {step}")
        return self._waiting[step][0]

    def _accept(self) -> None:
        self._listener.settimeout(0.005)
        with suppress(TimeoutError):
            connection, _ = self._listener.accept()
            step, _, pid = connection.recv(4096).decode().strip().rpartition(" ")
            self._waiting[step] = (int(pid), connection)

    def release(self, step: str) -> None:
        """Let the process at `step` go on."""
        _, connection = self._waiting.pop(step)
        connection.sendall(b".")
        connection.close()

    def kill(self, step: str, driver: "Driver | None" = None) -> int:
        """SIGKILL the process that stands at `step` (waiting for it first), and wait for its death; its pid."""
        pid = self.wait(step, driver)
        kill_process(pid)
        self._waiting.pop(step)[1].close()
        return pid

    def close(self) -> None:
        self._listener.close()
        for _, connection in self._waiting.values():
            connection.close()


class Zygote:
    """The warm process (zygote.py) of this test process, started when it is first needed."""

    _process: subprocess.Popen[str] | None = None

    @classmethod
    def fork(cls, request: dict[str, Any]) -> int:
        """Have one command forked; its pid."""
        if cls._process is None:
            environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
            cls._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("zygote.py"))],
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert cls._process.stdin is not None and cls._process.stdout is not None
        cls._process.stdin.write(json.dumps(request) + "\n")
        cls._process.stdin.flush()
        return int(cls._process.stdout.readline())


class Driver:
    """One `recovery` command as a process, its output in files."""

    def __init__(self, pid: int, out: Path, error: Path, status: Path) -> None:
        self.pid = pid
        self._out = out
        self._error = error
        self._status = status

    @property
    def out(self) -> str:
        return self._out.read_text("utf-8", "surrogateescape")

    @property
    def err(self) -> str:
        return self._error.read_text("utf-8", "surrogateescape")

    @property
    def lines(self) -> list[str]:
        """What it said on stdout, without heartbeats."""
        return [line for line in self.out.splitlines() if not line.startswith("HEARTBEAT ")]

    @property
    def code(self) -> int | None:
        """Its exit code, minus the signal, or None while it runs."""
        return int(self._status.read_text()) if self._status.exists() else None

    def end(self) -> int:
        """Wait for its end; the exit code, or minus the signal."""
        wait_until(lambda: self.code is not None, f"the end of driver {self.pid}")
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        """SIGKILL, and check that this is how it died."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.end() == -signal.SIGKILL

    def stop(self) -> None:
        """See to it that it has ended, by itself or not: it may be ending just now."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.end()

    def sentence(self) -> str:
        """The one line on stderr of a refusal, without a traceback."""
        lines = self.err.splitlines()
        assert len(lines) == 1 and "Traceback" not in self.err, self.err
        return lines[0]


class Sandbox:
    """A place for sessions: `work` is the workspace, `state` the state directory, `holders` the registry of holders."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "work"
        self.state = base / "state"
        self.holders = base / "holders"
        self.log = self.state / "log.sqlite"
        self.ledger_path = self.state / "space" / "ledger"
        self.witness = base / "witness"
        self.gate = base / "gate"
        self.root.mkdir()
        self.steps = Steps(base / "steps")
        self.user = 0
        self.boot = ""  # the boot id that drivers started from now on see; "" for the machine's own
        self._drivers: list[Driver] = []

    def session(self, *calls: Table, file: str = "session.toml", **settings: Any) -> Path:
        """A session file with these calls."""
        top = {"name": "nightly", "workspace": str(self.root), "state": str(self.state), **settings}
        lines = [f"{key} = {to_toml(value)}" for key, value in top.items()]
        for call in calls:
            lines += ["[[call]]", *(f"{key} = {to_toml(value)}" for key, value in call.items())]
        path = self.base / file
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(
        self, *arguments: str | Path, epoch: int | None = None, wait: tuple[str, ...] = (), program: Path | None = None, **environment: Any
    ) -> Driver:
        """Start `recovery ARGUMENTS`, or a Python program with them; processes wait at the steps `wait`."""
        number = len(self._drivers)
        out, error, status = (self.base / f"{what}-{number}" for what in ("out", "err", "status"))
        out.touch()
        error.touch()
        request = {
            "arguments": [str(argument) for argument in arguments],
            "program": str(program) if program else "",
            "environment": self.environment(epoch, wait) | environment,
            "directory": str(self.base),
            "out": str(out),
            "error": str(error),
            "status": str(status),
            "user": self.user,
            "boot": self.boot,
        }
        driver = Driver(Zygote.fork(request), out, error, status)
        self._drivers.append(driver)
        return driver

    def run(self, *arguments: str | Path, epoch: int | None = None, program: Path | None = None, **environment: Any) -> Driver:
        """`start`, and wait for the end."""
        driver = self.start(*arguments, epoch=epoch, program=program, **environment)
        driver.end()
        return driver

    def drive(self, *arguments: str, epoch: int | None = None, expect: int = 0) -> Driver:
        """`recovery drive`, which must end with the exit code `expect`."""
        driver = self.run("drive", self.state, *arguments, epoch=epoch)
        assert driver.code == expect, driver.out + driver.err
        return driver

    def environment(self, epoch: int | None, wait: tuple[str, ...]) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SESSION_", "CRASHWORTHY_"))}
        made = {
            **inherited,
            "PYTHONPATH": str(PROJECT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SESSION_HOLDERS_DIR": str(self.holders),
            "WITNESS": str(self.witness),
            "GATE": str(self.gate),
        }
        if epoch is not None:
            made["SESSION_EPOCH"] = str(epoch)
        if wait:
            made |= {"CRASHWORTHY_STEP_SOCKET": str(self.steps.path), "CRASHWORTHY_STEP_WAIT": " ".join(wait)}
        return made

    def events(self) -> list[StoredEvent]:
        """Every event of the log."""
        reader = Reader.open(str(self.log))
        try:
            return list(reader.events(only_stream(reader)))
        finally:
            reader.close()

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """Every event of one class."""
        return [stored.event for stored in self.events() if isinstance(stored.event, kind)]

    def labels(self) -> list[str]:
        """The labels of all recovery decisions, in order."""
        return [event.label for event in self.of_kind(events.RecoveryDecided)]

    def settled(self) -> list[tuple[int, int, str, str]]:
        """How each call ended: call, attempt, ended, label."""
        return [(event.call, event.attempt, event.ended, event.label) for event in self.of_kind(events.CallSettled)]

    def output(self, call: int) -> bytes:
        """The kept output of a settled call."""
        settled = next(event for event in self.of_kind(events.CallSettled) if event.call == call)
        reader = Reader.open(str(self.log))
        try:
            return b"".join(reader.content(bytes.fromhex(settled.output.blob)))  # type: ignore[arg-type]
        finally:
            reader.close()

    def ledger(self) -> LedgerState:
        """The ledger, folded."""
        view = LedgerView(str(self.ledger_path))
        view.close()
        return view.state

    def witnessed(self) -> list[str]:
        """The lines that commands wrote outside the workspace."""
        return self.witness.read_text().splitlines() if self.witness.exists() else []

    def open_gate(self) -> None:
        """Let the commands that wait for the gate go on."""
        self.gate.touch()

    def close(self) -> None:
        """End every process that was started here, and give back its cgroups."""
        self.steps.close()
        for driver in self._drivers:
            driver.stop()
        # Not by rglob, which fails where a path in quarantine is longer than the system takes.
        for ledger in [Path(top, "ledger") for top, _, names in os.walk(self.base) if "ledger" in names]:
            with suppress(ValueError, KeyError, IndexError, OSError):
                identity = json.loads(ledger.read_bytes().split(b"\n")[0][33:])["ledger_id"]
                end_marked(str(identity))
        shutil.rmtree(self.base, ignore_errors=True)
        if self.base.exists():
            subprocess.run(["rm", "-rf", str(self.base)], stderr=subprocess.DEVNULL, check=False)  # which no path is too long for


def end_marked(space_id: str) -> None:
    """Kill what still carries the marks of one space made by a test, and remove its cgroups."""
    for pid in find_marked(f"environment:{space_id}"):
        kill_process(pid)
    for base in (find_cgroup_base(), explain_freezer_base()[0]):
        top = Path(base, f"crashworthy.{space_id}")
        if base and top.is_dir():
            (kill_frozen if (top / "freezer.state").exists() else kill_cgroup)(str(top), SystemClock())
            for directory, _, _ in os.walk(top, topdown=False):
                os.rmdir(directory)


def find_marked(mark: str) -> list[int]:
    """Running processes whose environment carries a kill mark that begins with `mark`."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and f"CRASHWORTHY_MARK={mark}".encode() in Path("/proc", name, "environ").read_bytes():
                if is_running(int(name)):
                    found.append(int(name))
    return found


@contextmanager
def sandbox_directory() -> Iterator[Path]:
    """A short path (a socket's name holds at most 107 bytes)."""
    base = Path(tempfile.mkdtemp(prefix="crashworthy-"))
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)
