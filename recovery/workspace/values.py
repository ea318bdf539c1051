"""What a scan yields. Values only."""

from dataclasses import dataclass

from eventlog.image import Entry

MOUNT = "mount"
OUTSIDE_LINK = "outside link"
FLAGS = "flags"
ASPECTS = frozenset((OUTSIDE_LINK, FLAGS, "attribute", "acl"))
"""Kinds that say of a tracked path what of it is not tracked; every other kind names a node that is in no image."""


@dataclass(frozen=True, slots=True)
class Untracked:
    """A path the image does not cover: `socket`, `character device`, `block device`, `mount`; or `outside link`, a
    tracked file that has a further name outside the workspace."""

    path: bytes
    kind: str


@dataclass(frozen=True, slots=True)
class Scan:
    """An image, complete, and what it does not cover, in byte order of path.

    `excluded` are the topmost paths met that a pattern excludes. A directory with nothing in it but excluded paths belongs to
    them: it is in no image either, and is not named.
    """

    image: dict[bytes, Entry]
    untracked: tuple[Untracked, ...]
    excluded: tuple[bytes, ...] = ()
