"""JUnit XML: a suite for each scenario, a case for each trial, and nothing green that `chaos` does not call a pass."""

import sys
from xml.etree import ElementTree

import msgspec
import pytest

from chaos.results import Action, OracleVerdict, Verdict
from reports.junit import render_junit
from reports.load import Judgement, Run
from reports.words import escape
from tests.reports.makers import CONFIG, make_clean, make_plan, make_run, make_trial, say


def parse(run: Run) -> ElementTree.Element:
    return ElementTree.fromstring(render_junit(run))


def names(element: ElementTree.Element) -> list[str | None]:
    return [one.get("name") for one in element]


def test_each_scenario_is_a_suite_and_each_trial_a_case() -> None:
    freeze = (Action("driver@1:s:2", "freeze"), Action("", "start"), Action("", "wake", "driver@1"))
    config = msgspec.structs.replace(CONFIG, arguments={"never": "never", "small": "small"})
    run = make_run(
        make_plan(3, "freeze", *freeze, scenario="other", seconds=0.5),
        make_trial(2, Verdict.PASS, seconds=0.25),
        make_trial(1, Verdict.PASS),
        make_clean(),
        config=config,
    )
    root = parse(run)
    assert (root.tag, root.get("name"), root.get("tests"), root.get("failures"), root.get("errors")) == (
        "testsuites",
        "chaos",
        "4",
        "0",
        "0",
    )
    assert names(root) == ["never", "small", "other"]
    assert [suite.get("tests") for suite in root] == ["0", "3", "1"]
    assert names(root[1]) == ["clean run", "kill at driver@1:s:1", "kill at driver@1:s:2"]
    assert names(root[2]) == ["freeze at driver@1:s:2, start, wake driver@1"]
    assert [(case.get("classname"), case.get("time"), list(case)) for case in root[1]][2] == ("small", "0.25", [])


def test_a_failed_trial_is_a_failure_with_the_oracle_and_the_command() -> None:
    differs = OracleVerdict("workspace", Verdict.FAIL, "content differs", "a\nb", "11", "22", "session 5 call_settled")
    run = make_run(make_trial(1, Verdict.FAIL, reason="workspace: <differs>", oracles=(say("chain", Verdict.PASS), differs)))
    suite = parse(run)[0]
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    (failure,) = suite[0]
    assert (failure.tag, failure.get("message"), failure.get("type")) == ("failure", "workspace: <differs>", "workspace")
    assert (failure.text or "").splitlines() == [
        "reason    workspace: <differs>",
        "signature fail by workspace of a path, nothing decided: content differs",
        "oracle    workspace: content differs",
        "path      a\\nb",
        "expected  11",
        "found     22",
        "event     session 5 call_settled",
        "repeat    chaos --mode ci --scenario small --step driver@1:s:1 --fault kill --seed 7",
    ]


def test_an_unknown_trial_is_an_error() -> None:
    suite = parse(make_run(make_trial(1, Verdict.UNKNOWN, fault={"fired": False})))[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    (error,) = suite[0]
    assert (error.tag, error.get("message"), error.get("type")) == ("error", "why", "unknown")
    assert "unfired   kill at driver@1:s:1" in (error.text or "")


@pytest.mark.parametrize(
    ("judgement", "message", "lines"),
    [
        (Judgement(Verdict.UNKNOWN, ("no trial ran", "a\x00b")), "no trial ran; a\\x00b", ["reason    no trial ran", "reason    a\\x00b"]),
        (None, "this run was cut short", ["reason    this run was cut short"]),
    ],
    ids=["reasons", "cut short"],
)
def test_what_makes_the_campaign_unknown_is_an_error_of_its_own(judgement: Judgement | None, message: str, lines: list[str]) -> None:
    root = parse(make_run(make_trial(1, Verdict.PASS), judgement=judgement))
    assert names(root) == ["small", "whole campaign"]
    assert root.get("errors") == "1"
    ((error,),) = root[1]
    assert (error.tag, error.get("message")) == ("error", message)
    assert (error.text or "").splitlines() == [*lines, "repeat    chaos --seed 7"]


def test_what_xml_forbids_is_escaped() -> None:
    hostile = "\x00\x1b[2J\ufffe\ud800\x7f"
    oracle = OracleVerdict(hostile, Verdict.FAIL, hostile, hostile, hostile, hostile, hostile)
    run = make_run(make_plan(1, "edit", Action("", "edit", "", hostile, hostile), verdict=Verdict.FAIL, reason=hostile, oracles=(oracle,)))
    ((failure,),) = parse(run)[0]
    assert failure.get("message") == "\\x00\\x1b[2J\\ufffe\\ud800\\x7f"
    assert "path      \\x00\\x1b[2J\\ufffe\\ud800\\x7f" in (failure.text or "")


def test_no_character_that_is_kept_is_forbidden_in_xml() -> None:
    kept = "".join(char for char in map(chr, range(sys.maxunicode + 1)) if escape(char) == char)
    element = ElementTree.Element("a")
    element.text = kept
    assert ElementTree.fromstring(ElementTree.tostring(element, "utf-8")).text == kept


def test_junitparser_is_loaded_only_to_write_xml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "junitparser", None)
    with pytest.raises(ImportError):
        render_junit(make_run())
