"""A state of the disk laid out in a trial's directory, as a machine finds it after the power came back: no process, another boot id."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from chaos.drivers import Place
from chaos.powerloss.files import File
from chaos.trees import remove_tree

KEPT = ("outside", "scratch")
WORK = "work"
XATTR_PREFIX = "user."


def read_attributes(root: Path) -> dict[str, bytes]:
    """The attributes of a workspace's root: its identity is one of them (rule R6)."""
    return {name: os.getxattr(root, name) for name in os.listxattr(root) if name.startswith(XATTR_PREFIX)}


def lay_out(
    place: Place, logged: Mapping[str, tuple[bytes | None, int]], tree: Mapping[str, File], others: Mapping[str, bytes],
    attributes: Mapping[str, bytes],
) -> None:  # fmt: skip
    """Make a trial's directory hold a state. `logged` are the engine's files by path: bytes (None: a directory) and mode; `tree` the
    workspace and its side directory; `others` what the harness has of what was said and noted, `attributes` those of the root.

    The workspace's root stays the directory it is: a machine that restarts has the same.
    """
    _clear(place)
    for path, (content, mode) in sorted(logged.items()):
        _make(place.directory / path, File("d" if content is None else "f", mode, content or b""))
    _make_tree(place.directory, tree)
    for name, value in attributes.items():
        os.setxattr(place.work, name, value)
    for name, content in others.items():
        (place.directory / name).write_bytes(content)
    place.boot.write_text(str(uuid.uuid4()), "ascii")


def read_logged(place: Place, names: tuple[str, ...]) -> dict[str, bytes | None]:
    """What the directories `names` of a trial hold by path: bytes, None for a directory. Nobody may have the log open here."""
    found: dict[str, bytes | None] = {}
    for name in names:
        top = place.directory / name
        if not top.is_dir():
            continue
        found[name] = None
        for parent, folders, files in os.walk(top):
            for one in folders:
                found[os.path.relpath(os.path.join(parent, one), place.directory)] = None
            for one in files:
                path = Path(parent, one)
                if path.is_file() and not one.endswith("-shm"):
                    found[os.path.relpath(path, place.directory)] = path.read_bytes()
    return found


def _clear(place: Place) -> None:
    for name in os.listdir(place.directory):
        path = place.directory / name
        if name == WORK:
            path.chmod(0o700)
            for child in os.listdir(path):
                _remove(path / child)
        elif name not in KEPT:
            _remove(path)
    for name in (WORK, *KEPT):
        (place.directory / name).mkdir(exist_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink()


def _make_tree(directory: Path, tree: Mapping[str, File]) -> None:
    made: dict[int, Path] = {}
    for path, entry in sorted(tree.items()):
        target = directory / path
        if entry.kind == "f" and entry.inode in made and made[entry.inode].read_bytes() == entry.content:
            os.link(made[entry.inode], target)
            continue
        _make(target, entry)
        made[entry.inode] = target
    for path, entry in sorted(tree.items(), reverse=True):
        if entry.kind == "d":  # deepest first: one that is closed to its owner takes no child
            (directory / path).chmod(entry.mode)


def _make(target: Path, entry: File) -> None:
    match entry.kind:
        case "d":
            target.mkdir(exist_ok=True)
            target.chmod(0o700)
        case "l":
            target.symlink_to(os.fsdecode(entry.content))
        case "p":
            os.mkfifo(target, entry.mode)
        case _:
            target.write_bytes(entry.content)
            target.chmod(entry.mode)
