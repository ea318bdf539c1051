"""The command: each mistake is one sentence and 254, trouble is 255 with a file, verdicts are 0, 1, 2."""

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import typer
from rich.console import Console

from chaos import __main__ as command
from chaos import console
from chaos.console import ExitCode, HarnessError, exit_code_of, keep_traceback
from chaos.drivers import Place, base_environment, noting_environment
from chaos.losses import LOSSES
from chaos.options import Options, check_environment, name_environment, parse_duration, write_command
from chaos.plan import BY_SCENARIO, FAULTS
from chaos.progress import PlainProgress, TerminalProgress
from chaos.results import RUN_FORMAT, OracleVerdict, Trial, TrialResult, Verdict
from chaos.scenario import Scenario
from eventlog.errors import MisuseError
from recovery.labels import NOT_ACTED_ON, Label
from tests.chaos.fakes import FakeZygote, make_result

MISTAKES = {
    "mode": (["--mode", "nope"], "unknown mode 'nope'; there is ci"),
    "option": (["--nope"], "No such option: --nope"),
    "command": (["nope"], "No such command 'nope'"),
    "list alone": (["list"], "Missing command"),
    "no number": (["--seed", "x"], "Invalid value for '--seed'"),
    "negative seed": (["--seed", "-1"], "must not be negative"),
    "no runs": (["--runs", "0"], "--runs 0 must be at least 1"),
    "no jobs": (["--jobs", "0"], "--jobs 0 must be at least 1"),
    "stop after": (["--stop-after", "0"], "--stop-after 0 must be at least 1"),
    "no audit": (["--audit", "0"], "--audit 0 must be at least 1"),
    "audit of system calls": (["--level", "syscall", "--audit", "1"], "which --level syscall has not; leave one"),
    "audit of a simulation": (["--backend", "sim", "--audit", "1"], "--audit plays real trials twice; a simulated one is its seed"),
    "audit of a failing disk": (["--mode", "disk", "--audit", "1"], "which --mode disk has not"),
    "audit of damage": (["--mode", "corrupt", "--audit", "1"], "which --mode corrupt has not"),
    "audit of power losses": (["--mode", "powerloss", "--audit", "1"], "which --mode powerloss has not"),
    "html to stdout": (["--html", "-"], "--html -: name a file"),
    "resumed with more": (["--resume", "/", "--seed", "1"], "--seed belongs to a new campaign"),
    "budget": (["--budget", "soon"], "--budget 'soon' is no duration; write 90s"),
    "scenario": (["--scenario", "nope"], "unknown scenario 'nope'; mode ci has a"),
    "scenario file": (["--scenario", "./nope.toml"], "nope.toml: no such file"),
    "step": (["--step", "driver"], "--step: 'driver' is no step; write ROLE@EPOCH:NAME:N"),
    "fault": (["--fault", "hug"], "unknown fault 'hug'; there are kill, exec, freeze"),
    "engine": (["--engine", "/"], "holds no package eventlog"),
    "empty engine": (["--engine", "", "--runs", "0"], "--engine is empty; give it a value, or leave it away"),
    "empty plan": (["--plan=", "--runs", "0"], "--plan is empty; give it a value"),
    "empty target": (["--target", "", "--runs", "0"], "--target is empty"),
    "empty engine of a list": (["list", "steps", "--engine", "", "--mode", "nope"], "--engine is empty"),
    "empty directory": (["report", ""], "an argument is empty"),
    "json": (["--json", "/nope/there/x.json"], "must be a file in a directory that exists"),
    "json to stdout": (["--json", "-"], "chaos report DIR --json -"),
    "json unwritable": (["--json", "x" * 300], ": cannot be written: File name too long"),
    "json below a file": (["--json", "/dev/null/x.json"], "must be a file in a directory that exists"),
    "junit": (["--junit", "/nope/there/x.xml"], "--junit /nope/there/x.xml: must be a file in a directory that exists"),
    "junit is a directory": (["--junit", "/"], "--junit /: must be a file in a directory that exists"),
    "junit unwritable": (["--junit", "/proc/x.xml"], "--junit /proc/x.xml: cannot be written: No such file or directory; name a file"),
    "junit to stdout": (["--junit", "-"], "--junit -: name a file"),
    "one file for both": (["--json", "x", "--junit", "./x"], "--junit ./x: is the file of --json too"),
    "junit before a subcommand": (["--junit", "x", "report", "y"], "options before 'report' belong to a campaign"),
    "coverage before a subcommand": (["--require-coverage", "list", "modes"], "options before 'list' belong to a campaign"),
    "before a subcommand": (["--seed", "1", "list", "modes"], "options before 'list' belong to a campaign"),
    "report of nothing": (["report", "/nope"], "/nope: is no run directory"),
    "report alone": (["report"], "Missing argument 'DIR'"),
    "list json": (["list", "modes", "--json", "/nope/x"], "--json /nope/x: cannot be written"),
}


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_and_254(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console.run(command.app, arguments) == 254
    said = capsys.readouterr().err
    assert sentence in said
    assert said.startswith("chaos: ") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_lists_print_what_there_is_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(command.app, ["list", "faults", "--json", "-"]) == 0
    assert [row["fault"] for row in json.loads(capsys.readouterr().out)] == [*FAULTS, *BY_SCENARIO, *(f"lose {name}" for name in LOSSES)]
    assert console.run(command.app, ["list", "scenarios"]) == 0
    assert "reattach" in capsys.readouterr().out


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.PASS, 0), (Verdict.FAIL, 1), (Verdict.UNKNOWN, 2)])
def test_verdicts_have_their_exit_codes(verdict: Verdict, code: int) -> None:
    assert exit_code_of(verdict) == code
    assert code not in (ExitCode.USAGE, ExitCode.HARNESS)


def test_what_nobody_expected_is_255_with_its_traceback_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()

    @app.command()
    def broken() -> None:
        raise KeyError("a bug")

    assert console.run(app, []) == 255
    said = capsys.readouterr().err
    assert said.startswith("chaos: harness error: KeyError: 'a bug'; the traceback is in ")
    assert "Traceback" not in said
    assert "a bug" in Path(said.strip().split("the traceback is in ")[1]).read_text()


def test_trouble_inside_a_run_leaves_its_traceback_there(tmp_path: Path) -> None:
    with pytest.raises(HarnessError) as caught, keep_traceback(tmp_path):
        raise ValueError("a bug")
    assert caught.value.file == tmp_path / "harness-error.txt"
    assert "ValueError: a bug" in caught.value.file.read_text()
    with pytest.raises(MisuseError), keep_traceback(tmp_path):
        raise MisuseError("not trouble")


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("1.5m", 90), ("2h", 7200), ("500ms", 0.5)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


def test_the_repeat_command_holds_all_that_decides_what_runs() -> None:
    options = Options(runs=3, scenario="a b.toml", step="driver:x:1", jobs=4, out="there", json="f")
    assert write_command("chaos", options, 9) == "chaos --mode ci --runs 3 --scenario 'a b.toml' --step driver:x:1 --seed 9"
    assert write_command("chaos", Options(junit="f", require_coverage=True), 0) == "chaos --mode ci --seed 0 --require-coverage"


def test_what_is_handed_on_to_drivers_stands_in_the_repeat_command_and_is_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESSION_SPACE", raising=False)
    monkeypatch.delenv("SESSION_KILL_MARK", raising=False)
    given = {"SESSION_SPACE": "namespaced", "SESSION_KILL_MARK": "cgroup", "SESSION_NAME": "not this"}
    assert name_environment({}) == "" and "SESSION_SPACE" not in base_environment()
    first = name_environment(given) + "chaos"
    assert write_command(first, Options(), 9) == "env SESSION_KILL_MARK=cgroup SESSION_SPACE=namespaced chaos --mode ci --seed 9"
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert given.items() - base_environment().items() == {("SESSION_NAME", "not this")}
    for wrong in ({"SESSION_SPACE": "maybe"}, {"SESSION_KILL_MARK": "magic"}, {"SESSION_SPACE": "namespaced", "PATH": "/nowhere"}):
        with pytest.raises(MisuseError):
            check_environment(wrong)
    check_environment({})


def test_in_the_namespaced_space_commands_may_write_where_scenarios_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSION_SPACE", "namespaced")
    handed = noting_environment(Place(tmp_path))
    assert handed["SESSION_SPACE_WRITABLE"].split(":") == [handed["WITNESS"], handed["OUTSIDE"]]
    assert Path(handed["WITNESS"]).is_file() and Path(handed["OUTSIDE"]).is_dir()


def test_progress_without_a_terminal_is_a_line_per_tenth_with_an_eta() -> None:
    lines: list[str] = []
    now = [0.0]
    progress = PlainProgress(lines.append, lambda: now[0])
    progress.begin("trials", 100)
    for _ in range(100):
        now[0] += 0.1
        progress.advance(make_result(Trial(1, "small", ()), Verdict.PASS))
    assert len(lines) == 11
    assert lines[5] == "trials 50/100 (50 %) not passed 0, 5 s, ETA 5 s"


def test_progress_that_is_slow_says_so_every_five_seconds() -> None:
    lines: list[str] = []
    now = [0.0]
    progress = PlainProgress(lines.append, lambda: now[0])
    progress.begin("trials", 1000)
    for _ in range(3):
        now[0] += 5.0
        progress.advance(make_result(Trial(1, "small", ()), Verdict.UNKNOWN))
    assert lines[1:] == [f"trials {done}/1000 (0 %) not passed {done}, {5 * done} s, ETA {5 * (1000 - done)} s" for done in (1, 2, 3)]


def test_a_terminal_shows_what_did_not_pass_by_signature_beside_rate_and_count() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=150, legacy_windows=False)
    now = [0.0]
    with TerminalProgress(console, lambda: now[0]) as progress:
        progress.begin("trials", 5)
        for number, verdict in enumerate([Verdict.PASS, Verdict.FAIL, Verdict.FAIL, Verdict.UNKNOWN]):
            now[0] += 0.5
            oracle = OracleVerdict("chain", Verdict.FAIL, f"row {number} [differs]")
            progress.advance(make_result(Trial(number, "small", ()), verdict, oracles=(oracle,)))
        console.print(progress.render())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "4/5" in shown and "2.0 per s" in shown and "not passed 3" in shown
    assert re.search(r"2 .*FAIL.* fail by chain, settled: row N \[differs\]", shown)
    assert re.search(r"1 .*UNKNOWN.* unknown by no oracle", shown)


SMALL = 'name = "small"\n[[call]]\ntool = "bash"\nrun = "true"\n'


class Zygote(FakeZygote):
    """Its trials decide the labels of `decided`."""

    decided: tuple[str, ...] = ()

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        return msgspec.structs.replace(super().run(scenario, trial, directory, converges_to), labels=dict.fromkeys(self.decided, 1))


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `chaos` on one scenario with zygotes that answer at once, where `script` and `decided` say what."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)

    def run(*arguments: str, script: Mapping[str, str] | None = None, decided: Iterable[str] = ()) -> int:
        kind = type("Zygote", (Zygote,), {"decided": tuple(decided)})
        monkeypatch.setattr(command, "start_processes", lambda *_: lambda slot: kind(script or {}, slot=slot))
        return console.run(command.app, ["--scenario", "small.toml", "--seed", "7", "--jobs", "1", "--out", "run", *arguments])

    return run


def test_a_campaign_writes_what_its_report_says_as_json_and_junit(
    campaign: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    step = "driver@1:outcome.commit.before:1"
    assert campaign("--json", "f.json", "--junit", "f.xml", script={step: "fail"}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("SUMMARY ") and lines[-2] == "FAIL"
    document = json.loads((tmp_path / "f.json").read_text())
    assert document["verdict"] == "fail"
    assert {one["plan"] for one in document["failures"]} >= {f"kill {step}"}
    root = ElementTree.parse(tmp_path / "f.xml").getroot()
    assert root.get("failures") == str(document["summary"]["fail"])
    assert root.get("tests") == str(document["summary"]["runs"])
    said = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert said == {name: document[name] for name in ("format", "verdict", "reasons", "summary")}
    assert said["format"] == RUN_FORMAT


def test_a_run_directory_is_reported_again_as_json_and_junit(
    campaign: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert campaign("--json", "first.json", "--junit", "first.xml") == 0
    assert console.run(command.app, ["report", "run", "--json", "again.json", "--junit", "again.xml"]) == 0
    for name in ("json", "xml"):
        assert (tmp_path / f"first.{name}").read_bytes() == (tmp_path / f"again.{name}").read_bytes()
    capsys.readouterr()
    assert console.run(command.app, ["report", "run", "--junit", "/nope/f.xml"]) == 254
    said = capsys.readouterr()
    assert said.err.startswith("chaos: --junit /nope/f.xml: must be a file") and not said.out
    assert console.run(command.app, ["report", "run", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pass"


def test_results_that_are_not_those_of_the_verdict_are_no_pass(campaign: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign() == 0
    results = Path("run", "results.jsonl")
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:-1]))
    assert console.run(command.app, ["report", "run"]) == 2
    held, given = (f"{count} trials (pass {count}, unknown 0, fail 0)" for count in (len(lines) - 1, len(lines)))
    assert f"NOTE results.jsonl holds {held}, and the verdict was given for {given}" in capsys.readouterr().out
    results.unlink()
    assert console.run(command.app, ["report", "run"]) == 2
    Path("run", "verdict.json").write_text('{"verdict": "pass", "reasons": []}')
    assert console.run(command.app, ["report", "run"]) == 2
    assert "NOTE results.jsonl holds 0 trials (pass 0, unknown 0, fail 0): run" in capsys.readouterr().out


def test_a_file_that_stands_where_json_goes_is_kept_until_the_campaign_ends(campaign: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text("old")
    assert campaign("--json", "f.json", "--junit", "/nope/f.xml") == 254
    assert (tmp_path / "f.json").read_text() == "old"
    assert not (tmp_path / "run").exists()


def test_the_run_directory_names_every_label_of_recovery(campaign: Callable[..., int], tmp_path: Path) -> None:
    assert campaign() == 0
    labels = json.loads((tmp_path / "run" / "config.json").read_text())["labels"]
    assert [(one["label"], one["acted_on"]) for one in labels] == [(label.value, label not in NOT_ACTED_ON) for label in Label]
    unreachable = {one["label"] for one in labels if one["unreachable"]}
    assert unreachable == {"accept_by_person", "exclude_by_person", "discard_by_person"}


def test_coverage_that_is_required_and_missing_makes_the_campaign_unknown(
    campaign: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    acted_on = [label.value for label in Label if label not in NOT_ACTED_ON]
    assert campaign("--require-coverage", decided=acted_on[1:]) == 2
    reason = f"coverage: no trial decided {acted_on[0]}"
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["reasons"]) == ("unknown", [reason])
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert json.loads(history[-1])["verdict"] == "unknown"
    lines = capsys.readouterr().out.splitlines()
    assert f"NOTE {reason}" in lines and f"ZERO trials: {acted_on[0]}" in lines
    assert lines[-1].endswith("--seed 7 --require-coverage")


def test_coverage_that_is_whole_passes_and_a_failure_stays_one(campaign: Callable[..., int], tmp_path: Path) -> None:
    acted_on = [label.value for label in Label if label not in NOT_ACTED_ON]
    assert campaign("--require-coverage", decided=acted_on) == 0
    script = {"driver@1:outcome.commit.before:1": "fail"}
    assert campaign("--require-coverage", "--out", "other", script=script) == 1
    assert len(json.loads((tmp_path / "other" / "verdict.json").read_text())["reasons"]) == 1


def test_missing_coverage_is_a_reason_beside_others(campaign: Callable[..., int], tmp_path: Path) -> None:
    assert campaign("--require-coverage", script={"driver@1:start:1": "unfired"}) == 2
    reasons = json.loads((tmp_path / "run" / "verdict.json").read_text())["reasons"]
    assert [reason.partition(":")[0] for reason in reasons] == ["small", "coverage", "coverage"]
    assert "coverage: 1 of " in reasons[2] and reasons[2].endswith(" were not reached, first kill at driver:start")
