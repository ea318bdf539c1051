"""Planted bugs: their files, their planting, the judgement, and a campaign on a subset of them that really runs.

All of them run with `chaos planted` and `chaos planted --harness`, and here in a soak.
"""

import ast
import dataclasses
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from msgspec.structs import replace

from chaos import __main__ as command
from chaos import console
from chaos.console import ExitCode
from chaos.planted.bug import AREAS, BUGS, PACKAGES, Bug, Replace, campaign_options, choose_bugs, load_bug, load_bugs
from chaos.planted.command import count_areas, describe, exit_code_of
from chaos.planted.hunt import Caught, Missed, Ran, Unproved, hunt, judge, judge_tested, plant_bug
from chaos.planted.plant import INSTALLED, apply_changes, copy_packages
from chaos.planted.suite import SUITES, CaseRan, End, SuiteRan, describe_missing, find_trouble, run_test
from chaos.results import Action, OracleVerdict, Trial, TrialResult, Verdict
from chaos.scenario import load_scenario
from chaos.step import parse_short_step
from eventlog import conformance
from eventlog.errors import MisuseError
from recovery import conformance as session_conformance
from recovery.checkpoints import conformance as checkpoint_conformance
from recovery.redrive import conformance as redrive_conformance
from recovery.space import conformance as space_conformance
from tests.chaos.fakes import make_result

ALL = load_bugs()
ENGINE = [bug for bug in ALL if bug.selection.target == "engine"]
HARNESS = [bug for bug in ALL if bug.selection.target == "harness"]
OF_THE_ISSUE = {
    "fence-skipped",
    "outcome-before-effect",
    "effect-before-intent",
    "deletion-lost",
    "difference-recorded",
    "scan-returns-head",
}
# Bugs of one selection share the run of the sound copy.
REALLY_RUN = (
    ("fence-skipped", "effect-before-intent"),
    ("difference-recorded", "quarantine-unlinked", "voided-without-proof"),
    ("scan-returns-head", "acknowledged-before-commit", "adopted-without-scan"),
    ("deletion-lost", "outcome-before-effect"),
    ("exit-invented", "rerun-without-restore"),
)
# Hunted by a test of the suite of stores.
OF_THE_LOG = ("wal-left-behind", "floor-unchecked", "path-before-lock")
# By a test of the suite of spaces.
OF_SPACES = ("end-told-before-record", "running-key-evicted", "start-time-ignored")
# By a test of the suite of checkpoint stores.
OF_CHECKPOINTS = ("damaged-checkpoint-believed",)
# By a test of the suite of redrivers.
OF_REDRIVERS = ("attempt-counted-late", "good-start-resets", "living-driver-restarted", "start-ahead-forgotten")
# By a test of the suite of sessions.
OF_SESSIONS = ("settled-key-run-again", "fork-keeps-root")
SOUND = """
name = "mine"
about = "what it breaks"
target = "engine"
expect = ["order"]
[[replace]]
file = "eventlog/writer.py"
old = "a"
new = "b"
"""
MISTAKES = {
    "no target": ('target = "engine"\n', "", "target None is unknown; use engine or harness"),
    "no name": ('name = "mine"\n', "", "name is missing or not a string"),
    "another name": ('"mine"', '"yours"', "name 'yours' must be the name of the file, 'mine'"),
    "unknown key": ("about =", "abuot =", "unknown key 'abuot'; known are about, area"),
    "no expectation": ('["order"]', "[]", "expect must list names"),
    "a harness bug that may pass": (
        'target = "engine"\nexpect = ["order"]\n[[replace]]\nfile = "eventlog/writer.py"',
        'target = "harness"\nexpect = ["pass"]\n[[replace]]\nfile = "chaos/plan.py"',
        "a harness bug may only make a campaign end unknown or fail, not pass",
    ),
    "no change": (SOUND[SOUND.index("[[replace]]") :], "", "changes nothing; add a [[replace]]"),
    "no old": ('old = "a"\n', "", "replace 1: must be a table of three strings: file, old and new"),
    "the same text": ('new = "b"', 'new = "a"', "replace 1: old is empty or equals new"),
    "another package": ("eventlog/writer.py", "reports/text.py", "lies in none of eventlog, recovery, which engine bugs may change"),
    "a path that leads out": ("eventlog/writer.py", "eventlog/../x.py", "lies in none of eventlog, recovery"),
    "a conformance test and a campaign": (
        'expect = ["order"]',
        'conformance = "test_x"\nscenario = "append"',
        "scenario belongs to a campaign; a bug with a conformance test has none",
    ),
    "a conformance test and an oracle": ('about = "what', 'conformance = "test_x"\nabout = "what', "expect belongs to a campaign"),
    "a conformance test of the harness": (
        'target = "engine"\nexpect = ["order"]\n[[replace]]\nfile = "eventlog/writer.py"',
        'target = "harness"\nconformance = "test_x"\n[[replace]]\nfile = "chaos/plan.py"',
        "only engine bugs are hunted by a conformance test",
    ),
    "a suite that is not there": ('expect = ["order"]', 'conformance = "test_x"\nsuite = "space"', "suite 'space' is unknown"),
    "a suite without a test of it": ('about = "what', 'suite = "spaces"\nabout = "what', "suite 'spaces' is unknown or has no conformance"),
    "an empty conformance test": ('expect = ["order"]', 'conformance = ""', "conformance is missing or not a string"),
    "an area that is not there": ('about = "what', 'area = "fences"\nabout = "what', "area 'fences' is unknown; there are fence, takeover"),
    "fast": ('about = "what', 'fast = 1\nabout = "what', "fast must be true or false, found 1"),
    "halts": ('about = "what', 'halts = "yes"\nabout = "what', "halts must be true or false, found 'yes'"),
    "runs": ('about = "what', 'runs = 0\nabout = "what', "runs must be a number above 0, found 0"),
}


def write_bug(directory: Path, text: str = SOUND) -> Path:
    """A bug file called mine.toml."""
    file = directory / "mine.toml"
    file.write_text(text, "utf-8")
    return file


@pytest.mark.parametrize(("old", "new", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_malformed_bug_file_is_refused_by_name(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    assert SOUND.count(old) == 1
    file = write_bug(tmp_path, SOUND.replace(old, new))
    with pytest.raises(MisuseError) as caught:
        load_bug(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert sentence in str(caught.value)


def test_an_unknown_bug_is_refused_and_those_there_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(command.app, ["planted", "--bug", "nope"]) == 254
    assert "unknown bug 'nope'; there are " in capsys.readouterr().err
    assert console.run(command.app, ["planted", "--jobs", "0"]) == 254


def make_copy(directory: Path, text: str) -> Path:
    """A tiny copy of a project with one file."""
    (directory / "eventlog").mkdir()
    (directory / "eventlog" / "writer.py").write_text(text)
    return directory


@pytest.mark.parametrize(("text", "count"), [("b\n", 0), ("a\na\n", 2)])
def test_a_text_that_is_not_there_exactly_once_names_bug_and_file(text: str, count: int, tmp_path: Path) -> None:
    copy = make_copy(tmp_path, text)
    with pytest.raises(MisuseError, match=f"^bug mine: eventlog/writer.py holds its `old` {count} times, not once"):
        apply_changes("mine", (Replace("eventlog/writer.py", "a", "c"),), copy)
    assert (copy / "eventlog" / "writer.py").read_text() == text


def test_a_file_that_is_gone_names_bug_and_file(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="^bug mine: there is no file eventlog/gone.py"):
        apply_changes("mine", (Replace("eventlog/gone.py", "a", "c"),), make_copy(tmp_path, "a"))


def test_each_change_is_made_in_what_the_one_before_it_left(tmp_path: Path) -> None:
    copy = make_copy(tmp_path, "a")
    apply_changes("mine", (Replace("eventlog/writer.py", "a", "b"), Replace("eventlog/writer.py", "b", "c")), copy)
    assert (copy / "eventlog" / "writer.py").read_text() == "c"


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_every_bug_applies_to_the_project_and_leaves_it_alone(bug: Bug, tmp_path: Path) -> None:
    changed = {change.file for change in (*bug.replace, *bug.selection.given)}
    before = {file: (INSTALLED / file).read_bytes() for file in changed}
    plant_bug(bug, tmp_path)
    for file in changed:
        planted = (tmp_path / "copy" / file).read_bytes()
        assert planted != before[file]
        compile(planted, file, "exec")
        assert (INSTALLED / file).read_bytes() == before[file]


def test_no_bug_is_caught_by_a_name_that_is_not_there(tmp_path: Path) -> None:
    # A NameError ends a driver, and an oracle says fail: the bug that was meant would not have been looked at.
    for bug in ALL:
        plant_bug(bug, tmp_path / bug.name)
    files = [str(file) for bug in ALL for change in bug.replace if (file := tmp_path / bug.name / "copy" / change.file).suffix == ".py"]
    run = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", *files], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_every_bug_says_what_is_lost_and_selects_what_there_is(bug: Bug) -> None:
    assert len(bug.about) > 20
    options = campaign_options(bug.selection)
    if options.step:
        parse_short_step(options.step)
    if options.scenario.endswith(".toml"):
        load_scenario(Path(options.scenario))


AREAS_OF_THE_ISSUE = ("fence", "takeover", "commit", "ledger", "kill", "scan", "diff", "apply", "checkpoint", "decision", "redriver")


def test_every_area_of_the_engine_has_bugs_and_all_together_are_at_least_forty() -> None:
    counts = Counter(bug.area for bug in ENGINE)
    assert all(counts[area] >= 2 for area in AREAS_OF_THE_ISSUE), counts
    assert sum(counts[area] for area in AREAS_OF_THE_ISSUE) >= 40
    assert {bug.area for bug in ALL} <= set(AREAS)


def test_the_fast_subset_has_a_bug_of_each_area_and_of_the_harness_and_is_small() -> None:
    engine, harness = choose_bugs(ALL, "engine", [], fast=True), choose_bugs(ALL, "harness", [], fast=True)
    assert {bug.area for bug in engine} >= set(AREAS_OF_THE_ISSUE) and len(engine) <= 20
    assert {bug.name for bug in harness} >= {"kill-removed", "step-renamed", "driver-ends-before-kill", "log-emptied"}
    with pytest.raises(MisuseError, match="--fast chooses the bugs, and --bug names them"):
        choose_bugs(ALL, "engine", ["fence-skipped"], fast=True)


def test_each_area_is_counted_with_who_spoke(tmp_path: Path) -> None:
    bug = dataclasses.replace(bug_of("engine", tmp_path, "order"), area="fence")
    other = dataclasses.replace(bug, name="other")
    lines = count_areas([bug, other], {"mine": Caught("order", 1.25, ""), "other": Missed("")})
    assert lines == ["AREA fence caught=1 total=2 slowest=1.2 s by order"]
    assert count_areas([bug], {"mine": Missed("")}) == ["AREA fence caught=0 total=1 slowest=0.0 s by nobody"]


def test_there_are_at_least_sixteen_engine_bugs_and_the_six_of_the_issue() -> None:
    assert len(ENGINE) >= 16
    assert {bug.name for bug in ENGINE} >= OF_THE_ISSUE
    assert {name for group in REALLY_RUN for name in group} >= OF_THE_ISSUE


def test_the_bug_files_lie_where_the_wheel_takes_them_from() -> None:
    assert BUGS.is_relative_to(INSTALLED / "chaos")
    assert {bug.name for bug in ALL} == {file.stem for file in BUGS.iterdir()}


def test_a_copy_holds_the_packages_of_its_target_and_nothing_compiled(tmp_path: Path) -> None:
    copy_packages("harness", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(PACKAGES["harness"])
    assert not list(tmp_path.rglob("*.pyc"))
    assert (tmp_path / "eventlog" / "schema.sql").is_file()


def ran(code: int, *results: TrialResult) -> Ran:
    """A campaign that ended."""
    return Ran(code, results, 1.5, "its last words")


def trial_of(verdict: Verdict, oracle: str = "order") -> TrialResult:
    """A trial of which one oracle said this."""
    trial = Trial(1, "small", (Action("driver@1:x:1", "kill"),))
    return make_result(trial, verdict, oracles=(OracleVerdict(oracle, verdict, "in words"),))


def test_where_a_bug_was_met_is_told_by_what_was_done(tmp_path: Path) -> None:
    met = replace(trial_of(Verdict.FAIL), trial=Trial(1, "small", (Action("", "corrupt", path="log", content="flip 1 2"),)))
    caught = judge(bug_of("engine", tmp_path, "order"), ran(1, met))
    assert caught == Caught("order", 1.5, 'small, corrupt "log" "flip 1 2": in words')


def bug_of(target: str, tmp_path: Path, expect: str) -> Bug:
    """A bug of a target that expects one name."""
    text = SOUND.replace('"engine"', f'"{target}"').replace('"order"', f'"{expect}"')
    return load_bug(write_bug(tmp_path, text.replace("eventlog/", "chaos/" if target == "harness" else "eventlog/")))


def test_only_the_fail_of_a_named_oracle_catches_an_engine_bug(tmp_path: Path) -> None:
    bug = bug_of("engine", tmp_path, "order")
    caught = judge(bug, ran(1, trial_of(Verdict.PASS), trial_of(Verdict.FAIL)))
    assert caught == Caught("order", 1.5, "small, kill at driver@1:x:1: in words")
    assert isinstance(judge(bug, ran(1, trial_of(Verdict.FAIL, "chain"))), Missed)
    assert isinstance(judge(bug, ran(2, trial_of(Verdict.UNKNOWN))), Missed)
    crashed = msgspec.structs.replace(trial_of(Verdict.FAIL), drivers=((1, -9), (2, 70)))
    assert judge(bug, ran(1, crashed)).detail.startswith("a driver ended by an internal error, look at it: small, kill")
    assert judge(dataclasses.replace(bug, may_halt=True), ran(1, crashed)) == caught
    cut_short = msgspec.structs.replace(trial_of(Verdict.FAIL), verdict=Verdict.UNKNOWN)
    assert isinstance(judge(bug, ran(2, cut_short)), Missed)
    assert isinstance(judge(bug, ran(0, trial_of(Verdict.PASS))), Missed)


@pytest.mark.parametrize("code", [254, 255, -9, 3])
def test_a_campaign_without_a_verdict_concludes_nothing(code: int, tmp_path: Path) -> None:
    outcome = judge(bug_of("engine", tmp_path, "order"), ran(code, trial_of(Verdict.FAIL)))
    assert outcome == Unproved(f"the campaign ended with {code}: its last words")


def test_a_harness_bug_is_caught_by_the_end_it_expects_and_never_by_a_pass(tmp_path: Path) -> None:
    bug = bug_of("harness", tmp_path, "unknown")
    assert isinstance(judge(bug, ran(2, trial_of(Verdict.UNKNOWN))), Caught)
    assert isinstance(judge(bug, ran(1, trial_of(Verdict.FAIL))), Missed)
    assert isinstance(judge(bug, ran(0, trial_of(Verdict.PASS))), Missed)


def test_exit_codes_say_all_caught_one_missed_or_nothing_concluded() -> None:
    caught, missed, unproved = Caught("order", 1.0, ""), Missed(""), Unproved("")
    assert exit_code_of([caught, caught]) == ExitCode.PASS
    assert exit_code_of([caught, unproved, missed]) == ExitCode.FAIL
    assert exit_code_of([caught, unproved]) == ExitCode.UNKNOWN


def test_a_line_says_who_spoke_where_and_when() -> None:
    assert describe("mine", Caught("order", 1.25, "there")) == "caught   mine  by order after 1.2 s: there"
    assert describe("mine", Missed("nobody")).startswith("MISSED")
    assert describe("mine", Unproved("why")).startswith("UNKNOWN")


CONFORMANCE = [bug for bug in ALL if bug.selection.conformance]
NAME = "test_rule_L9_x"


def suite_ran(*tests: CaseRan) -> SuiteRan:
    """A run of the suite that ended."""
    return SuiteRan(tests, 2.5, "pytest ended with 4: its last words")


def case(end: End, message: str = "", name: str = NAME) -> CaseRan:
    return CaseRan(name, end, message)


@pytest.mark.parametrize(
    ("suite", "names", "package"),
    [
        ("stores", OF_THE_LOG, conformance),
        ("spaces", OF_SPACES, space_conformance),
        ("redrivers", OF_REDRIVERS, redrive_conformance),
        ("sessions", OF_SESSIONS, session_conformance),
        ("checkpoints", OF_CHECKPOINTS, checkpoint_conformance),
    ],
    ids=["stores", "spaces", "redrivers", "sessions", "checkpoints"],
)
def test_bugs_are_hunted_by_tests_that_the_suites_have(suite: str, names: tuple[str, ...], package: ModuleType) -> None:
    bugs = [bug for bug in CONFORMANCE if bug.selection.suite == suite]
    assert {bug.name for bug in bugs} >= set(names) and SUITES[bugs[0].selection.suite] == package.__name__
    modules = Path(package.__path__[0]).glob("test_*.py")
    there = [node.name for file in modules for node in ast.parse(file.read_bytes()).body if isinstance(node, ast.FunctionDef)]
    assert [there.count(bug.selection.conformance) for bug in bugs] == [1] * len(bugs)
    # -k selects by a part of a name: what else it selects would only cost time.
    assert [sum(bug.selection.conformance in name for name in there) for bug in bugs] == [1] * len(bugs)


@pytest.mark.parametrize("words", ["assert 1 == 2", "AssertionError: gone", "Failed: DID NOT RAISE StaleEpochError"])
def test_only_the_named_tests_own_assertion_catches_a_bug_of_the_log(words: str) -> None:
    caught = judge_tested(NAME, suite_ran(case("passed"), case("failed", words, f"{NAME}[lowered]")))
    assert caught == Caught(NAME, 2.5, f"[lowered] {words}")


@pytest.mark.parametrize(
    "test",
    [
        case("failed", "NameError: name 'x' is not defined"),
        case("error", "failed on setup with 'assert 1 == 2'"),
        case("skipped", "the store does not declare 'processes'"),
    ],
    ids=lambda test: test.end,
)
def test_a_test_that_broke_or_was_skipped_concludes_nothing(test: CaseRan) -> None:
    assert isinstance(judge_tested(NAME, suite_ran(test)), Unproved)
    assert find_trouble(NAME, suite_ran(case("passed"), test)).startswith("the sound copy does not pass: ")


def test_a_test_that_did_not_run_concludes_nothing_and_one_that_passed_is_a_miss() -> None:
    assert judge_tested(NAME, suite_ran()) == Unproved(f"{NAME} did not run: pytest ended with 4: its last words")
    assert find_trouble(NAME, suite_ran()).startswith(f"the suite has no test {NAME}")
    assert isinstance(judge_tested(NAME, suite_ran(case("passed"))), Missed)
    assert find_trouble(NAME, suite_ran(case("passed"))) == ""


def test_without_pytest_nothing_is_concluded_and_the_word_says_why() -> None:
    assert describe_missing() == ""
    assert describe_missing(lambda name: None).startswith("pytest is not installed")


def test_a_copy_whose_code_cannot_be_imported_concludes_nothing(tmp_path: Path) -> None:
    bug = load_bug(BUGS / "floor-unchecked.toml")
    plant_bug(bug, tmp_path)
    (tmp_path / "copy" / "eventlog" / "writer.py").write_text("import no_such_module\n")
    assert isinstance(hunt(bug, tmp_path), Unproved)


def test_a_run_of_the_suite_that_does_not_end_in_time_concludes_nothing(tmp_path: Path) -> None:
    plant_bug(load_bug(BUGS / "floor-unchecked.toml"), tmp_path)
    hung = run_test(NAME, tmp_path, seconds=0.01)
    assert (hung.tests, hung.words) == ((), "pytest did not end within 0.01 s")
    assert isinstance(judge_tested(NAME, hung), Unproved)


def test_a_test_that_breaks_under_a_bug_concludes_nothing(tmp_path: Path) -> None:
    bug = load_bug(BUGS / "floor-unchecked.toml")
    broken = dataclasses.replace(bug.replace[0], new="if no_such_name:")
    plant_bug(dataclasses.replace(bug, replace=(broken,)), tmp_path)
    outcome = hunt(bug, tmp_path)
    assert isinstance(outcome, Unproved) and "no_such_name" in outcome.detail


Planted = Callable[..., tuple[int, str, dict[str, object]]]


@pytest.fixture
def planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Planted:
    """`chaos planted` with these arguments: its exit code, what it printed, its JSON."""

    def run(*arguments: str) -> tuple[int, str, dict[str, object]]:
        file = tmp_path / "outcome.json"
        code = console.run(command.app, ["planted", "--jobs", "2", "--json", str(file), *arguments])
        return code, capsys.readouterr().out, json.loads(file.read_text())

    return run


@pytest.mark.parametrize("names", [*REALLY_RUN, OF_THE_LOG, OF_SPACES, OF_REDRIVERS, OF_SESSIONS, OF_CHECKPOINTS], ids="+".join)
def test_the_campaign_or_the_suite_catches_engine_bugs(names: tuple[str, ...], planted: Planted) -> None:
    code, said, document = planted(*(word for name in names for word in ("--bug", name)))
    assert code == 0, said
    assert said.splitlines()[-1] == f"PLANTED caught={len(names)} total={len(names)}"
    rows = document["bugs"]
    assert isinstance(rows, list)
    assert {row["name"]: row["by"] in load_bug(BUGS / f"{row['name']}.toml").expect for row in rows} == dict.fromkeys(names, True)
    assert all(row["seconds"] > 0 for row in rows)


FAST_HARNESS = [bug for bug in HARNESS if bug.is_fast]


@pytest.mark.parametrize(
    "bugs",
    [
        pytest.param(FAST_HARNESS, id="fast"),
        pytest.param([bug for bug in HARNESS if not bug.is_fast], id="all others", marks=pytest.mark.soak),
    ],
)
def test_a_broken_harness_never_ends_in_a_pass(bugs: list[Bug], planted: Planted) -> None:
    code, said, document = planted(*(word for bug in bugs for word in ("--bug", bug.name)))
    assert code == 0, said
    assert (document["caught"], document["total"]) == (len(bugs), len(bugs))


@pytest.mark.soak
def test_every_bug_of_the_engine_is_caught(planted: Planted) -> None:
    code, said, document = planted()
    assert code == 0, said
    assert (document["caught"], document["total"]) == (len(ENGINE), len(ENGINE))
