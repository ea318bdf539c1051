"""Excluded paths of a scan, and the directories that hold nothing else. Pure."""

from collections.abc import Iterable, Mapping

from eventlog.image import Image
from recovery.workspace.listing import Listing


def list_excluded(seen: Mapping[bytes, Listing], holding: Iterable[bytes]) -> tuple[bytes, ...]:
    """The topmost excluded paths, in byte order; `holding` are the directories that have some."""
    return tuple(sorted(_join(path, name) for path in holding for name in seen[path].excluded))


def list_bare_holders(seen: Mapping[bytes, Listing], holding: Iterable[bytes], against: Image) -> list[bytes]:
    """The directories with nothing in them but excluded paths that `against` does not have as directories, in byte order; never the root.

    They are in no image: a tree that keeps what is excluded can then be made equal to any image.
    """
    return sorted(path for path in _find_holders(seen, holding) if (entry := against.get(path)) is None or entry.kind != "d")


def _find_holders(seen: Mapping[bytes, Listing], holding: Iterable[bytes]) -> set[bytes]:
    holders: set[bytes] = set()
    pending = sorted((path for path in holding if path), key=lambda path: path.count(b"/"))
    while pending:
        path = pending.pop()
        if path in holders or not path or not all(_join(path, name) in holders for name in seen[path].keys):
            continue
        holders.add(path)
        pending.append(path.rpartition(b"/")[0])
    return holders


def _join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name
