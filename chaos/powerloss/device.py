"""What a disk may hold after the power was cut: from the operations that were issued to it, every legal state. Pure.

The model. A disk is files (bytes) and directories (names). Data operations (`Write`, `Resize`) belong to one file, name operations
(`Names`) to the directories whose entries they set, all of them at once. An operation is *settled* when a sync that began after it and
ended before the cut covers it: a file's sync its data, a directory's its names, a file system's all of both. Everything else that was
issued is *pending*: it has one `Fate` each.

What must hold (tests/chaos/powerloss/test_device.py): a settled operation is in every state; one that was not issued is in none; with
every fate KEPT the state is what the operations say, with none pending there is exactly one state; fates that the traits do not allow
are never chosen.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

ROOT = 0
"""The directory in which all others lie. It exists from the beginning."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a device and its file system may do with what was not synced.

    `reorders`: writes reach the disk in any order; else in the order issued. `grains`: a write may be torn at multiples of these many
    bytes of the file, () where each is whole. `zeroes`: a file may have its new size while the data is zero. `orders_names`: name
    operations reach the disk in the order issued (a journal), else in any. `syncs_name`: the sync of a file makes its name durable.
    """

    reorders: bool = True
    grains: tuple[int, ...] = (512, 4096)
    zeroes: bool = True
    orders_names: bool = False
    syncs_name: bool = False


STRICT = Traits()
"""No more than POSIX says: an engine that survives this survives the others."""
JOURNALLED = Traits(grains=(4096,), zeroes=False, orders_names=True, syncs_name=True)
"""ext4 with data=ordered, xfs and btrfs as they are mounted everywhere."""
DEVICES: Mapping[str, Traits] = {"strict": STRICT, "journalled": JOURNALLED}


@dataclass(frozen=True, slots=True)
class Write:
    """`data` was written into `file` at `offset`."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """`file` got `size` bytes: cut there, or filled up with zeros."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory, and what it stands for now: a file, a directory, or nothing (None)."""

    directory: int
    name: str
    node: int | None


@dataclass(frozen=True, slots=True)
class Names:
    """Entries set at once: one for a creation or a removal, two for a rename."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """A sync of a file or a directory has ended. It covers what was issued before the operation number `begun`."""

    node: int
    begun: int


@dataclass(frozen=True, slots=True)
class SyncAll:
    """A sync of the whole file system has ended, begun likewise."""

    begun: int


Operation = Write | Resize | Names | Sync | SyncAll


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one pending operation.

    `kept` and `dropped` say themselves. `head` and `tail`: of a write only the part before, or from, the byte `at` of the file reached
    the disk. `zeroed`: the file has the size that the write gave it, and zeros where its data would be.
    """

    kind: str
    at: int = 0


KEPT, DROPPED, ZEROED = Fate("kept"), Fate("dropped"), Fate("zeroed")
Choice = tuple[Fate, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """The operations of a run up to a cut, sorted: numbers of `operations` that are settled, and that are pending, each in order."""

    operations: Sequence[Operation]
    settled: tuple[int, ...]
    pending: tuple[int, ...]


@dataclass(slots=True)
class State:
    """What a disk holds: each file's bytes, and each directory's names."""

    files: dict[int, bytes] = field(default_factory=dict)
    directories: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})

    def list_paths(self, is_directory: Mapping[int, bool]) -> dict[str, bytes | None]:
        """By path what can be reached from the root: a file's bytes, None for a directory."""
        found: dict[str, bytes | None] = {}
        stack = [("", ROOT)]
        while stack:
            above, directory = stack.pop()
            for name, node in sorted(self.directories.get(directory, {}).items()):
                path = f"{above}{name}"
                if is_directory[node]:
                    found[path] = None
                    stack.append((f"{path}/", node))
                else:
                    found[path] = self.files.get(node, b"")
        return found


def cut_after(operations: Sequence[Operation], count: int, traits: Traits) -> Cut:
    """The power is cut when the first `count` operations have been issued."""
    issued = operations[:count]
    reach: dict[int, int] = {}
    everything = 0
    for one in issued:
        match one:
            case Sync(node, begun):
                reach[node] = max(reach.get(node, 0), begun)
            case SyncAll(begun):
                everything = max(everything, begun)
            case _:
                pass
    nameless = _find_nameless(issued, everything, reach, traits)
    settled: list[int] = []
    pending: list[int] = []
    for number, one in enumerate(issued):
        if isinstance(one, Sync | SyncAll) or (isinstance(one, Write | Resize) and one.file in nameless):
            continue
        (settled if number < everything or number < _reach_of(one, reach, traits) else pending).append(number)
    if traits.orders_names:  # a journal commits what came before as well
        last = max((number for number in settled if isinstance(issued[number], Names)), default=-1)
        early = [number for number in pending if number < last and isinstance(issued[number], Names)]
        settled, pending = sorted(settled + early), [number for number in pending if number not in early]
    return Cut(operations, tuple(settled), tuple(pending))


def _find_nameless(issued: Sequence[Operation], everything: int, reach: Mapping[int, int], traits: Traits) -> frozenset[int]:
    """The files whose last name was taken away for good: what was written in them is in no state."""
    names: dict[tuple[int, str], set[int]] = {}
    for number, one in enumerate(issued):
        if isinstance(one, Names):
            is_settled = number < max(everything, _reach_of(one, reach, traits))
            for entry in one.entries:
                standing = names.setdefault((entry.directory, entry.name), set())
                if is_settled:
                    standing.clear()
                standing.update([] if entry.node is None else [entry.node])
    named = {node for standing in names.values() for node in standing}
    ever = {entry.node for one in issued if isinstance(one, Names) for entry in one.entries if entry.node is not None}
    return frozenset(ever - named)


def _reach_of(one: Operation, reach: Mapping[int, int], traits: Traits) -> int:
    match one:
        case Write(file) | Resize(file):
            return reach.get(file, 0)
        case Names(entries):
            nodes = [entry.directory for entry in entries]
            if traits.syncs_name:
                nodes += [entry.node for entry in entries if entry.node is not None]
            return max(reach.get(node, 0) for node in nodes)
        case _:
            return 0


def choose(cut: Cut, traits: Traits, draw: random.Random, sample: int) -> Iterator[Choice]:
    """Fates for the pending operations of a cut: every prefix of them kept, every single one left out, every single one torn or zeroed
    while the others are kept or the later ones lost, and `sample` drawn ones. May repeat itself; `build` tells which are equal."""
    pending = [cut.operations[number] for number in cut.pending]
    count = len(pending)
    for kept in range(count, -1, -1):
        yield (KEPT,) * kept + (DROPPED,) * (count - kept)
    partial = [list_partial(cut, number, traits) for number in range(count)]
    for number in range(count):
        alone = (DROPPED, *partial[number]) if _may_drop_alone(pending[number], traits) else ()
        for fate in alone:
            yield _legal(pending, [fate if other == number else KEPT for other in range(count)], traits)
        for fate in partial[number]:
            yield _legal(pending, [KEPT] * number + [fate] + [DROPPED] * (count - number - 1), traits)
    for _ in range(sample if count > 1 else 0):
        drawn = [draw.choice((KEPT, KEPT, DROPPED, DROPPED, *partial[number][:8])) for number in range(count)]
        yield _legal(pending, drawn, traits)


def _may_drop_alone(one: Operation, traits: Traits) -> bool:
    return not traits.orders_names if isinstance(one, Names) else traits.reorders


def _legal(pending: Sequence[Operation], fates: list[Fate], traits: Traits) -> Choice:
    """The nearest choice that the traits allow: where order is kept, nothing is kept after what was lost."""
    names_lost = data_lost = False
    for number, one in enumerate(pending):
        if isinstance(one, Names):
            if names_lost and traits.orders_names:
                fates[number] = DROPPED
            names_lost = names_lost or fates[number] == DROPPED
        else:
            if data_lost and not traits.reorders:
                fates[number] = DROPPED
            data_lost = data_lost or fates[number] != KEPT
    return tuple(fates)


def list_partial(cut: Cut, index: int, traits: Traits) -> tuple[Fate, ...]:
    """How the pending operation at `index` may be done in part: torn in its middle, at its first and at its last border of each grain;
    zeroed, where it makes the file larger."""
    one = cut.operations[cut.pending[index]]
    if not isinstance(one, Write) or not one.data:
        return ()
    begin, end = one.offset, one.offset + len(one.data)
    fates: dict[Fate, None] = {}
    for grain in traits.grains:
        first, last = (begin // grain + 1) * grain, (end - 1) // grain * grain
        middle = (begin + end) // 2 // grain * grain
        for border in (middle, first, last):
            if begin < border < end:
                fates[Fate("head", border)] = None
                if traits.reorders:
                    fates[Fate("tail", border)] = None
    if traits.zeroes:
        fates[ZEROED] = None
    return tuple(fates)


def build(cut: Cut, choice: Choice) -> State:
    """The state that the fates of a choice leave, in the order in which the operations were issued."""
    state = State()
    contents: dict[int, bytearray] = {}
    fates = dict(zip(cut.pending, choice, strict=True))
    for number in sorted((*cut.settled, *cut.pending)):
        _apply(state, contents, cut.operations[number], fates.get(number, KEPT))
    state.files = {file: bytes(content) for file, content in contents.items()}
    return state


def _apply(state: State, contents: dict[int, bytearray], one: Operation, fate: Fate) -> None:
    if fate == DROPPED:
        return
    match one:
        case Names(entries):
            for entry in entries:
                names = state.directories.setdefault(entry.directory, {})
                if entry.node is None:
                    names.pop(entry.name, None)
                else:
                    names[entry.name] = entry.node
        case Resize(file, size):
            content = contents.setdefault(file, bytearray())
            content[size:] = bytes(max(0, size - len(content)))
        case Write(file, offset, data):
            content = contents.setdefault(file, bytearray())
            begin, end = _part_of(offset, len(data), fate)
            size = offset + len(data) if fate == ZEROED else end
            if size > len(content):
                content.extend(bytes(size - len(content)))
            if begin < end:
                content[begin:end] = data[begin - offset : end - offset]
        case _:
            pass


def _part_of(offset: int, size: int, fate: Fate) -> tuple[int, int]:
    """From which to which byte of the file the data of a write is there."""
    if fate == ZEROED:
        return offset, offset
    return {"head": (offset, fate.at), "tail": (fate.at, offset + size)}.get(fate.kind, (offset, offset + size))
