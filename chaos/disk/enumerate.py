"""From what a driver does to its disk to the trials that fail each of it, once for each error that the operation can meet. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from chaos.disk.fault import INODES, OPERATIONS, ROLES, DiskFault, format_fault
from chaos.enumeration import Enumeration, Unreachable
from chaos.required import required_oracles
from chaos.results import Action, Recording, Trial
from chaos.scenario import Scenario
from chaos.step import parse_step

FAULT = "disk"
UNSTEADY = "not every time"
"""Why an operation is unreachable: two clean runs did not both come to it, so that no fault can be aimed at it."""
INODE_STEPS = 12
"""At most so many numbers of inodes are left to a driver, evenly spread, the lowest and the highest among them."""
Counts = Mapping[tuple[str, str], int]


def format_counts(least: Counts, most: Counts) -> tuple[str, ...]:
    """How a recording names what was done: `ROLE OPERATION TIMES|ROLE OPERATION TIMES`, in all its runs and in the longest."""
    names = [(role, operation) for role in ROLES for operation in OPERATIONS if most.get((role, operation))]
    return tuple(f"{' '.join(name)} {least.get(name, 0)}|{' '.join(name)} {most[name]}" for name in names)


def _parse_counts(lines: Sequence[str]) -> Counter[tuple[str, str]]:
    words = [line.split(" ") for line in lines]
    return Counter({(role, operation): int(times) for role, operation, times in words})


def enumerate_faults(recording: Recording, first_number: int) -> Enumeration:
    """The trials of one recording, whose lines are the counts that two clean runs share and, after `|`, those of the longer one."""
    pairs = [line.split("|") for line in recording.steps]
    least, most = (_parse_counts([pair[number] for pair in pairs]) for number in (0, 1))
    epoch = find_next_epoch(recording.prefix)
    faults = [
        DiskFault(role, operation, number, error)
        for (role, operation), times in least.items()
        for number in (_spread(times) if role == INODES else range(1, times + 1))
        for error in OPERATIONS[operation]
    ]
    trials = tuple(
        Trial(number, recording.scenario, (*recording.prefix, make_action(fault, epoch)), "fork", FAULT, recording.saved)
        for number, fault in enumerate(faults, first_number)
    )
    unsteady = tuple(
        Unreachable(f"{role} {operation} {number}", UNSTEADY)
        for (role, operation), times in most.items()
        if role != INODES
        for number in range(least[role, operation] + 1, times + 1)
    )
    names = tuple(one.step for one in unsteady)
    return Enumeration(recording.scenario, names, trials, unsteady, recording.kill_mark, recording.prefix, does="fail")


def _spread(times: int) -> list[int]:
    """Of the numbers from 1 to `times` as many as INODE_STEPS says."""
    steps = min(times, INODE_STEPS)
    return sorted({1 + (times - 1) * number // max(1, steps - 1) for number in range(steps)})


def make_action(fault: DiskFault, epoch: int) -> Action:
    """The action that starts the driver of `epoch` on a disk with this fault."""
    return Action("", "fail", f"driver@{epoch}", fault.role or "all", format_fault(fault))


def find_next_epoch(prefix: Sequence[Action]) -> int:
    """The epoch of the first driver after these actions, each driver of which had made or found the log."""
    return max((parse_step(action.at).epoch for action in prefix if action.at), default=0) + 1


def required_of_disk(scenario: Scenario, plan: Sequence[Action] = (), *, converges: bool = False) -> frozenset[str]:
    """The oracles of any trial, and the one of the failing disk; the clean run has one that only counts."""
    return required_oracles(scenario, plan, converges=converges) | {"disk"}
