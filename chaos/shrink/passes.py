"""What makes a case smaller: one function for each way, the boldest proposals first. Pure.

A proposal may make no sense (a step that nobody passes any more, a command whose file is gone): whoever asks the predicate finds out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import msgspec

from chaos.results import Action
from chaos.scenario import Modes, Scenario
from chaos.shrink.case import Case
from chaos.step import Step, format_step, parse_step
from recovery.script import BashCall, Call, EditCall, WriteCall
from recovery.workspace.profile import Profile

Item = TypeVar("Item")
MOST_BINDINGS = 24
"""How many bindings of a plan to the ordinals that are left are tried for one set of calls."""
MOST_MISSES = 3
ListSteps = Callable[[Case, int], Sequence[str]]
"""The steps that are passed after the first N actions of a case's plan, in order."""
DEFAULT_MODES = {"file": 0o644, "directory": 0o755, "fifo": 0o644}


def cut(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """The items without a part of them: all of it, halves, quarters, ..., single ones."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield tuple(items[:start]) + tuple(items[start + size :])
        size //= 2


def fewer_actions(case: Case) -> Iterator[Case]:
    """Without a part of the plan; each also with the epochs after what was left out counted down."""
    for plan in cut(case.plan):
        yield replace(case, plan=plan)
        lowest = min((epoch for epoch in map(_epoch_of, plan) if epoch), default=1)
        for shift in range(1, lowest):
            yield replace(case, plan=tuple(_move_epoch(action, -shift) for action in plan))


def fewer_calls(case: Case) -> Iterator[Case]:
    """One call alone, then without a part of them; steps are bound to every ordinal that may be meant then."""
    calls = list(enumerate(case.scenario.calls))
    kept = [(one,) for one in calls] + list(cut(calls)) if len(calls) > 1 else []
    for numbered in dict.fromkeys(one for one in kept if one):
        scenario = keep_calls(case.scenario, [number for number, _ in numbered])
        for plan in islice(bind_again(case.plan), MOST_BINDINGS):
            yield replace(case, scenario=scenario, plan=plan)


def keep_calls(scenario: Scenario, kept: Sequence[int]) -> Scenario:
    """The scenario with these of its calls, by index."""
    witnessed = tuple(place for place, number in enumerate(kept) if number in scenario.witnessed)
    return replace(scenario, calls=tuple(scenario.calls[number] for number in kept), witnessed=witnessed)


def bind_again(plan: tuple[Action, ...]) -> Iterator[tuple[Action, ...]]:
    """The plan, and with each of its steps at a lower ordinal, the others as they are; then with all of them at their first."""
    yield plan
    for place, action in enumerate(plan):
        for count in range(1, parse_step(action.at).count if action.at else 1):
            yield (*plan[:place], _move_count(action, count), *plan[place + 1 :])
    yield tuple(_move_count(action, 1) for action in plan)


def smaller_tree(case: Case) -> Iterator[Case]:
    """Without a part of the seed, then with plainer entries."""
    seed = case.scenario.seed
    for kept in cut(seed):
        yield replace(case, scenario=replace(case.scenario, seed=kept))
    for place, entry in enumerate(seed):
        for plainer in (replace(entry, content=b"", mode=DEFAULT_MODES.get(entry.kind, entry.mode)), replace(entry, content=b"")):
            yield replace(case, scenario=replace(case.scenario, seed=(*seed[:place], plainer, *seed[place + 1 :])))


def plainer_scenario(case: Case) -> Iterator[Case]:
    """Without one of the keys that say something special."""
    scenario = case.scenario
    yield from (
        replace(case, scenario=one)
        for one in (
            replace(scenario, ready="", gate=""),
            replace(scenario, answers=()),
            replace(scenario, profile=Profile()),
            replace(scenario, mount=False),
            replace(scenario, redriven=False, ahead=False),
            replace(scenario, ahead=False),
            replace(scenario, compare_output=False),
            replace(scenario, witnessed=()),
            replace(scenario, needs=()),
            replace(scenario, modes=Modes()),
        )
    )
    yield replace(case, entry="fork")


def shorter_calls(case: Case) -> Iterator[Case]:
    """With a shorter command, or less content, in one of the calls."""
    calls = case.scenario.calls
    for place, call in enumerate(calls):
        for shorter in _shorten(call):
            yield replace(case, scenario=replace(case.scenario, calls=(*calls[:place], shorter, *calls[place + 1 :])))


def _shorten(call: Call) -> Iterator[Call]:
    match call:
        case BashCall():
            for separator in (b"\n", b"; ", b" && "):
                parts = call.run.split(separator)
                yield from (msgspec.structs.replace(call, run=separator.join(kept)) for kept in cut(parts) if kept and len(parts) > 1)
            if call.stdin:
                yield msgspec.structs.replace(call, stdin=None)
        case WriteCall():
            lengths = [len(call.content) // divisor for divisor in (len(call.content) + 1, 16, 2)]
            yield from (msgspec.structs.replace(call, content=call.content[:length]) for length in lengths)
        case EditCall():
            yield msgspec.structs.replace(call, new=b"")


def make_earlier_steps(list_steps: ListSteps) -> Callable[[Case], Iterator[Case]]:
    """A pass that moves each action to the same step at a lower ordinal."""

    def earlier_steps(case: Case) -> Iterator[Case]:
        for place, action in enumerate(case.plan):
            if not action.at or parse_step(action.at).count == 1:
                continue
            meant = parse_step(action.at)
            for step in dict.fromkeys(list_steps(case, place)):
                found = parse_step(step)
                if (found.role, found.epoch, found.name) == (meant.role, meant.epoch, meant.name) and found.count < meant.count:
                    yield replace(case, plan=(*case.plan[:place], _move_count(action, found.count), *case.plan[place + 1 :]))

    return earlier_steps


def move_to_earliest(case: Case, list_steps: ListSteps, is_same: Callable[[Case], bool]) -> Case:
    """The case with each action at an earlier step, whatever its name: from where it is backwards through what is passed after the actions
    before it, until `MOST_MISSES` steps in a row are not the same."""
    for place, action in enumerate(case.plan):
        steps = list(dict.fromkeys(list_steps(case, place))) if action.at else []
        earlier = steps[: steps.index(action.at)] if action.at in steps else []
        misses = 0
        while earlier and misses < MOST_MISSES:
            moved = replace(case, plan=(*case.plan[:place], replace_step(action, earlier.pop()), *case.plan[place + 1 :]))
            case, misses = (moved, 0) if is_same(moved) else (case, misses + 1)
    return case


def replace_step(action: Action, step: str) -> Action:
    """The action at another step."""
    return Action(step, action.do, action.who, action.path, action.content)


def _epoch_of(action: Action) -> int:
    """The epoch that an action names, 0 for none."""
    if action.at:
        return parse_step(action.at).epoch
    return int(action.who.partition("@")[2]) if action.who else 0


def _move_epoch(action: Action, by: int) -> Action:
    at, who = action.at, action.who
    if at:
        step = parse_step(at)
        at = format_step(Step(step.role, step.epoch + by, step.name, step.count)) if step.epoch else at
    if who:
        role, _, epoch = who.partition("@")
        who = f"{role}@{int(epoch) + by}" if int(epoch) else who
    return Action(at, action.do, who, action.path, action.content)


def _move_count(action: Action, count: int) -> Action:
    if not action.at:
        return action
    step = parse_step(action.at)
    return replace_step(action, format_step(Step(step.role, step.epoch, step.name, count)))
