"""A fault of the disk as a value: which files, which operation, the how-manieth of them, which error; in text `OPERATION N ERROR`. Pure.

    write 3 ENOSPC     the third write finds no room; from then on nothing that needs room finds any, until the driver has ended
    sync 1 EIO         the first sync fails, once
    take 5 ENOSPC      of `inodes`: the state directory is an ext4 that has four inodes left
    unlink 1 EROFS     from there on everything that changes anything finds a read-only file system, until the driver has ended

Operations are counted for each role of files over all processes of one driver, from its start: by SQLite's own VFS for the log, by the
port of eventlog/durable.py for everything else.
"""

import errno
from dataclasses import dataclass

from eventlog.errors import MisuseError

INODES = "inodes"
ROLES = ("log", "wal", "ledger", "output", "checkpoint", "restore", "state", "holders", INODES)
"""The log's database and its write-ahead log; the space's ledger; kept output; the checkpoint store; the workspace with its side directory;
everything else in the state directory; the registry of holders; every file of the state directory, on a real file system."""
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS}
OPERATIONS = {
    "open": ("EIO",),
    "create": ("ENOSPC", "EROFS"),
    "read": ("EIO",),
    "write": ("ENOSPC", "EIO"),
    "truncate": ("EIO",),
    "sync": ("EIO",),
    "rename": ("ENOSPC", "EIO"),
    "unlink": ("EIO", "EROFS"),
    "take": ("ENOSPC",),
}
"""Each operation with the errors that it is given. `rename` is any new name (link, move), `sync` syncfs too. `take` is of
`inodes` alone, which have no other: the N-th file or directory more than there are finds no inode, nor does any after it."""
LASTING = {"ENOSPC": ("create", "write", "rename"), "EROFS": ("create", "write", "truncate", "rename", "unlink")}
"""Errors that stay until there is room again, with the operations that then meet them."""
COUNT = "count"
"""The operation of a fault that fails nothing: what is done is only counted."""


@dataclass(frozen=True, slots=True)
class DiskFault:
    """The `number`th `operation` on files of `role` fails with `error`. Number 0 with operation COUNT: nothing does."""

    role: str
    operation: str
    number: int
    error: str


def parse_fault(role: str, text: str, where: str = "disk") -> DiskFault:
    """A fault from its role and text; MisuseError says what there is."""
    words = text.split()
    if text == COUNT:
        return DiskFault("", COUNT, 0, "")
    if role not in ROLES:
        raise MisuseError(f"{where}: {role!r} are no files that can fail; use {', '.join(ROLES)}")
    known = OPERATIONS.get(words[0], ()) if words and (words[0] == "take") == (role == INODES) else ()
    if len(words) != 3 or not words[1].isascii() or not words[1].isdigit() or words[1] == "0" or words[2] not in known:
        forms = ", ".join(f"{name} N {' or '.join(errors)}" for name, errors in OPERATIONS.items())
        raise MisuseError(f"{where}: {text!r} is no fault of a disk; use one of {forms}, N counted from 1")
    return DiskFault(role, words[0], int(words[1]), words[2])


def format_fault(fault: DiskFault) -> str:
    """The text that `parse_fault` reads back."""
    return COUNT if fault.operation == COUNT else f"{fault.operation} {fault.number} {fault.error}"
