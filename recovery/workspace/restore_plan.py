"""From what the workspace holds and what it should hold to the plan of a restore. Pure: nothing is opened, nothing moved.

Order, and why: victims first (a name must be free before something is placed there); directories, parents first; then those that are
filled in staging and put in place by one rename each (staged.py), with what is in them; files, symlinks, FIFOs; further names of those
that have several, once their first is there; then attributes of what stayed; last the directories, deepest first, because a final mode
may forbid work below it and work below it changes its time. What is already right is in no action: it keeps its inode and its times.

Excluded paths are in no action. A directory that the target lacks and that holds excluded content stays where it is, and only its other
children move (R3). Where there are excludes, a build's outputs may be among them: the time of a file that is written is then
the current one, and a file that stays keeps the time it has, so that no excluded output made from other bytes passes for up to date.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from eventlog.errors import RestoreIncompleteError
from eventlog.image import Entry, Image, parent_of
from eventlog.show import show_path
from recovery.workspace.actions import (
    Action,
    Displace,
    FinishDirectory,
    LinkFile,
    MakeDirectory,
    PlaceDirectory,
    PlaceFile,
    PlaceLink,
    PlacePipe,
    RestorePlan,
    SetAttributes,
    StageDirectory,
)
from recovery.workspace.link_groups import choose_kept, group_key
from recovery.workspace.staged import choose_staged
from recovery.workspace.values import MOUNT, OUTSIDE_LINK, PARTS, Scan, Untracked

_BLOCK_BYTES = 4096
_SHOWN_CHARACTERS = 160


def plan_restore(
    found: Scan,
    target: Image,
    target_untracked: Sequence[Untracked],
    *,
    has_excludes: bool = False,
    owners: bool = False,
    acls: bool = False,
) -> RestorePlan:
    """The plan that makes the tree of `found` equal to `target`. `has_excludes`: the session excludes paths, met in this tree or not;
    `owners`, `acls`: what it tracks.

    Sockets and devices that `target_untracked` does not list are victims too; those it lists and the tree has are left where they are.
    Raises `RestoreIncompleteError` naming a mount point that is in the way, is not in `target_untracked`, or lies in a directory
    that must move; or an excluded path below a directory that must become another kind, or at a name that the image needs.
    """
    work = _Work(found, target, frozenset(target_untracked), has_excludes or bool(found.excluded), owners, acls)
    _refuse_excluded(work)
    _displace(work)
    _refuse_mounts(work)
    _place(work)
    _set_in_place(work)
    _finish_directories(work)
    return work.to_plan()


class _Work(msgspec.Struct):
    """The plan in the making. `gone`: paths of the tree that are displaced, themselves or with a directory above them.
    `touched`: directories that get or lose a name."""

    found: Scan
    target: Image
    target_untracked: frozenset[Untracked]
    has_excludes: bool
    owners: bool
    acls: bool
    holders: set[bytes] = msgspec.field(default_factory=set)
    kept: frozenset[bytes] = frozenset()
    outside: frozenset[bytes] = frozenset()
    actions: list[Action] = msgspec.field(default_factory=list)
    gone: set[bytes] = msgspec.field(default_factory=set)
    made: set[bytes] = msgspec.field(default_factory=set)
    touched: set[bytes] = msgspec.field(default_factory=set)

    def to_plan(self) -> RestorePlan:
        displaced = sum(isinstance(action, Displace) for action in self.actions)
        needed = sum(_room_of(action) for action in self.actions)
        return RestorePlan(tuple(self.actions), self._count_restored(), displaced, needed)

    def owner_of(self, entry: Entry) -> tuple[int, int] | None:
        """The owner an entry is to get; None when owners are not tracked."""
        return entry.owner if self.owners else None

    def acl_of(self, entry: Entry) -> bytes | None:
        """The ACL an entry is to get, empty for none; None when ACLs are not tracked."""
        return (entry.acl or b"") if self.acls else None

    def attributes_of(self, entry: Entry, keeps_time: bool = False) -> tuple[object, ...]:
        """All of an entry that is set in place."""
        return entry.mode, entry.xattrs, 0 if keeps_time else entry.mtime_ns, self.owner_of(entry), self.acl_of(entry)

    def _count_restored(self) -> int:
        before = self.found.image
        return sum(
            path in self.made or path not in before or not before[path].has_identity_of(entry) for path, entry in self.target.items()
        )


def _room_of(action: Action) -> int:
    """What one action may take on the disk: whole blocks of content, and one for the node and its name."""
    if isinstance(action, PlaceFile):
        return _BLOCK_BYTES * (1 - -action.size // _BLOCK_BYTES)
    return _BLOCK_BYTES if isinstance(action, MakeDirectory | StageDirectory | PlaceLink | PlacePipe) else 0


def _refuse_excluded(work: _Work) -> None:
    """Notes the directories that hold excluded content; stops by name where such content is in the way."""
    for path in work.found.excluded:
        if path in work.target:
            raise RestoreIncompleteError(
                f"the excluded {show_path(path)} is where the image has another node; nothing was moved. Move it away and try again"
            )
        above = parent_of(path)
        while above not in work.holders:
            work.holders.add(above)
            wanted = work.target.get(above)
            if wanted is not None and wanted.kind != "d":
                raise RestoreIncompleteError(
                    f"{show_path(above)} must become a {_KIND_WORDS[wanted.kind]} and holds the excluded {show_path(path)}; "
                    "nothing was moved. Move that away and try again"
                )
            above = parent_of(above)


def _displace(work: _Work) -> None:
    found = work.found.image
    work.outside = frozenset(one.path for one in work.found.untracked if one.kind == OUTSIDE_LINK)
    work.kept = choose_kept(found, work.target, work.outside)
    nodes = {one.path: one for one in work.found.untracked if one.kind not in (MOUNT, *PARTS)}
    for path in sorted([*found, *nodes]):
        if path and parent_of(path) in work.gone:
            work.gone.add(path)
        elif _must_move(work, path, nodes.get(path)):
            work.gone.add(path)
            work.touched.add(parent_of(path))
            work.actions.append(Displace(path, nodes[path].kind if path in nodes else found[path].kind))


def _must_move(work: _Work, path: bytes, node: Untracked | None) -> bool:
    wanted = work.target.get(path)
    if node is not None:
        return wanted is not None or node not in work.target_untracked
    entry = work.found.image[path]
    if path in work.holders:
        return False
    if wanted is None or wanted.kind != entry.kind:
        return True
    return entry.kind != "d" and path not in work.kept


def _refuse_mounts(work: _Work) -> None:
    needed = _directories_needed(work.target)
    for one in work.found.untracked:
        if one.kind != MOUNT:
            continue
        shown = show_path(one.path)
        if one.path in needed or one not in work.target_untracked:
            raise RestoreIncompleteError(f"a mount at {shown} is in the way of the restore; nothing was moved. Unmount it and try again")
        if parent_of(one.path) in work.gone:
            raise RestoreIncompleteError(
                f"the mount at {shown} lies in a directory that must move; nothing was moved. Unmount it and try again"
            )


def _directories_needed(target: Image) -> set[bytes]:
    return {*target, *(parent_of(path) for path in target)}


def _place(work: _Work) -> None:
    found = work.found.image
    missing = [path for path in sorted(work.target) if (path not in found or path in work.gone) and path not in work.holders]
    work.made.update(missing)
    work.touched.update(parent_of(path) for path in missing)
    firsts, links = _choose_firsts(work, missing)
    directories = [path for path in missing if work.target[path].kind == "d"]
    staged = choose_staged(work.target, directories, firsts)
    work.actions += [MakeDirectory(path) for path in directories if path not in staged.tops]
    for top, below in staged.trees.items():
        work.actions.append(StageDirectory(top))
        work.actions += [_make_place(work, path) for path in below]
        work.actions.append(PlaceDirectory(top))
    alone = [path for path in firsts if parent_of(path) not in staged.tops]
    for kind in ("f", "l", "p"):
        work.actions += [_make_place(work, path) for path in alone if work.target[path].kind == kind]
    work.actions += links


def _choose_firsts(work: _Work, missing: Iterable[bytes]) -> tuple[list[bytes], list[LinkFile]]:
    """Of the missing files, symlinks and FIFOs those to be made, one per group; and the further names of these and of what stays."""
    sources = {group_key(path, work.target[path]): path for path in sorted(work.kept, reverse=True)}
    firsts: list[bytes] = []
    links: list[LinkFile] = []
    for path in missing:
        entry = work.target[path]
        key = group_key(path, entry)
        if entry.kind == "d":
            continue
        if key in sources:
            links.append(LinkFile(path, sources[key]))
        else:
            sources[key] = path
            firsts.append(path)
    return firsts, links


def _make_place(work: _Work, path: bytes) -> MakeDirectory | PlaceFile | PlaceLink | PlacePipe:
    entry = work.target[path]
    if entry.kind == "d":
        return MakeDirectory(path)
    owner, acl = work.owner_of(entry), work.acl_of(entry)
    if entry.kind == "l":
        return PlaceLink(path, entry.target or b"", entry.mtime_ns, owner)
    if entry.kind == "p":
        return PlacePipe(path, entry.mode, entry.mtime_ns, owner, acl)
    time = None if work.has_excludes else entry.mtime_ns
    return PlaceFile(path, entry.content or b"", entry.size, entry.mode, time, entry.xattrs, owner, acl)


def _set_in_place(work: _Work) -> None:
    found = work.found.image
    done: set[bytes] = set()
    for path in sorted(found):
        entry, wanted = found[path], work.target.get(path)
        if wanted is None or path in work.gone or entry.kind == "d" or path in work.outside:
            continue
        key = group_key(path, entry)
        keeps_time = work.has_excludes and entry.kind == "f"
        if key in done or work.attributes_of(entry, keeps_time) == work.attributes_of(wanted, keeps_time):
            continue
        done.add(key)
        time = None if keeps_time else wanted.mtime_ns
        owner, acl = work.owner_of(wanted), None if wanted.kind == "l" else work.acl_of(wanted)
        work.actions.append(SetAttributes(path, wanted.kind, wanted.mode, time, wanted.xattrs, owner, acl))


def _finish_directories(work: _Work) -> None:
    found = work.found.image
    left = {path for path in work.holders if path in found and path not in work.target}
    for path in sorted([*work.target, *left], reverse=True):
        wanted = found[path] if path in left else work.target[path]
        if wanted.kind != "d":
            continue
        entry = None if path in work.made else found.get(path)
        if entry is None or path in work.touched or work.attributes_of(entry) != work.attributes_of(wanted):
            owner, acl = work.owner_of(wanted), work.acl_of(wanted)
            work.actions.append(FinishDirectory(path, wanted.mode, wanted.mtime_ns, wanted.xattrs, owner, acl))


def describe(plan: RestorePlan, show: Callable[[bytes], str] = show_path) -> list[str]:
    """One line per action, for people; names are escaped, by `show`."""
    return [_describe(action, show) for action in plan.actions]


def show_short(path: bytes) -> str:
    """`show_path`, with the middle of a long path left out: a tree may be thousands of levels deep."""
    shown = show_path(path)
    if len(shown) <= _SHOWN_CHARACTERS:
        return shown
    half = _SHOWN_CHARACTERS // 2
    return f"{shown[:half]}...{shown[-half:]} ({len(path)} bytes)"


_KIND_WORDS = {"f": "file", "d": "directory", "l": "symlink", "p": "FIFO"}


def _describe(action: Action, show: Callable[[bytes], str]) -> str:
    shown = show(action.path)
    match action:
        case Displace(kind=kind):
            return f"quarantine {_KIND_WORDS.get(kind, kind)} {shown}"
        case MakeDirectory() | StageDirectory():
            return f"make directory {shown}"
        case PlaceDirectory():
            return f"put directory {shown} with all that is in it in its place"
        case PlaceFile(size=size, mode=mode):
            return f"write file {shown} ({size} bytes, mode {mode:04o})"
        case PlaceLink(target=target):
            return f"make symlink {shown} -> {show(target)}"
        case PlacePipe(mode=mode):
            return f"make FIFO {shown} (mode {mode:04o})"
        case LinkFile(source=source):
            return f"hard link {shown} to {show(source)}"
        case SetAttributes(mode=mode):
            return f"set mode {mode:04o}, attributes and time of {shown}"
        case FinishDirectory(mode=mode):
            return f"set mode {mode:04o}, attributes and time of directory {shown}"
