"""What differs between two images, path by path, for people and programs. Pure.

`image_diff` makes the changes that turn one image into another; here both entries stand side by side. Times count as a difference.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
from blake3 import blake3

from eventlog.image import Entry, Image
from eventlog.image_values import decode_xattrs
from eventlog.show import encode_bytes, show_path
from eventlog.values import JsonBytes

What = Literal["added", "removed", "changed"]
Aspect = Literal["kind", "content", "mode", "target", "link", "xattrs", "owner", "acl", "times"]
_KINDS = {"f": "file", "d": "directory", "l": "symlink", "p": "FIFO"}


class Difference(msgspec.Struct, frozen=True):
    """One path whose entries differ; `before` or `after` is None where the path is not in that image. At least one is there."""

    path: bytes
    before: Entry | None
    after: Entry | None

    @property
    def what(self) -> What:
        """Whether the path is only in the second image, only in the first, or in both."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        """What of a changed path differs; empty for one that was added or removed."""
        if self.before is None or self.after is None:
            return ()
        return tuple(_find_aspects(self.before, self.after))


def find_differences(before: Image, after: Image) -> Iterator[Difference]:
    """Every path whose entry is not the same in both images, in byte order of path."""
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old != new:
            yield Difference(path, old, new)


def _find_aspects(before: Entry, after: Entry) -> Iterator[Aspect]:
    if before.kind != after.kind:
        yield "kind"
    if (before.content, before.size) != (after.content, after.size):
        yield "content"
    if before.mode != after.mode:
        yield "mode"
    if before.target != after.target:
        yield "target"
    if before.link != after.link:
        yield "link"
    if before.xattrs != after.xattrs:
        yield "xattrs"
    if before.owner != after.owner:
        yield "owner"
    if before.acl != after.acl:
        yield "acl"
    if before.mtime_ns != after.mtime_ns:
        yield "times"


def describe_difference(difference: Difference) -> str:
    """One line: what happened to which path, names escaped."""
    shown = show_path(difference.path)
    before, after = difference.before, difference.after
    if before is not None and after is not None:
        words = ", ".join(_describe_aspect(aspect, before, after) for aspect in difference.aspects)
        return f"changed {shown}: {words}"
    return f"{difference.what:<7} {shown}: {_describe(before or after)}"


def _describe(entry: Entry | None) -> str:
    if entry is None:
        return "nothing"
    match entry.kind:
        case "f":
            return f"file, {entry.size} bytes, mode {entry.mode:04o}"
        case "l":
            return f"symlink to {show_path(entry.target or b'')}"
        case _:
            return f"{_KINDS[entry.kind]}, mode {entry.mode:04o}"


def _describe_aspect(aspect: Aspect, before: Entry, after: Entry) -> str:
    match aspect:
        case "kind":
            return f"{_KINDS[before.kind]} -> {_KINDS[after.kind]}"
        case "content":
            return f"content {before.size} -> {after.size} bytes"
        case "mode":
            return f"mode {before.mode:04o} -> {after.mode:04o}"
        case "target":
            return f"target {_show_optional(before.target)} -> {_show_optional(after.target)}"
        case "link":
            return f"hard link {_show_optional(before.link)} -> {_show_optional(after.link)}"
        case "xattrs":
            return f"attributes {_show_names(before)} -> {_show_names(after)}"
        case "owner":
            return f"owner {_show_owner(before)} -> {_show_owner(after)}"
        case "acl":
            return f"ACL {_show_acl(before)} -> {_show_acl(after)}"
        case "times":
            return "times"


def _show_optional(value: bytes | None) -> str:
    return "none" if value is None else show_path(value)


def _show_names(entry: Entry) -> str:
    names = [show_path(name) for name, _ in decode_xattrs(entry.xattrs)]
    return " ".join(names) or "none"


def _show_owner(entry: Entry) -> str:
    return "none" if entry.owner is None else f"{entry.owner[0]}:{entry.owner[1]}"


def _show_acl(entry: Entry) -> str:
    return "none" if entry.acl is None else blake3(entry.acl).hexdigest()[:8]


def difference_json(difference: Difference) -> dict[str, object]:
    """A difference as JSON (eventlog/README, "Commands")."""
    return {
        "path": encode_bytes(difference.path),
        "what": difference.what,
        "aspects": list(difference.aspects),
        "before": _entry_json(difference.before),
        "after": _entry_json(difference.after),
    }


def _entry_json(entry: Entry | None) -> dict[str, object] | None:
    if entry is None:
        return None
    return {
        "kind": entry.kind,
        "mode": entry.mode,
        "content": None if entry.content is None else entry.content.hex(),
        "size": entry.size,
        "target": _optional_json(entry.target),
        "link": _optional_json(entry.link),
        "xattrs": [[encode_bytes(name), encode_bytes(value)] for name, value in decode_xattrs(entry.xattrs)],
        "owner": None if entry.owner is None else list(entry.owner),
        "acl": [[encode_bytes(name), encode_bytes(value)] for name, value in decode_xattrs(entry.acl)],
        "mtime_ns": entry.mtime_ns,
    }


def _optional_json(value: bytes | None) -> JsonBytes | None:
    return None if value is None else encode_bytes(value)
