"""What a person may ask of a simulation; each mistake is one sentence with the way out."""

from pathlib import Path

import pytest

from chaos.options import Options, Request, check_options, write_command
from chaos.sim.options import RUNNER, SIM
from eventlog.errors import MisuseError


def ask(**given: object) -> Request:
    return check_options(Options(backend=SIM, **given), 5, 4, Path("out"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"level": "syscall"}, "--level is for real processes"),
        ({"mode": "soak"}, "--mode chooses scenario files"),
        ({"depth": 2}, "--depth belongs to real processes"),
        ({"require": "syscall"}, "--require asks for a fault of real processes"),
        ({"require_coverage": True}, "--require-coverage asks for decisions"),
        ({"fault": "exec"}, "whose faults are kill and freeze, not exec"),
        ({"scenario": "append"}, "unknown session 'append'; a simulation has sim-commands"),
        ({"scenario": "sim-commands", "plan": 'edit "a" "b"'}, "--plan: edit is not simulated"),
        ({"plan": "start"}, "--plan is played on one scenario"),
        ({"engine": "/nowhere"}, "--engine /nowhere: holds no package eventlog"),
        ({"runs": 0}, "--runs 0 must be at least 1"),
        ({"step": "nonsense"}, "'nonsense' is no step"),
    ],
)
def test_what_a_simulation_has_not_is_one_sentence(given: dict[str, object], said: str) -> None:
    with pytest.raises(MisuseError) as raised:
        ask(**given)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_backend_is_named_with_those_there_are() -> None:
    with pytest.raises(MisuseError, match="unknown backend 'docker'; there are local, sim"):
        check_options(Options(backend="docker"), 5, 4, Path("out"))


def test_a_simulation_has_a_runner_of_its_own_and_repeats_itself() -> None:
    request = ask(runs=50, seed=3)
    assert (request.runner, request.session, request.scenarios) == (RUNNER, "", ())
    assert write_command("chaos", Options(backend=SIM, runs=50), 3) == "chaos --mode ci --backend sim --runs 50 --seed 3"
    assert ask(scenario="sim-3-77").session == "sim-3-77"
