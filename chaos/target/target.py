"""What is crash-tested, as a value: a command of anybody, how it is killed, and who says whether the end is right. Pure.

The contract with the command stands in chaos/README, "Targets".
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from chaos.target.workload import VIOLATIONS
from eventlog.errors import MisuseError

Kill = Literal["tree", "main"]
KILLS = get_args(Kill)
"""`tree`: every process of the target; `main`: the one that was started, whose children live on."""
ENTRY = "target"
NAME = "target"
"""Stands where a campaign of the engine has its mode and its scenario."""
AGAIN, DEEPER = "again", "deeper"
"""As what trials with a second kill, and with more, are counted."""
STARTED = "target_started"
"""The one kind of event in the history of a target's trial."""
DEFAULT_STARTS = 3
"""How often a target is started after its last kill, at most, before it must have finished."""
DEFAULT_PATIENCE_SECS = 120.0
"""How long one start, or the check, may take; far above what a target of a few steps needs on a busy machine."""
QUIET_SECS = 60.0
"""How long what a finished target has left running may take to end by itself."""

LIVENESS = "liveness"
CHECK = "check"
PROCESSES = "processes"
LOG_ORACLE = "workspace-equals-log"
"""Of the log oracle's many, the one that is always asked."""


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target. `command` and `check` are words, none for no check; `workload` is the number of steps of the standard workload, 0 for
    another; `is_traced` when it is killed in system calls. `is_judged` is false where somebody else judges the end. What is
    in the directory `seed` stands in the workspace before the first start."""

    command: tuple[str, ...]
    check: tuple[str, ...] = ()
    workload: int = 0
    kill: Kill = "tree"
    starts: int = DEFAULT_STARTS
    patience_secs: float = DEFAULT_PATIENCE_SECS
    is_traced: bool = False
    is_judged: bool = True
    quiet_secs: float = QUIET_SECS
    seed: str = ""

    @property
    def judges(self) -> tuple[str, ...]:
        """By name, those who must judge the end; the log oracle's many have their own names."""
        if not self.is_judged:
            return ()
        if self.workload:
            return tuple(VIOLATIONS)
        return (CHECK,) if self.check else (LOG_ORACLE,)


def describe_target(target: Target) -> dict[str, Any]:
    """A target as it stands where a trial of the engine has its scenario: in `config.json`, and in a transcript."""
    return {"name": NAME, **msgspec.to_builtins(target)}


def read_target(told: Mapping[str, Any], where: str) -> Target | None:
    """The inverse; None for a scenario. MisuseError for what is damaged, naming `where` it stands."""
    if told.get("name") != NAME or "command" not in told:
        return None
    try:
        return msgspec.convert({name: value for name, value in told.items() if name != "name"}, Target)
    except msgspec.ValidationError as error:
        raise MisuseError(f"{where}: holds a damaged target: {error}; run the campaign again") from error
