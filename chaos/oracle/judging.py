"""Judging one trial: every oracle on its own over the same evidence, then the counts that go with the verdicts."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from .acknowledged import judge_acknowledged
from .chain import judge_chain
from .evidence import Evidence, gather
from .exits import judge_exits
from .fencing import judge_fencing
from .history_digest import history_digest
from .laundering import judge_laundering
from .order import judge_order
from .output import judge_output
from .paths import escape_path
from .quarantine import judge_quarantine
from .request import parse_judge_request
from .values import EvidenceMissing, Finding, Stream, Unreadable, Verdict, unknown
from .witness import judge_witness
from .workspace import judge_reference, judge_workspace

Oracle = Callable[[Evidence], Finding | None]

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
    "exits": judge_exits,
}


def judge(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a judge request. Raises RequestError when the request itself is wrong."""
    evidence = gather(parse_judge_request(request))
    findings = {name: run_oracle(oracle, evidence) for name, oracle in ORACLES.items()}
    verdicts = [verdict_to_json(name, finding) for name, finding in findings.items() if finding is not None]
    return {"verdicts": verdicts, **summarise(evidence)}


def run_oracle(oracle: Oracle, evidence: Evidence) -> Finding | None:
    """What an oracle finds; None when it has nothing to judge in this trial."""
    try:
        return oracle(evidence)
    except EvidenceMissing as missing:
        return unknown(str(missing))
    except Exception as error:  # noqa: BLE001 - the one broad except: a crashed oracle judged nothing and must not silence the others
        return unknown(f"the oracle crashed: {type(error).__name__}: {error}")


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
    """The counts and the history digest of the judged stream, as far as it could be read."""
    if isinstance(evidence.log, Unreadable) or evidence.request.stream not in evidence.log.streams:
        return {"labels": {}, "restored": 0, "displaced": 0, "digest": None}
    stream: Stream = evidence.log.streams[evidence.request.stream]
    restores = stream.of_kind("restore_finished")
    return {
        "labels": dict(Counter(event.payload["label"] for event in stream.of_kind("recovery_decided"))),
        "restored": sum(event.payload["restored"] for event in restores),
        "displaced": sum(event.payload["displaced"] for event in restores),
        "digest": history_digest(evidence.log.log_id, stream),
    }


def merge(verdicts: list[str]) -> Verdict:
    """One verdict of many: fail before unknown before pass; of none, unknown."""
    if Verdict.FAIL.value in verdicts:
        return Verdict.FAIL
    return Verdict.UNKNOWN if not verdicts or Verdict.UNKNOWN.value in verdicts else Verdict.PASS
