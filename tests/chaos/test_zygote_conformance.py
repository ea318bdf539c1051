"""What every zygote must do, asked of the fake in process and of a process that speaks the protocol."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from chaos.results import Action, Trial, Verdict
from chaos.zygote_client import ProcessZygote, Zygote, ZygoteError, ZygoteLostError, zygote_command
from tests.chaos.fakes import STEPS, FakeZygote, fake_command, make_scenario

Make = Callable[[Mapping[str, str]], Zygote]
TRIAL = Trial(4, "small", (Action(STEPS[0], "kill"),))


@pytest.fixture(params=["fake", "process"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "fake":
        return lambda script: FakeZygote(script, slot=3)
    return lambda script: ProcessZygote(fake_command(script), tmp_path / "errors.txt", slot=3)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial"


def test_a_clean_run_names_its_scenario_and_steps(make: Make, directory: Path) -> None:
    zygote = make({})
    recording = zygote.record(make_scenario(), (), directory)
    assert (recording.scenario, recording.steps, recording.result.verdict) == ("small", STEPS, Verdict.PASS)
    zygote.close()


def test_a_clean_run_after_a_prefix_says_so(make: Make, directory: Path) -> None:
    zygote = make({})
    prefix = (Action("driver@1:start:1", "kill"), Action("", "edit", path="a b", content=""))
    recording = zygote.record(make_scenario(), prefix, directory)
    assert (recording.prefix, recording.result.trial) == (prefix, Trial(0, "small", prefix, fault=""))
    assert recording.steps == tuple(step.replace("@1:", "@2:") for step in STEPS)
    zygote.close()


def test_a_zygote_has_the_slot_it_was_given(make: Make) -> None:
    zygote = make({})
    assert zygote.slot == 3
    zygote.close()


def test_a_trial_is_answered_with_its_own_result(make: Make, directory: Path) -> None:
    zygote = make({})
    result = zygote.run(make_scenario(), TRIAL, directory, {})
    assert result.trial == TRIAL
    assert result.faults[0].signal == 9
    zygote.close()


def test_an_error_is_trouble_and_the_zygote_lives_on(make: Make, directory: Path) -> None:
    zygote = make({STEPS[0]: "error"})
    with pytest.raises(ZygoteError) as caught:
        zygote.run(make_scenario(), TRIAL, directory, {})
    assert not isinstance(caught.value, ZygoteLostError)
    (directory / "left").unlink()
    assert zygote.record(make_scenario(), (), directory).scenario == "small"
    zygote.close()


def test_a_dead_zygote_is_lost_and_stays_lost(make: Make, directory: Path) -> None:
    zygote = make({STEPS[0]: "die"})
    for _ in range(2):
        with pytest.raises(ZygoteLostError):
            zygote.run(make_scenario(), TRIAL, directory, {})
    zygote.close()


def test_closing_twice_is_closing_once(make: Make) -> None:
    zygote = make({})
    zygote.close()
    zygote.close()


def test_a_dead_process_is_named_with_its_status_and_last_words(tmp_path: Path, directory: Path) -> None:
    zygote = ProcessZygote(fake_command({"clean": "die"}), tmp_path / "errors.txt")
    with pytest.raises(ZygoteLostError, match=r"it ended with status 3; its last words: last words"):
        zygote.record(make_scenario(), (), directory)
    zygote.close()


@pytest.mark.parametrize("asks", ["record", "run"])
def test_an_answer_to_another_question_is_not_taken(asks: str, tmp_path: Path, directory: Path) -> None:
    zygote = ProcessZygote(fake_command({"clean": "mistake", STEPS[0]: "mistake"}), tmp_path / "errors.txt")
    with pytest.raises(ZygoteLostError, match="with something else"):
        if asks == "record":
            zygote.record(make_scenario(), (Action("driver@1:start:1", "kill"),), directory)
        else:
            zygote.run(make_scenario(), TRIAL, directory, {})
    assert zygote._process.returncode == -9
    zygote.close()


@pytest.mark.parametrize(("told", "why"), [("babble", "not understood"), ("hang", "did not answer within 0.5 s")])
def test_a_process_that_is_not_understood_is_killed(told: str, why: str, tmp_path: Path, directory: Path) -> None:
    zygote = ProcessZygote(fake_command({"clean": told}), tmp_path / "errors.txt", answer_secs=30 if told == "babble" else 0.5)
    with pytest.raises(ZygoteLostError, match=why):
        zygote.record(make_scenario(), (), directory)
    assert zygote._process.returncode == -9
    zygote.close()


def test_the_engine_copy_is_searched_before_the_installed_one(tmp_path: Path) -> None:
    command = zygote_command(tmp_path)
    home = str(Path(__file__).resolve().parents[2])
    assert command[1:3] == ["-I", "-S"]
    paths = [command[index + 1] for index, word in enumerate(command) if word == "--path"]
    assert paths[:2] == [str(tmp_path), home]
    assert any("site-packages" in path for path in paths)
