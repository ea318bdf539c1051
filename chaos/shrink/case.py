"""What is shrunk: one scenario, one plan, how its drivers start; and which of two is smaller. Pure."""

from dataclasses import dataclass

from chaos.results import Action
from chaos.scenario import Scenario
from chaos.step import parse_step
from recovery.script import BashCall, Call, EditCall, WriteCall


@dataclass(frozen=True, slots=True)
class Case:
    """A trial by what it does. The scenario has no plan and no trial sets of its own: `plan` is all that is done."""

    scenario: Scenario
    plan: tuple[Action, ...]
    entry: str = "fork"


Size = tuple[int, int, int, int, int, int, int]


def measure(case: Case) -> Size:
    """Smaller is simpler, the first number counting most: actions of the plan, calls, seed entries, keys of the scenario that say something
    special, bytes of calls and seed, ordinals of steps, whether its driver is a command of its own."""
    scenario = case.scenario
    weight = sum(map(weigh_call, scenario.calls)) + sum(len(one.content) + len(one.path) for one in scenario.seed)
    special = (
        scenario.witnessed, scenario.ready, scenario.compare_output, scenario.needs, scenario.profile.excludes, scenario.answers,
        scenario.redriven, scenario.ahead, scenario.mount, scenario.modes.mode != "transactional",
    )  # fmt: skip
    ordinals = sum(parse_step(action.at).count for action in case.plan if action.at)
    library = sum(one.kind == "stdlib" for one in scenario.seed)
    return (
        len(case.plan), len(scenario.calls), len(scenario.seed) + 1000 * library, sum(map(bool, special)), weight, ordinals,
        int(case.entry != "fork"),
    )  # fmt: skip


def weigh_call(call: Call) -> int:
    """The bytes that a call is written with."""
    match call:
        case BashCall():
            return len(call.run) + len(call.stdin or b"")
        case WriteCall():
            return len(call.path) + len(call.content)
        case EditCall():
            return len(call.path) + len(call.old) + len(call.new)


def describe(case: Case) -> str:
    """Its size in words."""
    actions, calls, entries, *_ = measure(case)
    has_library = any(one.kind == "stdlib" for one in case.scenario.seed)
    tree = "the standard library as its tree" if has_library else _count(entries, "seed entry", "seed entries")
    return f"{_count(actions, 'action', 'actions')}, {_count(calls, 'call', 'calls')}, {tree}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
