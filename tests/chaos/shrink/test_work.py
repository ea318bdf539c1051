"""One shrink over a zygote that fails as it is told: what is proved is written, and nothing else."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.actions import parse_plan
from chaos.required import required_oracles
from chaos.results import Action, OracleVerdict, Recording, Trial, TrialResult, Verdict
from chaos.scenario import Scenario, load_scenario, to_json
from chaos.shrink.work import Order, Shrunk, shrink_one
from chaos.transcript import Transcript, write_transcript
from chaos.zygote_client import ZygoteLostError
from eventlog.errors import MisuseError
from recovery.script import BashCall
from tests.chaos.fakes import all_pass, make_result, make_scenario

SCENARIO = make_scenario(calls=(BashCall(b"one"), BashCall(b"bad"), BashCall(b"three")))
PLAN = parse_plan('edit driver@1:start:1 "a" "b"; kill driver@1:outcome.commit.before:2')
STEPS = ("driver@1:start:1", "driver@1:intent.commit.before:1", "driver@1:outcome.commit.before:1")
FAILED = OracleVerdict("chain", Verdict.FAIL, "row 7 differs")

Told = Callable[[Scenario, Trial], bool]


class TellingZygote:
    """Fails a trial with FAILED when `told` says so; its clean runs pass."""

    slot = 1

    def __init__(self, told: Told) -> None:
        self._told = told

    def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
        oracles = all_pass(required_oracles(scenario, prefix))
        return Recording(scenario.name, STEPS, make_result(Trial(0, scenario.name, tuple(prefix)), Verdict.PASS, oracles=oracles))

    def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
        if self._told(scenario, trial):
            return make_result(trial, Verdict.FAIL, oracles=(FAILED,))
        oracles = all_pass(required_oracles(scenario, trial.plan, converges=bool(converges_to)))
        return make_result(trial, Verdict.PASS, oracles=oracles)

    def close(self) -> None:
        """Nothing to end."""


class FailingZygote(TellingZygote):
    """Its clean runs fail too where it is told so."""

    def record(self, scenario: Scenario, prefix: Sequence[Action], directory: Path) -> Recording:
        trial = Trial(0, scenario.name, tuple(prefix))
        return msgspec.structs.replace(super().record(scenario, prefix, directory), result=self.run(scenario, trial, directory, {}))


def is_bad(scenario: Scenario, trial: Trial) -> bool:
    """Whether the call `bad` is there and a driver is killed at an outcome."""
    kills = [action for action in trial.plan if action.do == "kill" and "outcome" in action.at]
    return BashCall(b"bad") in scenario.calls and bool(kills)


def shrink(home: Path, told: Told, *, reruns: int = 4, deadline: float = 1e18, **more: Any) -> tuple[Shrunk, list[str]]:
    """Shrink a kept trial of SCENARIO with PLAN; its end, and what was said."""
    result = make_result(Trial(3, "small", PLAN), more.pop("verdict", Verdict.FAIL), oracles=(FAILED,))
    write_transcript(home, Transcript(to_json(SCENARIO), result, []))
    said: list[str] = []
    order = Order(None, reruns, deadline, home / "shrunk.toml", "chaos")
    return shrink_one(home, order, said.append, more.pop("start", lambda log: TellingZygote(told))), said


def test_a_trial_is_shrunk_to_the_call_and_the_kill_that_matter_and_its_file_is_written(tmp_path: Path) -> None:
    end, said = shrink(tmp_path, is_bad)
    assert (end.is_proved, end.returned, end.verified, end.verifications, end.complete) == (True, 4, 4, 4, True)
    scenario = load_scenario(tmp_path / "shrunk.toml")
    assert scenario.calls == (BashCall(b"bad"),)
    assert scenario.plan == parse_plan("kill driver@1:outcome.commit.before:1")
    assert end.command == f"chaos --scenario {tmp_path}/shrunk.toml --seed 1"
    assert said[1] == "FLAKINESS before: the failure came back in 4 of 4 reruns, rate 1.00"
    assert said[-1].startswith("SHRUNK 2 actions, 3 calls")


def test_a_clean_run_that_fails_by_itself_is_shrunk_in_place_of_what_was_done(tmp_path: Path) -> None:
    def is_always_bad(scenario: Scenario, trial: Trial) -> bool:
        return BashCall(b"bad") in scenario.calls

    end, said = shrink(tmp_path, is_always_bad, start=lambda log: FailingZygote(is_always_bad))
    assert said[1].startswith("its clean run fails by itself, and is shrunk in its place: fail by chain")
    assert (end.is_proved, end.plan, end.calls) == (True, "", 1)
    assert load_scenario(tmp_path / "shrunk.toml").calls == (BashCall(b"bad"),)


def test_a_failure_that_does_not_come_back_is_said_to_and_nothing_is_written(tmp_path: Path) -> None:
    end, said = shrink(tmp_path, lambda scenario, trial: False)
    assert not end.is_proved and end.returned == 0
    assert said[-1].startswith("NOT SHRUNK") and not any(line.startswith("SHRUNK") for line in said)
    assert not (tmp_path / "shrunk.toml").exists()


def test_another_failure_is_not_the_same_failure(tmp_path: Path) -> None:
    class OtherZygote(TellingZygote):
        def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
            return make_result(trial, Verdict.FAIL, oracles=(OracleVerdict("witness", Verdict.FAIL, "twice"),))

    end, _ = shrink(tmp_path, is_bad, start=lambda log: OtherZygote(is_bad))
    assert (end.is_proved, end.returned) == (False, 0)


def test_a_result_that_does_not_fail_from_its_file_is_never_a_success(tmp_path: Path) -> None:
    zygotes = iter([TellingZygote(is_bad), TellingZygote(lambda scenario, trial: False)])
    end, said = shrink(tmp_path, is_bad, start=lambda log: next(zygotes))
    assert (end.is_proved, end.returned, end.verified, end.file, end.command) == (False, 4, 0, "", "")
    assert said[-1].startswith("NOT SHRUNK") and not (tmp_path / "shrunk.toml").exists()


def test_a_flaky_failure_is_measured_and_each_case_gets_the_trials_its_rate_asks_for(tmp_path: Path) -> None:
    turns = 0

    def is_sometimes_bad(scenario: Scenario, trial: Trial) -> bool:
        nonlocal turns
        turns += is_bad(scenario, trial)
        return is_bad(scenario, trial) and turns % 3 == 0

    end, said = shrink(tmp_path, is_sometimes_bad, reruns=6)
    assert (end.returned, end.reruns) == (2, 6) and end.is_proved and 0 < end.verified < end.verifications
    assert "it is flaky: each case gets 8 trials to show it" in said[1]
    assert load_scenario(tmp_path / "shrunk.toml").calls == (BashCall(b"bad"),)
    assert end.plan == "kill driver@1:outcome.commit.before:1"


def test_when_the_time_is_up_what_was_found_is_proved_and_written_all_the_same(tmp_path: Path) -> None:
    end, said = shrink(tmp_path, is_bad, deadline=0.0)
    assert end.is_proved and not end.complete
    assert "the time was up: there may be a smaller one (--budget)" in said
    assert len(tomllib.loads((tmp_path / "shrunk.toml").read_text())["call"]) == 3


def test_zygotes_that_are_lost_again_and_again_end_the_shrink(tmp_path: Path) -> None:
    class LostZygote(TellingZygote):
        def run(self, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
            raise ZygoteLostError("it ended")

    with pytest.raises(ZygoteLostError):
        shrink(tmp_path, is_bad, start=lambda log: LostZygote(is_bad), reruns=9)


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.UNKNOWN])
def test_what_did_not_fail_is_refused(verdict: Verdict, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=f"this trial ended {verdict}; only a failure can be shrunk"):
        shrink(tmp_path, is_bad, verdict=verdict)
