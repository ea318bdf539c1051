"""Oracle `reference`: the tree that is there against the end of a plain run that nobody interrupted.

What somebody else edited is no business of the plain run: those paths are left out here, and `edits` judges them.
"""

from collections.abc import Iterable, Mapping

from .differences import describe, first_difference
from .evidence import Evidence
from .excludes import known_tree, tracked
from .paths import ancestors_of, parent_of
from .request_items import Edit
from .values import Finding, Listing, failed, passed, unknown
from .workspace import difference_detail


def judge_reference(evidence: Evidence) -> Finding | None:
    """The workspace equals the end of a plain uninterrupted run, the root's mode included. Left out without a reference, and when
    interrupted calls are not issued again."""
    reference = evidence.request.reference
    if reference is None or evidence.request.on_interrupted != "reissue":
        return None
    if not reference:
        return unknown("the reference listing is empty")
    tree, reference = known_tree(evidence), tracked(evidence, reference)
    omitted = edited_paths(evidence.request.edits or (), reference, tree)
    wanted, found = without(reference, omitted), without(tree, omitted)
    path = first_difference(wanted, found)
    if path is not None:
        wanted_there, found_there = wanted.get(path), found.get(path)
        detail = difference_detail(wanted_there, found_there)
        return failed(detail, path=path, expected=describe(wanted_there), found=describe(found_there))
    if not wanted:
        return unknown("every path of the reference run was edited")
    left_out = f"; {len(omitted)} paths left out for {len(evidence.request.edits)} edits" if evidence.request.edits else ""
    return passed(f"{len(wanted)} paths equal the reference run's{left_out}")


def without(listing: Listing, omitted: set[bytes]) -> Listing:
    """The listing without these paths."""
    return {path: entry for path, entry in listing.items() if path not in omitted}


def edited_paths(edits: Iterable[Edit], reference: Listing, tree: Listing) -> set[bytes]:
    """The paths of either listing that edits account for: edited ones, all below them, further names of the same file, and directories
    that are there for edited paths only."""
    edited = {edit.path for edit in edits}
    if not edited:
        return set()
    edited |= {path for listing in (reference, tree) for group in link_groups(listing).values() if group & edited for path in group}
    omitted = {path for path in reference.keys() | tree.keys() if edited.intersection((path, *ancestors_of(path)))}
    return omitted | made_directories(edited, omitted, reference, tree)


def link_groups(listing: Listing) -> Mapping[bytes, set[bytes]]:
    """The paths of each hard-link group, by its first."""
    groups: dict[bytes, set[bytes]] = {}
    for path, entry in listing.items():
        if entry.link is not None:
            groups.setdefault(entry.link, set()).add(path)
    return groups


def made_directories(edited: set[bytes], omitted: set[bytes], reference: Listing, tree: Listing) -> set[bytes]:
    """The directories above edited paths that the reference run has not and that hold nothing else."""
    above = {path for one in edited for path in ancestors_of(one) if path in tree and path not in reference}
    others = {parent_of(path) for path in tree if path and path not in omitted and path not in above}
    holders = {path for one in others for path in (one, *ancestors_of(one))}
    return above - holders
