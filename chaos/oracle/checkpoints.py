"""Oracle `checkpoints`: the newest checkpoint that the log names is whole, is one of the image there, and no more finished calls come after
it than the bound says."""

import os

from blake3 import blake3

from .blobs import BlobDamage, BlobShelf
from .evidence import Evidence, known
from .observations import image_before
from .store import StoreObjects, store_of
from .values import Event, Finding, Stream, failed, name_event, passed

HEADING = b"crashworthy checkpoint 1\n"
ROOT_SIZE = 32


def judge_checkpoints(evidence: Evidence) -> Finding | None:
    """Left out of sessions whose images are in the log."""
    stream = evidence.stream()
    store = store_of(stream)
    taken = [event for event in stream.events if event.kind == "checkpoint_taken"]
    if store is None or (not taken and stream.events[0].payload["checkpoints"]["manifest"] == ""):
        return None
    newest = taken[-1] if taken else stream.events[0]
    name = newest.payload["manifest"] if taken else newest.payload["checkpoints"]["manifest"]
    problem = find_problem(evidence, store, newest, bytes.fromhex(name))
    if problem is not None:
        return failed(f"the newest checkpoint {name}: {problem}", event=name_event(newest))
    bound = stream.events[0].payload["checkpoints"]["lost_work_bound"]
    unsaved = [event for event in stream.events[newest.seq :] if is_unsaved(stream, event, newest)]
    if len(unsaved) > bound:
        return failed(f"{len(unsaved)} finished calls have no checkpoint, at most {bound} may", event=name_event(unsaved[bound]))
    return passed(f"{len(taken)} checkpoints taken, the newest is whole; {len(unsaved)} calls without, at most {bound} may be")


def is_unsaved(stream: Stream, event: Event, newest: Event) -> bool:
    """Whether a call finished here whose image is not that of the newest checkpoint."""
    return event.kind == "call_settled" and event.payload["ended"] == "finished" and stream.root_at(event.seq) != stream.root_at(newest.seq)


def find_problem(evidence: Evidence, store: bytes, taken: Event, name: bytes) -> str | None:
    """What is wrong with one checkpoint, None for nothing."""
    stream = evidence.stream()
    owner = stream.events[0].payload.get("ledger_id", "")
    manifests = BlobShelf(StoreObjects({}, os.path.join(store, b"manifests", str(owner).encode()), is_split=False))
    try:
        manifest = manifests.content(name)
    except BlobDamage as damage:
        return str(damage)
    if blake3(manifest).digest() != name or not manifest.startswith(HEADING):
        return "it is no manifest of this name"
    if manifest[len(HEADING) : len(HEADING) + ROOT_SIZE] != stream.root_at(taken.seq):
        return "it is one of another image"
    contents = known(evidence.log).blobs
    for path, change in sorted(image_before(stream, taken.seq + 1).items()):
        if change.content is not None:
            try:
                contents.verified_size(change.content)
            except BlobDamage as damage:
                return f"{path!r:.80}: {damage}"
    return None
