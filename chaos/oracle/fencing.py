"""Oracle `fencing`: no driver writes once a newer one has raised the floor."""

from .differences import describe, first_difference
from .evidence import Evidence
from .request_items import Woken
from .values import Finding, Stream, failed, name_event, passed, unknown


def judge_fencing(evidence: Evidence) -> Finding:
    """Epochs never fall; every event carries the newest driver's; a driver superseded while alive added nothing after its
    successor's start; one that was frozen and woken added nothing and changed nothing in the workspace until it ended."""
    stream, request = evidence.stream(), evidence.request
    newest = highest = 0
    for event in stream.events:
        newest = event.epoch if event.kind == "driver_started" else newest
        if event.epoch < highest or event.epoch != newest:
            detail, expected = "an event under a superseded or unknown epoch", str(max(newest, highest))
            return failed(detail, expected=expected, found=str(event.epoch), event=name_event(event))
        highest = event.epoch
    for epoch, head_seq in request.superseded:
        for event in stream.events:
            if event.epoch == epoch and event.seq > head_seq:
                return failed(f"epoch {epoch} was superseded at seq {head_seq} and still wrote", event=name_event(event))
    for woken in request.frozen:
        finding = check_woken(stream, woken)
        if finding is not None:
            return finding
    drivers = len(stream.of_kind("driver_started"))
    detail = f"{drivers} drivers, {len(request.superseded)} superseded alive, {len(request.frozen)} woken"
    return passed(detail) if drivers else unknown("no driver started")


def check_woken(stream: Stream, woken: Woken) -> Finding | None:
    """A failure when a process of an old epoch did anything between its wake and its end, or the log shrank."""
    who = f"a process of epoch {woken.epoch} was woken at seq {woken.head_before}"
    for event in stream.events[woken.head_before :]:
        if event.epoch <= woken.epoch:
            return failed(f"{who} and its epoch still wrote", event=name_event(event))
    if not woken.head_before <= woken.head_after <= len(stream.events):
        heads = f"{woken.head_after} at its end, {len(stream.events)} now"
        return failed(f"{who} and the log lost events", expected=f">= {woken.head_before}", found=heads)
    path = first_difference(woken.listing_before, woken.listing_after)
    if path is None:
        return None
    before, after = describe(woken.listing_before.get(path)), describe(woken.listing_after.get(path))
    return failed(f"{who} and the workspace changed until it ended", path=path, expected=before, found=after)
