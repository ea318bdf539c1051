"""What a scan yields. Values only."""


import msgspec

from eventlog.image import ImageTree

MOUNT = "mount"
OUTSIDE_LINK = "outside link"
FLAGS = "flags"
ATTRIBUTE = "attribute"
ACL = "acl"
OVER_LIMIT = "over limit"
"""Not of a scan: an outcome lists the root so where the workspace has grown above a limit and was not read (rule C8)."""
PARTS = (OUTSIDE_LINK, FLAGS, ATTRIBUTE, ACL)
"""Kinds of what is tracked in part: the path stands in the image, and this of it does not."""


class Untracked(msgspec.Struct, frozen=True):
    """A path the image does not cover: `socket`, `character device`, `block device`, `mount`; or a part of a tracked path that it does
    not: `outside link` (a further name outside the workspace), `flags` (immutable or append-only), `attribute` (one outside `user.*`),
    `acl`."""

    path: bytes
    kind: str


class Scan(msgspec.Struct, frozen=True):
    """An image, complete, and what it does not cover, in byte order of path.

    `excluded` are the topmost paths met that a pattern excludes.
    """

    image: ImageTree
    untracked: tuple[Untracked, ...]
    excluded: tuple[bytes, ...] = ()
