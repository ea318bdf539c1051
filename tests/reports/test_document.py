"""The JSON document: everything the report says, for programs; each of its fields stands in the README."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.results import RUN_FORMAT, Action, OracleVerdict, Signature, Verdict
from reports.aggregate import OracleCounts, ScenarioCounts, Summary
from reports.coverage import Aimed, Cell, Counts, LabelCoverage, Zeros
from reports.document import Document, Failure, FailureGroup, encode_document, make_document
from reports.load import Judgement
from tests.reports.makers import COMMAND, make_clean, make_plan, make_run, make_trial, say

README = Path(__file__).resolve().parents[2] / "chaos" / "README.md"


def read(run: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode_document(make_document(run)))
    return document


def test_the_document_says_what_the_report_says() -> None:
    kill = Action("shim.1@1:exit:1", "kill")
    passed = make_plan(1, "kill", kill, labels={"adopt_exit": 1}, alive={0: (COMMAND,)}, restored=1, oracles=(say("chain", Verdict.PASS),))
    run = make_run(make_clean(), passed, judgement=Judgement(Verdict.UNKNOWN, ("coverage: no trial decided settled",)))
    document = read(run)
    assert list(document)[0] == "format"
    summary = document.pop("summary")
    assert document == {
        "format": RUN_FORMAT,
        "verdict": "unknown",
        "reasons": ["coverage: no trial decided settled"],
        "seed": 7,
        "command": "chaos --seed 7",
        "scenarios": [{"scenario": "small", "trials": 2, "kills": 1, "freezes": 0, "seconds": 0.2}],
        "labels": [
            {"label": "reattach", "acted_on": True, "unreachable": "", "trials": 0, "live": 0, "restored": 0, "quarantined": 0},
            {"label": "adopt_exit", "acted_on": True, "unreachable": "", "trials": 1, "live": 1, "restored": 1, "quarantined": 0},
            {"label": "ask", "acted_on": False, "unreachable": "ends with a person"}
            | {"trials": 0, "live": 0, "restored": 0, "quarantined": 0},
            {"label": "settled", "acted_on": True, "unreachable": "", "trials": 0, "live": 0, "restored": 0, "quarantined": 0},
        ],
        "zeros": {
            "trials": ["reattach", "settled"],
            "live": ["reattach", "settled"],
            "restored": ["reattach", "settled"],
            "quarantined": ["reattach", "adopt_exit", "settled"],
            "not_reachable": ["ask"],
        },
        "matrix": [{"step": "shim:exit", "fault": "kill", "trials": 1, "labels": {"adopt_exit": 1},
                    "decided": {"adopt_exit": {"trials": 1, "live": 1, "restored": 1, "quarantined": 0}}}],
        "unreached": [],
        "oracles": {"chain": {"pass": 1, "unknown": 0, "fail": 0}},
        "failures": [],
        "groups": [],
        "audit": [],
    }
    assert (summary["runs"], summary["pass"], summary["kills"], summary["labels"]) == (2, 2, 1, {"adopt_exit": 1})


def test_each_trial_that_did_not_pass_is_there_failures_first() -> None:
    differs = OracleVerdict("workspace", Verdict.FAIL, "content differs", "a\nb", "11", "22", "session 5 call_settled")
    run = make_run(
        make_trial(1, Verdict.UNKNOWN, reason="did not fire"),
        make_plan(
            *(2, "again", Action("driver@1:s:1", "kill"), Action("worker@2:r:1", "kill")),
            verdict=Verdict.FAIL,
            oracles=(say("chain", Verdict.PASS), differs),
            kept="runs/1/artifacts/small-2",
        ),
        make_trial(3, Verdict.PASS),
        judgement=Judgement(Verdict.FAIL, ()),
    )
    nobody = dict.fromkeys(("oracle", "path", "expected", "found", "event", "kept"), "")
    assert read(run)["failures"] == [
        {
            "scenario": "small",
            "trial": 2,
            "plan": "kill driver@1:s:1; kill worker@2:r:1",
            "entry": "fork",
            "verdict": "fail",
            "reason": "why",
            "oracle": "workspace",
            "path": "a\nb",
            "expected": "11",
            "found": "22",
            "event": "session 5 call_settled",
            "kept": "runs/1/artifacts/small-2",
            "repeat": "chaos --mode ci --scenario small --plan 'kill driver@1:s:1; kill worker@2:r:1' --seed 7",
            "signature": "fail by workspace of a path, nothing decided: content differs",
        },
        {
            "scenario": "small",
            "trial": 1,
            "plan": "kill driver@1:s:1",
            "entry": "fork",
            "verdict": "unknown",
            "reason": "did not fire",
            **nobody,
            "repeat": "chaos --mode ci --scenario small --step driver@1:s:1 --fault kill --seed 7",
            "signature": "unknown by no oracle, nothing decided: did not fire",
        },
    ]


def test_trials_that_ended_alike_are_all_there() -> None:
    run = make_run(*(make_trial(number, Verdict.FAIL, oracles=(say("chain", Verdict.FAIL),)) for number in (3, 1, 2)))
    document = read(run)
    assert [one["trial"] for one in document["failures"]] == [1, 2, 3]
    (group,) = document["groups"]
    assert (group["trials"], group["scenarios"], group["signature"]["oracle"]) == (3, ["small"], "chain")
    assert group["repeat"] == document["failures"][0]["repeat"]


def test_a_run_that_was_cut_short_is_unknown() -> None:
    document = read(make_run(judgement=None))
    assert (document["verdict"], document["reasons"]) == ("unknown", ["this run was cut short"])


KINDS = [Document, Summary, ScenarioCounts, LabelCoverage, Zeros, Aimed, Cell, Counts, OracleCounts, Failure, FailureGroup, Signature]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_stands_in_the_readme(kind: type[msgspec.Struct]) -> None:
    section = README.read_text("utf-8").partition("## Output")[2].partition("## Planted bugs")[0]
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert names and [name for name in names if f"`{name}`" not in section] == []


LINES = ["SUMMARY", "AUDIT", "LABELS", "FAULTS", "SCENARIO", "ORACLES", "COVERAGE", "ZERO", "NOTE", "UNREACHABLE", "SAMPLED"]


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_counts_stands_in_the_readme(line: str) -> None:
    assert re.search(rf"`{line}\b", README.read_text("utf-8").partition("## Output")[2])
