"""Hard-link groups of a scan: which names are one file, symlink or FIFO, and which of these have a further name outside."""


import msgspec

from eventlog.image import Entry
from recovery.workspace.listing import CHANGE_TIME, Key, Listing
from recovery.workspace.values import OUTSIDE_LINK, Untracked


class _Group(msgspec.Struct):
    """The names seen of one inode, and the newest reading of it."""

    newest: tuple[int, Key | None, Entry]
    links: int = 0
    names: list[tuple[bytes, Listing, bytes]] = msgspec.field(default_factory=list)


def join_groups(seen: dict[bytes, Listing], taken: set[int]) -> list[Untracked]:
    """Give every file, symlink and FIFO with further names the first of them, in byte order, as its `link`; those with names outside (or
    excluded) are returned.

    Names of one inode that were read at different moments get the newest reading, so that the image is consistent in itself; those that had
    another are looked at again by the next scan.
    """
    groups: dict[tuple[int, int], _Group] = {}
    for path, listing in seen.items():
        for name, entry in listing.linked.items():
            _add(groups, path + b"/" + name if path else name, listing, name, entry)
    outside: list[Untracked] = []
    for group in groups.values():
        leader = min(path for path, _, _ in group.names) if len(group.names) > 1 else None
        for path, listing, name in group.names:
            _give(listing, name, group, leader, taken)
            if group.links > len(group.names):
                outside.append(Untracked(path, OUTSIDE_LINK))
    return outside


def _add(groups: dict[tuple[int, int], _Group], path: bytes, listing: Listing, name: bytes, entry: Entry) -> None:
    version = listing.versions[name]
    group = groups.setdefault(version[:2], _Group((-1, None, entry)))
    if version[CHANGE_TIME] > group.newest[0]:
        group.newest = version[CHANGE_TIME], version, entry
        group.links = version[3]
    group.names.append((path, listing, name))


def _give(listing: Listing, name: bytes, group: _Group, leader: bytes | None, taken: set[int]) -> None:
    _, version, entry = group.newest
    wanted = msgspec.structs.replace(entry, link=leader)
    if listing.directory.entries[name] != wanted:
        listing.own(taken).put(name, wanted)
    if listing.versions[name] != version:
        listing.keys[name] = None
