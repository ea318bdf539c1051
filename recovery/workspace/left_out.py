"""Excluded paths of a scan, and the directories that hold nothing else: these are in no image either."""

from eventlog.image_tree import Directory
from recovery.workspace.listing import Listing


def list_excluded(seen: dict[bytes, Listing]) -> tuple[bytes, ...]:
    """The topmost excluded paths, in byte order."""
    return tuple(sorted(_join(path, name) for path, listing in seen.items() for name in listing.excluded))


def tracked_directories(seen: dict[bytes, Listing]) -> dict[bytes, Directory]:
    """The directories of the image: those with names, without the directories that hold only what is excluded."""
    directories = {path: one.directory for path, one in seen.items() if one.directory.entries}
    hollow: dict[bytes, set[bytes]] = {}
    if not any(one.excluded for one in seen.values()):
        return directories
    for path in sorted(seen, key=lambda path: path.count(b"/") if path else -1, reverse=True):
        one, without = seen[path], hollow.get(path, set())
        if path and (one.excluded or without) and not one.untracked and one.directory.entries.keys() <= without:
            parent, _, name = path.rpartition(b"/")
            hollow.setdefault(parent, set()).add(name)
            directories.pop(path, None)
        elif without:
            entries = {name: entry for name, entry in one.directory.entries.items() if name not in without}
            directories[path] = Directory(entries)
            if not entries:
                del directories[path]
    return directories


def _join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name
