"""The command: each mistake is one sentence and 254, trouble is 255 with a file, verdicts are 0, 1, 2."""

import json
from pathlib import Path

import pytest
import typer

from chaos import __main__ as command
from chaos import console
from chaos.console import ExitCode, HarnessError, exit_code_of, keep_traceback
from chaos.options import Options, parse_duration, write_command
from chaos.plan import FAULTS
from chaos.progress import PlainProgress
from chaos.results import Trial, Verdict
from eventlog.errors import MisuseError
from tests.chaos.fakes import make_result

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
    "budget": (["--budget", "soon"], "--budget 'soon' is no duration; write 90s"),
    "scenario": (["--scenario", "nope"], "unknown scenario 'nope'; mode ci has a"),
    "scenario file": (["--scenario", "./nope.toml"], "nope.toml: no such file"),
    "step": (["--step", "driver"], "--step: 'driver' is no step; write ROLE@EPOCH:NAME:N"),
    "fault": (["--fault", "hug"], "unknown fault 'hug'; there are kill, exec, freeze"),
    "engine": (["--engine", "/"], "holds no package eventlog"),
    "json": (["--json", "/nope/there/x.json"], "must be a file in a directory that exists"),
    "json to stdout": (["--json", "-"], "chaos report DIR --json -"),
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
    assert [row["fault"] for row in json.loads(capsys.readouterr().out)] == list(FAULTS)
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
