"""From the record of a run to what a device was asked to do, and to the moments at which its power may be cut. Pure.

Names (files made, renamed, removed) are known by looking: each event holds what its look found changed, so a directory that nobody
announced is there too. Bytes are known by what was announced; `find_strange` compares what they come to with what was found at the
end. A sync covers what stands in the record before it began.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chaos.powerloss.device import ROOT, Entry, Names, Operation, Resize, Sync, SyncAll, Write
from chaos.powerloss.events import Event, Look
from chaos.powerloss.files import File, Tree
from chaos.powerloss.recorder import is_logged, is_looked_at

MARK = "cut"
END = "end"


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant at which the power may be cut: `issued` operations of the device had begun, `output` and `witness` bytes had been written
    by the driver and by commands, `old` and `new` are the workspace as it was last synced and as it was, `synced` the inodes whose
    content was synced by itself; `between` what the workspace was at each look since the last sync, the newest last."""

    name: str
    issued: int
    output: int
    witness: int
    old: Tree
    new: Tree
    synced: frozenset[int]
    between: tuple[Tree, ...] = ()


@dataclass(slots=True)
class History:
    """A whole run. `words` say of each operation what it was, `points` counts the syncs by their name, `modes` are those of files and
    directories by node, `nodes` their numbers by what the recorder knows them by."""

    operations: list[Operation] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    points: dict[str, int] = field(default_factory=dict)
    is_directory: dict[int, bool] = field(default_factory=dict)
    modes: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)


def read_history(events: Iterable[Event], without: str = "") -> History:
    """Fold the events of a run in their order. What stood on the disk before the first of them is taken to be on disk. Syncs of the point
    `without` cover nothing: so the disk would be of an engine that has no such sync, and does all else as it did."""
    fold = _Fold(without)
    last = None
    for last in events:
        fold.take(last)
    if last is not None:
        fold.finish(last.output, last.witness)
    return fold.history


def file_of(look: Look, contents: dict[bytes, bytes]) -> File:
    """What was seen under a path of the workspace; `contents` are those told so far, by digest, and it adds its own."""
    if look.content is not None:
        contents[look.digest] = look.content
    return File(look.kind, look.mode, contents.get(look.digest, b""), look.inode)


class _Fold:
    def __init__(self, without: str = "") -> None:
        self._without = without
        self.history = History()
        self._paths: dict[str, int] = {}
        self._nodes = self.history.nodes
        self._entries: dict[tuple[int, str], int] = {}
        self._tree: dict[str, File] = {}
        self._old: Tree = {}
        self._between: tuple[Tree, ...] = ()
        self._synced: frozenset[int] = frozenset()
        self._contents: dict[bytes, bytes] = {}
        self._begun: dict[tuple[str, str, str], tuple[int, Tree, tuple[Tree, ...]]] = {}
        self._counts: dict[str, int] = {}
        self._is_one_write = False

    def take(self, event: Event) -> None:
        self._take_look(event)
        if event.kind == "look":
            self._begin_with(event)
        elif event.is_end:
            self._end(event)
        else:
            self._begin(event)

    def _begin_with(self, event: Event) -> None:
        """What was there from the beginning: durable, contents and all."""
        for path, look in event.changed.items():
            if is_logged(path) and look.content:
                self._issue(Write(self._nodes[look.inode], 0, look.content), f"what {path} held")
        self._issue(SyncAll(len(self.history.operations)), "the beginning")
        self._old, self._between = self._tree, ()

    # Looking

    def _take_look(self, event: Event) -> None:
        logged = {path: look for path, look in event.changed.items() if is_logged(path) and look.kind in "fd"}
        gone = [path for path in event.removed if path in self._paths]
        if logged or gone:
            for path in gone:
                del self._paths[path]
            for path, look in logged.items():
                self._paths[path] = look.inode
                node = self._nodes.setdefault(look.inode, len(self._nodes) + 1)
                self.history.is_directory[node] = look.kind == "d"
                self.history.modes[node] = look.mode
            self._tell_names()
        seen = {path: look for path, look in event.changed.items() if is_looked_at(path) and look.kind in "fdlp"}
        lost = [path for path in event.removed if path in self._tree]
        if seen or lost:
            tree = {path: entry for path, entry in self._tree.items() if path not in lost}
            tree.update({path: file_of(look, self._contents) for path, look in seen.items()})
            before = self._tree
            self._tree = tree
            self._between = (*self._between, tree)
            changed = {tree[path].inode for path in seen if before.get(path) != tree[path]}
            self._synced -= changed

    def _tell_names(self) -> None:
        """The entries that differ from those told before, as operations: renames whole, then what is new, then what is gone."""
        entries = {self._key_of(path): self._nodes[inode] for path, inode in sorted(self._paths.items())}
        before, self._entries = self._entries, entries
        new = {key: node for key, node in entries.items() if before.get(key) != node}
        gone = {key: node for key, node in before.items() if key not in entries}
        for key, node in new.items():
            left = [one for one, other in gone.items() if other == node]
            for one in left:
                del gone[one]
            self._issue(Names((*(Entry(*one, None) for one in left), Entry(*key, node))), f"the name {key[1]}")
        for key in gone:
            self._issue(Names((Entry(*key, None),)), f"the end of the name {key[1]}")

    def _issue(self, operation: Operation, words: str) -> None:
        self.history.operations.append(operation)
        self.history.words.append(words)

    def _key_of(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        return (self._nodes[self._paths[above]] if above else ROOT), name

    def _node_at(self, path: str) -> int | None:
        inode = self._paths.get(path)
        return ROOT if not path else None if inode is None else self._nodes[inode]

    # Doing

    def _begin(self, event: Event) -> None:
        if event.kind in ("sync", "syncfs"):
            self._begun[event.who, event.kind, event.path] = (len(self.history.operations), self._tree, self._between)
        elif event.kind in ("write", "truncate") and is_logged(event.path) and not event.path.endswith(" (deleted)"):
            node = self._node_at(event.path)
            if node is None:
                self.history.trouble.append(f"{event.path} was written and never seen")
            elif event.kind == "truncate":
                self._issue(Resize(node, event.offset), f"{event.path} cut to {event.offset}")
            elif event.data:
                self._issue(Write(node, event.offset, event.data), f"{len(event.data)} bytes at {event.offset} of {event.path}")
        if is_logged(event.path) or is_looked_at(event.path) or not event.path:
            self._add_moment(event)

    def _add_moment(self, event: Event) -> None:
        name = f"{event.who.replace('@0', '@1')}:{MARK}.{event.kind}.{event.point}"
        self._counts[name] = self._counts.get(name, 0) + 1
        moment = self._moment(f"{name}:{self._counts[name]}", event.output, event.witness)
        if self._is_one_write and self._says_no_more(self.history.moments[-1], moment):
            self.history.moments.pop()
        self._is_one_write = event.kind == "write"
        self.history.moments.append(moment)

    def _says_no_more(self, one: Moment, later: Moment) -> bool:
        """Whether the disk of a cut may hold nothing but what it may hold at a later one, where more is pending and nothing more was said,
        noted or synced: the cut at a write before another one."""
        between = self.history.operations[one.issued : later.issued]
        same = (one.output, one.witness, one.synced) == (later.output, later.witness, later.synced)
        return same and one.old is later.old and one.new is later.new and not any(isinstance(done, Sync | SyncAll) for done in between)

    def _moment(self, name: str, output: int, witness: int) -> Moment:
        return Moment(name, len(self.history.operations), output, witness, self._old, self._tree, self._synced, self._between)

    def _end(self, event: Event) -> None:
        begun = self._begun.pop((event.who, event.kind, event.path), None)
        if event.kind not in ("sync", "syncfs"):
            return
        if begun is None:
            self.history.trouble.append(f"the sync {event.point} ended and never began")
            return
        number, tree, before = begun
        self.history.points[event.point] = self.history.points.get(event.point, 0) + 1
        if event.point == self._without:
            self._issue(SyncAll(0), f"{event.point}, which covers nothing")
        elif is_looked_at(event.path):
            if event.kind == "syncfs":
                self._old = tree
                self._between = tuple(one for one in self._between if not any(one is other for other in before))
            elif event.path in tree and tree[event.path] == self._tree.get(event.path):
                self._synced |= {tree[event.path].inode}
        elif event.kind == "syncfs":
            self._issue(SyncAll(number), event.point)
        elif (node := self._node_at(event.path)) is not None:
            self._issue(Sync(node, number), event.point)

    def finish(self, output: int, witness: int) -> None:
        """The last moment: everything has been done."""
        self.history.moments.append(self._moment(f"driver@1:{MARK}.{END}:1", output, witness))


def find_strange(built: Mapping[str, bytes | None], found: Mapping[str, bytes | None]) -> list[str]:
    """The paths at which what the operations come to and what was found at the end are different: something was not recorded."""
    return sorted(path for path in {*built, *found} if built.get(path, 0) != found.get(path, 0))
