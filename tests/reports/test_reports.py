"""Reports: counts are of what fired, groups name the first difference, and no name moves a cursor."""

import msgspec

from chaos.plan import FAULTS
from chaos.results import Action, OracleVerdict, Verdict
from reports.aggregate import FAULTS as COUNTED
from reports.aggregate import count_oracles, count_scenarios, group_troubles, summarise
from reports.load import Judgement
from reports.text import render_group, render_oracles, render_report, render_scenarios, render_summary
from reports.words import describe_trial, escape
from tests.reports.makers import COMMAND, CONFIG, SHIM, make_clean, make_plan, make_run, make_trial, say

KILL = Action("driver@1:s:1", "kill")
DEEPER = Action("worker@2:restore:1", "kill")
FREEZE = (Action("driver@1:s:2", "freeze"), Action("", "start"), Action("", "wake", "driver@1"))
HELD = (Action("driver@1:s:2", "wait"), Action("", "start"), Action("", "release", "driver@1"))
EDIT = (Action("driver@1:s:3", "edit", "", "a", "x"), Action("", "edit", "", "b"), Action("driver@1:s:4", "kill"))
ORDER = (say("order", Verdict.PASS),)


def test_counts_are_of_faults_that_fired() -> None:
    run = make_run(
        make_trial(1, Verdict.PASS, fault={"alive": (COMMAND,), "half_written": True}, labels={"adopt": 2}, restored=3, displaced=1),
        make_trial(2, Verdict.UNKNOWN, fault={"fired": False, "alive": (COMMAND,), "half_written": True}),
        make_trial(3, Verdict.PASS, entry="exec", at="driver@1:s:1", labels={"adopt": 1, "void": 1}),
        make_plan(4, "freeze", *HELD, verdict=Verdict.FAIL, drivers=((2, 0), (1, 75))),
        steps=("driver@1:s:1", "driver@1:s:2", "driver@2:start:1"),
    )
    summary = summarise(run)
    assert render_summary(summary) == [
        "LABELS adopt=3 void=1",
        "FAULTS " + " ".join(f"{fault}={int(fault in ('kill', 'exec', 'freeze'))}" for fault in COUNTED),
        "SUMMARY runs=4 pass=2 unknown=1 fail=1 kills=2 steps=3 killed=1 unreachable=1 live=1 half_written=1 restored=1 quarantined=1 "
        "exec=1 superseded=1 freezes=0 held=0 again=0 deeper=0 syscall=0 edits=0 losses=0 states=0 states_rate=0.0 "
        "lost_calls=0 bound=0 pruned=0 seconds=2.0 rate=2.0",
    ]
    assert summary.unkilled == ("small driver@1:s:2",)
    assert msgspec.to_builtins(summary)["pass"] == 2


def test_plans_of_several_actions_are_counted_by_their_name_and_by_what_was_done() -> None:
    run = make_run(
        make_plan(1, "freeze", *FREEZE),
        make_plan(2, "freeze", *FREEZE, unfired=(0, 2)),
        make_plan(3, "freeze", *FREEZE, unfired=(2,)),
        make_plan(4, "again", KILL, DEEPER),
        make_plan(5, "again", KILL, DEEPER, unfired=(1,)),
        make_plan(6, "kill", KILL, DEEPER),
        make_plan(7, "edit", *EDIT),
        make_plan(8, "syscall", Action("driver@1:fdatasync:2", "kill"), entry="syscall"),
        make_plan(9, "syscall", Action("driver@1:fdatasync:3", "kill"), entry="syscall", unfired=(0,)),
    )
    summary = summarise(run)
    assert (summary.kills, summary.freezes, summary.again, summary.syscall, summary.edits) == (7, 2, 1, 1, 2)
    assert summary.faults == dict.fromkeys(COUNTED, 0) | {"kill": 1, "freeze": 1, "again": 1, "edit": 1, "syscall": 1}


def test_a_row_that_stands_for_several_trials_counts_for_all_of_them() -> None:
    run = make_run(
        make_trial(1, Verdict.PASS, fault={"alive": (COMMAND,)}, labels={"adopt": 2}, restored=3, count=40, oracles=ORDER),
        make_trial(2, Verdict.FAIL),
    )
    summary = summarise(run)
    assert (summary.runs, summary.passed, summary.fail, summary.kills, summary.live, summary.restored) == (41, 40, 1, 41, 40, 40)
    assert (summary.labels, summary.faults["kill"], summary.rate) == ({"adopt": 80}, 41, 20.5)
    assert count_oracles(run)["order"].passed == 40
    assert count_scenarios(run)[0].trials == 41


def test_a_command_that_lived_at_no_kill_is_not_live() -> None:
    run = make_run(make_plan(1, "freeze", *FREEZE, alive={0: (COMMAND,)}), make_trial(2, Verdict.PASS, fault={"alive": (SHIM,)}))
    assert summarise(run).live == 0


def test_every_fault_that_can_be_asked_for_is_counted_also_at_zero() -> None:
    assert set(FAULTS) <= set(COUNTED)


def test_a_run_of_nothing_has_zeros() -> None:
    assert render_summary(summarise(make_run(seconds=0.0)))[-1].startswith("SUMMARY runs=0 pass=0")
    assert render_oracles(count_oracles(make_run())) == ["ORACLES none"]


def test_scenarios_are_counted_apart_those_of_which_nothing_ran_too() -> None:
    config = msgspec.structs.replace(CONFIG, arguments={"never": "never", "small": "small"})
    run = make_run(
        make_clean(seconds=0.25),
        make_plan(1, "again", KILL, DEEPER, seconds=1.5),
        make_plan(2, "freeze", *FREEZE, scenario="other", seconds=0.126),
        make_trial(3, Verdict.UNKNOWN, fault={"fired": False}),
        config=config,
    )
    assert render_scenarios(count_scenarios(run)) == [
        "SCENARIO never trials=0 kills=0 freezes=0 seconds=0.0",
        "SCENARIO small trials=3 kills=2 freezes=0 seconds=1.85",
        "SCENARIO other trials=1 kills=0 freezes=1 seconds=0.13",
    ]


def test_oracles_are_named_and_counted_apart() -> None:
    run = make_run(
        make_clean(oracles=(say("order", Verdict.PASS), say("chain", Verdict.PASS))),
        make_trial(1, Verdict.FAIL, oracles=(say("chain", Verdict.PASS), say("order", Verdict.FAIL), say("witness", Verdict.UNKNOWN))),
    )
    assert render_oracles(count_oracles(run)) == [
        "ORACLES chain=pass:2,unknown:0,fail:0 order=pass:1,unknown:0,fail:1 witness=pass:0,unknown:1,fail:0"
    ]
    assert msgspec.to_builtins(count_oracles(run))["chain"] == {"pass": 2, "unknown": 0, "fail": 0}


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
        "  signature fail by workspace of a path, nothing decided: content differs",
        "  oracle    workspace: content differs",
        "  path      a\\nb\\x1b[2J",
        "  expected  1111",
        "  found     2222",
        "  event     session 5 call_settled",
        "  kept      runs/1/artifacts/x",
        "  replay    chaos replay runs/1/artifacts/x/trial.json --explain",
        "  shrink    chaos shrink runs/1/artifacts/x",
        "  repeat    chaos --mode ci --scenario small --step driver@1:s:1 --fault kill --seed 7",
        "  likewise  7 more: " + "; ".join(f"kill at driver@1:s:{number}" for number in range(2, 7)) + "; ...",
    ]
    assert "unfired   kill at driver@1:s:9 never reached" in rest
    assert "replay" not in rest


def test_a_trial_of_which_nothing_was_kept_has_no_replay() -> None:
    (group,) = group_troubles([make_trial(1, Verdict.FAIL)])
    assert [line.split()[0] for line in render_group(group, CONFIG)] == ["FAIL", "reason", "signature", "repeat"]


def test_failures_of_one_signature_are_one_group_in_whatever_scenario() -> None:
    def differ(place: str) -> OracleVerdict:
        return OracleVerdict("workspace", Verdict.FAIL, f"content of {place} differs from 17", place)

    one = make_plan(1, "kill", KILL, verdict=Verdict.FAIL, oracles=(differ("'a'"),))
    alike = make_plan(4, "kill", DEEPER, scenario="other", verdict=Verdict.FAIL, oracles=(differ("'b'"),))
    decided = make_plan(5, "kill", KILL, verdict=Verdict.FAIL, oracles=(differ("'a'"),), decisions=("adopt_exit",))
    groups = group_troubles([decided, alike, one])
    assert [(group.scenario, len(group.others)) for group in groups] == [("other", 1), ("small", 0)]
    assert [group.signature.label for group in groups] == ["", "adopt_exit"]
    assert "  likewise  1 more: small kill at driver@1:s:1" in render_group(groups[0], CONFIG)


def test_no_more_than_ten_groups_are_shown() -> None:
    run = make_run(*(make_trial(number, Verdict.FAIL, oracles=(OracleVerdict(f"o{number}", Verdict.FAIL),)) for number in range(13)))
    text = "\n".join(render_report(run, summarise(run), group_troubles(run.results)))
    assert text.count("repeat") == 10
    assert "... and 3 more groups: runs/1/results.jsonl" in text


def test_what_lowers_the_verdict_is_noted() -> None:
    run = make_run(steps=("driver@1:s:1",), judgement=Judgement(Verdict.UNKNOWN, ("no trial ran",)))
    text = "\n".join(render_report(run, summarise(run), []))
    assert "NOTE no trial ran" in text
    assert "UNREACHABLE 1 not yet" in text
    assert "NOTE steps = killed + unreachable + 1 not killed in this run: small driver@1:s:1" in text
    cut = make_run(judgement=None)
    assert "NOTE this run was cut short: it has no verdict" in render_report(cut, summarise(cut), [])


def test_a_report_ends_with_the_summary_after_all_other_counts() -> None:
    run = make_run(make_trial(1, Verdict.PASS, labels={"adopt_exit": 1}))
    lines = render_report(run, summarise(run), [])
    assert list(dict.fromkeys(line.split()[0] for line in lines)) == [
        *("NOTE", "SCENARIO", "ORACLES", "COVERAGE", "ZERO", "MATRIX", "UNREACHED", "LABELS", "FAULTS", "SUMMARY")
    ]


def test_a_trial_is_named_by_its_plan_in_words() -> None:
    edit = make_plan(1, "edit", *EDIT, Action("driver@1:s:5", "kill", "shim.1@1"))
    assert describe_trial(edit.trial) == (
        'edit "a" to "x" at driver@1:s:3, remove "b", kill at driver@1:s:4, kill shim.1@1 at driver@1:s:5'
    )
    assert describe_trial(make_plan(2, "freeze", *FREEZE).trial) == "freeze at driver@1:s:2, start, wake driver@1"
    assert describe_trial(make_trial(3, Verdict.PASS, entry="exec").trial) == "kill at driver@1:s:3 (the real command)"
    assert describe_trial(make_trial(4, Verdict.PASS, entry="syscall").trial) == "kill at driver@1:s:4 (under strace)"
    assert describe_trial(make_plan(6, "edit", Action("", "edit", "", "a", "")).trial) == 'edit "a" to ""'
    assert describe_trial(make_plan(7, "kill").trial) == "clean run"
    assert describe_trial(make_clean().trial) == describe_trial(make_plan(0, "kill", KILL).trial) == "clean run"
    assert describe_trial(make_plan(5, "edit", Action("", "edit", "", "\x1b[2J", "\u2028")).trial) == 'edit "\\u001b[2J" to "\\u2028"'


def test_a_fault_that_did_not_fire_is_named_with_its_process() -> None:
    (group,) = group_troubles([make_plan(1, "freeze", *FREEZE, verdict=Verdict.UNKNOWN, unfired=(1, 2))])
    assert [line for line in render_group(group, CONFIG) if "unfired" in line] == ["  unfired   start", "  unfired   wake driver@1"]


def test_escaping_keeps_what_can_be_read() -> None:
    assert escape("café a\tb\udce9") == "café a\\tb\\udce9"
