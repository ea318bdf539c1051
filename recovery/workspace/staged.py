"""Which of the directories that a restore makes are filled in staging and put in place whole, by one rename instead of one a file. Pure.

A kill before that rename costs what was filled so far, as the next round begins it again; so a tree is no larger than MOST_NODES
and MOST_BYTES. Of a larger one the directories are made in their places, and those below that are small enough are filled in staging.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventlog.image import Image, parent_of

MOST_NODES = 4096
MOST_BYTES = 64 << 20


class Staged(msgspec.Struct, frozen=True):
    """The topmost directory of each staged tree with what is below it, parents first; and by each staged directory that topmost one."""

    trees: Mapping[bytes, Sequence[bytes]]
    tops: Mapping[bytes, bytes]


def choose_staged(target: Image, directories: Sequence[bytes], others: Iterable[bytes]) -> Staged:
    """Of the `directories` to be made (in byte order) those that go together with the `others`, nodes to be made with their first name."""
    placed = list(others)
    nodes, size = _measure(target, directories, placed)
    trees: dict[bytes, list[bytes]] = {}
    tops: dict[bytes, bytes] = {}
    for path in directories:
        top = tops.get(parent_of(path))
        if top is not None:
            trees[top].append(path)
        elif 1 < nodes[path] <= MOST_NODES and size[path] <= MOST_BYTES:
            top = path
            trees[top] = []
        if top is not None:
            tops[path] = top
    for path in placed:
        if (top := tops.get(parent_of(path))) is not None:
            trees[top].append(path)
    return Staged(trees, tops)


def _measure(target: Image, directories: Sequence[bytes], others: Sequence[bytes]) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Of each directory how many nodes are made with it, itself included, and the bytes of their contents."""
    nodes = dict.fromkeys(directories, 1)
    size = dict.fromkeys(directories, 0)
    for path in others:
        above = parent_of(path)
        if above in nodes:
            nodes[above] += 1
            size[above] += target[path].size
    for path in reversed(directories):  # in byte order a directory comes after the one above it
        above = parent_of(path)
        if above in nodes:
            nodes[above] += nodes[path]
            size[above] += size[path]
    return nodes, size
