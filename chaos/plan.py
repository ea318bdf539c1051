"""Steps, and which trials they make: record once, then aim one trial at each step. Pure; by name and ordinal, never by timers.

A step is written `ROLE@EPOCH:NAME:N`. ROLE is `driver`, `spawner`, `worker` (the file worker) or `shim.K` (the K-th shim; `shim` alone is
`shim.1`). NAME is a dotted name of small letters, digits, `-` and `_`. EPOCH and N count from 1.

What must hold: steps = killed + unreachable, where a step counts as killed only when the fault of a trial aimed at it fired.
Everything in the recording is therefore either aimed at or named with a reason from `UNREACHABLE_REASONS`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.results import Action, Fault, Recording, Trial, TrialResult
from eventlog.errors import MisuseError

FAULT_KINDS = ("kill", "supersede")
FAULTS = {
    "kill": "SIGKILL at the step, from outside, in a driver forked from the zygote; the wait status must show signal 9",
    "exec": "the same kill in a driver started as the real command: `recovery run` in a process of its own",
    "supersede": "the driver is held at the step while a successor runs to its end; then it is released and must exit 75",
}
UNREACHABLE_REASONS = ("lock held", "not in this scenario", "process already gone by then", "platform", "not yet")

EXEC_STEP = "driver@1:outcome.commit.before:1"
SUPERSEDE_STEPS = ("driver@1:intent.commit.before:2", "driver@1:outcome.commit.before:1")

_STEP = re.compile(
    r"(?P<role>driver|spawner|worker|shim(?:\.[1-9][0-9]*)?)@(?P<epoch>[1-9][0-9]*):(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*):(?P<count>[1-9][0-9]*)\Z"
)
_SHORT = re.compile(r"(?P<role>[a-z.0-9]+):")
_FORM = "ROLE@EPOCH:NAME:N with ROLE driver, spawner, shim.K or worker, such as driver@1:outcome.commit.before:1"


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of one crash point: the `count`-th pass of `name` in the process that has `role` at `epoch`."""

    role: str
    epoch: int
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A step of the clean run that no trial aims at, with one of `UNREACHABLE_REASONS`."""

    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class Enumeration:
    """What one scenario's clean run makes: `steps` are its distinct steps, each aimed at by a trial or unreachable."""

    scenario: str
    steps: tuple[str, ...]
    trials: tuple[Trial, ...]
    unreachable: tuple[Unreachable, ...]
    kill_mark: str = "cgroup"


def parse_step(text: str, where: str = "step") -> Step:
    """A step from its full name; MisuseError when it is none."""
    match = _STEP.match(text)
    if match is None:
        raise MisuseError(f"{where}: {text!r} is no step; write {_FORM}")
    role = "shim.1" if match["role"] == "shim" else match["role"]
    return Step(role, int(match["epoch"]), match["name"], int(match["count"]))


def parse_short_step(text: str, where: str = "step") -> Step:
    """A step as a person types it: the full name, or `ROLE:NAME:N`, which means epoch 1."""
    return parse_step(_SHORT.sub(r"\g<role>@1:", text, count=1) if "@" not in text else text, where)


def format_step(step: Step) -> str:
    """The full name of a step; `parse_step` reads it back."""
    return f"{step.role}@{step.epoch}:{step.name}:{step.count}"


def enumerate_trials(recording: Recording, plan: Sequence[Action] = (), first_number: int = 1) -> Enumeration:
    """The trials of one scenario, numbered from `first_number`, in a fixed order.

    Without a `plan`: one kill for each step of epoch 1, the exec trial, and a supersede trial for each of `SUPERSEDE_STEPS` that the clean
    run passes. With one: a single trial of exactly that plan; the other steps are then `not in this scenario`.
    Raises MisuseError when the recording holds what is no step.
    """
    steps = tuple(dict.fromkeys(format_step(parse_step(step, f"recording of {recording.scenario}")) for step in recording.steps))
    if plan:
        plans = [(tuple(plan), "fork")]
        aimed = {action.at for action in plan if action.do == "kill"}
        unreachable = tuple(Unreachable(step, "not in this scenario") for step in steps if step not in aimed)
    else:
        unprovable = _find_unprovable(steps) if recording.kill_mark == "environment" else frozenset()
        aimed_steps = [step for step in steps if parse_step(step).epoch == 1 and step not in unprovable]
        plans = [((Action(step, "kill"),), "fork") for step in aimed_steps]
        plans += [((Action(EXEC_STEP, "kill"),), "exec")] if EXEC_STEP in steps else []
        plans += [((Action(step, "supersede"),), "fork") for step in SUPERSEDE_STEPS if step in steps]
        reasons = {step: "platform" if step in unprovable else "not yet" for step in steps if step not in aimed_steps}
        unreachable = tuple(Unreachable(step, reason) for step, reason in reasons.items())
    trials = tuple(Trial(number, recording.scenario, actions, entry) for number, (actions, entry) in enumerate(plans, first_number))
    return Enumeration(recording.scenario, steps, trials, unreachable, recording.kill_mark)


def _find_unprovable(steps: Sequence[str]) -> frozenset[str]:
    """Steps of shims between their starting mark and their exit record: killed there under the environment mark, nobody can prove
    that their command is dead, and recovery rightly refuses to go on (rule S8)."""
    found: set[str] = set()
    running: set[str] = set()
    for step in steps:
        parsed = parse_step(step)
        if not parsed.role.startswith("shim"):
            continue
        if parsed.name == "ledger.start.append.unsynced":
            running.add(parsed.role)
        if parsed.name == "ledger.exit.append.unsynced":
            running.discard(parsed.role)
        if parsed.role in running:
            found.add(step)
    return frozenset(found)


def fault_of(trial: Trial) -> str:
    """The name in `FAULTS` that a trial belongs to, by its first action; "" for a clean run."""
    if not trial.plan:
        return ""
    return "exec" if trial.entry == "exec" else trial.plan[0].do


def select_trials(trials: Sequence[Trial], step: str = "", fault: str = "") -> list[Trial]:
    """The trials with an action at `step` (a full name) and of the fault `fault`; "" selects all."""
    return [
        trial
        for trial in trials
        if (not step or any(action.at == step for action in trial.plan)) and (not fault or fault_of(trial) == fault)
    ]


def find_killed(steps: Sequence[str], results: Sequence[TrialResult]) -> frozenset[str]:
    """The steps of `steps` at which a kill provably fired."""
    fired = {fault.at for result in results for fault in result.faults if fault.fired and fault.do == "kill"}
    return frozenset(fired.intersection(steps))


def find_unfired(trial: Trial, faults: Sequence[Fault]) -> list[Action]:
    """The actions of a trial's plan for which no fault fired: such a trial is never a pass."""
    fired = {(fault.at, fault.do) for fault in faults if fault.fired}
    return [action for action in trial.plan if (action.at, action.do) not in fired]
