"""Excluded paths of a scan, the directories that hold nothing else, and images without paths. Pure."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from eventlog.image import Image
from recovery.workspace.listing import Listing


def list_excluded(seen: Mapping[bytes, Listing], holding: Iterable[bytes]) -> tuple[bytes, ...]:
    """The topmost excluded paths, in byte order; `holding` are the directories that have some."""
    return tuple(sorted(_join(path, name) for path in holding for name in seen[path].excluded))


def without(image: Image, paths: Iterable[bytes]) -> Image:
    """The image without `paths` and what is below them; a group of hard links goes on without the names it loses."""
    gone = tuple(paths)
    if not gone:
        return image
    left = {name: entry for name, entry in image.items() if not any(name == path or name.startswith(path + b"/") for path in gone)}
    groups: dict[bytes, list[bytes]] = {}
    for name, entry in left.items():
        if entry.link is not None:
            groups.setdefault(entry.link, []).append(name)
    for names in groups.values():
        first = min(names) if len(names) > 1 else None
        left |= {name: replace(left[name], link=first) for name in names if left[name].link != first}
    return left


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
