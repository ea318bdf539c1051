"""What lay in quarantine and lies there no more as it did. Pure.

Listings are those of the oracle (`chaos/oracle/listing_json.py`). `link` names a group of hard links by its first path in that listing, so
that one which comes later, the other half of a pair whose displacement a crash had cut, gives a group to who was alone, or another name:
that takes nothing from anybody. Who was linked with whom must stay so.
"""

from chaos.played import Listing


def find_unkept(kept: Listing, final: Listing) -> str:
    """The first path of `kept`, directories apart, that `final` has no more as it was; "" when all is there."""
    groups: dict[str, str] = {}
    for path, entry in sorted(kept.items()):
        now = final.get(path)
        if entry.get("kind") == "d":
            continue
        if now is None or {**now, "link": None} != {**entry, "link": None}:
            return path
        group = entry.get("link")
        if group and groups.setdefault(group, now.get("link") or path) != now.get("link"):
            return path
    return ""
