"""Directory trees of trials, copied and removed. Imported by the zygote, which every fork copies: so it imports next to nothing."""

import contextlib
import os
import subprocess
from pathlib import Path


def copy_tree(source: Path, target: Path) -> None:
    """Copy the content of one directory into another, which exists. Raises CalledProcessError."""
    # cp -a alone keeps hard links, FIFOs, attributes, modes, times and every name.
    subprocess.run(["cp", "-a", "--", f"{source}/.", str(target)], check=True)


def remove_tree(directory: Path) -> None:
    """Remove what trials left, also directories that a command closed to its owner. Never raises; links are not followed."""
    if not _remove(directory):
        for name, _, _ in os.walk(directory):
            with contextlib.suppress(OSError):  # what still cannot be opened stays; the area is temporary by name
                os.chmod(name, 0o700)
        _remove(directory)


def empty_tree(directory: Path) -> None:
    """Remove what is in a directory, as `remove_tree` does, but not the directory itself."""
    for name in os.listdir(directory):
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()


def _remove(directory: Path) -> bool:
    """Remove a tree as far as that goes; True when it is gone."""
    for parent, folders, files in os.walk(directory, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(parent, name))
        for name in folders:
            path = os.path.join(parent, name)
            with contextlib.suppress(OSError):
                os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    with contextlib.suppress(OSError):
        os.rmdir(directory)
    return not os.path.lexists(directory)
