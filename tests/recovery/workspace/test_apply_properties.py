"""Any drawn tree can be turned back into any other, and nothing of it is lost."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given, settings

from eventlog.image import Entry, root_hash
from recovery.workspace.actions import Displace
from tests.recovery.workspace.support import Space
from tests.trees.generate import Tree, remove, trees


@contextmanager
def fresh_space() -> Iterator[Space]:
    base = tempfile.mkdtemp(prefix="crashworthy-test-")
    made = Space(base)
    try:
        yield made
    finally:
        remove(made.root)
        remove(made.side)
        shutil.rmtree(base)


def subtree(image: dict[bytes, Entry], top: bytes) -> dict[bytes, tuple[object, ...]]:
    """What stands at and below `top`, without link groups (they may be split by a move)."""
    return {
        path: (entry.kind, entry.mode, entry.content, entry.target, entry.xattrs, entry.mtime_ns)
        for path, entry in image.items()
        if path == top or path.startswith(top + b"/")
    }


@settings(max_examples=120, deadline=None)
@given(trees(), trees())
def test_restoring_gives_the_image_times_included_and_quarantine_has_every_victim(wanted: Tree, present: Tree) -> None:
    with fresh_space() as space:
        space.replace_tree(wanted)
        target = space.snapshot()
        space.replace_tree(present)
        found = space.scan()
        plan = space.plan(target)
        applied = space.apply(plan)
        after = space.scan()
        assert after == target
        assert root_hash(after.image) == root_hash(target.image)
        assert space.plan(target).actions == ()
        quarantined = space.round_image(applied.round).image
        victims = [action.path for action in plan.actions if isinstance(action, Displace)]
        assert len(victims) == applied.displaced
        for victim in victims:
            assert subtree(quarantined, victim) == subtree(found.image, victim)
