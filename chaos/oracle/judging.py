"""Judging one trial: every oracle on its own over the same evidence, then the counts that go with the verdicts."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .acknowledged import judge_acknowledged
from .chain import judge_chain
from .checkpoints import judge_checkpoints
from .convergence import judge_convergence
from .edits import judge_edits
from .evidence import Evidence, gather
from .exits import judge_exits
from .fencing import judge_fencing
from .final import final_digest, final_parts
from .history_digest import History, history_digest, normalised_events
from .laundering import judge_laundering
from .lost_work import judge_lost_work, measure_lost_work
from .order import judge_order
from .output import judge_output
from .paths import escape_path
from .quarantine import judge_quarantine
from .redriver import judge_redriver
from .reference import judge_reference
from .request import parse_judge_request
from .stale import judge_stale
from .suspicion import Oracle, doubt, run_oracle
from .values import Event, EvidenceMissing, Finding, Unreadable, Verdict
from .witness import judge_witness
from .workspace import judge_workspace

INTERRUPTED_LATER = "interrupt_restored"
ORACLES: Mapping[str, Oracle] = {
    "workspace-equals-log": judge_workspace,
    "chain": judge_chain,
    "order": judge_order,
    "witness": judge_witness,
    "fencing": judge_fencing,
    "laundering": judge_laundering,
    "quarantine": judge_quarantine,
    "acknowledged": judge_acknowledged,
    "reference": judge_reference,
    "output": judge_output,
    "convergence": judge_convergence,
    "edits": judge_edits,
    "exits": judge_exits,
    "lost-work": judge_lost_work,
    "checkpoints": judge_checkpoints,
    "stale": judge_stale,
    "redriver": judge_redriver,
}


def judge(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a judge request. Raises RequestError when the request itself is wrong."""
    evidence = gather(parse_judge_request(request))
    findings = {name: ask(name, oracle, evidence) for name, oracle in ORACLES.items()}
    verdicts = [verdict_to_json(name, finding) for name, finding in findings.items() if finding is not None]
    return {"verdicts": verdicts, **summarise(evidence)}


def ask(name: str, oracle: Oracle, evidence: Evidence) -> Finding | None:
    """What an oracle finds, doubted when the request says so."""
    finding = run_oracle(oracle, evidence)
    return doubt(name, oracle, evidence, finding) if evidence.request.suspect else finding


def verdict_to_json(name: str, finding: Finding) -> dict[str, Any]:
    """A finding as it stands in the answer."""
    return {
        "oracle": name,
        "verdict": finding.verdict.value,
        "detail": finding.detail,
        "path": None if finding.path is None else escape_path(finding.path),
        "expected": finding.expected,
        "found": finding.found,
        "event": finding.event,
    }


def summarise(evidence: Evidence) -> dict[str, Any]:
    """The counts, the digests of history and final state, and the history itself when asked for, as far as the log could be read."""
    stream = None if isinstance(evidence.log, Unreadable) else evidence.log.streams.get(evidence.request.stream)
    parts = find_final_parts(evidence)
    history = find_history(evidence)
    decided = [] if stream is None else [event.payload["label"] for event in stream.events if is_decision(event)]
    restores = [] if stream is None else [event.payload for event in stream.of_kind("restore_finished")]
    return {
        "labels": dict(Counter(decided)),
        "decisions": decided,
        "restored": sum(payload["restored"] for payload in restores),
        "displaced": sum(payload["displaced"] for payload in restores),
        "digest": history_digest(history),
        **find_lost_work(evidence),
        "final": None if parts is None else final_digest(parts),
        "final_parts": parts,
        **({"events": history} if evidence.request.history else {}),
    }


def find_lost_work(evidence: Evidence) -> dict[str, int]:
    """How many acknowledged calls are lost and how many may be; nothing where that is not known."""
    try:
        lost = measure_lost_work(evidence)
    except EvidenceMissing:
        return {}
    return {} if lost is None else {"lost_calls": len(lost.calls), "bound": lost.bound}


def is_decision(event: Event) -> bool:
    """Whether a decision stands here: its own event, or (what a restore before it has left to be said) the end of a call."""
    return event.kind == "recovery_decided" or (event.kind == "call_settled" and event.payload["label"] == INTERRUPTED_LATER)


def find_history(evidence: Evidence) -> History:
    """The history of the judged stream; empty when there is none or a payload is nested beyond reason."""
    if isinstance(evidence.log, Unreadable) or evidence.request.stream not in evidence.log.streams:
        return []
    try:
        return normalised_events(evidence.log.log_id, evidence.log.streams[evidence.request.stream])
    except RecursionError:
        return []


def find_final_parts(evidence: Evidence) -> Mapping[str, Any] | None:
    """The parts of the final state; None when log or workspace could not be read whole."""
    try:
        return final_parts(evidence)
    except (EvidenceMissing, RecursionError):
        return None


def merge(verdicts: list[str]) -> Verdict:
    """One verdict of many: fail before unknown before pass; of none, unknown."""
    if Verdict.FAIL.value in verdicts:
        return Verdict.FAIL
    return Verdict.UNKNOWN if not verdicts or Verdict.UNKNOWN.value in verdicts else Verdict.PASS
