"""Which stretches of a restore plan two processes do together, and who of them does what. Pure.

    a stretch = staged trees that follow one another in the plan, with LEAST_WORK or more in all, none of them in a workspace yet

One process makes the directories of a stretch; the nodes in them are independent of each other, so each process makes half of those;
then the one puts the trees in their places, in the order of the plan. A kill costs what was filled of the stretch, so it is no larger
than the largest staged tree (staged.py). A plan with less in it is one process's work: a fork would cost it more than it saves.
"""

from collections.abc import Iterator, Sequence

import msgspec

from eventlog.errors import InternalError
from recovery.workspace.actions import Action, MakeDirectory, PlaceDirectory, PlaceFile, PlaceLink, PlacePipe, StageDirectory
from recovery.workspace.staged import MOST_BYTES, MOST_NODES

Node = PlaceFile | PlaceLink | PlacePipe
LEAST_WORK = 24 << 20
"""In bytes, with _BYTES_OF_A_NODE for each file, link and FIFO: some 750 small files, or 250 of 64 KiB. With less, two processes are slower
than one (benchmarks/README)."""
MOST_TREES = 32
"""Each is open until it is in its place."""
_BYTES_OF_A_NODE = 1 << 15
"""Writing so many bytes takes about as long as all else that is done for a file."""


class Tree(msgspec.Struct, frozen=True):
    """The actions of one staged tree, in their order."""

    stage: StageDirectory
    directories: tuple[MakeDirectory, ...]
    nodes: tuple[Node, ...]
    place: PlaceDirectory


Part = tuple[int, tuple[Node, ...]]
"""The number of a tree of a stretch, and nodes to be made in it."""


def cut_stretches(actions: Sequence[Action]) -> Iterator[Action | tuple[Tree, ...]]:
    """The actions in their order, those of each stretch together."""
    held: list[Tree] = []
    place = 0
    while place < len(actions):
        end = _end_of_tree(actions, place)
        if end == place:
            yield from _let_go(held)
            held = []
            yield actions[place]
            place += 1
            continue
        tree = _to_tree(actions[place:end])
        if held and not _fits([*held, tree]):
            yield from _let_go(held)
            held = []
        held.append(tree)
        place = end
    yield from _let_go(held)


def _end_of_tree(actions: Sequence[Action], place: int) -> int:
    """Where the staged tree that begins at `place` ends; `place` where none does."""
    first = actions[place]
    if not isinstance(first, StageDirectory):
        return place
    while not isinstance(actions[place], PlaceDirectory):
        place += 1
    return place + 1


def _to_tree(actions: Sequence[Action]) -> Tree:
    stage, place = actions[0], actions[-1]
    if not (isinstance(stage, StageDirectory) and isinstance(place, PlaceDirectory)):
        raise InternalError(f"a staged tree goes from {type(stage).__name__} to {type(place).__name__}")
    directories = tuple(action for action in actions if isinstance(action, MakeDirectory))
    nodes = tuple(action for action in actions if isinstance(action, PlaceFile | PlaceLink | PlacePipe))
    return Tree(stage, directories, nodes, place)


def _fits(trees: Sequence[Tree]) -> bool:
    nodes = sum(1 + len(tree.directories) + len(tree.nodes) for tree in trees)
    size = sum(_size_of(node) for tree in trees for node in tree.nodes)
    return len(trees) <= MOST_TREES and nodes <= MOST_NODES and size <= MOST_BYTES


def _let_go(trees: Sequence[Tree]) -> Iterator[Action | tuple[Tree, ...]]:
    if sum(_work_of(node) for tree in trees for node in tree.nodes) >= LEAST_WORK:
        yield tuple(trees)
        return
    for tree in trees:
        yield tree.stage
        yield from tree.directories
        yield from tree.nodes
        yield tree.place


def deal(trees: Sequence[Tree]) -> tuple[list[Part], list[Part]]:
    """Two halves of about the same work, each in the order of the plan, which is that of the pack: each process reads its half of it from
    front to back. The first half is never the smaller one in number where all are alike."""
    left = sum(_work_of(node) for tree in trees for node in tree.nodes) / 2
    halves: tuple[list[Part], list[Part]] = ([], [])
    for number, tree in enumerate(trees):
        cut = 0
        while cut < len(tree.nodes) and left > 0:
            left -= _work_of(tree.nodes[cut])
            cut += 1
        for half, nodes in zip(halves, (tree.nodes[:cut], tree.nodes[cut:]), strict=True):
            if nodes:
                half.append((number, nodes))
    return halves


def _size_of(node: Node) -> int:
    return node.size if isinstance(node, PlaceFile) else 0


def _work_of(node: Node) -> int:
    return _BYTES_OF_A_NODE + _size_of(node)
