"""The files that commands changed, and what of them may be on disk when the power is cut: the declared fates of each path. Pure.

Nobody sees the writes of a command: it is any program. So its files are looked at, and what has changed since the file system was last
synced has, path by path, one of these fates:

    new           as it was at the cut
    old           as it was at the last sync
    empty         there, without a byte
    zeroed        there in its size, all zeros
    prefix        its first half
    absent        not there
    undone        a rename, and what it replaced, as before it

A rename and what it replaced share one fate (`Unit`): a file system may lose both, never one; where it keeps both, what was written and not
synced may still be `empty`, `zeroed` or a `prefix` (xfs did so with a file made where another one had been moved away). What was itself
synced since it was written is never so.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class File:
    """What stands under a path: `kind` is f, d, l or p; `content` is a file's bytes or a link's target."""

    kind: str
    mode: int
    content: bytes = b""
    inode: int = 0


Tree = Mapping[str, File]
CONTENT_FATES = ("empty", "zeroed", "prefix")
FATES = ("new", "old", *CONTENT_FATES, "absent", "undone")


@dataclass(frozen=True, slots=True)
class Unit:
    """Paths that change together: one that was written or removed, or those that renames join."""

    paths: tuple[str, ...]


def find_units(old: Tree, new: Tree) -> list[Unit]:
    """What differs, in order of path. A file that stands under another path now joins both, and whatever stands where it was."""
    changed = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    joined = {path: {path} for path in changed}
    was = {entry.inode: path for path, entry in old.items() if entry.inode}
    for path, entry in sorted(new.items()):
        before = was.get(entry.inode)
        if before is not None and before != path and before in joined and path in joined:
            both = joined[before] | joined[path]
            for one in both:
                joined[one] = both
    seen: dict[tuple[str, ...], None] = {tuple(sorted(paths)): None for paths in joined.values()}
    return [Unit(paths) for paths in seen]


def list_fates(unit: Unit, old: Tree, new: Tree, synced: frozenset[int]) -> tuple[str, ...]:
    """The fates that a unit may have. `synced` are the inodes whose content was synced as it stands in `new`."""
    if len(unit.paths) > 1:
        return ("new", "undone", *(CONTENT_FATES if list_loose(unit, old, new, synced) else ()))
    (path,) = unit.paths
    entry = new.get(path)
    fates = ["new", "old"] if path in old else ["new"]
    if entry is not None and path not in old:
        fates.append("absent")
    if list_loose(unit, old, new, synced):
        fates += CONTENT_FATES
    return tuple(fates)


def list_loose(unit: Unit, old: Tree, new: Tree, synced: frozenset[int]) -> tuple[str, ...]:
    """The paths of a unit whose content in `new` may be lost while their names are kept: written, and neither synced since nor before."""
    safe = {(entry.inode, entry.content) for entry in old.values()}
    found = [(path, new[path]) for path in unit.paths if path in new]
    return tuple(path for path, one in found if _has_bytes(one) and one.inode not in synced and (one.inode, one.content) not in safe)


def _has_bytes(entry: File) -> bool:
    return entry.kind == "f" and bool(entry.content)


def choose_fates(old: Tree, new: Tree, synced: frozenset[int], draw: random.Random, sample: int) -> Iterator[dict[Unit, str]]:
    """All new; all old; each unit with each of its fates while the others are new; `sample` drawn combinations."""
    units = find_units(old, new)
    fates = {unit: list_fates(unit, old, new, synced) for unit in units}
    yield dict.fromkeys(units, "new")
    if not units:
        return
    yield {unit: next(fate for fate in ("undone", "old", "absent") if fate in fates[unit] or fate == "absent") for unit in units}
    for unit in units:
        for fate in fates[unit][1:]:
            yield {**dict.fromkeys(units, "new"), unit: fate}
    for _ in range(sample if len(units) > 1 else 0):
        yield {unit: draw.choice(fates[unit]) for unit in units}


def build_tree(old: Tree, new: Tree, chosen: Mapping[Unit, str], synced: frozenset[int] = frozenset()) -> dict[str, File]:
    """The tree with these fates; nothing stands below a directory that is not there. `synced` as for `list_fates`."""
    tree = dict(new)
    for unit, fate in chosen.items():
        loose = unit.paths if fate not in CONTENT_FATES else list_loose(unit, old, new, synced)
        for path in loose:
            _set(tree, path, _fall(old.get(path), new.get(path), fate))
    return {path: entry for path, entry in tree.items() if _has_directories(tree, path)}


def _fall(old: File | None, new: File | None, fate: str) -> File | None:
    match fate:
        case "old" | "undone":
            return old
        case "absent":
            return None
        case "empty" if new is not None:
            return replace(new, content=b"")
        case "zeroed" if new is not None:
            return replace(new, content=bytes(len(new.content)))
        case "prefix" if new is not None:
            return replace(new, content=new.content[: len(new.content) // 2])
        case _:
            return new


def _set(tree: dict[str, File], path: str, entry: File | None) -> None:
    if entry is None:
        tree.pop(path, None)
    else:
        tree[path] = entry


def _has_directories(tree: Tree, path: str) -> bool:
    above: Sequence[str] = path.split("/")[:-1]
    places = ["/".join(above[:length]) for length in range(1, len(above) + 1)]
    return all(place in tree and tree[place].kind == "d" for place in places)
