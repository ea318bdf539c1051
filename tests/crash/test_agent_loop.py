"""The agent of docs/examples is killed at every step of its two calls, and started again: each effect is there once. In every mode."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import events
from eventlog.events import Mode
from tests.helpers import read_contents
from tests.recovery.sessions import Sandbox, sandbox_directory

AGENT = Path(__file__).resolve().parents[2] / "docs" / "examples" / "agent.py"
ROLES = ("driver", "shim", "spawner")
FIRST, LAST = "driver@1:recovered:1", "driver@1:finish.commit.after:1"


MODES: tuple[Mode, ...] = ("transactional", "checkpoint", "auto")


def start_agent(sandbox: Sandbox, mode: Mode) -> None:
    """Run the agent to its end."""
    agent = sandbox.run(str(sandbox.state), str(sandbox.root), mode, program=AGENT)
    assert agent.code == 0, agent.out + agent.err


def record_steps(sandbox: Sandbox, mode: Mode) -> list[str]:
    """Every step of one clean run from the first call on, in the order in which they were passed."""
    trace = sandbox.base / "trace"
    agent = sandbox.run(str(sandbox.state), str(sandbox.root), mode, program=AGENT, epoch=1, CRASHWORTHY_STEP_TRACE=str(trace))
    assert agent.code == 0, agent.out + agent.err
    steps = [line.rpartition(" ")[0] for line in trace.read_text().splitlines()]
    return steps[steps.index(FIRST) : steps.index(LAST) + 1]


@pytest.fixture(scope="module")
def steps() -> Iterator[dict[Mode, list[str]]]:
    """The steps of a clean run in each mode."""
    found = {}
    for mode in MODES:
        with sandbox_directory() as base:
            sandbox = Sandbox(base)
            found[mode] = record_steps(sandbox, mode)
            sandbox.close()
    yield found


def choose(steps: list[str], role: str) -> list[str]:
    """The steps of a role."""
    chosen = [step for step in steps if step.startswith((f"{role}@", f"{role}."))]
    assert len(chosen) >= {"driver": 30, "shim": 30, "spawner": 2}[role], chosen
    return chosen


def alternate(steps: list[str]) -> list[str]:
    """Each step once by its name, in turn where it was passed first and where it was passed last: half in each call."""
    passed: dict[str, list[str]] = {}
    for step in steps:
        passed.setdefault(name_of(step), []).append(step)
    return [where[0 if number % 2 else -1] for number, where in enumerate(passed.values())]


@pytest.mark.parametrize("role", ROLES)
def test_an_agent_killed_at_each_step_of_a_call_ends_with_each_effect_once(steps: dict[Mode, list[str]], role: str) -> None:
    kill_at_each(alternate(choose(steps["transactional"], role)), "transactional")


def test_an_agent_with_checkpoints_killed_at_each_step_of_its_driver_ends_with_each_effect_once(steps: dict[Mode, list[str]]) -> None:
    """The steps that this mode adds to a call, and every third of the others."""
    known = {name_of(step) for step in steps["transactional"]}
    own = alternate(choose(steps["checkpoint"], "driver"))
    added = [step for step in own if name_of(step) not in known]
    assert {"checkpoint.manifest.rename.before", "checkpoint.content.sync.after"} <= {name_of(step) for step in added}, added
    kill_at_each([step for number, step in enumerate(own) if step in added or number % 3 == 0], "checkpoint")


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("role", ROLES)
def test_an_agent_killed_at_every_step_of_two_calls_ends_with_each_effect_once(
    steps: dict[Mode, list[str]], role: str, mode: Mode
) -> None:  # fmt: skip
    kill_at_each(choose(steps[mode], role), mode)


def name_of(step: str) -> str:
    return step.split(":", 1)[1].rpartition(":")[0]


def kill_at_each(steps: list[str], mode: Mode) -> None:
    for step in steps:
        with sandbox_directory() as base:
            sandbox = Sandbox(base)
            try:
                kill_at(sandbox, step, mode)
            finally:
                sandbox.close()


def kill_at(sandbox: Sandbox, step: str, mode: Mode) -> None:
    agent = sandbox.start(str(sandbox.state), str(sandbox.root), mode, program=AGENT, epoch=1, wait=(step,))
    sandbox.steps.kill(step, agent)
    code = agent.end()
    assert code == -9 if step.startswith("driver") else code in (0, 1), f"{step}: {code}: {agent.err}"
    assert "Traceback" not in agent.err
    start_agent(sandbox, mode)
    assert read_contents(sandbox.root) == {"log.txt": b"one\ntwo\n"}, step
    settled = sandbox.of_kind(events.CallSettled)
    assert [one.call for one in settled] == list(range(1, len(settled) + 1)), f"{step}: each call has one final result"
    assert [one.ended for one in settled].count("finished") == 2, step
    assert not sandbox.of_kind(events.WorkspaceObserved), f"{step}: nothing of a cut call is laundered into an outside change"
    assert sandbox.events()[-1].event.kind == "session_finished", step
    assert {one.mode for one in sandbox.of_kind(events.SessionOpened)} == {mode}, step
