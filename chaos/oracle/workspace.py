"""Oracle `workspace-equals-log`: the tree that is there against the log's head image (I3)."""

from collections.abc import Mapping

from .blobs import BlobDamage, BlobShelf
from .differences import describe, entry_of, first_difference
from .evidence import Evidence, known
from .excludes import known_tree
from .paths import bytes_of
from .values import Change, Entry, Finding, Listing, Stream, failed, name_event, passed, unknown

UNTRACKED_KINDS = ("s", "c", "b", "m")


def judge_workspace(evidence: Evidence) -> Finding:
    """The image folded up to the head, its contents decoded from blobs, equals the workspace: names, kinds, modes, link targets,
    link groups, attributes, bytes; not times."""
    stream = evidence.stream()
    tree = known_tree(evidence)
    excused = excused_paths(stream, tree)
    image = {path: entry_of(change) for path, change in stream.fold.image.items() if path not in excused}
    found = {path: entry for path, entry in tree.items() if path not in excused}
    unproducible = broken_contents(stream.fold.image, known(evidence.log).blobs)
    path = first_difference(image, found, unproducible)
    if path is None:
        return passed(f"{len(image)} paths equal the image at seq {len(stream.events)}") if image else unknown("the image is empty")
    event = stream.event_at(stream.fold.origins.get(path, 0))
    detail = unproducible.get(path) or difference_detail(image.get(path), found.get(path))
    return failed(detail, path=path, expected=describe(image.get(path)), found=describe(found.get(path)), event=name_event(event))


def excused_paths(stream: Stream, tree: Listing) -> set[bytes]:
    """Sockets, devices and mounts of the tree that the newest `untracked` list of the log names."""
    named: set[bytes] = set()
    for event in reversed(stream.events):
        if "untracked" in event.payload:
            named = {bytes_of(item["path"]) for item in event.payload["untracked"]}
            break
    return {path for path in named if path in tree and tree[path].kind in UNTRACKED_KINDS}


def broken_contents(image: Mapping[bytes, Change], blobs: BlobShelf) -> dict[bytes, str]:
    """The files of an image whose bytes the log cannot produce, with the reason. What it gave up on record is for `checkpoints`."""
    broken: dict[bytes, str] = {}
    for path, change in image.items():
        if change.content is not None and not (change.content in blobs.given_up and change.content not in blobs.rows):
            try:
                blobs.verified_size(change.content)
            except BlobDamage as damage:
                broken[path] = f"the log cannot produce the content: {damage}"
    return broken


def difference_detail(expected: Entry | None, found: Entry | None) -> str:
    """One word on how two entries differ."""
    if found is None:
        return "missing in the tree"
    if expected is None:
        return "extra in the tree"
    names = [name for name in Entry.__dataclass_fields__ if getattr(expected, name) != getattr(found, name)]
    return "differs in " + ", ".join(names)
