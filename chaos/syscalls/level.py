"""The levels of a campaign, and what the syscall level asks of its options. Each mistake is one sentence with the next command."""

from collections.abc import Sequence

from chaos.catalogue import SCENARIOS
from chaos.plan import FAULTS
from chaos.scenario import Scenario
from chaos.syscalls.calls import parse_aim
from chaos.syscalls.enumerate import FAULT
from eventlog.errors import MisuseError

STEP = "step"
SYSCALL = "syscall"
LEVELS = {
    STEP: "kills at the engine's own steps, which its processes announce to the runner; the default",
    SYSCALL: "strace kills an unprepared `recovery run`, or a helper of it, before or after a system call",
}
RUNNER = "chaos.syscalls.runner"
ANSWER_SECS = 1200.0
"""How long a runner may take for one answer: a recording is four traced runs."""
DEFAULT_SCENARIO = SCENARIOS / "syscall" / "all-roles.toml"
"""Two short commands, two files written, and a gate at which the helpers can be attached to: a traced run costs seconds."""


def check_level(level: str) -> str:
    """The level, or MisuseError that names those there are."""
    if level not in LEVELS:
        raise MisuseError(f"unknown level {level!r}; there are {', '.join(LEVELS)} (chaos list levels tells more)")
    return level


def check_required(fault: str) -> str:
    """What must be available here, or MisuseError that names what can be asked for."""
    known = dict.fromkeys([*FAULTS, FAULT])
    if fault and fault not in known:
        raise MisuseError(f"--require {fault!r} is no fault; there are {', '.join(known)}")
    return fault


def check_syscalls(fault: str, step: str, scenarios: Sequence[Scenario]) -> None:
    """What the syscall level can run: its one fault, a step that is a system call, scenarios without a plan (its steps would never be
    announced). MisuseError for anything else."""
    if fault not in ("", "kill", FAULT):
        raise MisuseError(f"--fault {fault}: the level syscall only kills; leave --fault away, or say --level step")
    try:
        if step:
            parse_aim(step)
    except ValueError as error:
        raise MisuseError(f"--step: {error}") from error
    for scenario in scenarios:
        if scenario.plan:
            raise MisuseError(f"{scenario.name}: has a [[plan]], which the level syscall cannot play; name another --scenario")
