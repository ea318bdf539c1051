"""Folding image changes into images and naming them by their root hash.

The fold is total: it never raises over what rows say. What cannot be a tree (a path below a file, a `del` of nothing, a link
group whose first path is another) is collected as defects and judged by the chain oracle.
"""

from collections.abc import Iterable

from .encoding import encode_entry, hash_directory, hash_image
from .paths import ancestors_of, bytes_of, name_of, parent_of
from .values import Change, Defect, Event, Fold


class ImageFold:
    """One image that changes are applied to. Directory hashes are kept and recomputed only above what changed, deepest first."""

    def __init__(self, excludes: tuple[bytes, ...] = ()) -> None:
        self.excludes = excludes
        self.entries: dict[bytes, Change] = {}
        self.children: dict[bytes, set[bytes]] = {}
        self.encoded: dict[bytes, bytes] = {}
        self.hashes: dict[bytes, bytes] = {}
        self.groups: dict[bytes, set[bytes]] = {}

    def apply(self, changes: tuple[Change, ...]) -> list[tuple[bytes, str]]:
        """Apply one event's changes; returns (path, what is wrong) for each that makes no tree."""
        touched_groups: set[bytes] = set()
        defects: list[tuple[bytes, str]] = []
        for change in changes:
            old = self.entries.get(change.path)
            if change.op != "put" and old is None:
                defects.append((change.path, f"{change.op} of a path that the image does not hold"))
            self._replace(change, old, touched_groups)
        self._hash_again(change.path for change in changes if change.op != "times")
        defects += [(change.path, text) for change in changes for text in self._misplacement(change.path)]
        defects += [(leader, text) for leader in sorted(touched_groups) for text in self._group_defects(leader)]
        return defects

    def root(self) -> bytes | None:
        """The root hash; None when the image has no root directory."""
        root = self.entries.get(b"")
        return None if root is None or root.kind != "d" else hash_image(root, self.hashes[b""], self.excludes)

    def _replace(self, change: Change, old: Change | None, touched_groups: set[bytes]) -> None:
        if change.op == "times":
            return  # times are not identity and are not compared
        if old is not None and old.link is not None:
            touched_groups.add(old.link)
            self.groups[old.link].discard(change.path)
        if change.op == "put":
            self._put(change, touched_groups)
        elif old is not None:
            del self.entries[change.path]
            self.encoded.pop(change.path, None)
            if change.path:
                self.children[parent_of(change.path)].discard(change.path)

    def _put(self, change: Change, touched_groups: set[bytes]) -> None:
        self.entries[change.path] = change
        if change.path:
            self.children.setdefault(parent_of(change.path), set()).add(change.path)
        if change.link is not None:
            touched_groups.add(change.link)
            self.groups.setdefault(change.link, set()).add(change.path)

    def _hash_again(self, changed: Iterable[bytes]) -> None:
        stale: set[bytes] = set()
        for path in changed:
            stale.add(path)
            stale.update(ancestors_of(path))
        for path in sorted(stale, key=lambda path: path.count(b"/") + (path != b""), reverse=True):
            self._hash_one(path)

    def _hash_one(self, path: bytes) -> None:
        entry = self.entries.get(path)
        self.hashes.pop(path, None)
        if entry is None:
            return
        if entry.kind == "d":
            children = self.children.get(path, ())
            self.hashes[path] = hash_directory([(name_of(child), self.encoded[child]) for child in children])
        self.encoded[path] = encode_entry(name_of(path), entry, self.hashes.get(path, b""))

    def _misplacement(self, path: bytes) -> list[str]:
        entry = self.entries.get(path)
        if (entry is None or entry.kind != "d") and self.children.get(path):
            return ["is no directory (any more) but the image holds paths below it"]
        if entry is None:
            return []
        if path == b"":
            return [] if entry.kind == "d" else ["the root is no directory"]
        above = self.entries.get(parent_of(path))
        return [] if above is not None and above.kind == "d" else ["its parent is no directory of the image"]

    def _group_defects(self, leader: bytes) -> list[str]:
        members = self.groups.get(leader, set())
        if not members:
            return []
        if len(members) == 1 or min(members) != leader:
            return [f"hard-link group has {len(members)} paths, first {min(members)!r}: not led by its first of two or more"]
        found = map(self.entries.__getitem__, members)
        inodes = {(one.kind, one.mode, one.content, one.size, one.target, one.xattrs, one.uid, one.gid, one.acl) for one in found}
        return [] if len(inodes) == 1 else ["paths of one hard-link group differ in kind, mode, content, target, attributes or owner"]


def fold_events(events: tuple[Event, ...]) -> Fold:
    """Fold the changes of a stream's events in order."""
    image = ImageFold(tuple(bytes_of(line) for line in events[0].payload.get("excludes", ())) if events else ())
    roots: list[bytes | None] = []
    origins: dict[bytes, int] = {}
    defects: list[Defect] = []
    root: bytes | None = None
    for event in events:
        if event.changes:
            defects += [Defect(event.stream, event.seq, text, path) for path, text in image.apply(event.changes)]
            origins.update((change.path, event.seq) for change in event.changes if change.op != "times")
            root = image.root()
        roots.append(root)
    return Fold(tuple(roots), image.entries, origins, tuple(defects))
