"""Oracle `output`: a finished call's recorded output is what the plain run's command printed."""

from collections.abc import Mapping

from .blobs import BlobDamage, BlobShelf
from .calls import Call, calls_of
from .evidence import Evidence, known
from .values import Event, Finding, failed, name_event, passed, unknown

SHOWN = 60


def judge_output(evidence: Evidence) -> Finding | None:
    """The output blob of each finished script call equals the reference bytes. Left out without reference outputs. Output that was
    cut cannot be compared and makes this unknown."""
    reference = evidence.request.reference_outputs
    if reference is None:
        return None
    finished = finishes_by_index(calls_of(evidence.stream()), reference)
    cut = [event for event in finished.values() if event.payload["output"] and event.payload["output"]["cut"]]
    for index, event in sorted(finished.items()):
        finding = None if event in cut else compare(known(evidence.log).blobs, event, reference[index])
        if finding is not None:
            return finding
    missing = sorted(reference.keys() - finished.keys())
    if missing and evidence.request.expect_finished and evidence.request.on_interrupted == "reissue":
        return failed(f"script call {missing[0]} has no finished call, so no output")
    if cut:
        return unknown(f"{len(cut)} outputs were cut, the first at {name_event(cut[0])}")
    return passed(f"{len(finished)} outputs equal") if finished else unknown("no finished call has a reference output")


def finishes_by_index(calls: list[Call], reference: Mapping[int, bytes]) -> dict[int, Event]:
    """The `call_settled` of each finished script call that the reference speaks of."""
    finishes: dict[int, Event] = {}
    for call in calls:
        finish, index = call.finish(), call.script_index()
        if finish is not None and index is not None and index in reference:
            finishes[index] = finish
    return finishes


def compare(blobs: BlobShelf, event: Event, wanted: bytes) -> Finding | None:
    """A failure when the output of a finished call is not `wanted`; a call without output printed nothing."""
    output = event.payload["output"]
    try:
        found = b"" if output is None else blobs.content(bytes.fromhex(output["blob"]))
    except BlobDamage as damage:
        return failed(f"the output cannot be read: {damage}", event=name_event(event))
    if found == wanted:
        return None
    return failed("the output differs", expected=shorten(wanted), found=shorten(found), event=name_event(event))


def shorten(data: bytes) -> str:
    """The first bytes and the length."""
    return f"{data[:SHOWN]!r} ({len(data)} bytes)"
