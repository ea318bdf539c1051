"""Which directories have something that is looked at after every pass, however few directories the pass visited. Pure."""

from collections.abc import Iterator, Mapping

import msgspec

from recovery.workspace.listing import Listing
from recovery.workspace.values import Untracked


class Marks(msgspec.Struct):
    """Paths of directories: `linked` with names of nodes that have further names, `untracked` with something that is not covered,
    `excluded` with names left out by a pattern. Every listing of a scanner is in it as it was when it was last renewed."""

    linked: set[bytes] = msgspec.field(default_factory=set)
    untracked: set[bytes] = msgspec.field(default_factory=set)
    excluded: set[bytes] = msgspec.field(default_factory=set)

    def renew(self, path: bytes, listing: Listing) -> None:
        """Note what the directory `path` has now."""
        for paths, has in ((self.linked, listing.linked), (self.untracked, listing.untracked), (self.excluded, listing.excluded)):
            if has:
                paths.add(path)
            elif paths:
                paths.discard(path)

    def drop(self, path: bytes) -> None:
        """The directory is gone."""
        for paths in (self.linked, self.untracked, self.excluded):
            paths.discard(path)

    def list_untracked(self, known: Mapping[bytes, Listing]) -> Iterator[Untracked]:
        """What is not covered, in no order."""
        for path in self.untracked:
            prefix = path + b"/" if path else b""
            for name, kinds in known[path].untracked.items():
                for kind in kinds:
                    yield Untracked(prefix + name, kind)
