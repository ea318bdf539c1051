"""An image kept by directory, so that two images share what is equal between them. Pure.

What must hold:
- A `Directory` is never changed once it stands in a tree; its `entries` are the names directly in it. A tree has one for every directory
  that holds names; one without names has none.
- A tree equals the plain dictionary of the same paths in everything: comparison, `diff`, `fold_changes`, `root_hash`, `check_image`.
- What is remembered for speed (hashes, which directories were found equal) never decides anything: without it the answers are the same.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping
from weakref import ref

from eventlog.image_values import Entry

_NO_ENTRIES: dict[bytes, Entry] = {}


class Directory:
    """The names directly in one directory. `twin` is another object last found equal to it, or None. A copy remembers of what it is one and
    which names were written since; only its maker writes, and only before it stands in a tree."""

    __slots__ = ("__weakref__", "_origins", "_written", "entries", "twin")

    def __init__(self, entries: dict[bytes, Entry], origin: "Directory | None" = None) -> None:
        self.entries = entries
        self.twin: Directory | None = None
        self._origins = () if origin is None else tuple(ref(one) for one in (origin, origin.twin) if one is not None)
        self._written: set[bytes] = set()

    def copy(self) -> "Directory":
        """A directory of the same names, to be written."""
        return Directory(dict(self.entries), self)

    def put(self, name: bytes, entry: Entry) -> None:
        """Set the entry of a name."""
        self.entries[name] = entry
        self._written.add(name)

    def drop(self, name: bytes) -> None:
        """Take a name away, if it is there."""
        if self.entries.pop(name, None) is not None:
            self._written.add(name)

    def is_copy_of(self, other: "Directory") -> bool:
        """Whether this was made as a copy of that one, or of its twin of then."""
        return any(origin() is other for origin in self._origins)

    def list_differing(self, before: "Directory | None") -> Iterable[bytes]:
        """The names in which this directory differs from `before` (None: one without names); of a copy of it, all that were written."""
        if before is not None and self.is_copy_of(before):
            return self._written
        known, entries = ({} if before is None else before.entries), self.entries
        names = [name for name, entry in entries.items() if (old := known.get(name)) is not entry and old != entry]
        if len(entries) - sum(name not in known for name in names) < len(known):
            names += known.keys() - entries.keys()
        return names

    def equals(self, other: "Directory") -> bool:
        """Whether both hold equal entries; remembered, so that asking again about the same two costs nothing."""
        if self.is_known_equal(other):
            return True
        if self.entries != other.entries:
            return False
        self.remember_equal(other)
        return True

    def is_known_equal(self, other: "Directory") -> bool:
        """Whether the two were found equal, or are one; False says nothing."""
        return self is other or self.twin is other or other.twin is self

    def remember_equal(self, other: "Directory") -> None:
        """The two were found equal."""
        self.twin = None  # one link, never a chain that would keep old images alive
        other.twin = self


class Hashed:
    """What hashing a directory left behind: its hash; where it is large, the encoded entries by bucket and each bucket's digest."""

    __slots__ = ("buckets", "digest", "digests")

    def __init__(self, digest: bytes, buckets: list[dict[bytes, bytes]] | None = None, digests: list[bytes] | None = None) -> None:
        self.digest = digest
        self.buckets = buckets
        self.digests = digests


class ImageTree(Mapping[bytes, Entry]):
    """An immutable image. `directories` maps the path of each directory that holds names to them; `root` is the entry at `b""`.

    `hashed` and `stale` belong to the hashing: the newest known hash of a directory, and the names of it that changed since.
    """

    __slots__ = ("_count", "directories", "hashed", "root", "stale")

    def __init__(self, root: Entry | None = None, directories: dict[bytes, Directory] | None = None) -> None:
        self.root = root
        self.directories: dict[bytes, Directory] = {} if directories is None else directories
        self.hashed: dict[bytes, Hashed] = {}
        self.stale: dict[bytes, set[bytes]] = {}
        self._count = -1

    @classmethod
    def of(cls, image: Mapping[bytes, Entry]) -> "ImageTree":
        """The tree of any image; itself when it is one."""
        if isinstance(image, ImageTree):
            return image
        return ImageTree().with_paths(image.items())

    def __getitem__(self, path: bytes) -> Entry:
        if not path:
            if self.root is None:
                raise KeyError(path)
            return self.root
        parent, _, name = path.rpartition(b"/")
        return self.directories[parent].entries[name]

    def __iter__(self) -> Iterator[bytes]:
        for path, _ in self._pairs():
            yield path

    def __len__(self) -> int:
        if self._count < 0:
            self._count = (self.root is not None) + sum(len(one.entries) for one in self.directories.values())
        return self._count

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ImageTree):
            return self.root == other.root and self.directories.keys() == other.directories.keys() and all(
                one.equals(other.directories[path]) for path, one in self.directories.items()
            )  # fmt: skip
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def items(self) -> ItemsView[bytes, Entry]:
        """All paths and entries, the root first, each directory's names together."""
        return _Items(self)

    def names_in(self, path: bytes) -> Mapping[bytes, Entry]:
        """The entries directly in the directory `path`, by name; empty where there is none."""
        found = self.directories.get(path)
        return _NO_ENTRIES if found is None else found.entries

    def with_paths(self, changed: Iterable[tuple[bytes, Entry | None]]) -> "ImageTree":
        """The tree with these paths set, or removed (None)."""
        draft = Draft(self)
        for path, entry in changed:
            if entry is None:
                draft.pop(path, None)
            else:
                draft[path] = entry
        return draft.finish()

    def succeed(self, root: Entry, directories: dict[bytes, Directory]) -> "ImageTree":
        """A new tree of these directories that shares what this one knows of those they have in common."""
        following = ImageTree(root, directories)
        following.hashed = {path: one for path, one in self.hashed.items() if path in directories}
        following.stale = {path: set(names) for path, names in self.stale.items() if path in following.hashed}
        for path in following.hashed:
            before = self.directories.get(path)
            after = directories[path]
            if before is not after:
                following.stale.setdefault(path, set()).update(after.list_differing(before))
        gone_or_new = (self.directories.keys() ^ directories.keys()) - {b""}
        for path in gone_or_new:
            following.note_stale(path)
        return following

    def with_directories(self, root: Entry, changed: Mapping[bytes, Directory | None]) -> "ImageTree":
        """A new tree with these directories in the place of its own, and all others shared; None or one without names: there is none."""
        following = ImageTree(root, dict(self.directories))
        following.hashed = dict(self.hashed)
        following.stale = {path: set(names) for path, names in self.stale.items()}
        for path, after in changed.items():
            before = self.directories.get(path)
            if before is after:
                continue
            if after is not None and after.entries:
                following.directories[path] = after
                if before is not None and path in following.hashed:
                    following.stale.setdefault(path, set()).update(after.list_differing(before))
            elif before is None:
                continue
            else:
                del following.directories[path]
                following.hashed.pop(path, None)
                following.stale.pop(path, None)
            if path and (before is None or path not in following.directories):
                following.note_stale(path)
        return following

    def note_stale(self, path: bytes) -> None:
        """The entry at `path` is to be encoded anew in its directory's hash."""
        parent, _, name = path.rpartition(b"/")
        if parent in self.hashed:
            self.stale.setdefault(parent, set()).add(name)

    def _pairs(self) -> Iterator[tuple[bytes, Entry]]:
        if self.root is not None:
            yield b"", self.root
        for path, directory in self.directories.items():
            prefix = path + b"/" if path else b""
            for name, entry in directory.entries.items():
                yield prefix + name, entry


class _Items(ItemsView[bytes, Entry]):
    """The items of a tree without a look-up for each."""

    def __init__(self, tree: ImageTree) -> None:
        super().__init__(tree)
        self._tree = tree

    def __iter__(self) -> Iterator[tuple[bytes, Entry]]:
        return self._tree._pairs()


class Draft(MutableMapping[bytes, Entry]):
    """A tree in the making: copies a directory when it is first written, and the tree it began with stays as it is."""

    def __init__(self, base: ImageTree) -> None:
        self._base = base
        self._root = base.root
        self._directories = dict(base.directories)
        self._mine: dict[bytes, Directory] = {}
        self._written: dict[bytes, set[bytes]] = {}

    def __getitem__(self, path: bytes) -> Entry:
        if not path:
            if self._root is None:
                raise KeyError(path)
            return self._root
        parent, _, name = path.rpartition(b"/")
        return self._directories[parent].entries[name]

    def __setitem__(self, path: bytes, entry: Entry) -> None:
        if not path:
            self._root = entry
            return
        parent, _, name = path.rpartition(b"/")
        self._own(parent).put(name, entry)
        self._written[parent].add(name)

    def __delitem__(self, path: bytes) -> None:
        if not path:
            if self._root is None:
                raise KeyError(path)
            self._root = None
            return
        parent, _, name = path.rpartition(b"/")
        if not self.has_names(parent) or name not in self._directories[parent].entries:
            raise KeyError(path)
        mine = self._own(parent)
        mine.drop(name)
        self._written[parent].add(name)
        if not mine.entries:
            del self._directories[parent], self._mine[parent]

    def __iter__(self) -> Iterator[bytes]:
        return iter(ImageTree(self._root, self._directories))

    def __len__(self) -> int:
        return len(ImageTree(self._root, self._directories))

    def has_names(self, path: bytes) -> bool:
        """Whether anything is directly below `path`."""
        return path in self._directories

    def finish(self) -> ImageTree:
        """The tree. The draft is not to be used afterwards."""
        base = self._base
        following = ImageTree(self._root, self._directories)
        following.hashed = dict(base.hashed)
        following.stale = {path: set(names) for path, names in base.stale.items()}
        for path in base.directories.keys() - self._directories.keys():
            following.hashed.pop(path, None)
            following.stale.pop(path, None)
            self._note(following, path)
        for path in self._mine:
            if path not in base.directories:
                self._note(following, path)
            elif path in following.hashed:
                following.stale.setdefault(path, set()).update(self._written[path])
        return following

    def _note(self, following: ImageTree, path: bytes) -> None:
        if path:
            following.note_stale(path)

    def _own(self, path: bytes) -> Directory:
        mine = self._mine.get(path)
        if mine is None:
            before = self._directories.get(path)
            mine = self._mine[path] = self._directories[path] = Directory({}) if before is None else before.copy()
            self._written.setdefault(path, set())
        return mine
