"""Saved states: a trial begun from one is the trial from zero, and where nothing can be saved it is begun from zero."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import saved as module
from chaos.actions import parse_plan
from chaos.drivers import Place
from chaos.play import Part, Played
from chaos.results import Action, Fault, TrialResult, Verdict
from chaos.saved import SavedState, SavedStates, make_stage
from chaos.scenario import Scenario, SeedEntry
from chaos.scene import Scene
from chaos.stage import Ended, read_steps
from chaos.zygote_client import ProcessZygote
from eventlog.attributes import ROOT_IDENTITY_XATTR
from tests.chaos.fakes import BlindObserver, make_scenario
from tests.chaos.real import LIVING, TWO_CALLS, open_zygote, play

BOUNDARY = "kill driver@1:intent.commit.before:2"
KILL, AGAIN = parse_plan("kill driver@1:decided:1; kill driver@2:decided:1")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessZygote]:
    with open_zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


def epochs_passed(directory: Path) -> set[str]:
    """The epochs of the steps in the trace that a trial left."""
    return {step.partition("@")[2].partition(":")[0] for step in read_steps(Place(directory))}


class Twice:
    """Trials that are run in one directory: what a trial left goes to another name before the next one."""

    def __init__(self, zygote: ProcessZygote, directory: Path) -> None:
        self._zygote = zygote
        self.directory = directory
        self._before = 0

    def run(self, plan: str, scenario: Scenario = TWO_CALLS, saved: int = 0) -> tuple[TrialResult, set[str]]:
        """The result, and the epochs whose steps were passed in this run."""
        result = play(self._zygote, scenario, self.directory, plan, saved)
        epochs = epochs_passed(self.directory)
        self._before += 1
        self.directory.rename(self.directory.with_name(f"before-{self._before}"))
        return result, epochs

    def copies(self) -> list[Path]:
        """The saved states that were copied."""
        return list(self.directory.parent.glob("trial-saved/*"))


@pytest.fixture
def twice(zygote: ProcessZygote, tmp_path: Path) -> Twice:
    return Twice(zygote, tmp_path / "trial")


@pytest.mark.parametrize(
    ("plan", "saved"),
    [
        (f"{BOUNDARY}; kill driver@2:outcome.commit.before:1", 1),
        (f"{BOUNDARY}; kill shim.1@2:ended:1", 1),
        (f"{BOUNDARY}; kill driver@2:outcome.commit.before:1; kill driver@3:decided:1", 2),
        (f"{BOUNDARY}; freeze driver@2:outcome.commit.before:1; start; end driver@3; wake driver@2; end driver@2", 1),
    ],
    ids=["driver", "shim", "depth 2", "freeze"],
)
def test_a_trial_from_a_saved_state_is_the_trial_from_zero(plan: str, saved: int, twice: Twice) -> None:
    whole, all_epochs = twice.run(plan)
    assert twice.copies() == []
    made, later_epochs = twice.run(plan, saved=saved)
    again, _ = twice.run(plan, saved=saved)
    assert len(twice.copies()) == 1
    assert {whole.verdict, made.verdict, again.verdict} == {Verdict.PASS}, (whole.reason, made.reason, again.reason)
    assert whole.digest == made.digest == again.digest != ""
    assert whole.drivers == made.drivers == again.drivers
    assert [(fault.at, fault.do, fault.fired) for fault in made.faults] == [(fault.at, fault.do, True) for fault in whole.faults]
    assert made.faults[:saved] == again.faults[:saved]
    assert later_epochs == {epoch for epoch in all_epochs if int(epoch) > saved}


def test_with_a_command_alive_nothing_is_saved_and_the_trial_runs_from_zero(twice: Twice, zygote: ProcessZygote) -> None:
    plan = "kill driver@1:command.wait:1"
    twice.directory.mkdir()
    recording = zygote.record(LIVING, parse_plan(plan), twice.directory)
    assert (recording.result.verdict, recording.saved) == (Verdict.PASS, 0), recording.result.reason
    twice.directory.rename(twice.directory.with_name("recorded"))
    result, epochs = twice.run(f"{plan}; kill driver@2:outcome.commit.before:1", LIVING, saved=1)
    assert result.verdict is Verdict.PASS, result.reason
    assert result.labels["reattach"] == 1
    assert epochs == {"1", "2", "3"}
    assert twice.copies() == []


@pytest.mark.parametrize(
    ("prefix", "saved"),
    [
        (f"{BOUNDARY}; kill driver@2:decided:1", 2),
        (f"{BOUNDARY}; wait driver@2:decided:1", 1),
        ("wait driver@1:outcome.commit.before:1; kill who driver@1", 2),
        ('kill driver@1:outcome.commit.after:1; edit "one.txt" "one\\n"', 2),
        ("kill driver@1:start:1", 0),
        ("wait driver@1:outcome.commit.before:1", 0),
        ("kill driver@1:nowhere:1", 0),
    ],
)
def test_the_longest_beginning_that_can_be_saved_is_known(prefix: str, saved: int, zygote: ProcessZygote, tmp_path: Path) -> None:
    (tmp_path / "trial").mkdir()
    assert zygote.record(TWO_CALLS, parse_plan(prefix), tmp_path / "trial").saved == saved


class FakePlay:
    """A play of actions without a process: notes each plan it plays, leaves files of every kind; the plans in `quiet` end quietly."""

    played_plans: list[tuple[Action, ...]] = []
    quiet: frozenset[tuple[Action, ...]] = frozenset()
    has_identity = True

    def __init__(self, scenario: Scenario, place: Place, part: Part, *_: object) -> None:
        self._place = place
        self._plan = part.plan
        self.played = Played()

    def run_plan_only(self, quiet_secs: float) -> bool:
        self.played_plans.append(self._plan)
        self.played.faults += [Fault(action.at, action.do, True, True, pid=7) for action in self._plan]
        self.played.ends += [Ended(number, -9) for number in range(1, len(self._plan) + 1)]
        self.played.edits.append({"path": "a", "content": None, "head": 3})
        (self._place.outside / "gate").touch()
        (self._place.outside / "ready").touch()
        if self.has_identity:
            os.setxattr(self._place.work, ROOT_IDENTITY_XATTR, b"00" * 16)
        self._place.trace.write_text("of another run")
        self._place.socket.touch()
        (self._place.work / "count").write_text(str(len(self.played_plans)))
        os.link(self._place.work / "count", self._place.work / "second name")
        os.mkfifo(self._place.outside / "pipe")
        os.symlink("nowhere", self._place.work / "link")
        (self._place.directory / "closed").mkdir(mode=0o500)
        return self._plan in self.quiet


@pytest.fixture
def fake_play(monkeypatch: pytest.MonkeyPatch) -> type[FakePlay]:
    """A class of its own for each test, in the place of Play."""

    class Mine(FakePlay):
        played_plans: list[tuple[Action, ...]] = []
        quiet = frozenset({(KILL,), (KILL, AGAIN)})

    monkeypatch.setattr(module, "Play", Mine)
    return Mine


@pytest.fixture
def states() -> SavedStates:
    return SavedStates(BlindObserver())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An empty one."""
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial"


SEEDED = make_scenario(seed=(SeedEntry(b"seed", "file", b"x"),), ready="ready", gate="gate")


def test_a_state_is_made_once_and_copied_with_all_that_is_in_it(fake_play: type[FakePlay], states: SavedStates, directory: Path) -> None:
    for number in range(2):
        state = states.set_stage(SEEDED, (KILL,), directory)
        assert state.faults == (Fault(KILL.at, "kill", True, True, pid=7),)
        assert state.ends == (Ended(1, -9),)
        assert state.edits == ({"path": "a", "content": None, "head": 3},)
        work = directory / "work"
        assert (work / "count").read_text() == "1", f"time {number}"
        assert (work / "seed").read_text() == "x"
        assert (work / "count").stat().st_ino == (work / "second name").stat().st_ino
        assert os.readlink(work / "link") == "nowhere"
        assert stat.S_ISFIFO((directory / "outside" / "pipe").stat().st_mode)
        assert stat.S_IMODE((directory / "closed").stat().st_mode) == 0o500
        assert os.getxattr(work, ROOT_IDENTITY_XATTR) == b"00" * 16
        assert not (directory / "trace").exists() and not (directory / "steps").exists()
        # A command that is still to come says for itself that it is ready, and waits for the gate.
        assert [path.name for path in (directory / "outside").iterdir()] == ["pipe"]
        (work / "count").write_text("changed by a trial")
        module.empty_tree(directory)
    assert fake_play.played_plans == [(KILL,)]


def test_each_scenario_beginning_and_directory_has_a_state_of_its_own(
    fake_play: type[FakePlay], states: SavedStates, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    asked = [
        (SEEDED, (KILL,), directory),
        (SEEDED, (KILL, AGAIN), directory),
        (make_scenario("another", ready="ready", gate="gate"), (KILL,), directory),
        (SEEDED, (KILL,), tmp_path / "other"),
    ]
    found = []
    for scenario, actions, place in [*asked, *asked]:
        states.set_stage(scenario, actions, place)
        found.append((place / "work" / "count").read_text())
        module.empty_tree(place)
    assert found == ["1", "2", "3", "4"] * 2


def test_without_actions_and_where_nothing_can_be_saved_the_stage_is_the_first(
    fake_play: type[FakePlay], states: SavedStates, directory: Path
) -> None:
    unquiet = parse_plan("kill driver@1:command.wait:1")
    for actions in ((), unquiet, unquiet):
        assert states.set_stage(SEEDED, actions, directory) == SavedState(None)
        assert {path.name for path in directory.iterdir()} == {"work", "outside", "scratch"}
        assert [path.name for path in (directory / "work").iterdir()] == ["seed"]
        module.empty_tree(directory)
    assert fake_play.played_plans == [unquiet]


def test_a_root_without_an_identity_of_its_own_is_not_copied(
    fake_play: type[FakePlay], states: SavedStates, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_play, "has_identity", False)
    assert states.set_stage(SEEDED, (KILL,), directory) == SavedState(None)
    assert states.find_longest(SEEDED, (KILL,), directory) == 0


@pytest.mark.parametrize(
    ("actions", "longest"),
    [
        ((), 0),
        ((KILL,), 1),
        ((KILL, AGAIN), 2),
        ((KILL, AGAIN, *parse_plan("wait driver@3:decided:1")), 2),
        ((KILL, *parse_plan("kill driver@2:command.wait:1")), 1),
        (parse_plan("kill driver@1:command.wait:1; kill driver@2:decided:1"), 0),
        (parse_plan("freeze driver@1:decided:1"), 0),
    ],
)
def test_the_longest_is_asked_for_from_the_end(
    actions: tuple[Action, ...], longest: int, fake_play: type[FakePlay], states: SavedStates, directory: Path
) -> None:
    assert states.find_longest(SEEDED, actions, directory) == longest
    assert list(directory.iterdir()) == []


def test_a_shim_that_is_in_no_tree_for_a_moment_still_counts_as_alive(tmp_path: Path) -> None:
    """Its spawner dies just now: only the trace knows it. A state saved then lacked a command that nobody had killed."""
    place = make_stage(TWO_CALLS, tmp_path)
    ended = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(ended, 0)
    place.trace.write_text(f"shim.1@2:running:1 {os.getppid()}\ndriver@2:start:1 {ended}\n")
    left = Scene(TWO_CALLS, place, Part(()), BlindObserver()).list_left()
    assert os.getppid() in left and ended not in left
