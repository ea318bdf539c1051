"""What simulated sessions do: the sessions that are killed at every step, and sessions drawn from a seed. Pure."""

from dataclasses import dataclass
from random import Random

from recovery.script import BashCall, Call, EditCall, OnInterrupted, Policy, WriteCall

_BEGIN = 'echo "$CALL_KEY start" >> "$WITNESS"\n'
_END = '\necho "$CALL_KEY end" >> "$WITNESS"'
_POLICIES: tuple[Policy, ...] = ("never", "never", "after-restore", "safe")
_PATHS = ("log.txt", "a", "b", "d/e", "d/f")
CALLS = 3


@dataclass(frozen=True, slots=True)
class Workload:
    """What a session does: its name, its calls, what becomes of interrupted ones."""

    name: str
    calls: tuple[Call, ...]
    on_interrupted: OnInterrupted = "reissue"


def witnessed(*lines: str, policy: Policy = "never", code: int = 0) -> BashCall:
    """A command that notes its start and its end outside the workspace, and ends with `code`."""
    end = f"\nexit {code}" if code else ""
    return BashCall((_BEGIN + "\n".join(lines) + _END + end).encode(), policy=policy)


FIXED = (
    Workload("sim-commands", (witnessed("echo one >> log.txt", "echo 1 > a"), witnessed("echo two >> log.txt"), witnessed("rm a"))),
    Workload("sim-repeatable", tuple(witnessed(f"echo {word} >> log.txt", policy="after-restore") for word in ("one", "two", "three"))),
    Workload(
        "sim-files",
        (
            WriteCall(b"notes.txt", b"hello\n"),
            EditCall(b"notes.txt", b"hello", b"good day"),
            witnessed("cat notes.txt", "mkdir d", "echo more > d/e"),
        ),
    ),
    Workload(
        "sim-continued",
        (witnessed("echo one > a", "echo two > b"), witnessed("rm a", "echo three >> b", code=3), WriteCall(b"c", b"three")),
        "continue",
    ),
)
"""Killed at every step of the clean run, and frozen at each."""


def draw_workload(random: Random, name: str) -> Workload:
    """Three calls over a few paths, with what is done to them, policies and what becomes of interrupted calls drawn."""
    calls = tuple(_draw_call(random, number) for number in range(CALLS))
    outcome: OnInterrupted = "reissue" if random.random() < 0.7 else "continue"
    return Workload(name, calls, outcome)


def _draw_call(random: Random, number: int) -> Call:
    kind = random.random()
    path = random.choice(_PATHS[:3])
    if kind < 0.15:
        return WriteCall(path.encode(), b"written %d\n" % number * random.randint(1, 3))
    if kind < 0.25:
        return EditCall(path.encode(), b"one", b"edited")
    lines = ["mkdir d"] if random.random() < 0.3 else []
    lines += [_draw_line(random, number) for _ in range(random.randint(1, 3))]
    return witnessed(*lines, policy=random.choice(_POLICIES), code=random.choice((0, 0, 0, 7)))


def _draw_line(random: Random, number: int) -> str:
    path = random.choice(_PATHS)
    match random.randrange(5):
        case 0 | 1:
            return f"echo one {number} >> {path}"
        case 2:
            return f"echo two {number} > {path}"
        case 3:
            return f"rm {path}"
        case _:
            return f"cat {path}"
