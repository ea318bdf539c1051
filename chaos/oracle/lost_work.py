"""Oracle `lost-work`: how many calls that were acknowledged before a crash are not in the log's head any more, against the bound that is
stated for it: none in a session that keeps its image in the log, `lost_work_bound` of its first event in one that keeps checkpoints, and
beside that what the request says was taken away with the log itself (`put_back`).

Calls that a person undid are not lost: they were given up.
"""

from dataclasses import dataclass

from .acknowledged import Acknowledgement, is_taken_back, read_acknowledgements
from .evidence import Evidence, known
from .laundering import is_end_by_person
from .values import Finding, Stream, failed, passed


@dataclass(frozen=True, slots=True)
class LostWork:
    """The calls lost, by number in order, of how many acknowledged ones; and how many may be."""

    calls: tuple[int, ...]
    acknowledged: int
    bound: int


def measure_lost_work(evidence: Evidence) -> LostWork | None:
    """What was lost; None when nobody was told anything. Raises EvidenceMissing."""
    outputs = known(evidence.acknowledged)
    if outputs is None:
        return None
    stream = evidence.stream()
    said = [(number, one) for number, output in enumerate(outputs, 1) for one in read_acknowledgements(number, output) if one.call]
    told = [one for _, one in said]
    taken = {one.call for number, one in said if is_taken_back(evidence, number, one)}
    given_up = undone_by_person(stream)
    lost = tuple(sorted({one.call for one in told if not stands(stream, one) and one.call not in given_up}))
    return LostWork(lost, len(told), bound_of(stream) + len(taken))


def judge_lost_work(evidence: Evidence) -> Finding | None:
    """At most as many acknowledged calls are lost as the bound says. Left out when no outputs are named (null)."""
    found = measure_lost_work(evidence)
    if found is None:
        return None
    detail = f"{len(found.calls)} of {found.acknowledged} acknowledged calls lost, at most {found.bound} may be"
    if len(found.calls) <= found.bound:
        return passed(detail)
    return failed(f"{detail}; the first is call {found.calls[0]}", expected=str(found.bound), found=str(len(found.calls)))


def stands(stream: Stream, told: Acknowledgement) -> bool:
    """Whether the call is finished with that result in the log, and not undone since. Its seq may be another when the log lost its tail
    and the call was taken over again."""
    finished = [
        event
        for event in stream.of_kind("call_settled")
        if event.payload["call"] == told.call and event.payload["ended"] == "finished" and event.payload["root"] == told.root
    ]
    return bool(finished) and told.call not in {event.payload["call"] for event in stream.of_kind("call_undone")}


def undone_by_person(stream: Stream) -> set[int]:
    """The calls undone by a restore that a person asked for."""
    ends = {event.payload["decision_seq"] for event in stream.of_kind("restore_finished") if is_end_by_person(stream, event)}
    return {event.payload["call"] for event in stream.of_kind("call_undone") if event.payload["decision_seq"] in ends}


def bound_of(stream: Stream) -> int:
    """How many finished calls a session may lose, by its first event."""
    checkpoints = stream.events[0].payload.get("checkpoints")
    return int(checkpoints["lost_work_bound"]) if checkpoints else 0
