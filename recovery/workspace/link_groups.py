"""Which files, symlinks and FIFOs of the tree keep their inode in a restore. Pure.

An inode is kept only whole: when every name it has inside the tree is a name of one and the same node of the target, with the right
content. Otherwise all its names go to quarantine together, so that nothing in quarantine is ever written through a name in the tree.
"""

from collections.abc import Iterable, Set

from eventlog.image import Entry, Image


def choose_kept(found: Image, target: Image, outside: Set[bytes]) -> frozenset[bytes]:
    """The files, symlinks and FIFOs of `found` that stay. `outside` are those with a name outside the root.

    Of several inodes that could serve one node of the target the one with the first path, in byte order, is kept. A node with a
    name outside is kept only if nothing but its time differs: a change in place would reach the outside.
    """
    kept: set[bytes] = set()
    served: set[bytes] = set()
    for names in _group_names(found):
        goal = _find_goal(found, target, names)
        if goal is None or goal in served:
            continue
        if not outside.isdisjoint(names) and not _has_attributes_of(found[names[0]], target[names[0]]):
            continue
        served.add(goal)
        kept.update(names)
    return frozenset(kept)


def group_key(path: bytes, entry: Entry) -> bytes:
    """What names the node at `path`: its group's first path, or its own."""
    return path if entry.link is None else entry.link


def _group_names(image: Image) -> Iterable[list[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for path in sorted(path for path, entry in image.items() if entry.kind != "d"):
        groups.setdefault(group_key(path, image[path]), []).append(path)
    return groups.values()


def _find_goal(found: Image, target: Image, names: list[bytes]) -> bytes | None:
    goals = {group_key(path, target[path]) if _has_content_of(found[path], target.get(path)) else None for path in names}
    return goals.pop() if len(goals) == 1 else None


def _has_content_of(found: Entry, wanted: Entry | None) -> bool:
    """Attributes are content too: set in place, the bytes of those that were there would be lost (I10, R3)."""
    if wanted is None:
        return False
    return (found.kind, found.content, found.size, found.target, found.xattrs) == (
        wanted.kind,
        wanted.content,
        wanted.size,
        wanted.target,
        wanted.xattrs,
    )


def _has_attributes_of(found: Entry, wanted: Entry) -> bool:
    return (found.mode, found.xattrs, found.owner, found.acl) == (wanted.mode, wanted.xattrs, wanted.owner, wanted.acl)
