"""Oracle `stale`: an image that did not hold what the files held (its event lists unstable ones) is never what recovery aims at (C8).

A person may aim at it all the same, having been told.
"""

from .evidence import Evidence
from .values import Event, Finding, Stream, failed, name_event, passed

UNSTABLE = "unstable"
BY_PERSON = frozenset({"rebuild_by_person", "restore_by_person"})


def judge_stale(evidence: Evidence) -> Finding | None:
    """No obligation but a person's aims at a stale image. Left out where no image is stale."""
    stream = evidence.stream()
    stale = [event for event in stream.events if is_marked(event)]
    if not stale:
        return None
    for decision in stream.of_kind("recovery_decided"):
        target = decision.payload["target_seq"] if decision.payload["obligation"] else None
        if target is not None and decision.payload["label"] not in BY_PERSON and is_stale_at(stream, target):
            return failed(f"the image at seq {target} is stale and a restore aims at it", event=name_event(decision))
    return passed(f"{len(stale)} stale images, none aimed at unasked")


def is_marked(event: Event) -> bool:
    """Whether an event lists files of its image as unstable."""
    return any(one["kind"] == UNSTABLE for one in event.payload.get("untracked", ()))


def is_stale_at(stream: Stream, seq: int) -> bool:
    """Whether the image after `seq` is stale: the newest event that says what its image does not hold lists unstable files."""
    said = [event for event in stream.events[:seq] if "untracked" in event.payload]
    return bool(said) and is_marked(said[-1])


def ends_staleness(stream: Stream, event: Event) -> bool:
    """Whether an outside change says nothing but that a stale image holds again what the files hold."""
    is_empty = all(change.op == "times" for change in event.changes)
    return is_empty and is_stale_at(stream, event.seq - 1) and not is_marked(event)
