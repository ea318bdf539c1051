"""Kinds of faults that can be combined in one trial, and the plan of two of them. Pure.

What must hold: each action of a plan is aimed where it is sure to fire, so that a trial is unknown only when something is wrong. The first
fault falls into one of the first two calls of four, at a step of the driver that holds no lock; the second at a step that the driver that
is then at work is sure to pass: of its takeover, or of a call. Paths of two edits differ, and no call touches them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from chaos.results import Action
from chaos.step import lock_of, parse_step

After = Literal["goes on", "killed", "halts", "sleeps"]
"""What becomes of the driver at whose step a fault is aimed: it `halts` by itself once it needs what was taken."""
RECOVERED = "recovered:1"
TAKEOVER = ("start:1", "floor.commit.before:1", "floor.commit.after:1", RECOVERED)
LATER = ("intent.commit.before:3", "intent.commit.after:3", "outcome.commit.before:3", "outcome.commit.after:3")
FIRST_WAIT = "driver@1:command.wait:1"
THIRD_CALL = "driver@1:intent.commit.before:3"
IN_SPACE = "outcome.commit.before:1"
"""A step of a successor's first call: by then its space is sure to be at work."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault. `actions` are carried out at a step: those with `at` "." there, `{epoch}` and `{n}` filled in."""

    name: str
    actions: tuple[Action, ...]
    after: After = "goes on"
    needs_space: bool = False
    ends_all: bool = False
    needs_recovered: bool = False
    """What it takes is not there again before the recovery from the same fault has ended."""


KINDS = (
    Kind("kill", (Action(".", "kill"),), "killed"),
    Kind("space", (Action(".", "lose", path="space"),), "halts", True),
    Kind("freeze", (Action(".", "freeze"), Action("", "start")), "sleeps"),
    Kind("create", (Action(".", "edit", path="theirs/new-{n}.txt", content="created\n"),)),
    Kind("change", (Action(".", "edit", path="theirs/file-{n}.txt", content="changed\n"),)),
    Kind("remove", (Action(".", "edit", path="theirs/folder-{n}"),)),
    Kind("exchange", (Action(".", "turn", path="theirs/link-{n}", content="fifo"),)),
    Kind("clock forward", (Action(".", "jump", path="+10y"),)),
    Kind("clock back", (Action(".", "jump", path="-20y"),)),
    Kind("restart", (Action(".", "kill"), Action("", "lose", path="boot")), "killed", ends_all=True),
    Kind("ledger", (Action(".", "kill"), Action("", "lose", path="ledger removed")), "killed", needs_recovered=True),
)


def find_first_steps(steps: Sequence[str]) -> dict[str, list[str]]:
    """Where a first fault may fall, by class of step (`intent`, `scan`, ...: the first word of its name), in order: steps of the driver in
    its first two calls once it has waited for a command, whose space is there then, without a lock. The driver's own order counts: when
    others pass theirs is chance."""
    own = [step for step in steps if step.startswith("driver@1:")]
    begin = own.index(FIRST_WAIT) + 1 if FIRST_WAIT in own else len(own)
    end = own.index(THIRD_CALL) if THIRD_CALL in own else 0
    classes: dict[str, list[str]] = {}
    for step in own[begin:end]:
        parsed = parse_step(step)
        if not lock_of(parsed):
            classes.setdefault(parsed.name.partition(".")[0], []).append(step)
    return classes


def can_follow(first: Kind, second: Kind) -> bool:
    """Whether the second can be done after the first: no machine is restarted under a driver that sleeps."""
    return not (first.after == "sleeps" and second.ends_all)


def plan_two(first: Kind, step: str, second: Kind | None, place: int) -> tuple[Action, ...]:
    """The plan of a first fault at a step of driver 1 and a second one; `place` chooses among the steps at which that may fall."""
    plan = list(_fill(first, step, 1, 1))
    epoch = 1 if first.after == "goes on" else 2
    sleepers = [1] if first.after == "sleeps" else []
    if second is not None:
        names = (IN_SPACE,) if second.needs_space and epoch == 2 else LATER if epoch == 1 else TAKEOVER
        names = (RECOVERED,) if second is first and second.needs_recovered else names
        plan += _fill(second, f"driver@{epoch}:{names[place % len(names)]}", epoch, 2)
        sleepers += [epoch] if second.after == "sleeps" else []
    return (*plan, *_wake_all(sleepers, epoch, second.after if second else "goes on"))


def _fill(kind: Kind, step: str, epoch: int, number: int) -> list[Action]:
    return [
        Action(
            step if action.at else "",
            action.do,
            action.who.replace("{epoch}", str(epoch)),
            action.path.replace("{n}", str(number)),
            action.content,
        )
        for action in kind.actions
    ]


def _wake_all(sleepers: list[int], epoch: int, after: After) -> list[Action]:
    """Once the newest driver has come to the end, wake who sleeps, the newest first, and wait for its end."""
    if not sleepers:
        return []
    if after == "goes on":
        begin = [Action("", "end", f"driver@{epoch}")]
    else:
        halt = [Action("", "end", f"driver@{epoch}")] if after == "halts" else []
        start = [] if after == "sleeps" else [Action("", "start")]
        begin = [*halt, *start, Action("", "end", f"driver@{epoch + 1}")]
    return [*begin, *(Action("", do, f"driver@{who}") for who in reversed(sleepers) for do in ("wake", "end"))]
