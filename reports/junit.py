"""A run as JUnit XML: a test suite for each scenario, a test case for each trial. Pure.

The plan in words names the case, so that a trial keeps its name from run to run. A failed trial is a `failure`, an unknown one an
`error`. What made the whole campaign less than a pass is an error in a suite of its own: else a reader would see green where
`chaos` did not end with 0. All text is escaped: XML has no way to write most control characters.
"""

import io
from collections.abc import Sequence

import msgspec

from chaos.results import TrialResult, Verdict, find_judge
from reports.aggregate import count_scenarios
from reports.document import CUT_SHORT
from reports.load import Run, RunConfig
from reports.text import render_trouble
from reports.words import describe_trial, escape

CAMPAIGN = "whole campaign"
"""The suite that is no scenario: with its space, no scenario can have this name."""


class Case(msgspec.Struct, frozen=True):
    """One test case, its text not yet escaped. `kind` is the oracle that judged it, else `unknown`."""

    name: str
    seconds: float
    verdict: Verdict
    message: str = ""
    kind: str = "unknown"
    lines: tuple[str, ...] = ()


def render_junit(run: Run) -> str:
    """The XML of one run."""
    from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

    junit = JUnitXml("chaos")
    for name, cases in list_suites(run).items():
        elements = []
        for case in cases:
            elements.append(TestCase(escape(case.name), escape(name), case.seconds))
            if case.verdict is not Verdict.PASS:
                kind = Failure if case.verdict is Verdict.FAIL else Error
                outcome = kind(escape(case.message), escape(case.kind))
                outcome.text = "\n".join(map(escape, case.lines))
                elements[-1].result = [outcome]
        suite = TestSuite(escape(name))
        suite.add_testcases(elements)
        junit.add_testsuite(suite)
    junit.update_statistics()  # type: ignore[no-untyped-call, unused-ignore]
    with io.BytesIO() as file:
        junit.write(file)
        return file.getvalue().decode("utf-8") + "\n"


def list_suites(run: Run) -> dict[str, list[Case]]:
    """The cases of each suite by its name: trials in the order of their numbers, scenarios of which nothing ran too."""
    suites: dict[str, list[Case]] = {one.scenario: [] for one in count_scenarios(run)}
    for result in sorted(run.results, key=lambda one: one.trial.number):
        suites[result.trial.scenario].append(_make_case(result, run.config))
    reasons = (run.judgement or CUT_SHORT).reasons
    return suites | ({CAMPAIGN: [_make_campaign_case(reasons, run.config)]} if reasons else {})


def _make_case(result: TrialResult, config: RunConfig) -> Case:
    name, oracle = describe_trial(result.trial), find_judge(result)
    if result.verdict is Verdict.PASS:
        return Case(name, result.seconds, result.verdict)
    lines = tuple(render_trouble(result, oracle, config))
    return Case(name, result.seconds, result.verdict, result.reason, oracle.oracle if oracle else "unknown", lines)


def _make_campaign_case(reasons: Sequence[str], config: RunConfig) -> Case:
    lines = (*(f"reason    {reason}" for reason in reasons), f"repeat    {config.command}")
    return Case("verdict", 0.0, Verdict.UNKNOWN, "; ".join(reasons), lines=lines)
