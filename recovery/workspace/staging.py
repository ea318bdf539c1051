"""Staging: the part of the side directory where new files are made complete before they get their name in the workspace.

    <side>/staging/<unique>/<number>     files, links, FIFOs and whole directories of one round of one restore
    <side>/staging/<unique>              the one file of a write or edit

Everything in it is the engine's own and may be removed by the next worker, once every older worker is dead (I7).
"""

import os
from types import TracebackType

from eventlog import durable
from eventlog.attributes import drop_default_acl
from eventlog.beneath import OPEN_DIRECTORY
from eventlog.errors import RestoreIncompleteError
from eventlog.kernel import kind_of, look_at
from eventlog.show import show_path
from recovery.workspace.removal import list_names, remove_tree

STAGING = "staging"
_PRIVATE = 0o700


def open_staging(side: str) -> int:
    """A descriptor of the staging directory, made if missing."""
    path = os.path.join(side, STAGING)
    try:
        os.mkdir(path, _PRIVATE)
    except FileExistsError:
        pass  # made by an earlier worker; opened below without following a link
    descriptor = os.open(path, OPEN_DIRECTORY)
    drop_default_acl(descriptor)  # inherited from the workspace's parent, it would bend the mode of every file staged here
    return descriptor


def clear_staging(side: str, step: str) -> None:
    """Remove what killed workers left in staging, and nothing else.

    Only the shapes this module makes are removed; a directory of another name than a number in that of a round is not the engine's:
    `RestoreIncompleteError`.
    """
    staging = open_staging(side)
    try:
        for name in list_names(staging):
            if kind_of(look_at(name, staging).mode) == "d":
                _refuse_strange(staging, name)
                remove_tree(staging, name, step, _told)
            else:
                durable.unlink(name, step, directory=staging)
    finally:
        os.close(staging)


def _refuse_strange(staging: int, name: bytes) -> None:
    directory = os.open(name, OPEN_DIRECTORY, dir_fd=staging)
    try:
        for leftover in list_names(directory):
            if not leftover.isdigit() and kind_of(look_at(leftover, directory).mode) == "d":
                shown = show_path(name + b"/" + leftover)
                raise RestoreIncompleteError(f"{shown} in the staging directory is not of this program; move it away and try again")
    finally:
        os.close(directory)


def _told(error: OSError, path: bytes) -> RestoreIncompleteError:
    shown = show_path(path)
    return RestoreIncompleteError(f"{shown} in the staging directory cannot be removed: {error.strerror}; remove it and try again")


class Staging:
    """One round's own directory in staging. A context manager: left without an error, the (then empty) directory is removed."""

    def __init__(self, side: str, unique: str, step: str) -> None:
        self._step = step
        self._unique = os.fsencode(unique)
        self._parent = open_staging(side)
        os.mkdir(self._unique, _PRIVATE, dir_fd=self._parent)
        self.descriptor = os.open(self._unique, OPEN_DIRECTORY, dir_fd=self._parent)
        self._made = 0

    def __enter__(self) -> "Staging":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self.descriptor)
        try:
            if error is None:
                durable.remove_directory(self._unique, self._step, directory=self._parent)
        finally:
            os.close(self._parent)

    def name_next(self) -> bytes:
        """A name not used before in this directory."""
        self._made += 1
        return b"%d" % self._made
