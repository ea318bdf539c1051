"""Oracle `convergence`: the session ended in the state another run of it ended in, however often recovery was killed on the way (I12)."""

from collections.abc import Iterator, Mapping
from typing import Any

from .differences import describe, first_difference
from .evidence import Evidence
from .excludes import known_tree, tracked
from .final import NOT_STARTED, FinalParts, final_digest, final_parts
from .values import Finding, Listing, failed, name_event, passed, unknown
from .workspace import difference_detail

SHORT = 12


def judge_convergence(evidence: Evidence) -> Finding | None:
    """The final state's digest is the one that the request names. Left out when it names none."""
    wanted, wanted_parts = evidence.request.converges_to, evidence.request.converges_to_parts
    if wanted is None:
        return None
    if wanted_parts is not None and final_digest(wanted_parts) != wanted:
        return unknown("converges_to_parts are not the parts of converges_to")
    parts = final_parts(evidence)
    found = final_digest(parts)
    if found == wanted:
        return passed(f"the final state is {found[:SHORT]}, that of the run compared with")
    path = first_path(wanted_parts, evidence)
    why = "; ".join(differences(wanted_parts, parts, evidence, path)) if wanted_parts is not None else "its parts were not given"
    event = None if path is None else evidence.stream().event_at(evidence.stream().fold.origins.get(path, 0))
    return failed(f"another final state: {why}", path=path, expected=wanted, found=found, event=name_event(event))


def listing_of(wanted: FinalParts | None, evidence: Evidence) -> Listing | None:
    """What the other run's tree is the digest of, when its listing was given too."""
    listing: Listing | None = None if wanted is None else wanted.get("listing")
    return None if listing is None else tracked(evidence, listing)


def first_path(wanted: FinalParts | None, evidence: Evidence) -> bytes | None:
    """The first path at which the trees differ, when the other run's listing was given."""
    listing = listing_of(wanted, evidence)
    return None if listing is None else first_difference(listing, known_tree(evidence))


def differences(wanted: FinalParts, found: FinalParts, evidence: Evidence, path: bytes | None) -> Iterator[str]:
    """What differs, a few words each: the tree, then call by call."""
    if wanted["tree"] != found["tree"]:
        yield "the tree differs" + tree_words(listing_of(wanted, evidence), known_tree(evidence), path)
    ends = {call["index"]: call for call in wanted["calls"]}
    for call in found["calls"]:
        yield from call_differences(ends.pop(call["index"], {"ended": NOT_STARTED}), call)
    for call in ends.values():
        yield f"script call {call['index']} is not of this session"


def tree_words(listing: Listing | None, tree: Listing, path: bytes | None) -> str:
    """How the two trees differ at their first differing path; "" when that is not known."""
    if listing is None or path is None:
        return ""
    wanted, found = listing.get(path), tree.get(path)
    return f" ({difference_detail(wanted, found)}: {describe(found)} instead of {describe(wanted)})"


def call_differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """How the ends of one script call differ."""
    name = f"script call {found['index']}"
    if wanted["ended"] != found["ended"]:
        yield f"{name} ended {found['ended']} instead of {wanted['ended']}"
        return
    if wanted.get("exit") != found["exit"]:
        yield f"{name} has exit {found['exit']} instead of {wanted.get('exit')}"
    if wanted.get("output") != found["output"]:
        yield f"{name} has another output"
