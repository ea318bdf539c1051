"""Plans carried out on real processes: each verb does what it says, and what cannot be done is unknown and named."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.drivers import Place
from chaos.results import Fault, TrialResult, Verdict
from chaos.scenario import Scenario
from chaos.zygote_client import ProcessZygote
from eventlog.events import Exit
from tests.chaos.real import A_FILE, EDITED, LIVING, TWO_CALLS, open_zygote, play, read_exits

OUTCOME = "driver@1:outcome.commit.before:1"

Run = Callable[..., TrialResult]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    with open_zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Where the trial will have been."""
    return Place(tmp_path / "trial")


@pytest.fixture
def run(zygote: ProcessZygote, place: Place) -> Run:
    """Plays one plan."""
    return lambda plan, scenario=TWO_CALLS: play(zygote, scenario, place.directory, plan)


def passed(result: TrialResult) -> dict[str, Fault]:
    """The faults of a trial that must have passed, each fired, by verb."""
    assert result.verdict is Verdict.PASS, result.reason
    assert all(fault.fired for fault in result.faults)
    assert len(result.faults) == len(result.trial.plan)
    return {fault.do: fault for fault in result.faults}


def test_a_process_that_was_held_goes_on_when_it_is_released(run: Run) -> None:
    faults = passed(result := run("wait driver@1:intent.commit.before:2; release driver@1"))
    assert result.drivers == ((1, 0),)
    assert faults["wait"].pid > 0


def test_what_is_still_held_at_the_end_of_the_plan_is_released(run: Run) -> None:
    passed(result := run("wait shim.1@1:running:1; wait driver@1:command.wait:1"))
    assert result.drivers == ((1, 0),)


def test_a_command_that_nobody_wants_alive_any_more_finds_its_gate_open(run: Run) -> None:
    passed(result := run("wait shim.1@1:running:1; release shim.1@1", LIVING))
    assert result.drivers == ((1, 0),)


def test_a_process_that_a_takeover_killed_where_it_was_held_is_let_go_no_more(run: Run) -> None:
    passed(result := run("wait shim.1@1:ended:1; start; end driver@2; end driver@1"))
    assert sorted(result.drivers) == [(1, 75), (2, 0)]


def test_a_shim_is_killed_while_its_command_runs(run: Run) -> None:
    plan = "wait shim.1@1:running:1; wait driver@1:command.wait:1; release shim.1@1; kill who shim.1@1; release driver@1"
    faults = passed(result := run(plan, LIVING))
    assert (faults["kill"].signal, faults["kill"].who, faults["kill"].at) == (9, "shim.1@1", "")
    assert {"driver", "shim.1", "command"} <= {one.role for one in faults["kill"].alive}
    assert faults["kill"].half_written
    assert result.drivers == ((1, 1), (2, 0))
    assert result.labels == {"restore_and_interrupt": 1}


def test_a_process_may_be_killed_where_it_is_held(run: Run) -> None:
    faults = passed(result := run("wait shim.1@1:running:1; kill who shim.1@1", LIVING))
    assert faults["kill"].signal == 9
    assert result.drivers == ((1, 1), (2, 0))


def test_a_command_is_killed_and_its_exit_is_recorded_as_signal_9(run: Run, place: Place) -> None:
    faults = passed(result := run("wait shim.1@1:running:1; kill who command@1; release shim.1@1", LIVING))
    command = [one for one in faults["kill"].alive if one.role == "command"]
    assert command[0].pid == faults["kill"].pid  # the bash, then what it started
    assert result.drivers == ((1, 0),)
    assert read_exits(LIVING, place.directory) == [Exit("signaled", signal=9), Exit("exited", code=0)]
    assert (place.work / "result.txt").read_text() == "half\n"


def test_a_driver_that_is_held_while_another_is_started_ends_with_75(run: Run) -> None:
    passed(result := run(f"wait {OUTCOME}; start; end driver@2; release driver@1; end driver@1"))
    assert result.drivers == ((2, 0), (1, 75))
    assert result.labels == {"adopt_exit": 1}


@pytest.mark.parametrize(
    ("step", "scenario", "label"),
    [
        (OUTCOME, TWO_CALLS, "adopt_exit"),
        ("shim.1@1:ended:1", TWO_CALLS, "restore_and_interrupt"),
        ("shim.1@1:running:1", LIVING, "restore_and_interrupt"),
        ("worker@1:file.rename.before:1", A_FILE, "restore_and_rerun"),
        ("spawner@1:spawn.before:1", TWO_CALLS, ""),
    ],
)
def test_what_is_frozen_while_a_successor_works_does_no_harm_when_it_wakes(step: str, scenario: Scenario, label: str, run: Run) -> None:
    who = step.partition(":")[0]
    faults = passed(result := run(f"freeze {step}; start; end driver@2; wake {who}; end {who}; end driver@1", scenario))
    assert sorted(result.drivers) == [(1, 75), (2, 0)]
    assert not label or label in result.labels
    frozen = {one.role: one.pid for one in faults["freeze"].alive}
    assert frozen[who.partition("@")[0]] == faults["freeze"].pid == faults["wake"].pid
    # The takeover kills what is not a driver; a driver lives, and is seen to be stopped still.
    assert faults["wake"].note == ("" if who == "driver@1" else "it was dead already")


def test_a_driver_is_frozen_where_it_is(run: Run) -> None:
    plan = f"wait {OUTCOME}; freeze who driver@1; start; end driver@2; wake driver@1; release driver@1; end driver@1"
    faults = passed(result := run(plan))
    assert (faults["freeze"].who, faults["freeze"].at) == ("driver@1", "")
    assert result.drivers == ((2, 0), (1, 75))


def test_a_frozen_driver_gives_way_to_the_next_that_is_to_be_killed(run: Run) -> None:
    passed(result := run(f"freeze {OUTCOME}; kill driver@2:decided:1; start; end driver@3; wake driver@1; end driver@1"))
    assert result.drivers == ((2, -9), (3, 0), (1, 75))


def test_nobody_is_woken_before_a_successor_has_taken_over(run: Run) -> None:
    """A successor that could not end the old ones, or was killed before it did, has taken nothing over: what they go on with then is no
    fault of the fence."""
    worker = "worker@1:file.rename.before:1"
    result = run(f"freeze {worker}; start; kill driver@2:floor.commit.after:1; wake worker@1; end worker@1; end driver@1", A_FILE)
    faults = passed(result)
    assert dict(result.drivers) == {1: 75, 2: -9, 3: 0}
    assert faults["wake"].note == "it was dead already"


@pytest.mark.parametrize(
    ("step", "drivers"),
    [
        ("driver@1:floor.commit.locked:1", ((1, -9), (2, 0))),
        ("driver@1:outcome.commit.locked:1", ((1, -9), (2, 0))),
        ("driver@1:ledger.prepare.append.unsynced:1", ((1, -9), (2, 0))),
        ("shim.1@1:ledger.start.append.before:1", ((1, 75), (2, 0))),
    ],
)
def test_rule_L4_who_is_frozen_with_a_lock_is_killed_by_the_successor(step: str, drivers: tuple[tuple[int, int], ...], run: Run) -> None:
    who = step.partition(":")[0]
    ends = "" if who == "driver@1" else "; end driver@1"
    faults = passed(result := run(f"freeze {step}; start; end driver@2; killed {who}{ends}"))
    assert tuple(sorted(result.drivers)) == drivers
    assert (faults["killed"].signal, faults["killed"].pid) == (9, faults["freeze"].pid)


def test_who_holds_no_lock_is_not_owed_a_kill(run: Run) -> None:
    result = run(f"freeze {OUTCOME}; start; end driver@2; killed driver@1")
    assert result.verdict is Verdict.FAIL
    assert "lock-holder: driver@1 was frozen while it held a lock: it lives" in result.reason
    assert "killed driver@1; it lives" in result.reason


def test_a_process_that_was_never_frozen_cannot_be_proved_killed(run: Run) -> None:
    result = run(f"wait {OUTCOME}; killed driver@1; release driver@1")
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == "did not fire: killed driver@1 and 1 more; it was not frozen"


def test_a_process_that_was_never_frozen_cannot_be_woken(run: Run) -> None:
    result = run(f"wait {OUTCOME}; wake driver@1; release driver@1")
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == "did not fire: wake driver@1 and 1 more; it was not frozen"
    assert [fault.fired for fault in result.faults] == [True, False, False]


def test_what_a_plan_did_not_come_to_holds_nobody(run: Run) -> None:
    result = run(f"wake driver@1; kill {OUTCOME}")
    assert (result.verdict, result.drivers) == (Verdict.UNKNOWN, ((1, 0),))
    assert [fault.note for fault in result.faults] == ["it was not frozen", "the plan ended before"]


@pytest.mark.parametrize(
    ("step", "note"),
    [
        ("driver@1:holder.rename.before:1", "it holds a lock here"),
        ("driver@1:open.commit.locked:1", "it does not hold the lock of the log here"),
    ],
    ids=["registry", "a log without a name"],
)
def test_a_freeze_with_another_lock_than_the_step_says_is_told_and_counts_for_nothing(step: str, note: str, run: Run) -> None:
    result = run(f"freeze {step}")
    assert result.verdict is Verdict.UNKNOWN
    assert [(fault.fired, fault.note) for fault in result.faults] == [(False, note)]
    assert result.reason == f"did not fire: freeze {step}; {note}"


def test_somebody_else_writes_a_file_between_two_calls(run: Run, place: Place) -> None:
    passed(result := run('edit driver@1:intent.commit.before:2 "other.txt" "from outside\\n"', EDITED))
    assert (place.work / "other.txt").read_text() == "from outside\n"
    assert (place.work / "one.txt").read_text() == "one\ntwo\n"
    assert result.drivers == ((1, 0),)


def test_somebody_else_removes_a_file_between_two_drivers(run: Run, place: Place) -> None:
    passed(result := run('kill driver@1:intent.commit.before:2; edit "one.txt"', EDITED))
    assert (place.work / "one.txt").read_text() == "two\n"
    assert result.drivers == ((1, -9), (2, 0))


def test_a_file_that_is_not_there_to_be_removed_is_trouble(run: Run) -> None:
    result = run('kill driver@1:intent.commit.before:2; edit "nowhere.txt"', EDITED)
    assert result.verdict is Verdict.UNKNOWN
    assert "nowhere.txt: nothing is there that could be removed" in result.reason


def test_a_second_kill_meets_the_recovery_from_the_first(run: Run) -> None:
    passed(result := run(f"kill {OUTCOME}; kill driver@2:decided:1"))
    assert [(fault.at, fault.signal) for fault in result.faults] == [(OUTCOME, 9), ("driver@2:decided:1", 9)]
    assert result.drivers == ((1, -9), (2, -9), (3, 0))


@pytest.mark.parametrize("step", ["driver@1:nowhere:1", "driver@2:decided:1", "shim.1@2:start:1", "shim.9@1:start:1"])
def test_a_step_that_is_never_reached_is_unknown_and_the_session_is_driven_on(step: str, run: Run) -> None:
    result = run(f"kill {step}; start")
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == f"did not fire: kill {step} and 1 more; the step was not reached"
    assert [(fault.reached, fault.fired, fault.note) for fault in result.faults] == [
        (False, False, "the step was not reached"),
        (False, False, "the plan ended before"),
    ]
    assert result.drivers == ((1, 0),)
    assert {one.verdict for one in result.oracles} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("action", "note"),
    [
        ("kill who shim.1@1", "there was no such process"),
        ("kill who driver@2", "there was no such process"),
        ("freeze who command@1", "there was no such process"),
        ("release driver@1", "it was not held at any step"),
        ("end driver@2", "it was never started"),
        ("end shim.1@1", "there was no such process"),
    ],
)
def test_what_is_done_to_a_process_that_is_not_there_is_unknown(action: str, note: str, run: Run) -> None:
    result = run(f"wait driver@1:start:1; {action}" if not action.startswith("release") else action)
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == f"did not fire: {action}; {note}"
    assert result.faults[-1].note == note
