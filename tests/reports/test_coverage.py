"""Coverage: only what provably fired covers anything, and what was never reached is named."""

import msgspec
import pytest

from chaos.results import Action, Trial, TrialResult, Verdict
from reports.aggregate import summarise
from reports.coverage import Aimed, Cell, Counts, LabelCoverage, Zeros, find_empty, find_gaps, list_aimed, measure_coverage, name_step
from reports.load import Run, ScenarioSteps, UnreachableStep
from reports.text import render_coverage, render_matrix, render_report
from tests.reports.makers import COMMAND, CONFIG, LABELS, SHIM, make_clean, make_plan, make_result, make_run, make_trial

KILL = Action("driver@1:s.before:1", "kill")
SHIM_KILL = Action("shim.2@1:exit:1", "kill")
DEEPER = Action("worker@2:restore:3", "kill")
FREEZE = (Action("driver@1:s.before:2", "freeze"), Action("", "start"), Action("", "wake", "driver@1"))


@pytest.mark.parametrize(
    ("at", "name"),
    [
        ("driver@1:outcome.commit.before:1", "driver:outcome.commit.before"),
        ("shim.12@3:start:10", "shim:start"),
        ("shim@1:start:1", "shim:start"),
        ("worker@2:a:b:7", "worker:a:b"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_step_is_named_without_epoch_and_ordinal(at: str, name: str) -> None:
    assert name_step(at) == name


def test_labels_are_covered_by_trials_whose_faults_all_fired() -> None:
    run = make_run(
        make_clean(labels={"adopt_exit": 1}, restored=1),
        make_plan(1, "kill", KILL, labels={"adopt_exit": 2}, alive={0: (SHIM, COMMAND)}),
        make_plan(2, "kill", SHIM_KILL, labels={"adopt_exit": 1, "settled": 1}, alive={0: (SHIM,)}, restored=2, displaced=1),
        make_plan(3, "again", KILL, DEEPER, labels={"settled": 1}, alive={1: (COMMAND,)}, restored=1),
        make_plan(4, "again", KILL, DEEPER, labels={"reattach": 1, "settled": 1}, alive={0: (COMMAND,)}, restored=1, unfired=(1,)),
        make_plan(5, "freeze", *FREEZE, labels={"settled": 3, "adopt_exit": 0}, alive={0: (COMMAND,)}, displaced=4),
    )
    assert measure_coverage(run).labels == (
        LabelCoverage("reattach", True, "", trials=0, live=0, restored=0, quarantined=0),
        LabelCoverage("adopt_exit", True, "", trials=2, live=1, restored=1, quarantined=1),
        LabelCoverage("ask", False, "ends with a person", trials=0, live=0, restored=0, quarantined=0),
        LabelCoverage("settled", True, "", trials=3, live=1, restored=2, quarantined=2),
    )


def test_every_zero_is_named() -> None:
    run = make_run(
        make_plan(1, "kill", KILL, labels={"adopt_exit": 1}, alive={0: (COMMAND,)}),
        make_plan(2, "kill", KILL, labels={"settled": 1}, restored=1, displaced=1),
    )
    coverage = measure_coverage(run)
    assert coverage.zeros == Zeros(
        trials=("reattach",),
        live=("reattach", "settled"),
        restored=("reattach", "adopt_exit"),
        quarantined=("reattach", "adopt_exit"),
        not_reachable=("ask",),
    )
    assert render_coverage(coverage) == [
        "COVERAGE reattach trials=0 live=0 restored=0 quarantined=0",
        "COVERAGE adopt_exit trials=1 live=1 restored=0 quarantined=0",
        "COVERAGE settled trials=1 live=0 restored=1 quarantined=1",
        "ZERO trials: reattach",
        "ZERO live: reattach, settled",
        "ZERO restored: reattach, adopt_exit",
        "ZERO quarantined: reattach, adopt_exit",
        "ZERO not reachable, ends with a person: ask",
    ]


def test_a_label_that_ends_with_a_person_is_shown_when_a_trial_decided_it_none_the_less() -> None:
    coverage = measure_coverage(make_run(make_plan(1, "kill", KILL, labels={"ask": 1})))
    assert "COVERAGE ask trials=1 live=0 restored=0 quarantined=0" in render_coverage(coverage)
    assert coverage.zeros.not_reachable == ()
    assert coverage.zeros.live == ("reattach", "adopt_exit", "ask", "settled")
    assert not [line for line in render_coverage(coverage) if line.startswith("ZERO not reachable")]


def test_a_label_that_the_run_does_not_know_is_shown_after_those_it_knows() -> None:
    run = make_run(
        make_clean(labels={"in_clean_run": 1}), make_plan(1, "kill", KILL, labels={"new": 1, "also_new": 1, "counted_at_zero": 0})
    )
    assert [one.label for one in measure_coverage(run).labels] == [*(one.label for one in LABELS), "also_new", "new"]


def test_the_matrix_has_a_cell_for_each_step_and_fault() -> None:
    run = make_run(
        make_clean(labels={"settled": 1}),
        make_plan(1, "kill", KILL, labels={"adopt_exit": 2}, alive={0: (COMMAND,)}),
        make_plan(2, "kill", Action("driver@1:s.before:2", "kill"), labels={"adopt_exit": 1, "settled": 1}, restored=1),
        make_plan(3, "kill", SHIM_KILL),
        make_plan(4, "again", KILL, Action("driver@2:s.before:1", "kill"), DEEPER, labels={"settled": 1, "ask": 0}),
        make_plan(5, "freeze", *FREEZE, labels={"settled": 1}, displaced=1),
        make_plan(6, "kill", KILL, labels={"settled": 1}, unfired=(0,)),
    )
    assert measure_coverage(run).matrix == (
        Cell("driver:s.before", "again", 1, {"settled": 1}, {"settled": Counts(1)}),
        Cell("driver:s.before", "freeze", 1, {"settled": 1}, {"settled": Counts(1, quarantined=1)}),
        Cell("driver:s.before", "kill", 2, {"adopt_exit": 2, "settled": 1}, {"adopt_exit": Counts(2, 1, 1), "settled": Counts(1, 0, 1)}),
        Cell("shim:exit", "kill", 1, {}),
        Cell("worker:restore", "again", 1, {"settled": 1}, {"settled": Counts(1)}),
    )


def test_coverage_is_whole_when_each_acted_on_label_was_decided_in_a_trial() -> None:
    clean = make_clean(labels={"settled": 1})
    trial = make_trial(1, Verdict.PASS, labels={"adopt_exit": 1, "reattach": 1})
    assert find_gaps(make_run(clean, trial)) == ["coverage: no trial decided settled"]
    assert find_gaps(make_run(clean)) == ["coverage: no trial decided reattach, adopt_exit, settled"]
    assert find_gaps(make_run(trial, make_trial(2, Verdict.PASS, labels={"settled": 1}))) == []


def test_a_run_that_names_no_labels_says_so_and_cannot_be_whole() -> None:
    nameless = msgspec.structs.replace(CONFIG, labels=())
    run = make_run(make_trial(1, Verdict.PASS, labels={"settled": 1}), config=nameless)
    assert find_gaps(run) == ["coverage: config.json names no labels, so that none can be required"]
    said = "NOTE this run names no decision labels: those that no trial decided are not among the zeros"
    assert said in render_report(run, summarise(run), [])
    assert said not in render_report(make_run(), summarise(make_run()), [])


def test_a_fault_that_was_tried_and_never_fired_is_a_gap() -> None:
    whole = make_plan(1, "kill", KILL, labels={"settled": 1, "adopt_exit": 1, "reattach": 1})
    unfired = make_plan(2, "freeze", *FREEZE, unfired=(0,))
    assert find_gaps(make_run(make_clean(), whole)) == []
    assert find_gaps(make_run(make_clean(), whole, unfired)) == ["coverage: no trial of the fault freeze fired"]
    assert find_gaps(make_run(make_clean(), whole, unfired, make_plan(3, "freeze", *FREEZE))) == []


def test_the_matrix_is_shown_by_fault_and_what_no_fault_reached_is_named() -> None:
    steps = ("driver@1:s.before:1", "driver@1:s.before:2", "shim.1@1:exit:1", "spawner@1:never:1")
    run = make_run(
        make_clean(),
        make_plan(1, "kill", KILL, labels={"adopt_exit": 2}),
        make_plan(2, "kill", SHIM_KILL, labels={"settled": 1}),
        make_plan(3, "freeze", *FREEZE),
        steps=steps,
    )
    coverage = measure_coverage(run)
    assert render_matrix(run, coverage) == [
        "MATRIX freeze steps=1/3 acted=1 labels=none",
        "MATRIX kill steps=2/3 acted=2 labels=adopt_exit:1,settled:1",
        "UNREACHED steps=1/3: spawner:never",
        "UNREACHED cells=1/3: kill at spawner:never",
    ]
    assert set(render_matrix(run, coverage)) <= set(render_report(run, summarise(run), []))
    assert render_matrix(make_run(make_clean(), steps=steps), measure_coverage(make_run(make_clean()))) == [
        "UNREACHED steps=3/3: driver:s.before; shim:exit; spawner:never",
        "UNREACHED cells=3/3: kill at driver:s.before; kill at shim:exit; kill at spawner:never",
    ]


BEFORE = (Action("driver@1:s.before:1", "kill"),)
RECOVERY = ("driver@2:start:1", "driver@2:decision.commit.after:1", "worker@2:restore:3")
SETS = (
    ScenarioSteps("small", ("driver@1:s.before:1", "shim.2@1:exit:1"), (UnreachableStep("shim.2@1:exit:1", "platform"),), 1),
    ScenarioSteps("small", RECOVERY, (), 3, before="kill driver@1:s.before:1", first=2, frozen=("driver@2:start:1",)),
    ScenarioSteps("small", ("log write 1 ENOSPC",), (), 1, does="fail"),
)
AIMED = (
    Aimed("driver:decision.commit.after", "kill", "adopt_exit"),
    Aimed("driver:s.before", "kill"),
    Aimed("driver:start", "freeze"),
    Aimed("driver:start", "kill"),
    Aimed("worker:restore", "kill", "adopt_exit"),
)


def again(number: int, at: str, label: str = "adopt_exit", do: str = "kill", **more: object) -> TrialResult:
    return make_plan(number, "again", *BEFORE, Action(at, do), labels={label: 1}, **more)


def run_of(*trials: TrialResult) -> Run:
    beginning = make_result(Trial(0, "small", BEFORE), Verdict.PASS, (), decisions=("adopt_exit",))
    return make_run(make_clean(), beginning, *trials, scenarios=SETS)


def test_a_cell_is_aimed_at_by_step_fault_and_the_label_that_stands_there() -> None:
    """Before the decision of the clean run stands in the log nobody promises which one a killed driver's successor comes to."""
    assert list_aimed(run_of()) == AIMED == find_empty(run_of())


def test_a_cell_is_reached_only_under_its_label_and_by_what_fired() -> None:
    first = make_plan(1, "kill", KILL)
    whole = (again(2, RECOVERY[0], "settled"), again(3, RECOVERY[1]), again(4, RECOVERY[2]), again(5, RECOVERY[0], do="freeze"))
    assert find_empty(run_of(first, *whole)) == ()
    assert find_empty(run_of(first, *whole[:3])) == (Aimed("driver:start", "freeze"),)
    assert find_empty(run_of(first, *whole[:2], again(4, RECOVERY[2], "settled"), whole[3])) == (AIMED[4],)
    assert find_empty(run_of(first, *whole[:2], again(4, RECOVERY[2], unfired=(1,)), whole[3])) == (AIMED[4],)


def test_cells_that_were_not_reached_are_counted_named_and_required() -> None:
    run = run_of(make_plan(1, "kill", KILL, labels={"settled": 1, "reattach": 1}), again(3, RECOVERY[1]))
    assert "UNREACHED cells=3/5: freeze at driver:start; kill at driver:start; kill at worker:restore after adopt_exit" in render_report(
        run, summarise(run), ()
    )
    assert find_gaps(run) == ["coverage: 3 of 5 cells (step x fault x label) were not reached, first freeze at driver:start"]
