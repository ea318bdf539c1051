"""Starting drivers for a trial: forked from the warm zygote, or the real command in a process of its own. Both get the same environment."""

import gc
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from chaos.disk.device import install_device
from chaos.disk.fault import parse_fault
from chaos.scenario import Scenario
from eventlog import steps
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from recovery.driver.entry import drive
from recovery.driver.order import Order, Ports
from recovery.script import Session, call_to_json
from recovery.settings import read_settings
from recovery.space.kernel import name_process

HARNESS_FAILED = 99
REDRIVE = ("redrive", "--backoff", "0.01", "--seed", "1", "--ready", "0")
"""How a redriver is started: a short pause between two drivers, always the same; no start is counted ahead, as that would hang on how long
drivers run."""
REDRIVE_AHEAD = (*REDRIVE[:-1], "0.001")
"""Where the scenario's commands wait for the next start to be counted, so that it hangs on nothing."""
FIRST_REDRIVER = 1001
"""Redrivers are counted from here, where drivers have their epochs."""
PERSON = "person:"
"""Begins the entry of a driver that a person starts: the rest is a command of `recovery` without the state directory."""
ROOT_SIDE_NAME = ".crashworthy-side"
"""The engine's own name inside a root: what is tried there while the side directory is readied is nobody's content (rule R2)."""
HANDED_ON = ("SESSION_KILL_MARK", "SESSION_SPACE")
"""What of the driver contract a person may say for a whole campaign (chaos/README, "Environment")."""
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", *HANDED_ON)


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of one trial."""

    directory: Path

    @property
    def work(self) -> Path:
        return self.directory / "work"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def away(self) -> Path:
        """Where the workspace is moved when it is taken away."""
        return self.directory / "away"

    @property
    def boot(self) -> Path:
        """Holds the boot id that drivers find, where a trial has restarted the machine."""
        return self.directory / "boot"

    @property
    def clock(self) -> Path:
        """By how many milliseconds the clock that drivers read has jumped, where it has."""
        return self.directory / "clock"

    @property
    def clock_read(self) -> Path:
        """Made by a driver that read the clock after its newest jump."""
        return self.directory / "clock-read"

    @property
    def ledger(self) -> Path:
        return self.state / "space" / "ledger"

    @property
    def kept_log(self) -> Path:
        """The log's files as they were at an earlier step."""
        return self.directory / "kept-log"

    @property
    def put_back(self) -> Path:
        """Tells of a log that was put back: the seq of its head, and how many drivers had ended before."""
        return self.directory / "put-back"

    @property
    def checkpoints(self) -> Path:
        """The checkpoint store of a session that names no other."""
        return self.state / "checkpoints"

    @property
    def mounted(self) -> Path:
        """There while the workspace is a file system of its own."""
        return self.directory / "mounted"

    @property
    def disk_fault(self) -> Path:
        """Holds the fault of the disk under the next driver; while it is there a full disk stays full."""
        return self.directory / "disk-fault"

    @property
    def disk_trace(self) -> Path:
        """What was done to that disk."""
        return self.directory / "disk-trace"

    @property
    def outside(self) -> Path:
        return self.directory / "outside"

    @property
    def witness(self) -> Path:
        return self.directory / "witness"

    @property
    def trace(self) -> Path:
        return self.directory / "trace"

    @property
    def socket(self) -> Path:
        return self.directory / "steps"

    @property
    def session(self) -> Path:
        return self.directory / "session.toml"

    def list_redriven(self) -> list[Path]:
        """The standard output of each driver that a redriver started, in the order of their epochs."""
        return sorted((self.state / "redrive").glob("out-*"), key=lambda path: int(path.name.partition("-")[2]))

    def find_quarantine(self) -> Path:
        """Where restores put what they displace: beside the root, or inside it where that cannot be had (rule R2)."""
        inside = self.work / ROOT_SIDE_NAME
        beside = [name for name in sorted(os.listdir(self.directory)) if name.startswith(".crashworthy-")]
        return (self.directory / beside[0] if beside and not inside.is_dir() else inside) / "quarantine"

    def output(self, epoch: int) -> Path:
        """A driver's stdout."""
        return self.directory / f"driver-{epoch}.out"

    def errors(self, epoch: int) -> Path:
        """A driver's stderr."""
        return self.directory / f"driver-{epoch}.err"


def base_environment() -> dict[str, str]:
    """What every driver and every plain run gets from this process's environment."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | {"PYTHONDONTWRITEBYTECODE": "1"}


def driver_environment(place: Place, epoch: int, wait: frozenset[str], tell: frozenset[str], lock_secs: float = 0.0) -> dict[str, str]:
    """The environment of the driver of `epoch`: the contract, the step socket, and what commands of scenarios use. `lock_secs` is its
    bound for a lock, 0 for the contract's own."""
    bound = {"SESSION_LOCK_SECS": str(lock_secs)} if lock_secs else {}
    return base_environment() | bound | noting_environment(place) | {
        "SESSION_EPOCH": str(epoch),
        "SESSION_HOLDERS_DIR": str(place.directory / "holders"),
        steps.TRACE_VARIABLE: str(place.trace),
        steps.SOCKET_VARIABLE: str(place.socket),
        steps.WAIT_VARIABLE: " ".join(sorted(wait)),
        steps.TELL_VARIABLE: " ".join(sorted(tell)),
    }


def noting_environment(place: Place) -> dict[str, str]:
    """Where commands of scenarios note what they do, outside the workspace; writable in the namespaced space too."""
    places = {"WITNESS": str(place.witness), "OUTSIDE": str(place.outside)}
    if not os.environ.get("SESSION_SPACE"):
        return places
    place.outside.mkdir(exist_ok=True)
    place.witness.touch()
    return {**places, "SESSION_SPACE_WRITABLE": os.pathsep.join(places.values())}


def _prepare_nothing() -> None:
    """A driver as it is."""


def start_driver(
    scenario: Scenario, place: Place, epoch: int, entry: str, environment: Mapping[str, str], prepare: Callable[[], None] = _prepare_nothing
) -> int:
    """Start the driver of `epoch`; its pid, a child of this process. `entry` is `fork`, `exec`, or a person's command (PERSON). A forked
    one calls `prepare` before it drives."""
    if entry == "exec":
        place.session.write_text(session_toml(scenario, place), "utf-8")
    pid = os.fork()
    if pid:
        return pid
    try:
        _redirect(place, epoch)
        if entry == "exec":
            path = os.pathsep.join(sys.path)
            arguments = [sys.executable, "-m", "recovery", "run", str(place.session)]
            os.execve(sys.executable, arguments, {**environment, "PYTHONPATH": path})
        if entry.startswith(PERSON):
            path = os.pathsep.join(sys.path)
            verb, *more = shlex.split(entry.removeprefix(PERSON))
            if verb == REDRIVE[0]:
                environment = {name: value for name, value in environment.items() if name != "SESSION_EPOCH"}  # it issues them itself
            arguments = [sys.executable, "-m", "recovery", verb, str(place.state), *more]
            os.execve(sys.executable, arguments, {**environment, "PYTHONPATH": path})
        _drive_forked(scenario, place, environment, prepare)
    except BaseException:  # noqa: BLE001
        # The last line of a forked process: nothing may run on into the runner's own code (FACTS, trap 5).
        traceback.print_exc()
    finally:
        os._exit(HARNESS_FAILED)


def _redirect(place: Place, epoch: int) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    output = os.open(place.output(epoch), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    errors = os.open(place.errors(epoch), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, descriptor in enumerate((null, output, errors)):
        os.dup2(descriptor, number)
    os.closerange(3, 64)


def _drive_forked(scenario: Scenario, place: Place, environment: Mapping[str, str], prepare: Callable[[], None]) -> NoReturn:
    name_process("driver")
    gc.disable()  # a collection would touch, and so copy, what is shared with the zygote
    steps.install(steps.hook_from_environment(environment))
    prepare()
    if place.disk_fault.exists():
        fault = parse_fault(*place.disk_fault.read_text("ascii").split(" ", 1))
        install_device(place.directory, fault, place.disk_fault, place.disk_trace)
    order = Order(str(place.state), to_session(scenario, place))
    code = drive(order, read_settings(environment), Ports(JumpingClock(place), RandomIds(), find_host(place)))
    sys.stderr.flush()
    os._exit(code)


class JumpingClock(SystemClock):
    """The system's clock, but for the jumps that a trial makes: they count from the next reading on. Deadlines are not touched by them."""

    def __init__(self, place: Place) -> None:
        self._jump = str(place.clock)
        self._read = str(place.clock_read)

    def now_ms(self) -> int:
        try:
            with open(self._jump, encoding="ascii") as file:
                jumped = int(file.read())
        except FileNotFoundError:
            return super().now_ms()
        os.close(os.open(self._read, os.O_WRONLY | os.O_CREAT, 0o600))
        return max(0, super().now_ms() + jumped)


class Restarted(LinuxHost):
    """This machine under another boot id, as after a restart."""

    def __init__(self, boot: str) -> None:
        self._boot = boot

    def boot_id(self) -> str:
        return self._boot


def find_host(place: Place) -> LinuxHost:
    """The machine as drivers of a trial find it."""
    return Restarted(place.boot.read_text("ascii")) if place.boot.exists() else LinuxHost()


def to_session(scenario: Scenario, place: Place) -> Session:
    """The scenario's session in a trial's directories."""
    modes = scenario.modes
    return Session(
        scenario.name, str(place.work), str(place.state), scenario.on_interrupted, scenario.calls, scenario.profile,
        modes.mode, None, modes.lost_work_bound, modes.limits,
    )  # fmt: skip


def session_toml(scenario: Scenario, place: Place) -> str:
    """The same session as a session file."""
    lines = [
        f"{name} = {_toml(value)}" for name, value in (("name", scenario.name), ("workspace", str(place.work)), ("state", str(place.state)))
    ]
    lines.append(f"on_interrupted = {_toml(scenario.on_interrupted)}")
    modes = scenario.modes
    if modes.mode != "transactional":
        lines += [f"mode = {_toml(modes.mode)}", f"lost_work_bound = {modes.lost_work_bound}"]
    if modes.limits is not None and modes.mode != "checkpoint":
        limits = {name: getattr(modes.limits, name) for name in ("bytes", "paths", "file_bytes")}
        lines.append(f"limits = {_toml({name: value for name, value in limits.items() if value is not None})}")
    if scenario.profile.excludes:
        lines.append(f"exclude = {_toml(list(scenario.profile.excludes))}")
    for call in scenario.calls:
        lines.append("[[call]]")
        lines += [f"{name} = {_toml(value)}" for name, value in call_to_json(call).items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    # Strings and numbers of JSON are those of TOML, once nothing is written as a surrogate pair.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
