"""What a person asks of a simulation, checked. Each mistake is one sentence with the next command."""

from collections.abc import Mapping
from typing import Protocol

from chaos.results import Action
from chaos.sim.naming import parse_drawn
from chaos.sim.workloads import FIXED
from eventlog.errors import MisuseError
from recovery.labels import Label

LOCAL, SIM = "local", "sim"
BACKENDS: Mapping[str, str] = {
    LOCAL: "real processes, files and logs; the default",
    SIM: "the same engine in memory, switched and crashed at its steps by one seed",
}
RUNNER = "chaos.sim.runner"
BATCH_SECS = 1800.0
"""How long a batch of trials may take, of a second or two on a machine that does nothing else."""
DEFAULT_RUNS = 10_000
"""Trials of a simulation that says nothing of how many."""
FAULTS = ("kill", "freeze")
SIMULATED_LABELS = frozenset(
    {
        Label.COMPLETE_RESTORE, Label.RESTORE_AND_RERUN, Label.RESTORE_AND_INTERRUPT, Label.RERUN_RESTORED, Label.INTERRUPT_RESTORED,
        Label.ADOPT_EXIT, Label.REATTACH, Label.VOID_AND_RUN, Label.RUN_VOIDED, Label.SETTLED,
    }
)  # fmt: skip
"""The decisions that simulated faults lead to."""
PLAYED = ("kill", "wait", "freeze", "wake", "release", "start", "end")
"""The verbs of plans that a simulation can carry out."""


class Given(Protocol):
    """The options that a simulation looks at, as typed."""

    @property
    def mode(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def scenario(self) -> str: ...
    @property
    def fault(self) -> str: ...
    @property
    def require(self) -> str: ...
    @property
    def depth(self) -> int | None: ...
    @property
    def require_coverage(self) -> bool: ...


def check_backend(backend: str) -> str:
    """The backend, or MisuseError that names those there are."""
    if backend not in BACKENDS:
        raise MisuseError(f"unknown backend {backend!r}; there are {', '.join(BACKENDS)}")
    return backend


def check_simulation(given: Given, plan: tuple[Action, ...]) -> None:
    """Raise MisuseError where something is asked for that a simulation has not."""
    wrong = {
        "--level": (given.level != "step", "is for real processes; a simulation has the steps of the engine"),
        "--mode": (given.mode != "ci", "chooses scenario files; a simulation has sessions of its own (--scenario)"),
        "--depth": (given.depth is not None, "belongs to real processes; a simulation draws its second and third kills from the seed"),
        "--require-coverage": (given.require_coverage, "asks for decisions that no simulated fault leads to"),
        "--require": (bool(given.require), "asks for a fault of real processes"),
    }
    for option, (is_given, why) in wrong.items():
        if is_given:
            raise MisuseError(f"{option} {why}; leave {option} or --backend sim away")
    if given.fault and given.fault not in FAULTS:
        known = " and ".join(FAULTS)
        raise MisuseError(f"--fault chooses among the trials of the fixed sessions, whose faults are {known}, not {given.fault}")
    names = [one.name for one in FIXED]
    if given.scenario and given.scenario not in names and parse_drawn(given.scenario) is None:
        raise MisuseError(
            f"unknown session {given.scenario!r}; a simulation has {', '.join(names)}, and sim-SEED-NUMBER for each one that is drawn"
        )
    for action in plan:
        if action.do not in PLAYED:
            raise MisuseError(f"--plan: {action.do} is not simulated; there are {', '.join(PLAYED)}")
