"""SQLite's own files, made to fail: its table of functions is replaced in this process by one that asks first.

Its VFS stays as it is, locks and shared memory included. Not a VFS written in Python: an exception raised there reaches the caller also
where SQLite rightly ignores the error (a checkpoint behind a commit, a lock asked for at closing), and would show what never happens with
a real device. Installed for good: only in a process that is a trial's own.
"""

import ctypes
import errno
from collections.abc import Callable
from typing import Any

import apsw

Ask = Callable[[str, str], int]
"""Given an operation and a path, the errno it fails with; 0 to have it done."""
_CODES = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "unlink": apsw.SQLITE_IOERR_DELETE,
}
_POINTER = ctypes.c_void_p
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _POINTER, ctypes.c_int, _POINTER)
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_char_p, ctypes.c_int)
_TRANSFER = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, ctypes.c_int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int)


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs` up to what is needed."""

    _fields_ = (
        ("version", ctypes.c_int), ("file_bytes", ctypes.c_int), ("longest_path", ctypes.c_int), ("next", _POINTER),
        ("name", ctypes.c_char_p), ("data", _POINTER), ("open", _POINTER), ("delete", _POINTER),
    )  # fmt: skip


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, whole."""

    _fields_ = (
        ("version", ctypes.c_int), ("close", _POINTER), ("read", _POINTER), ("write", _POINTER), ("truncate", _POINTER), ("sync", _POINTER),
        ("others", _POINTER * 13),
    )  # fmt: skip


class _File(ctypes.Structure):
    """`sqlite3_file`."""

    _fields_ = (("methods", _POINTER),)


class _Device:
    """The functions in place of SQLite's, and what they were."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._paths: dict[int, str] = {}
        self._tables: dict[int, tuple[_Methods, list[Any]]] = {}
        self.kept: list[object] = []

    def act(self, operation: str, path: str, work: Callable[[], int]) -> int:
        number = self._ask(operation, path)
        if number == 0:
            return work()
        return int(apsw.SQLITE_FULL) if number == errno.ENOSPC else int(_CODES[operation])

    def install(self, vfs: _Vfs) -> None:
        real_open, real_delete = _OPEN(vfs.open), _DELETE(vfs.delete)

        def opened(place: int, name: int | None, file: int, flags: int, out: int) -> int:
            path = ctypes.string_at(name).decode() if name else ""
            if not path:  # a temporary file of SQLite's own
                return int(real_open(place, name, file, flags, out))
            held = _File.from_address(file)
            held.methods = None
            code = self.act("open", path, lambda: int(real_open(place, name, file, flags, out)))
            if code == apsw.SQLITE_OK:
                self._paths[file] = path
                held.methods = ctypes.addressof(self._table(held.methods))
            return code

        def deleted(place: int, name: bytes, sync: int) -> int:
            return self.act("unlink", name.decode(), lambda: int(real_delete(place, name, sync)))

        ours = _OPEN(opened), _DELETE(deleted)
        self.kept += [*ours, real_open, real_delete]
        vfs.open, vfs.delete = (ctypes.cast(one, _POINTER).value for one in ours)

    def _table(self, address: int) -> _Methods:
        """The table of functions in place of the one at `address`."""
        if address not in self._tables:
            table = _Methods.from_buffer_copy(_Methods.from_address(address))
            read, write = _TRANSFER(table.read), _TRANSFER(table.write)
            truncate, sync = _TRUNCATE(table.truncate), _SYNC(table.sync)
            wrapped = [
                _TRANSFER(lambda file, data, size, at: self.act("read", self._paths[file], lambda: read(file, data, size, at))),
                _TRANSFER(lambda file, data, size, at: self.act("write", self._paths[file], lambda: write(file, data, size, at))),
                _TRUNCATE(lambda file, size: self.act("truncate", self._paths[file], lambda: truncate(file, size))),
                _SYNC(lambda file, flags: self.act("sync", self._paths[file], lambda: sync(file, flags))),
            ]
            table.read, table.write, table.truncate, table.sync = (ctypes.cast(one, _POINTER).value for one in wrapped)
            self._tables[address] = (table, wrapped)
        return self._tables[address][0]


_installed: list[_Device] = []
"""Kept for ever: SQLite knows the functions by address."""


def install_vfs(ask: Ask) -> None:
    """Have every file that SQLite opens in this process from now on asked about."""
    memory = apsw.Connection(":memory:")
    pointer = ctypes.c_void_p(0)
    memory.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
    memory.close()
    if pointer.value is None:
        raise OSError("SQLite does not say where its VFS is")
    device = _Device(ask)
    _installed.append(device)
    device.install(_Vfs.from_address(pointer.value))
