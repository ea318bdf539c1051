"""The scan: what the workspace holds now, whole or not at all (I11).

A `Scanner` remembers what it saw and reads again only what may have changed (walk.py). What is not tracked (sockets, devices, mounts, links
to the outside, attributes outside `user.*`) is listed beside the image.
"""

import os
from collections.abc import Iterable, Mapping, Set

from eventlog.collection import collection_paused
from eventlog.errors import ScanError
from eventlog.image import Entry, Image, ImageTree, delete_change, fold_changes
from eventlog.image_tree import Directory
from eventlog.image_values import MODE_BITS
from eventlog.show import show_path
from recovery.workspace import stat_cache
from recovery.workspace.file_clock import trusted_before
from recovery.workspace.hinted import HintedWalk, WatchedWalk, find_mapped, find_young
from recovery.workspace.kept import KeptContents
from recovery.workspace.left_out import list_bare_holders, list_excluded
from recovery.workspace.link_names import join_groups
from recovery.workspace.listing import MODE, MODIFY_TIME, SIZE, Listing, empty_listing
from recovery.workspace.made import Made
from recovery.workspace.mappings import read_mapped
from recovery.workspace.marks import Marks
from recovery.workspace.mounts import Mounts
from recovery.workspace.observe import ChangedUnderneath, bounded_time
from recovery.workspace.side import RESERVED_NAME
from recovery.workspace.values import Scan, Untracked
from recovery.workspace.walk import TRIES, Excluding, Trust, Walk
from recovery.workspace.watch import Hints

__all__ = ["RootMissing", "Scan", "Scanner", "Untracked", "scan"]

NOTHING: Mapping[bytes, Entry] = {}
SAVE_AFTER = 1000
"""So many files hashed in one scan are worth writing the cache at once: reading them again would cost more than the write."""


class RootMissing(ScanError):
    """The workspace's root is not there or is not a directory."""


def scan(root: str, *, side_directory_name: bytes | None, profile: Excluding | None = None, against: Image = NOTHING) -> Scan:
    """One scan that remembers nothing: `Scanner.scan`."""
    return Scanner(root, profile, side_directory_name).scan(against=against)


class Scanner:
    """Scans one workspace again and again. With `cache_path` it begins with what an earlier process saved there under the same `boot_id`;
    losing that file costs time only; `is_fresh` begins with nothing and replaces what was saved. `hashed` counts the files that the newest
    scan had to read, `kept` has the contents of small ones among them."""

    def __init__(
        self,
        root: str,
        profile: Excluding | None = None,
        side_directory_name: bytes | None = RESERVED_NAME,
        cache_path: str | None = None,
        boot_id: str = "",
        is_fresh: bool = False,
    ) -> None:
        self._root = root
        self._profile = profile
        self._reserved = side_directory_name
        self._cache_path = cache_path
        self._boot_id = boot_id
        self._is_fresh = is_fresh
        self._identity: tuple[int, int] | None = None
        self._known: dict[bytes, Listing] = {}
        self._image = ImageTree()
        self._marks = Marks()
        self._mapped: frozenset[int] | None = frozenset()
        self._young: set[bytes] | None = None
        self._unsaved = 0
        self.hashed = 0
        self.kept = KeptContents()

    def scan(
        self, rehash: bool = False, hints: Hints | None = None, processes: Iterable[int] = (), against: Image = NOTHING
    ) -> Scan:
        """Read the tree (a link to the root is resolved), leaving out the side directory directly below it.

        A directory with nothing in it but excluded paths is in the image where `against` has it as a directory, and only there: so the tree
        can be made equal to any image while it keeps what is excluded. `rehash` trusts nothing; `hints` are those of a watcher of this
        root, drained just now: then only what they name is looked at. `processes` are pids that may have files mapped. Names that vanish
        meanwhile are absent; a file that
        changes while it is read is read again, three times at most. What `against` has, at the same path, is not kept in `kept`: the log
        has it. Raises `RootMissing`, or `ScanError` naming the path and the reason.
        """
        self.hashed = 0
        self.kept.clear()
        now = read_mapped(processes)
        mapped = None if now is None or self._mapped is None else now | self._mapped
        for attempt in range(TRIES):
            try:
                with collection_paused():
                    found = self._scan_once(rehash, mapped, hints, against, attempt)
            except ChangedUnderneath:
                continue
            if found is None:
                continue
            self._mapped = now  # what was mapped is looked at once more after it is no longer: the last store may have come since
            self._save_often()
            return found
        raise ScanError(
            f"directories of {show_path(os.fsencode(self._root))} keep moving while they are read; try again when it is quiet"
        )

    def learn(self, made: Iterable[Made]) -> None:
        """Remember files that the file worker of this process's epoch made in a restore: the next scan reads them again only when their
        version is another one by then."""
        taken: set[int] = set()
        for one in made:
            above, _, name = one.path.rpartition(b"/")
            listing = self._known.get(above)
            if listing is None:
                listing = self._known[above] = empty_listing()
            mtime_ns = bounded_time(one.key[MODIFY_TIME])
            listing.own(taken).put(name, Entry("f", one.key[MODE] & MODE_BITS, one.content, one.key[SIZE], mtime_ns=mtime_ns))
            listing.keys[name] = one.key

    def save(self) -> None:
        """Write the cache. An error of the operating system is not one of the scan's: the cache is left as it was."""
        if self._cache_path is not None and self._unsaved and self._identity is not None:
            stat_cache.save(self._cache_path, self._binding(self._identity), self._known)
            self._unsaved = 0

    def _save_often(self) -> None:
        if self._unsaved >= SAVE_AFTER:
            self.save()

    def _binding(self, identity: tuple[int, int]) -> stat_cache.Binding:
        excludes: tuple[str, ...] = tuple(getattr(self._profile, "excludes", ()))
        excludes += tuple(sorted(os.fsdecode(b"/" + path) for path in getattr(self._profile, "left_out", ())))
        track = tuple(name for name in ("owners", "acls") if getattr(self._profile, name, False))
        return stat_cache.Binding(self._boot_id, *identity, self._reserved, excludes, track)

    def _scan_once(
        self, rehash: bool, mapped: frozenset[int] | None, hints: Hints | None, against: Image, attempt: int
    ) -> Scan | None:
        """One pass; None when a mount was made or taken away meanwhile. Only the first is by hints: in doubt everything is read."""
        root = _open_root(self._root)
        try:
            self._meet_root(root)
            mounts = Mounts(root)
            trust = Trust(trusted_before(root), mapped, rehash)  # the clock is read before anything else
            points = None if attempt == TRIES - 1 else mounts.points
            make = self._choose_walk(trust, hints, attempt)
            walk = make(root, self._known, trust, points, self._profile, self._reserved, self.kept.keep, against)
            if isinstance(walk, WatchedWalk) and hints is not None:
                walk.hints = hints
            elif isinstance(walk, HintedWalk) and hints is not None:
                walk.prepare(hints, (self._young or set()) | find_mapped(self._known, trust.mapped or frozenset()), self._marks.linked)
            self._young = None  # until this pass is complete, the next one must be whole
        except BaseException:
            os.close(root)
            raise
        try:
            walk.run()
        finally:
            walk.close()
            self._unsaved += walk.hashed
            self.hashed += walk.hashed
            have_changed = mounts.have_changed()
            mounts.close()
        if have_changed and points is not None:
            return None
        found = self._finish(walk, hints, against)
        self._young = find_young(walk.visited if isinstance(walk, HintedWalk) else walk.seen, walk.young)
        if hints is not None:
            hints.complete()
        return found

    def _choose_walk(self, trust: Trust, hints: Hints | None, attempt: int) -> type[Walk]:
        if hints is None:
            return Walk
        is_whole = bool(hints.doubt) or attempt > 0 or self._young is None or trust.doubts_files
        return WatchedWalk if is_whole else HintedWalk

    def _meet_root(self, root: int) -> None:
        """Another root than before has another past."""
        found = os.fstat(root)
        identity = found.st_dev, found.st_ino
        if identity == self._identity:
            return
        self._known = {}
        self._young = None
        self._identity = identity
        if self._cache_path is not None and self._boot_id and not self._is_fresh:
            self._known = stat_cache.load(self._cache_path, self._binding(identity))

    def _finish(self, walk: Walk, hints: Hints | None, against: Image) -> Scan:
        known, marks = self._known, self._marks
        if isinstance(walk, HintedWalk):
            seen, gone = walk.visited, walk.gone
        else:
            marks = self._marks = Marks()
            seen, gone = walk.seen, known.keys() - walk.seen.keys()
        for path in gone:
            del known[path]
            marks.drop(path)
            if hints is not None:
                hints.leave(path)
        for path in seen.keys() - gone if gone else seen:
            marks.renew(path, known[path])
        untracked = [Untracked(b"", kind) for kind in walk.root_untracked]
        untracked += join_groups({path: known[path] for path in sorted(marks.linked)}, walk.taken())
        untracked += marks.list_untracked(known)
        untracked.sort(key=lambda one: (one.path, one.kind))
        self._image = self._succeed(walk, gone)
        bare = list_bare_holders(known, marks.excluded, against)
        image = fold_changes(self._image, [delete_change(path) for path in bare]) if bare else self._image
        return Scan(image, tuple(untracked), list_excluded(known, marks.excluded))

    def _succeed(self, walk: Walk, gone: Set[bytes]) -> ImageTree:
        """The image of what is known now. After a walk by hints only what it visited, and what has further names, can be new in it."""
        known = self._known
        if not isinstance(walk, HintedWalk):
            return self._image.succeed(walk.root, {path: one.directory for path, one in known.items() if one.directory.entries})
        replaced: dict[bytes, Directory | None] = dict.fromkeys(gone)
        for path in (walk.visited.keys() | self._marks.linked) - gone:
            replaced[path] = known[path].directory
        return self._image.with_directories(walk.root, replaced)


def _open_root(root: str) -> int:
    shown = show_path(os.fsencode(root))
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RootMissing(f"the workspace {shown} is missing: {error.strerror}") from error
    except OSError as error:
        raise ScanError(f"cannot read the workspace {shown}: {error.strerror}") from error
