"""The disk under one driver and all that it forks: counts what is done to it, and fails what a fault says.

The trace has one line for each operation, written with one append: `PID OPERATION ROLE N RESULT PATH`, RESULT `-` for done, else the
name of the error; the fault's own line is the first with its error. A full or read-only disk is so while the fault's file is there: the
runner takes it away when there is to be room again.
"""

import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.disk.fault import COUNT, ERRORS, LASTING, OPERATIONS, ROLES, DiskFault
from chaos.disk.vfs import install_vfs
from eventlog import durable

_SLOT = struct.Struct("=q")
_KINDS = {
    "create": "create", "write": "write", "truncate": "truncate", "sync": "sync", "syncfs": "sync", "rename": "rename", "move": "rename",
    "link": "rename", "unlink": "unlink", "rmdir": "unlink",
}  # fmt: skip
_PAIRS = {(role, operation): number for number, (role, operation) in enumerate((a, b) for a in ROLES for b in OPERATIONS)}
DONE = "-"


def find_role(path: str, directory: str) -> str:
    """Which of ROLES a file of the trial in `directory` has; "" for none."""
    inside = os.path.relpath(path, directory)
    top, _, rest = inside.partition("/")
    if top == "work" or top.startswith(".crashworthy-"):
        return "restore"
    if top == "holders":
        return "holders"
    if top != "state":
        return ""
    if rest.startswith("log.sqlite"):
        return "wal" if rest.endswith("-wal") else "log"
    for beginning, role in (("space/ledger", "ledger"), ("space/output", "output"), ("checkpoints", "checkpoint")):
        if rest.startswith(beginning):
            return role
    return "state"


class Device:
    """Installed in a driver before it does anything. Counts are shared with every process forked from there."""

    def __init__(self, directory: Path, fault: DiskFault, flag: Path, trace: Path) -> None:
        self._directory = str(directory)
        self._fault = fault
        self._flag = str(flag)
        self._counts = mmap.mmap(-1, _SLOT.size * (len(_PAIRS) + 1))
        self._trace = str(trace)
        self._pid = 0
        self._descriptor = -1
        self._threads = threading.Lock()

    def ask(self, operation: str, path: str) -> int:
        """The errno with which an operation on a file fails, 0 to have it done."""
        role = find_role(path, self._directory)
        if not role:
            return 0
        with self._alone() as descriptor:
            count = self._add(_PAIRS[role, operation])
            error = self._fail(role, operation, count)
            line = f"{os.getpid()} {operation} {role} {count} {error or DONE} {path}\n"
            os.write(descriptor, line.encode("utf-8", "surrogateescape"))
        return ERRORS[error] if error else 0

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """The trace, while no other process and no other thread counts: two that count at once would both be the N-th, or nobody."""
        if self._pid != os.getpid():  # a lock that came along with a fork is the parent's too, or held for ever
            self._threads = threading.Lock()
            self._descriptor = os.open(self._trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._pid = os.getpid()
        with self._threads:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                yield self._descriptor
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _fail(self, role: str, operation: str, count: int) -> str:
        fault = self._fault
        if fault.operation == COUNT:
            return ""
        if (role, operation, count) == (fault.role, fault.operation, fault.number):
            self._add(len(_PAIRS))
            return fault.error
        is_lasting = operation in LASTING.get(fault.error, ()) and self._read(len(_PAIRS)) > 0
        return fault.error if is_lasting and os.path.exists(self._flag) else ""

    def _add(self, slot: int) -> int:
        count = self._read(slot) + 1
        _SLOT.pack_into(self._counts, slot * _SLOT.size, count)
        return count

    def _read(self, slot: int) -> int:
        return int(_SLOT.unpack_from(self._counts, slot * _SLOT.size)[0])

    def begin(self, operation: durable.Operation) -> None:
        """As the port of eventlog.durable has it."""
        path = _path_of(operation)
        number = self.ask(_KINDS[operation.kind], path)
        if number:
            raise OSError(number, os.strerror(number), path)

    def end(self, operation: durable.Operation) -> None:
        """Nothing to note: what failed is in the trace."""


def _path_of(operation: durable.Operation) -> str:
    if operation.descriptor >= 0:
        return os.readlink(f"/proc/self/fd/{operation.descriptor}").removesuffix(" (deleted)")
    path = os.fsdecode(operation.target or operation.path)
    directory = operation.target_directory if operation.target else operation.directory
    return os.path.join(os.getcwd() if directory is None else os.readlink(f"/proc/self/fd/{directory}"), path)


def install_device(directory: Path, fault: DiskFault, flag: Path, trace: Path) -> None:
    """Put this process and what it forks on a disk with a fault, for good."""
    device = Device(directory, fault, flag, trace)
    install_vfs(device.ask)
    durable.observe(device)
