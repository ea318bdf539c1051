"""The operating system's files with a device that fails at one chosen operation, and proof that it did.

SQLite's own VFS stays as it is, locks and shared memory included; its table of functions is replaced by one that counts the reads,
writes, syncs, truncations, openings and deletions of log files (each kind from 1 since `arm`) and gives back an error code where a
`Fault` says so. Not a VFS written in Python: an exception raised there reaches the caller also where SQLite rightly ignores the error (a
checkpoint behind a commit, a lock asked for at closing), so that it would show what never happens with a real device.
"""

import contextlib
import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import apsw

Operation = Literal["read", "write", "sync", "truncate", "open", "delete"]
Kind = Literal["input or output error", "no room", "half written, no room", "half written, input or output error"]

KINDS: dict[Operation, tuple[Kind, ...]] = {
    "read": ("input or output error",),
    "write": ("input or output error", "no room", "half written, no room", "half written, input or output error"),
    "sync": ("input or output error",),
    "truncate": ("input or output error",),
    "open": ("input or output error",),
    "delete": ("input or output error",),
}
"""What can go wrong at each operation. SQLite's own VFS has one error for a sync that failed, whatever the system said."""

_CODES: dict[Operation, int] = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "open": apsw.SQLITE_CANTOPEN,
    "delete": apsw.SQLITE_IOERR_DELETE,
}

_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
_TRANSFER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs` up to what is needed."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", ctypes.c_void_p),
        ("delete", ctypes.c_void_p),
    )


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, whole."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("close", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("truncate", ctypes.c_void_p),
        ("sync", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 13),
    )


class _File(ctypes.Structure):
    """`sqlite3_file`."""

    _fields_ = (("methods", ctypes.c_void_p),)


@dataclass(frozen=True, slots=True)
class Fault:
    """The `number`th `operation` fails; with `is_final` every operation after it too: the device is gone."""

    operation: Operation
    number: int
    kind: Kind = "input or output error"
    is_final: bool = False


class FaultyDevice:
    """Under every file whose name holds "log.sqlite"; others (SQLite's temporary ones) are neither counted nor failed."""

    def __init__(self) -> None:
        self.counts: Counter[Operation] = Counter()
        self.fired: list[tuple[Operation, str]] = []
        """The fault's own operation, once it has failed."""
        self.after: list[tuple[Operation, str]] = []
        """Everything that was asked of the device since."""
        self._fault: Fault | None = None
        self._paths: dict[int, str] = {}
        self._tables: dict[int, tuple[_Methods, list[Any]]] = {}

    def arm(self, fault: Fault | None) -> None:
        """Count anew; `fault` (None for a device that works) is what will fail."""
        self.counts.clear()
        self.fired, self.after = [], []
        self._fault = fault

    def _meet(self, operation: Operation, path: str) -> Kind | None:
        """Count an operation; how it fails, or None."""
        self.counts[operation] += 1
        fault = self._fault
        if self.fired:
            self.after.append((operation, path))
            return "input or output error" if fault is not None and fault.is_final else None
        if fault is None or (fault.operation, fault.number) != (operation, self.counts[operation]):
            return None
        self.fired.append((operation, path))
        return fault.kind

    def _act(self, operation: Operation, path: str, work: Callable[[], int], half: Callable[[], int] | None = None) -> int:
        kind = self._meet(operation, path)
        if kind is None:
            return work()
        if half is not None and kind.startswith("half written"):
            half()
        return apsw.SQLITE_FULL if kind.endswith("no room") else _CODES[operation]

    def wrap_open(self, original: Any) -> Any:
        def opened(vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
            path = ctypes.string_at(name).decode() if name else ""
            if "log.sqlite" not in path:
                return int(original(vfs, name, file, flags, out))
            held = _File.from_address(file)
            held.methods = None
            code = self._act("open", path, lambda: int(original(vfs, name, file, flags, out)))
            if code == apsw.SQLITE_OK:
                self._paths[file] = path
                held.methods = ctypes.addressof(self._table(held.methods))
            return code

        return _OPEN(opened)

    def wrap_delete(self, original: Any) -> Any:
        def deleted(vfs: int, name: bytes, sync: int) -> int:
            if b"log.sqlite" not in name:
                return int(original(vfs, name, sync))
            return self._act("delete", name.decode(), lambda: int(original(vfs, name, sync)))

        return _DELETE(deleted)

    def _table(self, address: int) -> _Methods:
        """The table of functions in place of the one at `address`."""
        if address not in self._tables:
            table = _Methods.from_buffer_copy(_Methods.from_address(address))
            read, write = _TRANSFER(table.read), _TRANSFER(table.write)
            truncate, sync = _TRUNCATE(table.truncate), _SYNC(table.sync)
            wrapped = [
                _TRANSFER(lambda file, data, size, at: self._act("read", self._paths[file], lambda: read(file, data, size, at))),
                _TRANSFER(
                    lambda file, data, size, at: self._act(
                        "write", self._paths[file], lambda: write(file, data, size, at), lambda: write(file, data, size // 2, at)
                    )
                ),
                _TRUNCATE(lambda file, size: self._act("truncate", self._paths[file], lambda: truncate(file, size))),
                _SYNC(lambda file, flags: self._act("sync", self._paths[file], lambda: sync(file, flags))),
            ]
            table.read, table.write, table.truncate, table.sync = (ctypes.cast(one, ctypes.c_void_p).value for one in wrapped)
            self._tables[address] = (table, wrapped)
        return self._tables[address][0]


_kept: list[object] = []  # for ever: a connection that was not closed still knows its functions by address


@contextlib.contextmanager
def faulty_device() -> Iterator[FaultyDevice]:
    """Every log that this process opens meanwhile lies on this device."""
    device = FaultyDevice()
    memory = apsw.Connection(":memory:")
    pointer = ctypes.c_void_p(0)
    memory.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
    memory.close()
    assert pointer.value is not None
    vfs = _Vfs.from_address(pointer.value)
    assert vfs.name == b"unix"
    before = vfs.open, vfs.delete
    opened, deleted = device.wrap_open(_OPEN(vfs.open)), device.wrap_delete(_DELETE(vfs.delete))
    _kept.append((device, opened, deleted))
    vfs.open, vfs.delete = (ctypes.cast(one, ctypes.c_void_p).value for one in (opened, deleted))
    try:
        yield device
    finally:
        device.arm(None)
        vfs.open, vfs.delete = before
