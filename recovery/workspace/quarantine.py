"""Quarantine: where a restore puts what it displaces, so that nothing is lost (I10, rule R3).

    <side>/quarantine/<log id>-<decision seq>/<round>/<relative path>
    <side>/quarantine/<log id>-<decision seq>/<round>.attributes         what the round changed in place (in_place.py)

Each start of a worker opens the next round (1, 2, 3 ...) exclusively. A victim keeps its relative path below; directories above it
are made as needed, 0700. A move replaces nothing. The directory is the truth about what was displaced: `list_quarantine` reads it.
"""

import os
from types import TracebackType

from eventlog import durable
from eventlog.attributes import loosened
from eventlog.beneath import OPEN_DIRECTORY, Beneath
from eventlog.errors import MisuseError
from eventlog.image import name_of, parent_of
from eventlog.kernel import kind_of, look_at

QUARANTINE = "quarantine"
_PRIVATE = 0o700


def open_round(side: str, directory: str) -> "Round":
    """The next round of `directory`, made exclusively."""
    if not directory or "/" in directory or directory.startswith("."):
        raise MisuseError(f"not a name for a quarantine directory: {directory!r}")
    above = os.path.join(side, QUARANTINE, directory)
    os.makedirs(above, _PRIVATE, exist_ok=True)
    number = 1
    while True:
        try:
            os.mkdir(os.path.join(above, str(number)), _PRIVATE)
        except FileExistsError:
            number += 1
        else:
            return Round(above, number)


class Round:
    """One round's directory. A context manager."""

    def __init__(self, directory: str, number: int) -> None:
        self.directory = directory
        self.number = number
        self._tree = Beneath(os.path.join(directory, str(number)))
        self._made: set[bytes] = {b""}

    def __enter__(self) -> "Round":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._tree.__exit__(kind, error, trace)

    def take(self, path: bytes, kind: str, source: int, step: str) -> None:
        """Move the victim `path`, found by its last name in the open directory `source`, to its place in this round.

        Raises `OSError`; `FileExistsError` when its place is taken.
        """
        name = name_of(path)
        self._make_directories(parent_of(path))
        target = self._tree.directory(parent_of(path))
        try:
            durable.move(name, name, step, source_dir=source, target_dir=target)
        except PermissionError:
            if kind != "d":
                raise
            with loosened(name, source):
                durable.move(name, name, step, source_dir=source, target_dir=target)

    def _make_directories(self, path: bytes) -> None:
        missing: list[bytes] = []
        while path not in self._made:
            missing.append(path)
            path = parent_of(path)
        for one in reversed(missing):
            above, name = self._tree.parent(one)
            os.mkdir(name, _PRIVATE, dir_fd=above)
            self._made.add(one)


def list_quarantine(side: str, directory: str) -> tuple[bytes, ...]:
    """`<round>/<path>` of everything in quarantine under `directory`, in byte order: all but directories, and directories without content.

    A directory that cannot be listed stands for what is in it. Nothing there yet: empty.
    """
    try:
        tree = Beneath(os.path.join(side, QUARANTINE, directory))
    except FileNotFoundError:
        return ()
    listed: list[bytes] = []
    pending = [b""]
    with tree:
        while pending:
            path = pending.pop()
            below = _list_below(tree, path)
            if not below and path.count(b"/"):
                listed.append(path)
            for name, is_directory in below:
                if not path and not is_directory:
                    continue  # beside the rounds: what they changed in place
                (pending if is_directory else listed).append(path + b"/" + name if path else name)
    return tuple(sorted(listed))


def _list_below(tree: Beneath, path: bytes) -> list[tuple[bytes, bool]]:
    try:
        descriptor = os.open(b".", OPEN_DIRECTORY, dir_fd=tree.directory(path))
    except PermissionError:
        return []  # as the contract says, the directory then stands for its content
    try:
        names = [os.fsencode(name) for name in os.listdir(descriptor)]
        return [(name, kind_of(look_at(name, descriptor).mode) == "d") for name in names]
    finally:
        os.close(descriptor)
