"""Comparing two trees: the first differing path in byte order, and how to name what stands there."""

from collections.abc import Collection

from .encoding import digest, xattrs_digest
from .paths import escape_path
from .values import Change, Entry, Listing

SHORT = 12


def entry_of(change: Change) -> Entry:
    """The entry an image has at a path."""
    owner = None if change.uid is None or change.gid is None else (change.uid, change.gid)
    acl = None if change.acl is None else digest(change.acl)
    xattrs = xattrs_digest(change.xattrs)
    return Entry(change.kind, change.mode, change.content, change.size, change.target, change.link, xattrs, owner, acl)


def first_difference(expected: Listing, found: Listing, suspects: Collection[bytes] = ()) -> bytes | None:
    """The first path in byte order at which the two differ or that is a suspect; None when there is none."""
    differing = {path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path)}
    return min(differing.union(suspects), default=None)


def describe(entry: Entry | None) -> str:
    """An entry in one short line: kind, mode, then what it has of size and digests."""
    if entry is None:
        return "absent"
    words = [entry.kind, f"{entry.mode:04o}"]
    if entry.content is not None:
        words += [f"size={entry.size}", f"content={entry.content.hex()[:SHORT]}"]
    if entry.target is not None:
        words.append(f"target={escape_path(entry.target)}")
    if entry.link is not None:
        words.append(f"link={escape_path(entry.link)}")
    if entry.xattrs is not None:
        words.append(f"xattrs={entry.xattrs.hex()[:SHORT]}")
    if entry.owner is not None:
        words.append(f"owner={entry.owner[0]}:{entry.owner[1]}")
    if entry.acl is not None:
        words.append(f"acl={entry.acl.hex()[:SHORT]}")
    return " ".join(words)
