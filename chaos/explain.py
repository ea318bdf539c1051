"""A trial explained: what was killed, what recovery knew, what it decided, what differs. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from chaos.actions import format_action
from chaos.results import Fault, Verdict
from chaos.transcript import Transcript


def explain(transcript: Transcript) -> list[str]:
    """Lines for a person, in the order in which things happened."""
    result = transcript.result
    lines = [f"TRIAL {result.trial.scenario}: {result.verdict}{f' ({result.reason})' if result.reason else ''}"]
    lines += [f"  {_did(format_action(action), fault)}" for action, fault in zip(result.trial.plan, result.faults, strict=False)]
    lines.append("  drivers: " + ", ".join(f"{epoch} ended with {code}" for epoch, code in result.drivers))
    lines += [f"  {line}" for event in transcript.events for line in _tell_event(event)]
    for oracle in result.oracles:
        if oracle.verdict is not Verdict.PASS:
            lines.append(f"DIFFERS {oracle.oracle} ({oracle.verdict}): {oracle.detail}")
            facts = {"path": oracle.path, "expected": oracle.expected, "found": oracle.found, "event": oracle.event}
            lines += [f"  {name:<9} {value}" for name, value in facts.items() if value]
    return lines


def _did(action: str, fault: Fault) -> str:
    if not fault.fired:
        return f"NOT DONE {action}: {fault.note or 'it did not fire'}"
    alive = ", ".join(f"{one.role} {one.pid}" for one in fault.alive)
    what = f"{action} (pid {fault.pid}" + (f", signal {fault.signal}" if fault.signal else "") + ")" if fault.pid else action
    return f"DONE {what}" + (f"; alive then: {alive}" if alive else "") + (f"; {fault.note}" if fault.note else "")


def _tell_event(event: Mapping[str, Any]) -> Iterator[str]:
    payload = event.get("payload", {})
    match event.get("kind"):
        case "driver_started":
            yield f"TAKEOVER by the driver of epoch {event.get('epoch')} (seq {event.get('seq')})"
        case "recovery_decided":
            facts = ", ".join(f"{name} {value}" for name, value in payload.get("facts", {}).items())
            call = f" for call {payload['call']} attempt {payload['attempt']}" if payload.get("call") else ""
            yield f"KNEW {facts}"
            yield f"DECIDED {payload.get('label')}{call} (seq {event.get('seq')})"
        case "restore_finished":
            yield f"RESTORED {payload.get('restored')} paths, {payload.get('displaced')} moved to quarantine (seq {event.get('seq')})"
        case "workspace_observed":
            yield f"OUTSIDE CHANGE recorded (seq {event.get('seq')}): {', '.join(map(str, event.get('changes', [])))}"
        case "call_settled":
            yield f"SETTLED call {payload.get('call')} attempt {payload.get('attempt')}: {payload.get('ended')} (seq {event.get('seq')})"
        case "target_started":
            steps = ", ".join(payload.get("steps", ()))
            yield f"STARTED {event.get('seq')}: ended with {payload.get('ended')}{f', announced {steps}' if steps else ''}"
        case _:
            return
