"""Oracle `fencing`: no driver writes once a newer one has raised the floor."""

from .evidence import Evidence
from .values import Finding, failed, name_event, passed, unknown


def judge_fencing(evidence: Evidence) -> Finding:
    """Epochs never fall; every event carries the newest driver's; a driver superseded while alive added nothing after its
    successor's start."""
    stream = evidence.stream()
    newest = highest = 0
    for event in stream.events:
        newest = event.epoch if event.kind == "driver_started" else newest
        if event.epoch < highest or event.epoch != newest:
            detail, expected = "an event under a superseded or unknown epoch", str(max(newest, highest))
            return failed(detail, expected=expected, found=str(event.epoch), event=name_event(event))
        highest = event.epoch
    for epoch, head_seq in evidence.request.superseded:
        for event in stream.events:
            if event.epoch == epoch and event.seq > head_seq:
                return failed(f"epoch {epoch} was superseded at seq {head_seq} and still wrote", event=name_event(event))
    drivers = len(stream.of_kind("driver_started"))
    return passed(f"{drivers} drivers, {len(evidence.request.superseded)} superseded alive") if drivers else unknown("no driver started")
