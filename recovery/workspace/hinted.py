"""A walk that reads only what a watcher's hints name, and leaves the rest as it is remembered.

Looked at whole: directories that are new, or said to be. Looked at by name: those said to have changed, those with times too young to be
told from the next, those with a file that some process has mapped. Of directories with files of several names these files are looked at: a
write through another name is told to that name's directory only. On the way to all of these only the way is looked at.

A file that gets a second name changes without a word to the directory of its first: such a pair has everything read (`PartnerFound`).
"""

from collections.abc import Iterable, Set

from recovery.workspace.listing import Key, Listing
from recovery.workspace.observe import ChangedUnderneath
from recovery.workspace.walk import Frame, Walk, join
from recovery.workspace.watch import Hints


class PartnerFound(ChangedUnderneath):
    """A remembered file turned out to have got a further name."""


class WatchedWalk(Walk):
    """A walk over everything that watches each directory before its names are read."""

    hints: Hints

    def read_names(self, frame: Frame, stamp: Key) -> None:
        self.hints.enter(frame.path, self.current())
        super().read_names(frame, stamp)


class HintedWalk(Walk):
    """A walk over what `hints` and `suspects` name. Afterwards `visited` has the listings of the directories that were opened, and `gone`
    the remembered paths of those that are no longer there; all others are as they are remembered."""

    hints: Hints

    def prepare(self, hints: Hints, suspects: Iterable[bytes], linked: Set[bytes]) -> None:
        """What to look at: `suspects` are directories, beside those of the hints; `linked` those with files of several names."""
        self.hints = hints
        self._named = {*hints.changed, *hints.whole, *suspects}
        self._way = _ancestors(self._named | linked)
        self._whole: set[bytes] = set()
        self._below: dict[bytes, tuple[bytes, ...]] = {}

    def run(self) -> None:
        super().run()
        self.visited = self.seen
        self._find_partners()
        self.gone = self._find_gone()

    def read_names(self, frame: Frame, stamp: Key) -> None:
        path, listing = frame.path, frame.listing
        self._below[path] = tuple(listing.below)
        is_known = self.hints.enter(path, self.current())
        if not is_known or path in self.hints.whole or (path and path.rpartition(b"/")[0] in self._whole):
            self._whole.add(path)
            super().read_names(frame, stamp)
        elif path in self._named:
            before = {name: listing.keys.get(name) for name in listing.below}
            super().read_names(frame, stamp)
            frame.pending = [name for name in listing.below if self._must_enter(listing, path, name, before)]
        else:
            way = {name for name in listing.below if join(path, name) in self._way}
            names = way | listing.linked.keys()
            self.look_at_names(frame, (), {name: listing.keys[name] for name in names})
            frame.pending = [name for name in way if name in listing.below]

    def _must_enter(self, listing: Listing, path: bytes, name: bytes, before: dict[bytes, Key | None]) -> bool:
        """Whether a directory is on the way, or is not the version that was remembered: it changed after the queue was drained."""
        known, below = before.get(name), join(path, name)
        if known is None or known != listing.keys[name]:
            self._named.add(below)
        return below in self._named or below in self._way

    def _find_gone(self) -> set[bytes]:
        """The remembered directories that are there no more. `ChangedUnderneath` when one that is there is not remembered."""
        waiting = []
        for path, before in self._below.items():
            below = self.visited[path].below
            waiting += [join(path, name) for name in before if name not in below]
            if any(join(path, name) not in self.known for name in below):
                raise ChangedUnderneath
        gone: set[bytes] = set()
        while waiting:
            path = waiting.pop()
            listing = self.known.get(path)
            if listing is not None and path not in gone:
                gone.add(path)
                waiting += [join(path, name) for name in {*listing.below, *self._below.get(path, ())}]
        return gone

    def _find_partners(self) -> None:
        """Raise `PartnerFound` when a file that was read now for its further names is remembered elsewhere as having one only."""
        if not self.groups:
            return
        for path, listing in self.known.items():
            if path in self.visited and (path in self._named or path in self._whole):
                continue
            for name, key in listing.keys.items():
                if key is not None and key[:2] in self.groups and name not in listing.linked:
                    raise PartnerFound


def find_young(seen: dict[bytes, Listing], young: Set[bytes]) -> set[bytes]:
    """The directories too young to be remembered, or in which something was (`young`): the next scan looks at them again."""
    return {path for path, listing in seen.items() if listing.stamp is None or path in young}


def find_mapped(known: dict[bytes, Listing], mapped: frozenset[int]) -> set[bytes]:
    """The directories with a file among the inodes `mapped`."""
    if not mapped:
        return set()
    return {path for path, listing in known.items() if any(key is not None and key[1] in mapped for key in listing.keys.values())}


def _ancestors(paths: Iterable[bytes]) -> set[bytes]:
    """The paths and all above them."""
    found: set[bytes] = set()
    for path in paths:
        while path not in found:
            found.add(path)
            path = path.rpartition(b"/")[0]
    return found
