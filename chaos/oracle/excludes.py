"""What a session leaves out of its images, judged by a matcher of the oracle's own (eventlog/README, Excludes).

It understands names and paths with `*` and `?`, `/` at the front, inside and at the end, and `!`. A pattern with anything else is not
judged: `EvidenceMissing`, so that whoever asks turns unknown and nothing passes for being left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .evidence import Evidence, known
from .paths import ancestors_of, bytes_of, name_of
from .values import EvidenceMissing, Listing, Stream

PLAIN = re.compile(r"!?/?[^\s*?\[\]\\/#!][^\[\]\\/\s]*(/[^\[\]\\/\s]+)*/?|!?/?[*?][^\[\]\\/\s]*(/[^\[\]\\/\s]+)*/?")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line: `parts` against the last components of a path, all of them when it is anchored."""

    parts: tuple[re.Pattern[str], ...]
    is_anchored: bool
    only_directories: bool
    is_negative: bool

    def matches(self, path: bytes, is_directory: bool) -> bool:
        """Whether the line speaks of this path."""
        if self.only_directories and not is_directory:
            return False
        names = (path if self.is_anchored else name_of(path)).decode("utf-8", "surrogateescape").split("/")
        return len(names) == len(self.parts) and all(part.fullmatch(name) for part, name in zip(self.parts, names, strict=True))


def excludes_of(stream: Stream) -> tuple[bytes, ...]:
    """The pattern lines of a stream's first event."""
    return tuple(bytes_of(line) for line in stream.events[0].payload.get("excludes", ()))


def read_pattern(line: bytes) -> Pattern:
    """One line. Raises EvidenceMissing for one that is not understood."""
    text = line.decode("utf-8", "surrogateescape")
    if not PLAIN.fullmatch(text) or "**" in text:
        raise EvidenceMissing(f"the exclude pattern {text!r:.80} is not one that this oracle understands")
    body = text.removeprefix("!")
    inner = body.removesuffix("/")
    parts = tuple(re.compile(glob_to_regex(part), re.DOTALL) for part in inner.removeprefix("/").split("/"))
    return Pattern(parts, "/" in inner, body.endswith("/"), text.startswith("!"))


def glob_to_regex(part: str) -> str:
    """The regular expression of one component."""
    return "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in part)


def excluded_paths(lines: Sequence[bytes], listing: Listing) -> set[bytes]:
    """The paths of a listing that are left out, all that lies in an excluded directory too. Raises EvidenceMissing."""
    patterns = [read_pattern(line) for line in lines]
    left_out: set[bytes] = set()
    for path in sorted(listing, key=lambda one: one.count(b"/")):
        if not path:
            continue
        verdict = False
        for pattern in patterns:
            if pattern.matches(path, listing[path].kind == "d"):
                verdict = not pattern.is_negative
        if verdict or not left_out.isdisjoint(ancestors_of(path)):
            left_out.add(path)
    return left_out


def tracked(evidence: Evidence, listing: Listing) -> Listing:
    """What of a listing the session's images speak of: without excluded paths, without directories that hold only those and that the head
    image lacks, without owners and ACLs that are not tracked. Raises EvidenceMissing."""
    stream = evidence.stream()
    lines, track = excludes_of(stream), stream.events[0].payload.get("track", ())
    left_out = excluded_paths(lines, listing) if lines else set()
    left_out |= bare_holders(left_out, stream, listing)
    return {
        path: entry
        if entry.owner is None and entry.acl is None
        else replace(entry, owner=entry.owner if "owners" in track else None, acl=entry.acl if "acls" in track else None)
        for path, entry in listing.items()
        if path not in left_out
    }


def bare_holders(left_out: set[bytes], stream: Stream, listing: Listing) -> set[bytes]:
    """The directories with nothing in them but excluded paths, those of the head image aside."""
    above = {one for path in left_out for one in ancestors_of(path)} - left_out - {b""}
    others = {one for path in listing if path not in left_out and path not in above for one in ancestors_of(path)}
    image = stream.fold.image
    return {path for path in above - others if path not in image or image[path].kind != "d"}


def excluded_in(evidence: Evidence, listing: Listing) -> set[bytes]:
    """`excluded_paths` of the judged session; nothing when it excludes nothing."""
    lines = excludes_of(evidence.stream())
    return excluded_paths(lines, listing) if lines else set()


def known_tree(evidence: Evidence) -> Listing:
    """The workspace as far as images speak of it."""
    return tracked(evidence, known(evidence.tree))
