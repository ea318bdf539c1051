"""The simulated workspace: files and directories in a dictionary, and the image that a scan of it finds.

What is simulated: files with a mode, bytes and a time, and directories. What is not: links, FIFOs, attributes, owners, times of
directories (they stand still), and files that change while they are read.
"""

from typing import NamedTuple

from blake3 import blake3

from eventlog.image import Entry, ImageTree

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755


class Node(NamedTuple):
    """One path. `content` is None for a directory."""

    mode: int
    content: bytes | None = None
    mtime_ns: int = 0


def digest(content: bytes) -> bytes:
    """The name of a content: BLAKE3 of its bytes."""
    return blake3(content).digest()


class Tree:
    """The workspace. `nodes` is what is there, by path; the image is made of it when a scan asks."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, Node] = {b"": Node(DIRECTORY_MODE)}
        self.kept: dict[bytes, bytes] = {}
        self._image = ImageTree().with_paths([(b"", Entry("d", DIRECTORY_MODE))])
        self._changed: set[bytes] = set()

    def copy(self) -> "Tree":
        """The same workspace, apart from now on."""
        made = Tree.__new__(Tree)
        made.nodes, made.kept, made._image, made._changed = dict(self.nodes), dict(self.kept), self._image, set(self._changed)
        return made

    def put(self, path: bytes, node: Node) -> None:
        """Set what is at a path. OSError where that cannot be."""
        above = self.nodes.get(path.rpartition(b"/")[0])
        if above is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if above.content is not None:
            raise NotADirectoryError(20, "Not a directory", path)
        known = self.nodes.get(path)
        if known is not None and (known.content is None) != (node.content is None):
            raise IsADirectoryError(21, "Is a directory", path)
        self.nodes[path] = node
        self._changed.add(path)

    def take(self, path: bytes) -> dict[bytes, Node]:
        """Take away what is at a path with all below it; what it was, by path. FileNotFoundError where nothing is."""
        if path not in self.nodes:
            raise FileNotFoundError(2, "No such file or directory", path)
        below = path + b"/"
        gone = {one: node for one, node in self.nodes.items() if one == path or one.startswith(below)}
        for one in gone:
            del self.nodes[one]
        self._changed.update(gone)
        return gone

    def scan(self) -> ImageTree:
        """The image of what is there now; contents are kept by their names."""
        if self._changed:
            self._image = self._image.with_paths([(path, self._entry(path)) for path in self._changed])
            self._changed.clear()
        return self._image

    def _entry(self, path: bytes) -> Entry | None:
        node = self.nodes.get(path)
        if node is None:
            return None
        if node.content is None:
            return Entry("d", node.mode, mtime_ns=node.mtime_ns)
        name = digest(node.content)
        self.kept[name] = node.content
        return Entry("f", node.mode, name, len(node.content), mtime_ns=node.mtime_ns)
