"""Where a content can be found again: in the log's blobs, in its images, or in quarantine. What is in none of them is lost (I10).

Victims lie at `<quarantine>/<log id>-<decision seq>/<round>/<path in the workspace>`.
"""

from collections.abc import Iterator, Mapping

from .blobs import BlobDamage, BlobShelf
from .evidence import Evidence, known
from .values import Change, Entry, Event, EvidenceMissing, Stream

ROUND_DEPTH = 2


def is_whole(blobs: BlobShelf, content: bytes) -> bool:
    """Whether the log can produce this content, or gave it up on record."""
    if content in blobs.given_up:
        return True
    try:
        blobs.verified_size(content)
    except BlobDamage:
        return False
    return True


def victims_of(evidence: Evidence) -> Mapping[bytes, list[Entry]]:
    """What lies in quarantine, by its path in the workspace, over all rounds of this log's restores. Raises EvidenceMissing."""
    kept = known(evidence.kept)
    if kept is None:
        raise EvidenceMissing("no quarantine directory was named")
    prefix = f"{known(evidence.log).log_id}-".encode()
    victims: dict[bytes, list[Entry]] = {}
    for place, entry in kept.items():
        parts = place.split(b"/", ROUND_DEPTH)
        if len(parts) > ROUND_DEPTH and place.startswith(prefix):
            victims.setdefault(parts[ROUND_DEPTH], []).append(entry)
    return victims


def puts_at(stream: Stream, path: bytes) -> Iterator[tuple[Event, Change]]:
    """Every entry that some image of the stream had at `path`, with the event that recorded it."""
    for event in stream.events:
        yield from ((event, change) for change in event.changes if change.path == path and change.op == "put")
