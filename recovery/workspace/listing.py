"""What a scanner remembers of one directory between scans."""

import msgspec

from eventlog.image import Entry
from eventlog.image_tree import Directory

Key = tuple[int, int, int, int, int, int, int]
"""Device, inode, mode with type bits, links, size, mtime_ns, ctime_ns: the version of a node. The names of places in it follow."""
MODE, SIZE, MODIFY_TIME, CHANGE_TIME = 2, 4, 5, 6


class Listing(msgspec.Struct):
    """The names of one directory and the versions of what they stand for, as last looked at.

    `stamp` is the directory's own version before it was listed, None when that is no proof that the names are still these. `keys` has
    every name of it but those left out; None for one that must be looked at closely again. `directory` has the entries; `linked` those of
    files, symlinks and FIFOs with further names, before the group is known, and `versions` the versions of these; `untracked` why a name,
    or a part of it, is not covered; `below` the names of directories, with device and inode; `excluded` the names
    left out by a pattern.
    """

    stamp: Key | None
    keys: dict[bytes, Key | None]
    directory: Directory
    linked: dict[bytes, Entry]
    versions: dict[bytes, Key]
    untracked: dict[bytes, tuple[str, ...]]
    below: dict[bytes, tuple[int, int]]
    excluded: set[bytes]

    def own(self, taken: set[int]) -> Directory:
        """The directory, to be written to: a copy made once per scan, for it may stand in an image. `taken`: ids of copies."""
        if id(self.directory) not in taken:
            self.directory = self.directory.copy()
            taken.add(id(self.directory))
        return self.directory


def empty_listing() -> Listing:
    """A directory of which nothing is known."""
    return Listing(None, {}, Directory({}), {}, {}, {}, {}, set())

