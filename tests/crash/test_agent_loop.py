"""The agent of docs/examples is killed at every step of its two calls, and started again: each effect is there once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import events
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, sandbox_directory

AGENT = Path(__file__).resolve().parents[2] / "docs" / "examples" / "agent.py"
ROLES = ("driver", "shim", "spawner")
FIRST, LAST = "driver@1:recovered:1", "driver@1:finish.commit.after:1"


def start_agent(sandbox: Sandbox) -> None:
    """Run the agent to its end."""
    agent = sandbox.run(str(sandbox.state), str(sandbox.root), program=AGENT)
    assert agent.code == 0, agent.out + agent.err


def record_steps(sandbox: Sandbox) -> list[str]:
    """Every step of one clean run from the first call on, in the order in which they were passed."""
    trace = sandbox.base / "trace"
    agent = sandbox.run(str(sandbox.state), str(sandbox.root), program=AGENT, epoch=1, CRASHWORTHY_STEP_TRACE=str(trace))
    assert agent.code == 0, agent.out + agent.err
    steps = [line.rpartition(" ")[0] for line in trace.read_text().splitlines()]
    return steps[steps.index(FIRST) : steps.index(LAST) + 1]


@pytest.fixture(scope="module")
def steps() -> Iterator[list[str]]:
    """The steps of a clean run."""
    with sandbox_directory() as base:
        sandbox = Sandbox(base)
        yield record_steps(sandbox)
        sandbox.close()


def choose(steps: list[str], role: str) -> list[str]:
    """The steps of a role."""
    chosen = [step for step in steps if step.startswith((f"{role}@", f"{role}."))]
    assert len(chosen) >= {"driver": 30, "shim": 30, "spawner": 2}[role], chosen
    return chosen


def alternate(steps: list[str]) -> list[str]:
    """Each step once by its name, in turn where it was passed first and where it was passed last: half in each call."""
    passed: dict[str, list[str]] = {}
    for step in steps:
        passed.setdefault(step.split(":", 1)[1].rpartition(":")[0], []).append(step)
    return [where[0 if number % 2 else -1] for number, where in enumerate(passed.values())]


@pytest.mark.parametrize("role", ROLES)
def test_an_agent_killed_at_each_step_of_a_call_ends_with_each_effect_once(steps: list[str], role: str) -> None:
    kill_at_each(alternate(choose(steps, role)))


@pytest.mark.soak
@pytest.mark.parametrize("role", ROLES)
def test_an_agent_killed_at_every_step_of_two_calls_ends_with_each_effect_once(steps: list[str], role: str) -> None:
    kill_at_each(choose(steps, role))


def kill_at_each(steps: list[str]) -> None:
    for step in steps:
        with sandbox_directory() as base:
            sandbox = Sandbox(base)
            try:
                kill_at(sandbox, step)
            finally:
                sandbox.close()


def kill_at(sandbox: Sandbox, step: str) -> None:
    agent = sandbox.start(str(sandbox.state), str(sandbox.root), program=AGENT, epoch=1, wait=(step,))
    sandbox.steps.kill(step, agent)
    code = agent.end()
    assert code == -9 if step.startswith("driver") else code in (0, 1), f"{step}: {code}: {agent.err}"
    assert "Traceback" not in agent.err
    start_agent(sandbox)
    assert read_contents(sandbox.root) == {"log.txt": b"one\ntwo\n"}, step
    settled = sandbox.of_kind(events.CallSettled)
    assert [one.call for one in settled] == list(range(1, len(settled) + 1)), f"{step}: each call has one final result"
    assert [one.ended for one in settled].count("finished") == 2, step
    assert not sandbox.of_kind(events.WorkspaceObserved), f"{step}: nothing of a cut call is laundered into an outside change"
    assert sandbox.events()[-1].event.kind == "session_finished", step
