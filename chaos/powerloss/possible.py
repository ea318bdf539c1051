"""Whether a disk that was found is one of those that the model allows at a cut: `device` and `files` say what may be there, and this asks
it of what is there. Pure.

`choose` takes a few fates for each operation out of all that are allowed; here they all count. A state that `build` or `build_tree` makes
is always possible (tests/chaos/powerloss/test_possible.py), and so is what lies between them:

- of the engine's names some pending operations are kept and the others not, each whole;
- of a file each sector (`SECTOR_BYTES`) is as some of the pending writes in it leave it, the settled ones always there, and its size is
  one that a kept, torn or zeroed write or a kept resize gives it;
- the workspace is as at one look since it was last synced, and of each path there the fate is one that it may have; a prefix may be of
  any length.

Only for traits that reorder, as STRICT does: what order forbids is not looked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.powerloss.device import ROOT, Cut, Names, Operation, Resize, Write
from chaos.powerloss.files import CONTENT_FATES, File, Tree, find_units, list_fates, list_loose

SECTOR_BYTES = 512
MOST_VALUES = 4096
"""A sector with more possible contents than that is not judged; none of the engine's files comes near it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What stands under a path of the engine's: the number of its node, None for one that nobody made; a file's bytes, None for a
    directory. `is_told`: what it holds was recorded, and is judged."""

    node: int | None
    content: bytes | None
    is_told: bool = True


class TooManyError(Exception):
    """A sector has more possible contents than are worth asking for."""


def find_impossible(cut: Cut, found: Mapping[str, Found]) -> str:
    """What of the engine's files, by path, is in no state of a cut; "" when all of them together are one."""
    strangers = [path for path, one in found.items() if one.node is None]
    if strangers:
        return f"{strangers[0]} is there, which nobody made"
    return _find_impossible_name(cut, found) or _find_impossible_content(cut, found)


# Names

Entries = Mapping[tuple[int, str], int]


def _find_impossible_name(cut: Cut, found: Mapping[str, Found]) -> str:
    entries, paths = _list_entries(found)
    reached = {ROOT, *(one.node for one in found.values() if one.content is None)}
    touched: dict[tuple[int, str], list[tuple[int, int | None]]] = {}
    for number in sorted((*cut.settled, *cut.pending)):
        one = cut.operations[number]
        for entry in one.entries if isinstance(one, Names) else ():
            if entry.directory in reached:
                touched.setdefault((entry.directory, entry.name), []).append((number, entry.node))
    for key in entries:
        touched.setdefault(key, [])
    pending = frozenset(cut.pending)
    options = {key: list(_list_ways(rows, pending, entries.get(key))) for key, rows in touched.items()}
    for (directory, name), ways in options.items():
        if not ways:
            is_there = (directory, name) in entries
            where = paths.get(entries[directory, name]) if is_there else f"{paths.get(directory, '')}/{name}".lstrip("/")
            return f"{where} {'is there' if is_there else 'is not there'}, and in no state of this cut it is"
    if not _is_solvable(sorted(options.values(), key=len), {}):
        return f"each name may be as it is, but not all of them at once: {', '.join(sorted(found)[:8])}"
    return ""


def _list_entries(found: Mapping[str, Found]) -> tuple[Entries, Mapping[int, str]]:
    nodes = {path: one.node for path, one in found.items() if one.node is not None}
    entries = {(nodes[path.rpartition("/")[0]] if "/" in path else ROOT, path.rpartition("/")[2]): node for path, node in nodes.items()}
    return entries, {node: path for path, node in nodes.items()}


def _list_ways(rows: Sequence[tuple[int, int | None]], pending: frozenset[int], wanted: int | None) -> Iterator[dict[int, bool]]:
    """Each way in which a name comes to stand for `wanted` (None: for nothing): which pending operations it takes to be kept (True) or
    lost (False). The last one that is kept decides, and a settled one always is."""
    lost: dict[int, bool] = {}
    for number, node in reversed(rows):
        if node == wanted:
            yield {**lost, number: True} if number in pending else dict(lost)
        if number not in pending:
            return
        lost[number] = False
    if wanted is None:
        yield lost


def _is_solvable(options: Sequence[Sequence[Mapping[int, bool]]], chosen: Mapping[int, bool]) -> bool:
    """Whether one way of each can be taken so that no operation is both kept and lost."""
    if not options:
        return True
    first, *others = options
    fitting = (way for way in first if all(chosen.get(number, is_kept) == is_kept for number, is_kept in way.items()))
    return any(_is_solvable(others, {**chosen, **way}) for way in fitting)


# Contents


def _find_impossible_content(cut: Cut, found: Mapping[str, Found]) -> str:
    numbers = sorted((*cut.settled, *cut.pending))
    pending = frozenset(cut.pending)
    for path, one in found.items():
        if one.content is None or not one.is_told:
            continue
        done = [(cut.operations[number], number in pending) for number in numbers]
        own = [(what, may_be_lost) for what, may_be_lost in done if isinstance(what, Write | Resize) and what.file == one.node]
        if len(one.content) not in _list_sizes(own):
            return f"{path} has {len(one.content)} bytes, and in no state of this cut so many"
        for start in range(0, len(one.content), SECTOR_BYTES):
            sector = one.content[start : start + SECTOR_BYTES]
            if not any(value.startswith(sector) for value in _list_values(own, start)):
                return f"{path} holds at byte {start} what it holds in no state of this cut"
    return ""


Done = Sequence[tuple[Operation, bool]]


def _list_sizes(own: Done) -> set[int]:
    sizes = {0}
    for one, may_be_lost in own:
        match one:
            case Write(_, offset, data):
                end = offset + len(data)
                first = (offset // SECTOR_BYTES + 1) * SECTOR_BYTES
                ends = {end, *(range(first, end, SECTOR_BYTES) if may_be_lost else ())}
                now = {max(size, one_end) for size in sizes for one_end in ends}
            case Resize(_, size):
                now = {size}
            case _:
                now = set(sizes)
        sizes = sizes | now if may_be_lost else now
    return sizes


def _list_values(own: Done, start: int) -> set[bytes]:
    """Every content that the sector of a file from the byte `start` on may have, filled up with zeros."""
    values = {bytes(SECTOR_BYTES)}
    for one, may_be_lost in own:
        match one:
            case Write(_, offset, data) if offset < start + SECTOR_BYTES and start < offset + len(data):
                begin, end = max(offset, start), min(offset + len(data), start + SECTOR_BYTES)
                part = data[begin - offset : end - offset]
                now = {value[: begin - start] + part + value[end - start :] for value in values}
            case Resize(_, size) if size < start + SECTOR_BYTES:
                kept = max(0, size - start)
                now = {value[:kept] + bytes(SECTOR_BYTES - kept) for value in values}
            case _:
                continue
        values = values | now if may_be_lost else now
        if len(values) > MOST_VALUES:
            raise TooManyError(f"more than {MOST_VALUES} contents are possible at byte {start}")
    return values


# The workspace


def find_impossible_file(old: Tree, between: Sequence[Tree], synced: frozenset[int], found: Tree) -> str:
    """The path at which the workspace is in no state of a cut: `old` when it was last synced, `between` what it was at each look since, the
    newest last. "" when it is one."""
    whys = [_compare(old, one, synced, between[-1] if between else old, found) for one in (*reversed(between), old)]
    return "" if "" in whys else whys[0]


def _compare(old: Tree, then: Tree, synced: frozenset[int], newest: Tree, found: Tree) -> str:
    """Why the workspace cannot have become this from what it was at one look."""
    units = find_units(old, then)
    changed = {path for unit in units for path in unit.paths}
    strange = sorted(path for path in {*then, *found} - changed if not _is_same(then.get(path), found.get(path), path, found))
    if strange:
        return f"{strange[0]} {'is not as it was' if strange[0] in then else 'is there'}, and nobody has touched it since the last sync"
    for unit in units:
        # What was synced by itself was so as it stands now: an earlier content of it was not.
        safe = frozenset(then[path].inode for path in unit.paths if path in then and then[path] == newest.get(path)) & synced
        fates = list_fates(unit, old, then, safe)
        loose = list_loose(unit, old, then, safe)
        pairs = [(path, old.get(path), then.get(path)) for path in unit.paths]
        if not any(all(_has_fate(fate, *pair, found, is_loose=pair[0] in loose) for pair in pairs) for fate in fates):
            return f"{', '.join(unit.paths)}: has none of the fates {', '.join(fates)}"
    return ""


def _has_fate(fate: str, path: str, old: File | None, new: File | None, found: Tree, *, is_loose: bool) -> bool:
    entry = found.get(path)
    match fate:
        case "old" | "undone":
            return _is_same(old, entry, path, found)
        case "absent":
            return entry is None
        case _ if fate in CONTENT_FATES and is_loose and new is not None and entry is not None and entry.kind == "f":
            # Zeros stand for what the disk has not got, up to the size that somebody gave the file: never beyond.
            return len(entry.content) <= len(new.content) and new.content.startswith(entry.content.rstrip(b"\0"))
        case _:
            return _is_same(new, entry, path, found)


def _is_same(one: File | None, other: File | None, path: str, found: Tree) -> bool:
    """Whether a file is as it was, its mode aside; where the directory above it is not there, neither is what was in it."""
    if one is not None and other is None:
        above = path.rpartition("/")[0]
        return bool(above) and above not in found
    return one is other or (one is not None and other is not None and (one.kind, one.content) == (other.kind, other.content))
