"""A campaign over fake zygotes: what it runs, how it judges, what it leaves, and what it makes of trouble."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.actions import format_plan
from chaos.campaign import Campaign, CampaignResult, Limits, distrust, distrust_recording
from chaos.depth import Depth
from chaos.launch import Silent, open_pool
from chaos.pool import RESTARTS, AllLostError
from chaos.required import ALWAYS, required_oracles
from chaos.results import Action, OracleVerdict, Recording, Trial, TrialResult, Verdict
from chaos.rundir import KEPT, Config, RunDirectory
from chaos.scenario import Scenario
from chaos.trial_set import TrialSet
from chaos.zygote_client import ProcessZygote, Zygote
from eventlog.errors import MisuseError
from tests.chaos.fakes import STEPS, FakeZygote, fake_command, make_result, make_scenario

ALL = len(STEPS) + 1
FREEZES = (TrialSet(freeze=("driver",)),)
PREFIX = (Action(STEPS[0], "kill"),)
EVERYTHING = Limits()
CONFIG = Config(0, "ci", "chaos", 1, 0, ())


class Ticks:
    """A clock that moves one second at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Bench:
    """A campaign in a directory of its own."""

    def __init__(self, home: Path) -> None:
        self.area = home / "area"
        self.area.mkdir()
        self.out = home / "run"

    def run(self, script: Mapping[str, str], limits: Limits = EVERYTHING, seed: int = 1, jobs: int = 1, **more: Any) -> CampaignResult:
        return self.start(lambda slot: FakeZygote(script, slot=slot), limits, seed, jobs, **more)

    def start(
        self, start: Callable[[int], Zygote], limits: Limits = EVERYTHING, seed: int = 1, jobs: int = 1, scenarios: Any = None
    ) -> CampaignResult:
        with RunDirectory(self.out, CONFIG, Ticks()) as run, open_pool(start, jobs) as pool:
            return Campaign(pool, run, self.area, Silent(), Ticks()).run(scenarios or [make_scenario()], limits, seed)

    def left(self) -> list[Path]:
        """The directories of trials that are still there."""
        return list(self.area.glob("*/*"))

    def read(self, name: str) -> list[Any]:
        return [json.loads(line) for line in (self.out / name).read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_campaign_runs_every_trial_once_and_passes(jobs: int, bench: Bench) -> None:
    done = bench.run({}, jobs=jobs, scenarios=[make_scenario("one"), make_scenario("two")])
    assert (done.verdict, done.reasons, done.left) == (Verdict.PASS, (), 0)
    for name in ("one", "two"):
        mine = [one.trial.number for one in done.results if one.trial.plan and one.trial.scenario == name]
        assert sorted(mine) == list(range(1, ALL + 1))
    assert bench.left() == []


def test_the_run_directory_holds_every_operation(bench: Bench) -> None:
    bench.run({})
    assert [line["scenario"] for line in bench.read("steps.jsonl")] == ["small"]
    assert len(bench.read("results.jsonl")) == ALL + 1
    whats = [line["what"] for line in bench.read("history.jsonl")]
    for what, count in {
        "trial started": ALL + 1,
        "trial ended": ALL + 1,
        "fault armed": ALL,
        "fault reached": ALL,
        "fault fired": ALL,
    }.items():
        assert whats.count(what) == count
    assert whats[:2] == ["trial started", "trial ended"]


def test_a_failed_trial_is_a_failed_campaign_and_is_kept(bench: Bench) -> None:
    done = bench.run({STEPS[0]: "fail"})
    assert done.verdict is Verdict.FAIL
    failed = next(one for one in done.results if one.verdict is Verdict.FAIL)
    assert (Path(failed.kept) / "left").read_text() == "by a trial"


def test_only_the_first_failures_are_kept(bench: Bench) -> None:
    done = bench.run(dict.fromkeys(STEPS, "fail"), scenarios=[make_scenario(f"s{number}") for number in range(4)])
    assert sum(bool(one.kept) for one in done.results) == KEPT


@pytest.mark.parametrize("told", ["unfired", "unjudged", "error"])
def test_a_pass_that_proves_nothing_is_unknown(told: str, bench: Bench) -> None:
    done = bench.run({STEPS[0]: told})
    assert done.verdict is Verdict.UNKNOWN
    assert [one.trial.plan[0].at for one in done.results if one.verdict is Verdict.UNKNOWN] == [STEPS[0]]


def test_a_step_that_was_not_killed_is_named(bench: Bench) -> None:
    done = bench.run({STEPS[0]: "unfired"})
    assert done.reasons == (f"small: 1 steps are neither killed nor unreachable, first {STEPS[0]}",)


def test_nothing_is_killed_when_the_clean_run_does_not_pass(bench: Bench) -> None:
    for told, verdict in (("fail", Verdict.FAIL), ("error", Verdict.UNKNOWN), ("unjudged", Verdict.UNKNOWN)):
        bench.out = bench.area.parent / told
        done = bench.run({"clean": told})
        assert done.verdict is verdict
        assert [one.trial.plan for one in done.results] == [()]


def test_one_bad_scenario_does_not_stop_the_others(bench: Bench) -> None:
    class OneBad(FakeZygote):
        def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
            recording = super().record(scenario, prefix, directory)
            bad = make_result(recording.result.trial, Verdict.FAIL)
            return Recording(scenario.name, recording.steps, bad) if scenario.name == "bad" else recording

    done = bench.start(lambda slot: OneBad({}), scenarios=[make_scenario("bad"), make_scenario("good")])
    assert done.verdict is Verdict.FAIL
    assert {one.trial.scenario for one in done.results if one.trial.plan} == {"good"}


def test_the_seed_changes_the_order_and_nothing_else(tmp_path: Path) -> None:
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        (tmp_path / str(number)).mkdir()
        done = Bench(tmp_path / str(number)).run({}, seed=seed)
        orders.append([one.trial for one in done.results])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0], key=lambda trial: trial.number) == sorted(orders[2], key=lambda trial: trial.number)


def test_a_seed_draws_the_same_trials_in_whatever_order_two_processes_passed_their_steps(tmp_path: Path) -> None:
    """A recording has them as they came, and the numbers of trials follow it; what `--runs` leaves of them may not."""
    drawn = []
    for name, steps in (("so", STEPS), ("otherwise", (STEPS[1], STEPS[0], *STEPS[2:]))):
        (tmp_path / name).mkdir()
        done = Bench(tmp_path / name).start(lambda slot, steps=steps: FakeZygote({}, steps, slot), Limits(fault="kill"), 1)
        drawn.append([format_plan(one.trial.plan) for one in done.results if one.trial.plan])
    assert drawn[0] == drawn[1] and len(drawn[0]) > 2


def test_limits_choose_trials(tmp_path: Path) -> None:
    def count(name: str, limits: Limits, script: Mapping[str, str] | None = None) -> int:
        (tmp_path / name).mkdir()
        done = Bench(tmp_path / name).run(script or {}, limits)
        return len([one for one in done.results if one.trial.plan])

    assert count("runs", Limits(runs=3)) == 3
    assert count("step", Limits(step=STEPS[0])) == 1
    assert count("fault", Limits(fault="exec")) == 1
    assert count("budget", Limits(budget_secs=0.5)) < ALL
    assert count("failed", Limits(stop_after=1), dict.fromkeys(STEPS, "fail")) < ALL
    assert count("failed alike", Limits(stop_after=2), dict.fromkeys(STEPS, "fail")) == ALL


def test_a_limited_campaign_that_passes_says_what_it_left(bench: Bench) -> None:
    done = bench.run({}, Limits(runs=3))
    assert (done.verdict, done.left) == (Verdict.PASS, ALL - 3)


def test_limits_that_leave_no_trial_are_misuse(bench: Bench) -> None:
    with pytest.raises(MisuseError, match="no trial has step driver@1:nowhere:1; chaos list steps"):
        bench.run({}, Limits(step="driver@1:nowhere:1"))


def test_a_budget_spent_before_the_first_trial_is_unknown(bench: Bench) -> None:
    done = bench.run({}, Limits(runs=0))
    assert (done.verdict, done.reasons) == (Verdict.UNKNOWN, ("no trial ran",))


def test_a_budget_that_ends_before_the_trials_do_is_unknown_and_says_how_many(bench: Bench) -> None:
    """A gate that ran out of time has not passed."""
    done = bench.run({}, Limits(budget_secs=0.5))
    assert done.verdict is Verdict.UNKNOWN
    assert done.reasons == (f"the budget of 0.5 s ended before {done.left} trials began",)


def test_clean_runs_inside_recovery_take_half_of_a_budget_and_are_counted_when_it_ends(bench: Bench) -> None:
    """Each second kill needs a clean run of its own: thousands of them would be no campaign, and no end."""
    done = bench.run({}, Limits(budget_secs=8, depth=Depth(2, least=2)))
    wanted = ALL - 1  # the exec trial has none
    recorded = [one for one in done.results if not one.trial.number and one.trial.plan]
    assert 0 < len(recorded) < wanted
    assert done.reasons[0] == f"the budget of 8 s ended before {wanted - len(recorded)} clean runs of kills inside recovery began"
    assert done.verdict is Verdict.UNKNOWN and [one for one in done.results if one.trial.number]


def test_a_plan_of_its_own_is_one_trial(bench: Bench) -> None:
    done = bench.run({}, scenarios=[make_scenario(plan=(Action(STEPS[0], "kill"),))])
    assert (done.verdict, len(done.results)) == (Verdict.PASS, 2)


def test_a_plan_of_its_own_may_kill_where_it_waited_before(bench: Bench) -> None:
    plan = (Action(STEPS[2], "wait"), Action(STEPS[0], "kill"), Action("", "release", "spawner@1"))
    done = bench.run({}, scenarios=[make_scenario(plan=plan)])
    assert (done.verdict, done.reasons) == (Verdict.PASS, ())


def test_freezes_are_trials_of_their_own(bench: Bench) -> None:
    done = bench.run({}, scenarios=[make_scenario(trials=FREEZES)])
    assert done.verdict is Verdict.PASS
    frozen = [one.trial.plan[0].at for one in done.results if one.trial.fault == "freeze"]
    assert sorted(frozen) == sorted(step for step in STEPS if step.startswith("driver@1:"))
    assert len(done.results) == ALL + 1 + len(frozen)


def test_a_step_that_was_killed_and_not_frozen_is_named(bench: Bench) -> None:
    class NeverStops(FakeZygote):
        def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
            result = super().run(scenario, trial, directory, converges_to)
            return make_result(trial, Verdict.PASS, fired=False) if trial.fault == "freeze" and trial.plan[0].at == STEPS[0] else result

    done = bench.start(lambda slot: NeverStops({}, slot=slot), scenarios=[make_scenario(trials=FREEZES)])
    assert done.verdict is Verdict.UNKNOWN
    assert done.reasons == (f"small: 1 steps are neither frozen nor named as not to be, first {STEPS[0]}",)


class Listening(FakeZygote):
    """Takes note of what it was asked."""

    def __init__(self, asked: list[tuple[Trial, int, Path, Mapping[str, Any]]], slot: int) -> None:
        super().__init__({}, slot=slot)
        self._asked = asked

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        self._asked.append((trial, self.slot, directory, converges_to))
        return super().run(scenario, trial, directory, converges_to)


def test_each_set_of_trials_has_a_clean_run_of_its_own_and_numbers_go_on(bench: Bench) -> None:
    done = bench.run({}, scenarios=[make_scenario(trials=(TrialSet(), TrialSet(PREFIX, label="settled")))])
    assert (done.verdict, done.reasons) == (Verdict.PASS, ())
    assert [(one.trial.number, one.trial.plan) for one in done.results[:2]] == [(0, ()), (0, PREFIX)]
    assert [line["before"] for line in bench.read("steps.jsonl")] == ["", "kill driver@1:start:1"]
    assert sorted(one.trial.number for one in done.results[2:]) == list(range(1, ALL + 2 + 1))
    again = [one.trial for one in done.results if one.trial.fault == "again"]
    # Recovery ends where the next attempt begins.
    killed = [trial.plan[1].at for trial in sorted(again, key=lambda one: one.number)]
    assert killed == ["driver@2:start:1", "driver@2:intent.commit.before:1"]
    assert {trial.plan[:1] for trial in again} == {PREFIX}


TWO_SETS = (TrialSet(), TrialSet(PREFIX, label="settled"))


def test_third_kills_go_on_from_second_ones_and_end_where_the_first_ended(bench: Bench) -> None:
    asked: list[tuple[Trial, int, Path, Mapping[str, Any]]] = []
    scenario = make_scenario("deep", trials=TWO_SETS, on_interrupted="continue")
    done = bench.start(lambda slot: Listening(asked, slot), Limits(depth=Depth(3)), scenarios=[scenario])
    assert (done.verdict, done.reasons, done.left) == (Verdict.PASS, (), 0)
    again = {trial.plan for trial, *_ in asked if trial.fault == "again"}
    deeper = [trial for trial, *_ in asked if trial.fault == "deeper"]
    assert {trial.plan[:2] for trial in deeper} == again and {len(trial.plan) for trial in deeper} == {3}
    assert {converges_to["parts"]["recorded"] for trial, _, _, converges_to in asked if trial.fault == "deeper"} == {"deep"}
    numbers = [one.trial.number for one in done.results if one.trial.number]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert {line["before"] for line in bench.read("steps.jsonl")} > {format_plan(plan) for plan in again}


def test_no_more_clean_runs_of_deeper_kills_are_made_than_trials_will_run(bench: Bench) -> None:
    recorded: list[tuple[Action, ...]] = []

    class Counting(FakeZygote):
        def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
            recorded.append(tuple(prefix))
            return super().record(scenario, prefix, directory)

    done = bench.start(lambda slot: Counting({}, slot=slot), Limits(depth=Depth(3), runs=1), scenarios=[make_scenario(trials=TWO_SETS)])
    assert sum(len(prefix) > 1 for prefix in recorded) == 1
    assert done.verdict is Verdict.PASS and sum(one.trial.number > 0 for one in done.results) == 1


def test_a_second_kill_after_which_nothing_is_left_to_recover_has_no_third_one_and_is_no_trouble(bench: Bench) -> None:
    class GoesOn(FakeZygote):
        def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
            recording = super().record(scenario, prefix, directory)
            return msgspec.structs.replace(recording, steps=()) if len(prefix) > 1 else recording

    done = bench.start(lambda slot: GoesOn({}, slot=slot), Limits(depth=Depth(3)), scenarios=[make_scenario(trials=TWO_SETS)])
    assert (done.verdict, done.reasons) == (Verdict.PASS, ())
    assert not [one for one in done.results if one.trial.fault == "deeper"]


def test_a_depth_of_one_makes_no_second_kill_and_two_no_third(tmp_path: Path) -> None:
    faults = []
    for depth in (1, 2):
        (tmp_path / str(depth)).mkdir()
        done = Bench(tmp_path / str(depth)).run({}, Limits(depth=Depth(depth)), scenarios=[make_scenario(trials=TWO_SETS)])
        faults.append({one.trial.fault for one in done.results if one.trial.number})
    assert faults == [{"kill", "exec"}, {"kill", "exec", "again"}]


def test_a_third_kill_is_not_looked_for_where_trials_are_chosen_otherwise(bench: Bench) -> None:
    done = bench.run({}, Limits(depth=Depth(3), fault="again"), scenarios=[make_scenario(trials=TWO_SETS)])
    assert {one.trial.fault for one in done.results if one.trial.number} == {"again"}


def test_a_second_kill_that_does_not_pass_leads_to_no_third_and_is_seen(bench: Bench) -> None:
    class OneBad(FakeZygote):
        def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
            recording = super().record(scenario, prefix, directory)
            is_bad = [action.at for action in prefix[1:]] == ["driver@2:start:1"]
            return msgspec.structs.replace(recording, result=make_result(recording.result.trial, Verdict.FAIL)) if is_bad else recording

    done = bench.start(lambda slot: OneBad({}, slot=slot), Limits(depth=Depth(3)), scenarios=[make_scenario(trials=TWO_SETS)])
    assert done.verdict is Verdict.FAIL
    assert {one.trial.plan[1].at for one in done.results if one.trial.fault == "deeper"} == {"driver@2:intent.commit.before:1"}


def test_a_set_whose_recovery_decided_otherwise_is_unknown_and_does_not_stop_the_others(bench: Bench) -> None:
    done = bench.run({}, scenarios=[make_scenario(trials=(TrialSet(PREFIX, label="adopt_exit"), TrialSet()))])
    assert done.verdict is Verdict.UNKNOWN
    assert done.results[0].reason == "recovery decided settled first, not adopt_exit"
    assert Path(done.results[0].kept).is_dir()
    assert sorted(one.trial.number for one in done.results[2:]) == list(range(1, ALL + 1))


def test_trials_must_converge_to_the_clean_run_of_their_set_where_that_is_known(bench: Bench) -> None:
    asked: list[tuple[Trial, int, Path, Mapping[str, Any]]] = []
    scenarios = [
        make_scenario("reissued"),
        make_scenario("continued", on_interrupted="continue", trials=(TrialSet(), TrialSet(PREFIX, label="settled"))),
    ]
    bench.start(lambda slot: Listening(asked, slot), scenarios=scenarios)
    told = {(trial.scenario, trial.fault): converges_to for trial, _, _, converges_to in asked}
    assert told == {
        ("reissued", "kill"): {"final": "f", "parts": {"recorded": "reissued"}},
        ("reissued", "exec"): {"final": "f", "parts": {"recorded": "reissued"}},
        ("continued", "kill"): {},
        ("continued", "exec"): {},
        ("continued", "again"): {"final": "f", "parts": {"recorded": "continued"}},
    }


def test_after_an_edit_that_the_clean_run_had_not_nothing_is_known_of_the_end(bench: Bench) -> None:
    asked: list[tuple[Trial, int, Path, Mapping[str, Any]]] = []
    edit = Action(STEPS[1], "edit", path="a", content="b")
    scenarios = [make_scenario("own", plan=(edit,)), make_scenario("before", trials=(TrialSet((edit,)),))]
    bench.start(lambda slot: Listening(asked, slot), scenarios=scenarios)
    assert {(trial.scenario, bool(converges_to)) for trial, _, _, converges_to in asked} == {("own", False), ("before", True)}


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_zygote_has_all_its_trials_in_one_directory_and_nobody_else_there(jobs: int, bench: Bench) -> None:
    asked: list[tuple[Trial, int, Path, Mapping[str, Any]]] = []
    bench.start(lambda slot: Listening(asked, slot), jobs=jobs, scenarios=[make_scenario("one"), make_scenario("two")])
    assert len(asked) == 2 * ALL
    assert {(slot, directory) for _, slot, directory, _ in asked} <= {
        (slot, bench.area / f"slot-{slot}" / "trial") for slot in range(1, jobs + 1)
    }


def test_a_given_plan_runs_alone_whether_it_was_enumerated_or_not(tmp_path: Path) -> None:
    own = (Action(STEPS[0], "kill"), Action("driver@2:decided:1", "kill"))
    for name, plan in (("enumerated", own[:1]), ("own", own)):
        (tmp_path / name).mkdir()
        done = Bench(tmp_path / name).run({}, Limits(plan=plan))
        assert [one.trial.plan for one in done.results] == [(), plan]
        assert done.verdict is Verdict.PASS


def test_a_given_plan_runs_once_also_in_a_scenario_of_several_sets(bench: Bench) -> None:
    scenario = make_scenario(trials=(TrialSet(), TrialSet(PREFIX)))
    done = bench.run({}, Limits(plan=(Action(STEPS[1], "kill"),)), scenarios=[scenario])
    assert [one.trial.plan for one in done.results if one.trial.number] == [(Action(STEPS[1], "kill"),)]


@pytest.mark.parametrize("limits", [Limits(plan=(*PREFIX, Action("driver@2:start:1", "kill"))), Limits(step="driver@2:start:1")])
def test_a_failed_clean_run_is_told_where_its_set_would_have_made_the_trial_that_was_asked_for(bench: Bench, limits: Limits) -> None:
    scenario = make_scenario(trials=(TrialSet(), TrialSet(PREFIX)))

    class FailsAfterPrefix(FakeZygote):
        def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
            found = super().record(scenario, prefix, directory)
            failed = make_result(found.result.trial, Verdict.FAIL, oracles=found.result.oracles)
            return msgspec.structs.replace(found, result=failed) if prefix else found

    done = bench.start(lambda slot: FailsAfterPrefix({}, slot=slot), limits, scenarios=[scenario])
    assert done.verdict is Verdict.FAIL
    assert [(one.trial.plan, one.verdict) for one in done.results] == [((), Verdict.PASS), (PREFIX, Verdict.FAIL)]
    assert len(done.reasons) == 1 and "a clean run that might make it did not pass" in done.reasons[0]


def test_a_clean_run_that_failed_is_not_forgotten_for_another_after_the_same_actions(bench: Bench) -> None:
    class FailsFirst(FakeZygote):
        runs = 0

        def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
            recording = super().record(scenario, prefix, directory)
            self.runs += 1
            result = make_result(recording.result.trial, Verdict.FAIL if self.runs == 1 else Verdict.PASS)
            return msgspec.structs.replace(recording, result=result)

    scenario = make_scenario(trials=(TrialSet(kill=("driver",)), TrialSet(kill=("shim",))))
    done = bench.start(lambda slot: FailsFirst({}, slot=slot), scenarios=[scenario])
    assert done.verdict is Verdict.FAIL


@pytest.mark.parametrize("told", ["error", "die"])
def test_what_a_trial_in_trouble_left_is_kept(told: str, bench: Bench) -> None:
    done = bench.run({STEPS[0]: told})
    (troubled,) = [one for one in done.results if one.verdict is Verdict.UNKNOWN]
    assert (Path(troubled.kept) / "left").read_text() == "by a trial"


def test_a_lost_zygote_is_replaced_and_its_trial_unknown(bench: Bench) -> None:
    done = bench.run({STEPS[0]: "die"})
    assert done.verdict is Verdict.UNKNOWN
    assert len(done.results) == ALL + 1
    assert [line["slot"] for line in bench.read("history.jsonl") if line["what"] == "zygote lost"] == [1]


def test_a_campaign_without_zygotes_is_no_verdict(bench: Bench) -> None:
    with pytest.raises(AllLostError, match="all zygotes are lost"):
        bench.run(dict.fromkeys(STEPS, "die"))
    assert sum(line["what"] == "zygote lost" for line in bench.read("history.jsonl")) == RESTARTS + 1


def test_clean_runs_that_all_cost_a_zygote_are_no_verdict(bench: Bench) -> None:
    with pytest.raises(AllLostError, match="every clean run lost its zygote"):
        bench.run({"clean": "die"})


def test_a_bug_in_a_thread_reaches_the_caller(bench: Bench) -> None:
    class Broken(FakeZygote):
        def run(self, *arguments: Any) -> TrialResult:
            raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        bench.start(lambda slot: Broken({}, slot=slot), jobs=2)


def test_real_processes_make_the_same_campaign(bench: Bench) -> None:
    command = fake_command({STEPS[0]: "fail", STEPS[2]: "die"})
    done = bench.start(lambda slot: ProcessZygote(command, bench.out / f"{slot}.txt", slot=slot), jobs=2)
    verdicts = {one.trial.plan[0].at: one.verdict for one in done.results if one.trial.fault == "kill"}
    assert verdicts == dict.fromkeys(STEPS, Verdict.PASS) | {STEPS[0]: Verdict.FAIL, STEPS[2]: Verdict.UNKNOWN}


def test_an_oracle_that_does_not_pass_is_never_overruled() -> None:
    trial = Trial(1, "small", (Action(STEPS[0], "kill"),))
    claimed = make_result(trial, Verdict.PASS, oracles=(OracleVerdict("a", Verdict.PASS), OracleVerdict("b", Verdict.FAIL)))
    assert distrust(claimed, frozenset()).verdict is Verdict.UNKNOWN
    assert distrust(make_result(trial, Verdict.FAIL, fired=False), frozenset()).verdict is Verdict.FAIL


@pytest.mark.parametrize("left_out", sorted(required_oracles(make_scenario())))
def test_an_oracle_left_out_makes_a_pass_unknown_and_is_named(left_out: str) -> None:
    spoke = tuple(OracleVerdict(name, Verdict.PASS) for name in required_oracles(make_scenario()) if name != left_out)
    result = distrust(make_result(Trial(1, "small", ()), Verdict.PASS, oracles=spoke), required_oracles(make_scenario()))
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, f"not judged by {left_out}")


def test_each_question_of_a_scenario_asks_for_its_oracle() -> None:
    asked = required_oracles(make_scenario(witnessed=(0,), compare_output=True))
    assert {"witness", "output", "reference", "exits"} <= asked
    assert not {"reference", "exits"} & required_oracles(make_scenario(on_interrupted="continue"))


def test_a_clean_run_without_steps_is_unknown() -> None:
    empty = Recording("small", (), make_result(Trial(0, "small", ()), Verdict.PASS))
    assert distrust_recording(empty, ALWAYS).result.reason == "the clean run passed no step"
