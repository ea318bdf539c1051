"""What a scan yields. Values only."""

from dataclasses import dataclass

from eventlog.image import Entry

MOUNT = "mount"
OUTSIDE_LINK = "outside link"


@dataclass(frozen=True, slots=True)
class Untracked:
    """A path the image does not cover: `socket`, `character device`, `block device`, `mount`; or `outside link`, a
    tracked file that has a further name outside the workspace."""

    path: bytes
    kind: str


@dataclass(frozen=True, slots=True)
class Scan:
    """An image, complete, and what it does not cover, in byte order of path."""

    image: dict[bytes, Entry]
    untracked: tuple[Untracked, ...]
