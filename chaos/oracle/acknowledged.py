"""Oracle `acknowledged`: what a driver told the world is durable. Drivers print `ACK <call> <seq> <root>` after a commit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .evidence import Evidence, known
from .values import Finding, Stream, failed, hex_of, name_event, passed, unknown

LINE = re.compile(rb"ACK ([0-9]{1,18}) ([0-9]{1,18}) ([0-9a-f]{64})\r?")


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One complete ACK line; `place` says in which output and line. A line that is none has call 0."""

    place: str
    call: int
    seq: int
    root: str


def judge_acknowledged(evidence: Evidence) -> Finding | None:
    """Each ACK names a finished call at its seq with its root, which is the folded image's; calls are acknowledged once each and
    in order within one output. Left out when no outputs are named (null)."""
    outputs = known(evidence.acknowledged)
    if outputs is None:
        return None
    stream = evidence.stream()
    count = 0
    for number, output in enumerate(outputs, 1):
        newest = 0
        for acknowledgement in read_acknowledgements(number, output):
            if is_taken_back(evidence, number, acknowledgement):
                continue
            finding = check_one(stream, acknowledgement, newest)
            if finding is not None:
                return finding
            newest = acknowledgement.call
            count += 1
    is_told = count or evidence.request.put_back is not None
    return passed(f"{count} acknowledgements") if is_told else unknown("no driver acknowledged anything")


def is_taken_back(evidence: Evidence, number: int, acknowledgement: Acknowledgement) -> bool:
    """Whether the log that this was said of was taken away, and an older one put back: what became of its call is for `lost-work`."""
    if evidence.request.put_back is None:
        return False
    head, outputs = evidence.request.put_back
    return number <= outputs and acknowledgement.seq > head


def read_acknowledgements(number: int, output: bytes) -> Iterator[Acknowledgement]:
    """The ACK lines of one output; a last line without its newline was cut by the kill and is no promise."""
    for place, line in enumerate(output.split(b"\n")[:-1], 1):
        if line.startswith(b"ACK"):
            match = LINE.fullmatch(line)
            where = f"output {number} line {place}"
            yield Acknowledgement(where, int(match[1]), int(match[2]), match[3].decode()) if match else Acknowledgement(where, 0, 0, "")


def check_one(stream: Stream, acknowledgement: Acknowledgement, newest: int) -> Finding | None:
    """Check one ACK; `newest` is the call acknowledged before it in the same output."""
    if acknowledgement.call == 0:
        return failed(f"{acknowledgement.place}: no whole ACK line")
    event = stream.event_at(acknowledgement.seq)
    detail = f"{acknowledgement.place}: ACK {acknowledgement.call} {acknowledgement.seq}"
    if acknowledgement.call <= newest:
        return failed(f"{detail} after ACK of call {newest}", event=name_event(event))
    if event is None or event.kind != "call_settled" or event.payload["ended"] != "finished":
        return failed(f"{detail} is not a finished call_settled", expected="call_settled finished", found=name_event(event) or "no event")
    if event.payload["call"] != acknowledgement.call:
        return failed(f"{detail} settles another call", expected=str(acknowledgement.call), found=str(event.payload["call"]))
    for name, root in (("the event", event.payload["root"]), ("the folded image", hex_of(stream.root_at(event.seq)))):
        if root != acknowledgement.root:
            return failed(f"{detail}: {name} has another root", expected=acknowledgement.root, found=root, event=name_event(event))
    return None
