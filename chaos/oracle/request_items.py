"""What a judge request says of single things the runner did or saw, one value each; `request.py` has the table of the fields.

Paths in them are escaped (`paths.py`), contents are hex digests, listings are those of `list`. Readers raise TypeError, ValueError,
KeyError or AttributeError for what is none; keys they do not know are let through.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .listing_json import listing_from_json
from .paths import is_valid_path, unescape_path
from .values import Listing

HASH_SIZE = 32
KINDS = ("f", "d", "l", "p")


@dataclass(frozen=True, slots=True)
class Edit:
    """What somebody else did to one path: wrote a file with `content`, made something of another `kind` (a symlink with `target`) of it, or
    removed what was there (a file without content), when the log's newest event was `head` (None: not known)."""

    path: bytes
    content: bytes | None
    head: int | None = None
    kind: str = "f"
    target: bytes | None = None

    @property
    def is_removal(self) -> bool:
        """Whether nothing stood at the path afterwards."""
        return self.kind == "f" and self.content is None


@dataclass(frozen=True, slots=True)
class Seen:
    """What stood at a path before a driver was started, and does not at the end: its kind, a file's content, a symlink's target."""

    path: bytes
    kind: str
    content: bytes | None
    target: bytes | None


@dataclass(frozen=True, slots=True)
class Woken:
    """What the runner saw around the wake of a frozen process of `epoch`: the workspace and the log's head before it and after its end."""

    epoch: int
    listing_before: Listing
    listing_after: Listing
    head_before: int
    head_after: int


def number(value: Any) -> int:
    """An integer."""
    if type(value) is not int:
        raise TypeError("no integer")
    return value


def content_name(value: Any) -> bytes:
    """A BLAKE3 digest in hex."""
    name = bytes.fromhex(value)
    if len(name) != HASH_SIZE:
        raise ValueError(f"no digest of {HASH_SIZE} bytes")
    return name


def tree_path(value: Any) -> bytes:
    """An escaped path of the workspace."""
    path = unescape_path(value)
    if not is_valid_path(path):
        raise ValueError(f"no path in the workspace: {value!r:.80}")
    return path


def edit_from_json(value: Mapping[str, Any]) -> Edit:
    """`{"path", "content": hex or null, "head": seq or null, "kind", "target"}`; all but the first two may be left out. `kind` is as in a
    listing, `f` when left out."""
    content, head, kind, target = value["content"], value.get("head"), value.get("kind", "f"), value.get("target")
    if kind not in KINDS or (kind != "f" and content is not None) or (kind == "l") != (target is not None):
        raise ValueError(f"no kind of edit: {kind!r} with content {content!r:.80} and target {target!r:.80}")
    return Edit(
        tree_path(value["path"]),
        None if content is None else content_name(content),
        None if head is None else number(head),
        kind,
        None if target is None else unescape_path(target),
    )


def seen_from_json(value: Mapping[str, Any]) -> Seen:
    """`{"path", "kind", "content", "target"}` as in a listing: a file (also when `kind` is left out) has `content`, a symlink `target`."""
    kind = value.get("kind", "f")
    content = content_name(value["content"]) if kind == "f" else None
    return Seen(tree_path(value["path"]), kind, content, unescape_path(value["target"]) if kind == "l" else None)


def woken_from_json(value: Mapping[str, Any]) -> Woken:
    """`{"epoch", "listing_before", "listing_after", "head_before", "head_after"}`."""
    return Woken(
        number(value["epoch"]),
        listing_from_json(value["listing_before"]),
        listing_from_json(value["listing_after"]),
        number(value["head_before"]),
        number(value["head_after"]),
    )


def final_parts_from_json(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """`final_parts` as an answer has it, with the other run's `listing` in it if somebody took that too."""
    if not isinstance(value["tree"], str):
        raise TypeError("tree is no string")
    calls = [{**call, "index": number(call["index"]), "ended": str(call["ended"])} for call in value["calls"]]
    listing = value.get("listing")
    return {"tree": value["tree"], "calls": calls, "listing": None if listing is None else listing_from_json(listing)}
