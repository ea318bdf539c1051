"""What the ends of drivers say, and from where a clean run is recorded: over a stage on which no process runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from chaos import play as module
from chaos import scene as scene_module
from chaos.actions import parse_plan
from chaos.drivers import Place
from chaos.liveness import MOST_STARTS
from chaos.play import Observer, Part, Play, Played
from chaos.results import Alive, OracleVerdict, Verdict
from chaos.scenario import Scenario
from chaos.stage import Ended, Reached
from tests.chaos.fakes import BlindObserver, make_scenario


class FakeStage:
    """A stage whose drivers end as told. `codes` are the exit codes by epoch (0 where none is told); those of `last` end after all others,
    those of `never` do not end; each passes the steps `passes` when it starts. `alive` are the other processes: one goes at each look."""

    def __init__(
        self, codes: Mapping[int, int], last: Sequence[int] = (), never: Sequence[int] = (), passes: Sequence[str] = ()
    ) -> None:
        self._codes = codes
        self._last = last
        self._never = never
        self._passes = passes
        self._running: dict[int, int] = {}
        self.alive: list[Alive] = []
        self.armed: set[str] = set()
        self.waiting: dict[str, Reached] = {}
        self.ends: list[Ended] = []
        self.newest = 0

    def __call__(self, scenario: Scenario, place: Place, armed: frozenset[str]) -> "FakeStage":
        self._place = place
        self.armed = set(armed)
        return self

    def __enter__(self) -> "FakeStage":
        return self

    def __exit__(self, *_: object) -> None:
        self._running.clear()

    def start(self, epoch: int, entry: str) -> int:
        self._running[epoch] = 1_000_000_000 + epoch  # above any pid
        self.newest = max(self.newest, epoch)
        self._place.state.mkdir(exist_ok=True)
        (self._place.state / "log.sqlite").touch()
        self._place.errors(epoch).write_text(f"first\nlast words of {epoch}\n")
        with self._place.trace.open("a") as trace:
            trace.writelines(f"driver@{epoch}:{name}:1 {self._running[epoch]}\n" for name in self._passes)
        return self._running[epoch]

    def running(self) -> dict[int, int]:
        return dict(self._running)

    def look(self, what: str, deadline: float, until: float | None = None) -> None:
        if self.alive:
            self.alive.pop()
            return
        able = [epoch for epoch in self._running if epoch not in self._never]
        if not able:
            raise TimeoutError(f"waited in vain for {what}")
        epoch = min(able, key=lambda epoch: (epoch in self._last, epoch))
        del self._running[epoch]
        self.ends.append(Ended(epoch, self._codes.get(epoch, 0), epoch < self.newest))


Perform = Callable[..., Played]
BLIND = BlindObserver()


@pytest.fixture
def perform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Perform:
    """Plays a part on a fake stage."""

    def run(stage: FakeStage, plan: str = "", before: tuple[Ended, ...] = (), observer: Observer = BLIND) -> Played:
        if before:
            (tmp_path / "state").mkdir()
            (tmp_path / "state" / "log.sqlite").touch()
        monkeypatch.setattr(module, "Stage", stage)
        monkeypatch.setattr(module, "end_everything", lambda root, without: [])
        monkeypatch.setattr(scene_module, "left_behind", lambda without: [one.pid for one in stage.alive])
        monkeypatch.setattr(scene_module, "list_alive", lambda root, without, roles: tuple(stage.alive))
        return Play(make_scenario(), Place(tmp_path), Part(parse_plan(plan), before=before), observer).run_to_end()

    return run


def test_a_driver_that_finishes_ends_the_session(perform: Perform) -> None:
    played = perform(FakeStage({}))
    assert (played.ends, failures(played), played.trouble) == ([Ended(1, 0)], [], "")


def test_a_driver_that_says_try_again_is_followed_by_the_next(perform: Perform) -> None:
    played = perform(FakeStage({1: 1, 2: 1}))
    assert played.ends == [Ended(1, 1), Ended(2, 1), Ended(3, 0)]
    assert failures(played) == []


def failures(played: Played) -> list[OracleVerdict]:
    return [one for one in played.findings if one.verdict is not Verdict.PASS]


@pytest.mark.parametrize("plan", ["", "start; end driver@1", "start; end driver@1; start; end driver@2"])
def test_drivers_that_only_say_try_again_fail_liveness_three_starts_after_the_plan(plan: str, perform: Perform) -> None:
    played = perform(FakeStage(dict.fromkeys(range(1, 99), 1)), plan)
    assert len(played.ends) == plan.count("end") + MOST_STARTS
    newest = len(played.ends)
    assert [(one.oracle, one.detail) for one in failures(played)] == [
        ("liveness", "3 drivers after the last fault, each of which said 1 (try again), and the session is not finished: "
         f"last words of {newest}")
    ]  # fmt: skip


def test_a_session_that_ends_at_the_third_start_is_alive_and_liveness_says_so(perform: Perform) -> None:
    played = perform(FakeStage({1: 1, 2: 1}))
    assert [(one.oracle, one.verdict, one.detail) for one in played.findings] == [
        ("liveness", Verdict.PASS, "over after 3 driver starts since the last fault")
    ]


def test_a_driver_that_does_not_end_proves_nothing_of_liveness(perform: Perform) -> None:
    assert perform(FakeStage({}, never=(1,))).findings == []


@pytest.mark.parametrize("code", [70, 75, 78, -11, -9])
def test_a_driver_that_ends_otherwise_is_a_failure_with_its_last_words(code: int, perform: Perform) -> None:
    played = perform(FakeStage({1: code}))
    assert [(one.oracle, one.verdict) for one in played.findings] == [("liveness", Verdict.FAIL)]
    assert played.findings[0].detail == f"driver 1 ended with {code} and the session is not finished: last words of 1"
    assert played.ends == [Ended(1, code)]


OVERTAKEN = "start; start; end driver@2; end driver@1"


def test_a_superseded_driver_that_ends_with_75_is_as_it_must_be(perform: Perform) -> None:
    played = perform(FakeStage({1: 75}, last=(1,)), OVERTAKEN)
    assert played.ends == [Ended(2, 0), Ended(1, 75, superseded=True)]
    assert (failures(played), [fault.fired for fault in played.faults]) == ([], [True] * 4)


@pytest.mark.parametrize("code", [1, 70, 78, -9])
def test_a_superseded_driver_that_ends_otherwise_is_a_failure(code: int, perform: Perform) -> None:
    played = perform(FakeStage({1: code}, last=(1,)), OVERTAKEN)
    assert [(one.oracle, one.verdict) for one in failures(played)] == [("fencing-exit", Verdict.FAIL)]
    assert played.findings[0].detail == f"the superseded driver 1 ended with {code} instead of 75: last words of 1"


def test_a_superseded_driver_that_never_raised_its_floor_may_find_the_session_finished(perform: Perform) -> None:
    assert perform(FakeStage({1: 0}, last=(1,)), OVERTAKEN).findings[:-1] == []


def test_a_superseded_driver_that_had_raised_its_floor_may_not(perform: Perform) -> None:
    played = perform(FakeStage({1: 0}, last=(1,), passes=("floor.commit.after",)), OVERTAKEN)
    assert [one.oracle for one in failures(played)] == ["fencing-exit"]


def test_drivers_of_a_saved_state_are_counted_on_from(perform: Perform) -> None:
    before = (Ended(1, -9), Ended(2, 1))
    played = perform(FakeStage({3: 1}), before=before)
    assert played.ends == [*before, Ended(3, 1), Ended(4, 0)]
    assert failures(played) == []


def test_a_saved_state_in_which_the_session_had_finished_needs_no_driver(perform: Perform) -> None:
    assert perform(FakeStage({}), before=(Ended(1, 0),)).ends == [Ended(1, 0)]


def test_a_start_after_a_saved_state_starts_one_driver(perform: Perform) -> None:
    before = (Ended(1, -9),)
    assert perform(FakeStage({}), "start; end driver@2", before=before).ends == [*before, Ended(2, 0)]


def test_the_end_of_a_command_is_waited_for(perform: Perform) -> None:
    stage = FakeStage({})
    stage.alive = [Alive(1_000_000_001, "command", "bash"), Alive(1_000_000_002, "fork", "python")]
    played = perform(stage, "end command@1; end command@1")
    assert [(fault.fired, fault.pid, fault.note) for fault in played.faults] == [
        (True, 1_000_000_001, ""),
        (False, 0, "there was no such process"),
    ]
    assert stage.alive == []


def test_an_oracle_that_is_started_while_the_trial_is_played_is_no_process_of_it(
    perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StartsAtALook(BlindObserver):
        def list_tree(self, tree: Path) -> dict[str, Any]:
            self.pid = 7
            return {}

    left_out: list[int] = []
    monkeypatch.setattr(module, "reap_all", left_out.append)
    perform(FakeStage({1: 1}), observer=StartsAtALook())
    assert left_out[-1:] == [7]


def test_a_driver_that_does_not_end_is_trouble_and_no_failure(perform: Perform) -> None:
    played = perform(FakeStage({}, never=(1,)))
    assert (played.trouble, played.findings, played.ends) == ("waited in vain for driver 1 to end", [], [])


def test_a_clean_run_is_recorded_from_its_first_step_however_quick_its_driver_is(perform: Perform) -> None:
    played = perform(FakeStage({}, passes=("start", "spawn.before")))
    assert played.recorded_from == 0


def test_what_comes_after_a_plan_is_recorded_from_its_last_action(perform: Perform) -> None:
    played = perform(FakeStage({1: 1}, passes=("start",)), "end driver@1")
    assert played.recorded_from == len("driver@1:start:1 1000000001\n")
