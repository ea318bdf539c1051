"""A campaign that was killed goes on where it was, and only there; and the audit that plays trials twice."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import chaos.__main__ as command
from chaos.audit import Compared, choose_audited, compare, judge_audit
from chaos.campaign import NO_AUDIT, Audit, Campaign, CampaignResult, Limits
from chaos.done import NOTHING, Done
from chaos.fingerprint import digest_engine, digest_harness
from chaos.launch import Silent, open_pool
from chaos.options import Options
from chaos.planted.plant import INSTALLED
from chaos.results import Action, Trial, TrialResult, Verdict
from chaos.resume import check_resumed, check_same, take_up
from chaos.rundir import Config, RunDirectory, lock_run, read_config, read_lines, read_results
from chaos.scenario import Scenario, to_json
from chaos.transcript import Transcript
from chaos.zygote_client import Zygote
from eventlog.errors import MisuseError
from tests.chaos.fakes import STEPS, FakeZygote, make_result, make_scenario
from tests.chaos.test_gate import SCENARIO, run_chaos

CONFIG = Config(7, "ci", "chaos --seed 7", 1, 0, (to_json(make_scenario()),), options={"mode": "ci"})
SECONDS = 90.0


class CountingZygote(FakeZygote):
    """Counts what it is asked, over all of them; each trial has a digest."""

    asked: list[int]

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        self.asked.append(trial.number)
        return msgspec.structs.replace(super().run(scenario, trial, directory, converges_to), digest=f"d{trial.number}")


def run_campaign(out: Path, done: Done | None = None, audit: Audit = NO_AUDIT, **limits: Any) -> tuple[CampaignResult, list[int]]:
    """A campaign on the fakes, in `out` new or going on; what came of it and the trials that were asked for."""
    asked: list[int] = []

    def start(slot: int) -> Zygote:
        zygote = CountingZygote({STEPS[1]: "fail"}, slot=slot)
        zygote.asked = asked
        return zygote

    area = out.parent / "area"
    held = lock_run(out) if done else contextlib.nullcontext()
    with held, RunDirectory(out, CONFIG, time.monotonic, goes_on=done) as run, open_pool(start, 1) as pool:
        campaign = Campaign(pool, run, area, Silent(), done=done or NOTHING, audit=audit)
        return campaign.run([make_scenario()], Limits(**limits), 7), asked


def cut(out: Path, whole: int, rest: bytes = b'{"trial": {"num') -> None:
    """Leave `whole` lines of the results, a piece of the next one, and as many ends in the history, as a kill does."""
    lines = (out / "results.jsonl").read_bytes().splitlines(keepends=True)
    (out / "results.jsonl").write_bytes(b"".join(lines[:whole]) + rest)
    kept: list[bytes] = []
    for line in (out / "history.jsonl").read_bytes().splitlines(keepends=True):
        if b'"trial ended"' in line and sum(b'"trial ended"' in one for one in kept) == whole:
            break
        kept.append(line)
    (out / "history.jsonl").write_bytes(b"".join(kept))


def summarise(result: CampaignResult) -> list[tuple[int, Verdict]]:
    """Numbers and verdicts, in order of number."""
    return sorted((one.trial.number, one.verdict) for one in result.results)


@pytest.mark.parametrize("whole", [0, 1, 4])
def test_a_campaign_that_was_cut_goes_on_and_repeats_no_trial_that_has_a_result(whole: int, tmp_path: Path) -> None:
    first, asked = run_campaign(tmp_path / "run")
    cut(tmp_path / "run", whole)
    done = take_up(tmp_path / "run")
    again, rest = run_campaign(tmp_path / "run", done)
    known = max(0, whole - 1)  # the first line is the clean run's
    assert len(rest) == len(asked) - known and rest == asked[known:]
    assert summarise(again) == summarise(first)
    assert len(read_lines(tmp_path / "run" / "steps.jsonl", dict)) == 1


def test_the_result_of_a_clean_run_that_was_cut_is_missing_and_told(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    assert take_up(tmp_path / "run").missing == []
    cut(tmp_path / "run", 0)
    (missing,) = take_up(tmp_path / "run").missing
    assert (missing.trial.number, missing.verdict) == (0, Verdict.PASS)


def test_a_line_that_was_cut_is_taken_away_from_every_file(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    for name in ("history", "steps", "recordings", "results"):
        with (tmp_path / "run" / f"{name}.jsonl").open("ab") as file:
            file.write(b'{"cut')
    take_up(tmp_path / "run")
    for name in ("history", "steps", "recordings", "results"):
        assert (tmp_path / "run" / f"{name}.jsonl").read_bytes().endswith(b"}\n")


def test_what_was_kept_of_a_trial_without_a_result_is_removed(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    (kept,) = (tmp_path / "run" / "artifacts").iterdir()
    (tmp_path / "run" / "artifacts" / "small-99").mkdir()
    take_up(tmp_path / "run")
    assert list((tmp_path / "run" / "artifacts").iterdir()) == [kept]


def test_failures_of_before_count_for_stop_after(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    failed = [one.verdict for one in read_results(tmp_path / "run")].index(Verdict.FAIL)
    cut(tmp_path / "run", failed + 1)
    _, asked = run_campaign(tmp_path / "run", take_up(tmp_path / "run"), stop_after=1)
    assert asked == []


def edit(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the lines of a file by hand."""
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def exchange(old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    """The edit that writes one word for another in every line."""
    return lambda lines: [line.replace(old, new) for line in lines]


EDITS: dict[str, tuple[str, Callable[[list[bytes]], list[bytes]], str]] = {
    "a failure is called a pass": (
        "results", exchange(b'"verdict":"fail"', b'"verdict":"pass"'), "results.jsonl: line [2-9] is not the one that the campaign wrote",
    ),
    "a line is taken away": ("results", lambda lines: [lines[0], *lines[2:]], "results.jsonl: line 2 is not the one"),
    "the first line is taken away": ("results", lambda lines: lines[1:], "results.jsonl: line 1 is not the one"),
    "two lines have changed places": ("results", lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2 is not the one"),
    "a line stands twice": ("results", lambda lines: [*lines, lines[-1]], "results.jsonl: line [0-9]+ is not the one"),
    "a line without a seal": ("results", lambda lines: [*lines, b'{"trial":{}}\n'], "results.jsonl: line [0-9]+ is not the one"),
    "the last line is taken away": ("results", lambda lines: lines[:-1], "the history has the end of trial [0-9]+ of small, and no result"),
    "all lines are taken away": ("results", lambda lines: [], "the history has the end of trial [0-9]+ of small, and no result"),
    "the clean run is another": ("recordings", exchange(b'"steps":["', b'"steps":["x'), "recordings.jsonl: line 1 is not the one"),
    "the clean run is taken away": ("recordings", lambda lines: [], "the end of the recording of a clean run of small, and no result"),
    "the steps are others": ("steps", exchange(b"driver", b"worker"), "steps.jsonl: line 1 is not"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_was_edited_is_refused_by_file_and_line(name: str, tmp_path: Path) -> None:
    part, change, what = EDITS[name]
    run_campaign(tmp_path / "run")
    take_up(tmp_path / "run")
    edit(tmp_path / "run" / f"{part}.jsonl", change)
    with pytest.raises(MisuseError, match=what):
        take_up(tmp_path / "run")


def test_results_of_another_configuration_are_refused(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    edit(tmp_path / "run" / "config.json", lambda lines: [line.replace(b'"seed": 7', b'"seed": 8') for line in lines])
    with pytest.raises(MisuseError, match=r"steps.jsonl: line 1 is not the one .* or config.json is another"):
        take_up(tmp_path / "run")


def test_a_run_that_was_cut_twice_goes_on_with_an_unbroken_chain(tmp_path: Path) -> None:
    first, _ = run_campaign(tmp_path / "run")
    for whole in (2, 4):
        cut(tmp_path / "run", whole)
        again, _ = run_campaign(tmp_path / "run", take_up(tmp_path / "run"))
    assert summarise(again) == summarise(first)
    take_up(tmp_path / "run")


def test_two_campaigns_never_write_one_directory_and_the_second_names_the_first(tmp_path: Path) -> None:
    refused = pytest.raises(MisuseError, match=f"process {os.getpid()} runs a campaign there; wait for its end")
    with RunDirectory(tmp_path / "run", CONFIG, time.monotonic):
        with refused, lock_run(tmp_path / "run"):
            pass
        with refused:
            RunDirectory(tmp_path / "run", CONFIG, time.monotonic)
    with lock_run(tmp_path / "run"):
        pass


def test_a_directory_is_locked_from_before_its_first_file_on(tmp_path: Path) -> None:
    """Else a second campaign finds the configuration of one that has not locked it yet, and goes on with that."""
    (tmp_path / "run").mkdir()
    with lock_run(tmp_path / "run"), pytest.raises(MisuseError, match="runs a campaign there"):
        RunDirectory(tmp_path / "run", CONFIG, time.monotonic)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_directory_that_cannot_be_begun_is_not_kept_locked(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    with pytest.raises(MisuseError, match="is not empty"):
        RunDirectory(tmp_path / "run", CONFIG, time.monotonic)
    with lock_run(tmp_path / "run"):
        pass


def test_a_run_that_another_one_brought_to_its_end_meanwhile_is_not_gone_on_with(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    check_resumed(tmp_path / "run", Options(resume="x"))
    (tmp_path / "run" / "verdict.json").touch()
    with pytest.raises(MisuseError, match="came to its end"):
        take_up(tmp_path / "run")


def test_a_second_resume_is_refused_while_the_first_reads_and_while_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its reading and its writing too: what the second had read would be older than what the first has written since."""
    request, options = SimpleNamespace(out=tmp_path / "run"), Options(resume="x")
    run_campaign(tmp_path / "run")
    tried: list[str] = []

    def try_second(*_: object, **__: object) -> Done:
        with pytest.raises(MisuseError, match=f"process {os.getpid()} runs a campaign there"), lock_run(tmp_path / "run"):
            pass
        tried.append("")
        return NOTHING

    class Tried(RunDirectory):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            try_second()
            super().__init__(*arguments, **options)

    monkeypatch.setattr(command, "take_up", try_second)
    monkeypatch.setattr(command, "RunDirectory", Tried)
    with command._open_run(request, options, CONFIG) as (directory, done):  # type: ignore[arg-type]
        try_second()
    assert len(tried) == 3


def test_a_trial_that_is_another_one_now_is_refused(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    done = take_up(tmp_path / "run")
    first = next(one for one in done.results if one.trial.number)
    other = msgspec.structs.replace(first, trial=msgspec.structs.replace(first.trial, entry="exec"))
    done = replace(done, results=tuple(other if one is first else one for one in done.results))
    with pytest.raises(MisuseError, match="is another one now; begin a new campaign"):
        run_campaign(tmp_path / "run", done)


def test_only_where_reports_go_and_how_many_work_may_stand_beside_it(tmp_path: Path) -> None:
    run_campaign(tmp_path / "run")
    found = check_resumed(tmp_path / "run", Options(resume="x", jobs=3, html="page.html"))
    assert (found.seed, found.jobs, found.html, found.out) == (7, 3, "page.html", str(tmp_path / "run"))
    with pytest.raises(MisuseError, match="--stop-after belongs to a new campaign"):
        check_resumed(tmp_path / "run", Options(resume="x", stop_after=1))
    with pytest.raises(MisuseError, match="is no run directory"):
        check_resumed(tmp_path, Options(resume="x"))
    simulated = msgspec.structs.replace(CONFIG, options={"backend": "sim"})
    RunDirectory(tmp_path / "simulated", simulated, time.monotonic).__exit__(None, None, None)
    with pytest.raises(MisuseError, match="a simulation is not gone on with"):
        check_resumed(tmp_path / "simulated", Options(resume="x"))
    (tmp_path / "run" / "verdict.json").touch()
    with pytest.raises(MisuseError, match=r"came to its end; chaos report .*run shows it"):
        check_resumed(tmp_path / "run", Options(resume="x"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"engine_digest": "1"}, "the engine is not what it was"),
        ({"harness_digest": "1"}, "the harness is not what it was"),
        ({"python": "1"}, "the version of Python is not what it was"),
        ({"project": "1"}, "the version of crashworthy is not what it was"),
        ({"program": "env SESSION_KILL_MARK=environment chaos"}, "what drivers are given is not what it was"),
        ({"unavailable": {"small": "git is missing"}}, "the set of available scenarios is not what it was"),
        ({"scenarios": (to_json(make_scenario("other")),)}, r"the scenarios are not what they were \(small, other\)"),
    ],
)
def test_a_run_of_something_else_is_refused_in_one_sentence(change: dict[str, Any], what: str) -> None:
    check_same(msgspec.json.decode(msgspec.json.encode(CONFIG), type=Config), CONFIG, Path("run"))
    with pytest.raises(MisuseError, match=what):
        check_same(CONFIG, msgspec.structs.replace(CONFIG, **change), Path("run"))


def test_another_line_of_source_is_another_engine(tmp_path: Path) -> None:
    for package in ("eventlog", "recovery"):
        shutil.copytree(INSTALLED / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    assert digest_engine(tmp_path) == digest_engine(None) != digest_harness()
    with (tmp_path / "recovery" / "calls.py").open("a") as file:
        file.write("# changed\n")
    assert digest_engine(tmp_path) != digest_engine(None)


def make_transcript(number: int, ended: str = "finished", digest: str = "d") -> Transcript:
    """A transcript of one event."""
    event = {"seq": 1, "epoch": 1, "kind": "call_settled", "version": 1, "payload": {"ended": ended}, "changes": []}
    return Transcript({}, make_result(Trial(number, "small", ()), Verdict.PASS, digest=digest), [event])


def transcribe_by(ended: Callable[[int], str]) -> Audit:
    """An audit of three trials; `ended` says what the N-th play of any trial leads to."""
    plays: dict[int, int] = {}

    def transcribe(zygote: Zygote, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> Transcript:
        plays[trial.number] = plays.get(trial.number, 0) + 1
        result = zygote.run(scenario, trial, directory, converges_to)
        told = ended(plays[trial.number])
        return msgspec.structs.replace(make_transcript(trial.number, told), result=msgspec.structs.replace(result, digest=told))

    return Audit(3, transcribe)


def test_trials_that_go_the_same_way_twice_pass_the_audit(tmp_path: Path) -> None:
    done, asked = run_campaign(tmp_path / "run", audit=transcribe_by(lambda play: "finished"))
    assert not any("audit" in reason for reason in done.reasons)
    compared = read_lines(tmp_path / "run" / "audit.jsonl", Compared)
    assert len(compared) == 3 and not any(one.difference for one in compared)
    assert asked.count(compared[0].trial) == 2


def test_a_trial_that_goes_another_way_makes_the_run_unknown_and_its_first_event_is_named(tmp_path: Path) -> None:
    done, _ = run_campaign(tmp_path / "run", audit=transcribe_by(lambda play: ("finished", "interrupted")[play - 1]))
    assert len([reason for reason in done.reasons if reason.startswith("audit: small trial ")]) == 3
    assert all("seq 1 call_settled: payload.ended" in reason for reason in done.reasons)


def test_an_audit_that_compared_nothing_is_a_reason() -> None:
    assert judge_audit([], 5) == ["audit: nothing was compared"]
    assert judge_audit([], 0) == []
    assert compare("", make_transcript(1, digest="")).difference == "a history could not be read"
    assert "of the first time no events are known" in compare("d1", make_transcript(1, digest="d2")).difference
    assert compare("d", make_transcript(1)).difference == ""


def test_the_sample_of_the_audit_is_drawn_by_the_seed() -> None:
    trials = [Trial(number, "small", (Action(f"driver@1:a:{number}", "kill"),), "exec" if number == 5 else "fork") for number in range(9)]
    assert choose_audited(trials, 3, 1) == choose_audited(trials[::-1], 3, 1) != choose_audited(trials, 3, 2)
    assert choose_audited(trials, 99, 1) == {("small", number) for number in range(9) if number != 5}


def test_the_sample_of_the_audit_does_not_depend_on_the_order_in_which_steps_were_recorded() -> None:
    """The numbers of trials do."""
    plans = [(Action(f"{role}:a:{number}", "kill"),) for number in range(1, 6) for role in ("driver@1", "shim.1@1")]
    both = [{number: Trial(number, "small", plan) for number, plan in enumerate(order)} for order in (plans, plans[::-1])]
    chosen = [{one[number].plan for _, number in choose_audited(list(one.values()), 4, 1)} for one in both]
    assert chosen[0] == chosen[1] and len(chosen[0]) == 4


def test_a_campaign_killed_by_sigkill_goes_on_to_the_report_of_an_uninterrupted_one(tmp_path: Path) -> None:
    arguments = ["--scenario", SCENARIO, "--fault", "kill", "--runs", "5", "--seed", "3", "--jobs", "1", "--stop-after", "9"]
    whole = run_chaos(*arguments, "--out", "whole", "--json", "whole.json", cwd=tmp_path)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "chaos", *arguments, "--out", "killed"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_lines(tmp_path / "killed" / "results.jsonl", 3)
        process.send_signal(signal.SIGKILL)
    before = read_results(tmp_path / "killed")
    again = run_chaos("--resume", "killed", "--json", "killed.json", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"goes on: 1 clean runs and {len(before) - 1} trials have results" in again.stdout
    assert read_results(tmp_path / "killed")[: len(before)] == before
    assert read_config(tmp_path / "killed").seed == 3
    assert read_steady(tmp_path / "killed.json") == read_steady(tmp_path / "whole.json")
    refused = run_chaos("--resume", "killed", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (254, 1) and "came to its end" in refused.stderr


def wait_lines(file: Path, wanted: int) -> None:
    """Wait until a file has so many lines."""
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(FileNotFoundError):
            if file.read_bytes().count(b"\n") >= wanted:
                return
        assert time.monotonic() < deadline, f"waited {SECONDS:g} s for {wanted} lines in {file}"
        signal.sigtimedwait([], 0.01)


STEADY = ("runs", "pass", "unknown", "fail", "kills", "steps", "killed", "unreachable", "faults", "reasons")


def read_steady(file: Path) -> dict[str, Any]:
    """A document without what a clock says, and without what may rightly be found before or after what a command does meanwhile."""
    document: dict[str, Any] = json.loads(file.read_text())
    steady = {name: document[name] for name in ("format", "verdict", "reasons", "seed", "command", "failures", "groups", "audit")}
    scenarios = [{name: one[name] for name in ("scenario", "trials", "kills", "freezes")} for one in document["scenarios"]]
    return steady | {"summary": {name: document["summary"][name] for name in STEADY}, "scenarios": scenarios}


def test_a_real_trial_that_cannot_race_goes_the_same_way_twice(tmp_path: Path) -> None:
    chosen = ["--scenario", SCENARIO, "--step", "driver:outcome.commit.before:1", "--fault", "kill", "--seed", "1", "--jobs", "1"]
    done = run_chaos(*chosen, "--audit", "1", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AUDIT compared=1 different=0" in done.stdout
    (compared,) = read_lines(tmp_path / "run" / "audit.jsonl", Compared)
    assert compared.digest == compared.again != ""
