"""From two images to changes and back, and the validity of an image. Pure.

Fold and diff are inverses: `fold_changes(before, diff(before, after)) == after` for all valid images, times included. Folding is strict: an
event whose changes do not fit the image before it is damage, never a best effort.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from typing import overload

import msgspec

from eventlog.errors import CorruptError
from eventlog.image_tree import Directory, Draft, ImageTree
from eventlog.image_values import (
    Change,
    Entry,
    Image,
    check_entry,
    check_path,
    delete_change,
    parent_of,
    put_change,
    times_change,
)
from eventlog.show import show_path


def diff(before: Image, after: Image) -> tuple[Change, ...]:
    """The changes that turn `before` into `after`, one per differing path, in byte order of path."""
    if isinstance(before, ImageTree) and isinstance(after, ImageTree):
        return _diff_trees(before, after)
    changes = [delete_change(path) for path in before if path not in after]
    for path, entry in after.items():
        old = before.get(path)
        if old == entry:
            continue
        changes.append(_change_to(path, old, entry))
    changes.sort(key=lambda change: change.path)
    return tuple(changes)


def _change_to(path: bytes, old: Entry | None, entry: Entry) -> Change:
    if old is not None and old.has_identity_of(entry):
        return times_change(path, entry.mtime_ns)
    return put_change(path, entry)


def _diff_trees(before: ImageTree, after: ImageTree) -> tuple[Change, ...]:
    """`diff` that looks only into directories that are not shared and were not found equal before."""
    changes: list[Change] = []
    if before.root != after.root:
        changes.append(delete_change(b"") if after.root is None else _change_to(b"", before.root, after.root))
    known = before.directories.get
    pairs = [(path, known(path), directory) for path, directory in after.directories.items() if known(path) is not directory]
    for path, found, directory in pairs:
        if found is not None and (found.is_known_equal(directory) or not directory.is_copy_of(found) and found.equals(directory)):
            continue
        changes += _diff_directory(path, found, directory)
    for path in before.directories.keys() - after.directories.keys():
        changes += _diff_directory(path, before.directories[path], _NO_NAMES)
    changes.sort(key=lambda change: change.path)
    return tuple(changes)


_NO_NAMES = Directory({})


def _diff_directory(path: bytes, before: Directory | None, after: Directory) -> Iterator[Change]:
    """The changes of the names directly in the directory `path`."""
    prefix = path + b"/" if path else b""
    for name in after.list_differing(before):
        old, entry = None if before is None else before.entries.get(name), after.entries.get(name)
        if entry is None:
            if old is not None:
                yield delete_change(prefix + name)
        elif old != entry:
            yield _change_to(prefix + name, old, entry)


def is_identity_change(changes: Iterable[Change]) -> bool:
    """Whether any of the changes changes the root hash (times do not)."""
    return any(change.op != "times" for change in changes)


@overload
def fold_changes(image: ImageTree, changes: Iterable[Change]) -> ImageTree: ...
@overload
def fold_changes(image: Image, changes: Iterable[Change]) -> Image: ...
def fold_changes(image: Image, changes: Iterable[Change]) -> Image:
    """The image after `changes`: a tree from a tree, else a new dictionary; `image` stays. `CorruptError` when they do not fit it."""
    if isinstance(image, ImageTree):
        draft = Draft(image)
        fold_into(draft, changes)
        return draft.finish()
    folded = dict(image)
    fold_into(folded, changes)
    return folded


def fold_into(image: MutableMapping[bytes, Entry], changes: Iterable[Change]) -> None:
    """`fold_changes` in place, for long histories. After a `CorruptError` the dictionary is not to be used."""
    last: bytes | None = None
    closed: set[bytes] = set()
    for change in changes:
        if last is not None and change.path <= last:
            raise CorruptError(f"changes are not in byte order of path at {show_path(change.path)}")
        last = change.path
        old = image.get(change.path)
        _fold_one(image, old, change)
        if old is not None and old.kind == "d" and not _is_directory(image, change.path):
            closed.add(change.path)
    if closed:
        _check_closed(image, closed)


def _fold_one(image: MutableMapping[bytes, Entry], old: Entry | None, change: Change) -> None:
    if change.op == "put":
        _fold_put(image, change)
    elif old is None:
        raise CorruptError(f"{change.op} of {show_path(change.path)}, which is not in the image")
    elif change.entry is not None:
        raise CorruptError(f"{change.op} of {show_path(change.path)} carries an entry")
    elif change.op == "times":
        image[change.path] = msgspec.structs.replace(old, mtime_ns=change.mtime_ns)
    elif change.path == b"":
        raise CorruptError("del of the root")
    else:
        del image[change.path]


def _fold_put(image: MutableMapping[bytes, Entry], change: Change) -> None:
    path, entry = change.path, change.entry
    if entry is None:
        raise CorruptError(f"put of {show_path(path)} without an entry")
    check_path(path)
    check_entry(path, entry)
    if path == b"" and entry.kind != "d":
        raise CorruptError("the root is not a directory")
    if path and not _is_directory(image, parent_of(path)):
        raise CorruptError(f"put of {show_path(path)}, whose parent is not a directory of the image")
    image[path] = entry


def _is_directory(image: Image, path: bytes) -> bool:
    entry = image.get(path)
    return entry is not None and entry.kind == "d"


def _check_closed(image: Image, closed: set[bytes]) -> None:
    if isinstance(image, Draft):
        for path in closed:
            if image.has_names(path):
                raise CorruptError(f"names in {show_path(path)} are left without their directory")
        return
    for path in image:
        if path and parent_of(path) in closed:
            raise CorruptError(f"{show_path(path)} is left without its directory")


def check_image(image: Image) -> None:
    """`CorruptError` unless the image is whole: a root, every parent a directory, every entry well formed, every link group consistent."""
    if not _is_directory(image, b""):
        raise CorruptError("the image has no root directory")
    groups: dict[bytes, int] = {}
    for path, entry in image.items():
        check_path(path)
        check_entry(path, entry)
        if path and not _is_directory(image, parent_of(path)):
            raise CorruptError(f"{show_path(path)}: its parent is not a directory of the image")
        if entry.link is not None:
            _check_link(image, path, entry, entry.link)
            groups[entry.link] = groups.get(entry.link, 0) + 1
    for leader, count in groups.items():
        if count < 2:
            raise CorruptError(f"{show_path(leader)}: a hard-link group of one")


def _check_link(image: Image, path: bytes, entry: Entry, link: bytes) -> None:
    if link > path or image.get(link) != entry:
        raise CorruptError(f"{show_path(path)}: its hard-link group {show_path(link)} is not led by an equal entry")
