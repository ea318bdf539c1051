"""Oracle `exits`: a call's recorded exit is how the plain run's command ended. Code and signal are never taken for each other, and
none is invented."""

from collections.abc import Mapping
from typing import Any

from .calls import Call, calls_of
from .evidence import Evidence
from .values import Event, Exit, Finding, failed, name_event, passed, unknown

RAN_BY_PERSON = "ran_by_person"


def judge_exits(evidence: Evidence) -> Finding | None:
    """The exit of each finished script call equals the reference's, and an interrupted call has none. Left out without reference exits."""
    reference = evidence.request.reference_exits
    if reference is None:
        return None
    calls = calls_of(evidence.stream())
    for call in calls:
        for settled in call.settlements:
            finding = check_settlement(call, settled, reference)
            if finding is not None:
                return finding
    return conclude(evidence, reference, {call.script_index() for call in calls if call.finish() is not None})


def conclude(evidence: Evidence, reference: Mapping[int, Exit], finished: set[int | None]) -> Finding:
    """The finding when nothing differs. With `reissue` each script call has to finish; without, one may have been interrupted."""
    missing = sorted(reference.keys() - finished)
    if missing and evidence.request.expect_finished and evidence.request.on_interrupted == "reissue":
        return failed(f"script call {missing[0]} has no finished call, so no exit")
    compared = len(reference) - len(missing)
    return passed(f"{compared} exits equal") if compared else unknown("no finished call has a reference exit")


def check_settlement(call: Call, settled: Event, reference: Mapping[int, Exit]) -> Finding | None:
    """A failure when a finished settlement has another exit than the plain run or none, or an interrupted one has any."""
    recorded = settled.payload["exit"]
    if settled.payload["ended"] != "finished":
        return None if recorded is None else differ("an interrupted call has an exit", "none", recorded, settled)
    if settled.payload["label"] == RAN_BY_PERSON:
        return None if recorded is None else differ("a person said that it ran, and an exit is made up", "none", recorded, settled)
    index = call.script_index()
    wanted = None if index is None else reference.get(index)
    if wanted is None or read_exit(recorded) == wanted:
        return None
    return differ("the exit differs", describe(wanted), recorded, settled)


def read_exit(recorded: Mapping[str, Any] | None) -> Exit | None:
    """The exit in a payload, None for none. A field that is left out is null."""
    return None if recorded is None else Exit(recorded["kind"], recorded.get("code"), recorded.get("signal"))


def describe(end: Exit | None) -> str:
    """An exit in words."""
    if end is None:
        return "none"
    fields = [f"{name} {value}" for name, value in (("code", end.code), ("signal", end.signal)) if value is not None]
    return " ".join([end.kind, *fields])


def differ(detail: str, wanted: str, recorded: Mapping[str, Any] | None, settled: Event) -> Finding:
    """The failure at a settlement."""
    return failed(detail, expected=wanted, found=describe(read_exit(recorded)), event=name_event(settled))
