"""Listings as JSON: `{escaped path: {"kind", "mode", "content", "size", "target", "link", "xattrs", "owner", "acl"}}`.

`content`, `xattrs` and `acl` are hex digests, `owner` is [uid, gid]; `target` and `link` are escaped like paths; what does not apply is
null.
"""

from collections.abc import Mapping
from typing import Any

from .paths import escape_path, unescape_path
from .values import Entry, Listing


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """The JSON object of an entry."""
    return {
        "kind": entry.kind,
        "mode": entry.mode,
        "content": None if entry.content is None else entry.content.hex(),
        "size": entry.size,
        "target": None if entry.target is None else escape_path(entry.target),
        "link": None if entry.link is None else escape_path(entry.link),
        "xattrs": None if entry.xattrs is None else entry.xattrs.hex(),
        "owner": None if entry.owner is None else list(entry.owner),
        "acl": None if entry.acl is None else entry.acl.hex(),
    }


def entry_from_json(value: Mapping[str, Any]) -> Entry:
    """The entry `entry_to_json` made `value` of."""
    return Entry(
        kind=value["kind"],
        mode=value["mode"],
        content=None if value["content"] is None else bytes.fromhex(value["content"]),
        size=value["size"],
        target=None if value["target"] is None else unescape_path(value["target"]),
        link=None if value["link"] is None else unescape_path(value["link"]),
        xattrs=None if value["xattrs"] is None else bytes.fromhex(value["xattrs"]),
        owner=None if value.get("owner") is None else (value["owner"][0], value["owner"][1]),
        acl=None if value.get("acl") is None else bytes.fromhex(value["acl"]),
    )


def listing_to_json(listing: Listing) -> dict[str, dict[str, Any]]:
    """The JSON object of a listing, in byte order of path."""
    return {escape_path(path): entry_to_json(listing[path]) for path in sorted(listing)}


def listing_from_json(value: Mapping[str, Mapping[str, Any]]) -> Listing:
    """The listing `listing_to_json` made `value` of."""
    return {unescape_path(path): entry_from_json(entry) for path, entry in value.items()}
