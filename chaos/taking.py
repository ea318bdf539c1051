"""How things are taken from a session behind its back, and whether that is seen to be done. By plain means, without the engine.

What must hold: a loss has fired only when the file system shows it afterwards. What is moved away lies in the trial's `away`, and nobody
may touch it there.
"""

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.drivers import Place
from chaos.trees import remove_tree

STRANGER = "somebody's.txt"
"""The file in a directory that stands where the workspace was."""


@dataclass(frozen=True, slots=True)
class Taking:
    """How one thing is taken away, and by what that is seen (False: it was not done)."""

    carry_out: Callable[[Place], None]
    is_done: Callable[[Place], bool]


def _remove_root(place: Place) -> None:
    remove_tree(place.work)


def _empty_root(place: Place) -> None:
    # The old one stays until the new one is there, so that the new one cannot be given its inode.
    os.rename(place.work, place.away)
    place.work.mkdir()
    remove_tree(place.away)


def _move_root(place: Place) -> None:
    os.rename(place.work, place.away)


def _replace_root(place: Place) -> None:
    _move_root(place)
    place.work.mkdir()
    (place.work / STRANGER).write_text("this is somebody else's directory\n", "utf-8")


def _remove_all(place: Place) -> None:
    """Every file of the workspace, as a person who runs the wrong command does."""
    for name in os.listdir(place.work):
        path = place.work / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _restart(place: Place) -> None:
    place.boot.write_text(str(uuid.uuid4()), "ascii")


def _is_empty(directory: Path) -> bool:
    return directory.is_dir() and not os.listdir(directory)


TAKING = {
    "root removed": Taking(_remove_root, lambda place: not os.path.lexists(place.work)),
    "root emptied": Taking(_empty_root, lambda place: _is_empty(place.work) and not place.away.exists()),
    "root moved": Taking(_move_root, lambda place: place.away.is_dir() and not os.path.lexists(place.work)),
    "root replaced": Taking(_replace_root, lambda place: place.away.is_dir() and (place.work / STRANGER).is_file()),
    "boot": Taking(_restart, lambda place: place.boot.is_file()),
    "files": Taking(_remove_all, lambda place: _is_empty(place.work)),
}
"""By the names in `losses`."""
