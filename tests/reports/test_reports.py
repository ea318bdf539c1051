"""Reports: counts are of what fired, groups name the first difference, and no name moves a cursor."""

from typing import Any

import msgspec

from chaos.results import Action, Alive, Fault, OracleVerdict, Trial, TrialResult, Verdict
from reports.aggregate import group_troubles, summarise
from reports.load import Judgement, Run, RunConfig, ScenarioSteps, UnreachableStep
from reports.text import escape, render_report, render_summary, repeat_command

CONFIG = RunConfig(format=1, seed=7, mode="ci", command="chaos --seed 7")


def make_run(*results: TrialResult, steps: tuple[str, ...] = (), **more: Any) -> Run:
    scenarios = (ScenarioSteps("small", steps, (UnreachableStep("driver@2:start:1", "not yet"),) if steps else (), 1),)
    values: dict[str, Any] = {"judgement": Judgement(Verdict.PASS, ()), "seconds": 2.0}
    return Run("runs/1", CONFIG, scenarios, results, **values | more)


def make_trial(number: int, verdict: Verdict, do: str = "kill", entry: str = "fork", **more: Any) -> TrialResult:
    at = more.pop("at", f"driver@1:s:{number}")
    fault = {"reached": True, "fired": True, "alive": (), "half_written": False} | more.pop("fault", {})
    values: dict[str, Any] = {"oracles": (), "labels": {}, "restored": 0, "displaced": 0, "kept": ""} | more
    trial = Trial(number, "small", (Action(at, do),), entry)
    return TrialResult(trial, verdict, "why", (Fault(at, do, **fault),), drivers=(), seconds=0.1, **values)


def test_counts_are_of_faults_that_fired() -> None:
    command = Alive(3, "command", "bash")
    run = make_run(
        make_trial(1, Verdict.PASS, fault={"alive": (command,), "half_written": True}, labels={"adopt": 2}, restored=3, displaced=1),
        make_trial(2, Verdict.UNKNOWN, fault={"fired": False, "alive": (command,), "half_written": True}),
        make_trial(3, Verdict.PASS, entry="exec", at="driver@1:s:1", labels={"adopt": 1, "void": 1}),
        make_trial(4, Verdict.FAIL, do="supersede"),
        steps=("driver@1:s:1", "driver@1:s:2", "driver@2:start:1"),
    )
    summary = summarise(run)
    assert render_summary(summary) == [
        "SUMMARY runs=4 pass=2 unknown=1 fail=1 kills=2 steps=3 killed=1 unreachable=1 live=1 half_written=1 restored=1 quarantined=1 "
        "exec=1 superseded=1 seconds=2.0 rate=2.0",
        "LABELS adopt=3 void=1",
        "FAULTS kill=2 supersede=1",
    ]
    assert summary.unkilled == ("small driver@1:s:2",)
    assert msgspec.to_builtins(summary)["pass"] == 2


def test_a_run_of_nothing_has_zeros() -> None:
    assert render_summary(summarise(make_run(seconds=0.0)))[0].startswith("SUMMARY runs=0 pass=0")


def test_a_failure_is_shown_in_full_and_its_like_by_name() -> None:
    differs = OracleVerdict("workspace", Verdict.FAIL, "content differs", "a\nb\x1b[2J", "1111", "2222", "session 5 call_settled")
    trials = [
        make_trial(number, Verdict.FAIL, oracles=(OracleVerdict("log", Verdict.PASS), differs), kept="runs/1/artifacts/x")
        for number in range(1, 9)
    ]
    unknown = make_trial(9, Verdict.UNKNOWN, fault={"fired": False, "note": "never reached"})
    run = make_run(unknown, *trials)
    text = "\n".join(render_report(run, summarise(run), group_troubles(run.results)))
    shown, _, rest = text.partition("UNKNOWN small")
    assert shown.splitlines() == [
        "FAIL small kill at driver@1:s:1",
        "  reason    why",
        "  oracle    workspace: content differs",
        "  path      a\\nb\\x1b[2J",
        "  expected  1111",
        "  found     2222",
        "  event     session 5 call_settled",
        "  kept      runs/1/artifacts/x",
        "  repeat    chaos --mode ci --scenario small --step driver@1:s:1 --fault kill --seed 7",
        "  likewise  7 more: " + "; ".join(f"kill at driver@1:s:{number}" for number in range(2, 7)) + "; ...",
    ]
    assert "unfired   kill at driver@1:s:9 never reached" in rest


def test_no_more_than_ten_groups_are_shown() -> None:
    run = make_run(*(make_trial(number, Verdict.FAIL, oracles=(OracleVerdict(f"o{number}", Verdict.FAIL),)) for number in range(13)))
    text = "\n".join(render_report(run, summarise(run), group_troubles(run.results)))
    assert text.count("repeat") == 10
    assert "... and 3 more groups: runs/1/results.jsonl" in text


def test_the_repeat_command_aims_at_one_trial() -> None:
    config = msgspec.structs.replace(CONFIG, arguments={"small": "my dir/small.toml"}, engine="copy", program="python -m chaos")
    assert repeat_command(config, make_trial(1, Verdict.FAIL, entry="exec")) == (
        "python -m chaos --mode ci --scenario 'my dir/small.toml' --step driver@1:s:1 --fault exec --engine copy --seed 7"
    )
    clean = TrialResult(Trial(0, "small", ()), Verdict.FAIL, "", (), (), (), {}, 0, 0, 0.0)
    assert repeat_command(CONFIG, clean) == "chaos --mode ci --scenario small --seed 7"


def test_what_lowers_the_verdict_is_noted() -> None:
    run = make_run(steps=("driver@1:s:1",), judgement=Judgement(Verdict.UNKNOWN, ("no trial ran",)))
    text = "\n".join(render_report(run, summarise(run), []))
    assert "NOTE no trial ran" in text
    assert "UNREACHABLE 1 not yet" in text
    assert "NOTE steps = killed + unreachable + 1 not killed in this run: small driver@1:s:1" in text
    cut = make_run(judgement=None)
    assert "NOTE this run was cut short: it has no verdict" in render_report(cut, summarise(cut), [])


def test_escaping_keeps_what_can_be_read() -> None:
    assert escape("café a\tb\udce9") == "café a\\tb\\udce9"
