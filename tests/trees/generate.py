"""Trees drawn by hypothesis, as data, and their making on disk. Names are few, so that two trees drawn alike overlap and flip kinds."""

import os
import stat
from dataclasses import dataclass

from hypothesis import strategies as st

NAMES = [b"a", b"b", b"a-b", b"\xff\xfe", b"new\nline", b"-rf", b" ", b"\\", b".x.tmp"]
CONTENTS = [b"", b"one", b"two", b"x" * 70000, bytes(200000) + b"end"]
TARGETS = [b"a", b"a/b", b"nowhere", b"..", b".", b"/no/such/place", b"\xe9\n"]
FILE_MODES = [0o644, 0o600, 0o444, 0o755, 0o4755, 0o1644]
DIRECTORY_MODES = [0o755, 0o700, 0o555, 0o2775, 0o1777]
BASE_NS = 1600000000 * 10**9


@dataclass(frozen=True, slots=True)
class Node:
    """One path to make: `f` with content, `d`, `l` with target in `content`, `p`, or `h`, a further name of the file, symlink or FIFO
    `content`."""

    kind: str
    content: bytes = b""
    mode: int = 0o644
    attribute: bytes | None = None
    tick: int = 0


Tree = dict[bytes, Node]
_ticks = st.integers(0, 3)
_attributes = st.one_of(st.none(), st.just(b""), st.just(b"v\0\xff"))
_files = st.builds(Node, st.just("f"), st.sampled_from(CONTENTS), st.sampled_from(FILE_MODES), _attributes, _ticks)
_directories = st.builds(Node, st.just("d"), st.just(b""), st.sampled_from(DIRECTORY_MODES), _attributes, _ticks)
_links = st.builds(Node, st.just("l"), st.sampled_from(TARGETS), st.just(0o777), st.none(), _ticks)
_pipes = st.builds(Node, st.just("p"), st.just(b""), st.sampled_from(FILE_MODES), st.none(), _ticks)
_nodes = st.one_of(_files, _directories, _directories, _links, _pipes, st.just(Node("h")))
_paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(b"/".join)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A tree: every parent is a directory, every further name belongs to a file, symlink or FIFO."""
    tree: Tree = {b"": draw(_directories)}
    for path, node in draw(st.lists(st.tuples(_paths, _nodes), max_size=14)):
        parents = [path[:at] for at in range(len(path)) if path[at : at + 1] == b"/"]
        if path in tree or any(one in tree and tree[one].kind != "d" for one in parents):
            continue
        if node.kind == "h":
            firsts = sorted(one for one, other in tree.items() if other.kind in ("f", "l", "p"))
            if not firsts:
                continue
            node = Node("h", draw(st.sampled_from(firsts)))
        for one in parents:
            tree.setdefault(one, draw(_directories))
        tree[path] = node
    return tree


def make(root: str, tree: Tree) -> None:
    """Make the tree at `root`, an empty or missing directory; modes and times last, deepest first."""
    base = os.fsencode(root)
    os.makedirs(root, exist_ok=True)
    for path in sorted(tree, key=lambda one: (tree[one].kind == "h", one)):
        _make_node(base, path, tree[path])
    for path in sorted(tree, reverse=True):
        _finish_node(base + b"/" + path if path else base, tree[path])


def _make_node(base: bytes, path: bytes, node: Node) -> None:
    full = base + b"/" + path
    if node.kind == "f":
        with open(full, "wb") as out:
            out.write(node.content)
    elif node.kind == "d" and path:
        os.mkdir(full)
    elif node.kind == "l":
        os.symlink(node.content, full)
    elif node.kind == "p":
        os.mkfifo(full)
    elif node.kind == "h":
        os.link(base + b"/" + node.content, full, follow_symlinks=False)


def _finish_node(full: bytes, node: Node) -> None:
    if node.kind == "h":
        return
    if node.attribute is not None:
        os.setxattr(full, b"user.test", node.attribute)
    if node.kind != "l":
        os.chmod(full, node.mode)
    time_ns = BASE_NS + node.tick
    os.utime(full, ns=(time_ns, time_ns), follow_symlinks=False)


def remove(root: str) -> None:
    """Take a made tree away, whatever its modes."""
    if not os.path.lexists(root):
        return
    for top, directories, _ in os.walk(os.fsencode(root)):
        os.chmod(top, 0o700)
        for name in directories:
            if stat.S_ISDIR(os.lstat(top + b"/" + name).st_mode):
                os.chmod(top + b"/" + name, 0o700)
    for top, directories, files in os.walk(os.fsencode(root), topdown=False):
        for name in files:
            os.unlink(top + b"/" + name)
        for name in directories:
            full = top + b"/" + name
            os.unlink(full) if os.path.islink(full) else os.rmdir(full)
    os.rmdir(root)
