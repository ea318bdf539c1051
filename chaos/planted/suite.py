"""Hunting a bug by one test of a shipped suite: that of stores (`eventlog.conformance`), spaces or redrivers (`recovery.*.conformance`).

What must hold:
- The test that the bug file names runs in a process of its own, on a copy and nothing else of the project.
- Caught means that this very test said fail, by an assertion of its own. Any other error in it, an error before it, or a test that is
  not there or was skipped concludes nothing.
- The sound copy passes only when the test ran there and passed. Without pytest nothing is concluded, and the outcome says so.
"""

import importlib.util
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chaos.planted.bug import Suite

SUITE_SECS = 300.0
"""Far above any single test: only one that hangs meets it."""

SUITES: Mapping[Suite, str] = {
    "stores": "eventlog.conformance", "spaces": "recovery.space.conformance", "redrivers": "recovery.redrive.conformance",
    "sessions": "recovery.conformance", "checkpoints": "recovery.checkpoints.conformance",
}  # fmt: skip
End = Literal["passed", "failed", "error", "skipped"]
_ASSERTED = ("assert ", "AssertionError", "Failed: ")
"""How the message of a failed test begins when the test itself said so: a plain assert, one with words, pytest.fail and pytest.raises."""


@dataclass(frozen=True, slots=True)
class CaseRan:
    """One test, or one of its parameter sets: how it ended, and what it said."""

    name: str
    end: End
    message: str

    @property
    def is_asserted(self) -> bool:
        """Whether it failed by its own word, not because something broke under it."""
        return self.end == "failed" and self.message.startswith(_ASSERTED)


@dataclass(frozen=True, slots=True)
class SuiteRan:
    """A run of the suite that ended: its tests of the name asked for, how long it took, its last words."""

    tests: tuple[CaseRan, ...]
    seconds: float
    words: str


def describe_missing(find: Callable[[str], object] = importlib.util.find_spec) -> str:
    """What the hunt needs and this machine does not have; "" when all is there. `find` answers None for a module that is missing."""
    if find("pytest") is None:
        return "pytest is not installed, so that the conformance suite cannot run: pip install 'crashworthy[test]'"
    return ""


def find_trouble(name: str, ran: SuiteRan) -> str:
    """Why the run on the sound copy concludes nothing; "" when the test passed there. Pure."""
    if not ran.tests:
        return f"the suite has no test {name}, or ended before it: {ran.words}"
    worst = [test for test in ran.tests if test.end != "passed"]
    return f"the sound copy does not pass: {worst[0].name} {worst[0].end}: {worst[0].message}" if worst else ""


def run_test(name: str, directory: Path, suite: Suite = "stores", seconds: float = SUITE_SECS) -> SuiteRan:
    """Run the suite's test `name` (all its parameter sets) on `directory`/copy, for the SQLite store or for local processes, for at most
    `seconds`."""
    report, settings = directory / "junit.xml", directory / "pytest.ini"
    settings.write_text("[pytest]\n", "utf-8")  # no settings of anybody else
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    environment |= {"PYTHONPATH": str(directory / "copy"), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command, began = suite_command(SUITES[suite], name, settings, report, directory / "tests"), time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return SuiteRan((), seconds, f"pytest did not end within {seconds:g} s")
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    words = f"pytest ended with {done.returncode}: {lines[-1][:400] if lines else 'it said nothing'}"
    return SuiteRan(read_report(report, name), time.monotonic() - began, words)


def suite_command(package: str, name: str, settings: Path, report: Path, temporary: Path) -> Sequence[str]:
    """The command of a run. -P: what is imported is the copy, never what lies where this command was typed."""
    pytest = [sys.executable, "-P", "-m", "pytest", "-q", "-c", str(settings), "-p", "no:cacheprovider"]
    suite = ["-p", f"{package}.plugin", "--pyargs", package, "-k", name]
    return [*pytest, *suite, "--junit-xml", str(report), "--basetemp", str(temporary)]


def read_report(report: Path, name: str) -> tuple[CaseRan, ...]:
    """The tests called `name` in a JUnit report; none when there is no report."""
    if not report.exists():
        return ()
    cases = [case for case in ElementTree.parse(report).iter("testcase") if case.get("name", "").partition("[")[0] == name]
    return tuple(_read_case(case) for case in cases)


def _read_case(case: ElementTree.Element) -> CaseRan:
    name = case.get("name", "")
    ends: tuple[tuple[str, End], ...] = (("error", "error"), ("failure", "failed"), ("skipped", "skipped"))
    for tag, end in ends:
        found = case.find(tag)
        if found is not None:
            return CaseRan(name, end, " ".join(found.get("message", "").split())[:400])
    return CaseRan(name, "passed", "")
