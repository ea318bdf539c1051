"""Removing a tree that is the engine's own: children first, so that a kill in between leaves less of the same tree, and doing it again ends
it. Everything is reached by directory descriptors: no link is followed, no other mount entered.
"""

import os
from collections.abc import Callable

from eventlog import durable
from eventlog.attributes import open_node
from eventlog.beneath import OPEN_DIRECTORY, Beneath
from eventlog.image import name_of, parent_of
from eventlog.kernel import kind_of, look_at, look_through

_PRIVATE = 0o700


def remove_tree(above: int, name: bytes, step: str, told: Callable[[OSError, bytes], Exception]) -> int:
    """Remove the directory `name` in the open directory `above` with everything in it; how many names went, none when it is not there.

    Raises what `told` makes of an error of the system and the path, below `above`, where it came up.
    """
    if not exists(name, above):
        return 0
    removed = 0
    with Beneath(f"/proc/self/fd/{above}") as tree:
        pending = [(name, False)]
        while pending:
            path, is_empty = pending.pop()
            try:
                if is_empty:
                    tree.forget(path)
                    durable.remove_directory(name_of(path), step, directory=tree.directory(parent_of(path)))
                    removed += 1
                    continue
                pending.append((path, True))
                below = _open_up(tree, path)
                for child in list_names(below):
                    if kind_of(look_at(child, below).mode) == "d":
                        pending.append((path + b"/" + child, False))
                    else:
                        durable.unlink(child, step, directory=below)
                        removed += 1
            except FileNotFoundError:
                continue  # another run of the same command took it
            except OSError as error:
                raise told(error, path) from error
    return removed


def exists(name: bytes, directory: int) -> bool:
    """Whether there is a node of this name in the open directory."""
    try:
        look_at(name, directory)
    except FileNotFoundError:
        return False
    return True


def list_names(directory: int) -> list[bytes]:
    """The names in an open directory, sorted."""
    descriptor = os.open(b".", OPEN_DIRECTORY, dir_fd=directory)  # of its own: a lent one has a position in its list
    try:
        return sorted(os.fsencode(name) for name in os.listdir(descriptor))
    finally:
        os.close(descriptor)


def _open_up(tree: Beneath, path: bytes) -> int:
    """The open directory `path`, made one that its owner may empty."""
    above, name = tree.parent(path)
    with open_node(name, above, "d") as descriptor:
        status = look_through(descriptor)
        is_ours = status.is_on_mount_of(look_through(above))  # what is mounted there is refused below, unchanged
        if is_ours and status.mode & _PRIVATE != _PRIVATE:
            os.chmod(f"/proc/self/fd/{descriptor}", _PRIVATE)
    return tree.directory(path)
