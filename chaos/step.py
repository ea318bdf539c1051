"""Steps: `ROLE@EPOCH:NAME:N`, the N-th pass of the crash point NAME in the process that has ROLE at EPOCH. Pure.

ROLE is `driver`, `spawner`, `worker` (the file worker), `filler` (the second process of a large restore), `shim.K` (the K-th shim of its
epoch; `shim` alone is `shim.1`) or `redriver`. NAME is a dotted name of small letters, digits, `-` and `_`. EPOCH and N count from 1; a
redriver has none of its own, and 0 stands for it.
"""

import re
from dataclasses import dataclass
from typing import Literal

from eventlog.errors import MisuseError

STEP_FORM = "ROLE@EPOCH:NAME:N with ROLE driver, spawner, shim.K, worker, filler or redriver, such as driver@1:outcome.commit.before:1"

_STEP = re.compile(
    r"(?P<role>driver|spawner|worker|filler|shim(?:\.[1-9][0-9]*)?|redriver(?=@0:))@(?P<epoch>[1-9][0-9]*|(?<=redriver@)0):(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*):(?P<count>[1-9][0-9]*)\Z"
)
_SHORT = re.compile(r"(?P<role>[a-z.0-9]+):")


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of one crash point: the `count`-th pass of `name` in the process that has `role` at `epoch`."""

    role: str
    epoch: int
    name: str
    count: int


def parse_step(text: str, where: str = "step") -> Step:
    """A step from its full name; MisuseError when it is none."""
    match = _STEP.match(text)
    if match is None:
        raise MisuseError(f"{where}: {text!r} is no step; write {STEP_FORM}")
    role = "shim.1" if match["role"] == "shim" else match["role"]
    return Step(role, int(match["epoch"]), match["name"], int(match["count"]))


def parse_short_step(text: str, where: str = "step") -> Step:
    """A step as a person types it: the full name, or `ROLE:NAME:N`, which means epoch 1."""
    return parse_step(_SHORT.sub(r"\g<role>@1:", text, count=1) if "@" not in text else text, where)


def format_step(step: Step) -> str:
    """The full name of a step; `parse_step` reads it back."""
    return f"{step.role}@{step.epoch}:{step.name}:{step.count}"


def role_of(step: Step) -> str:
    """The kind of role: `shim` for every shim."""
    return step.role.partition(".")[0]


Lock = Literal["", "log", "ledger", "registry"]
_LOCKS: tuple[tuple[Lock, re.Pattern[str]], ...] = (
    ("log", re.compile(r".*\.commit\.locked\Z")),
    (
        "ledger",
        re.compile(r"ledger\.((?!create)[a-z_]+\.append\.(before|unsynced)|seal\.[a-z.]+|compact\.(write|sync|rename)\.[a-z]+|leftover\.[a-z.]+)\Z"),
    ),
    ("registry", re.compile(r"holder\..*\Z")),
)


def lock_of(step: Step) -> Lock:
    """Which lock the process holds at this step, or none: the log's (inside its transaction), the ledger's (from its lock to the written
    record, whose sync comes after it, and while it is written anew), that of the registry of holders. The runner checks the claim against
    /proc/locks when it freezes."""
    return next((lock for lock, name in _LOCKS if name.match(step.name)), "")


def holds_lock(step: Step) -> bool:
    """Whether the process holds any lock at this step."""
    return lock_of(step) != ""
