"""The standard workload and its judge: what a target that plays it must have done in the end, one verdict a kind of violation. Pure.

The workload has steps 1 to N. Step K appends the line `did K` to `CHAOS_OUTSIDE/witness` (one write, O_APPEND), then the line `K` to
`CHAOS_WORK/left`, then the same to `CHAOS_WORK/right`. When the engine under the target has said that step K is done, the target appends
`ack K` to the witness. It is not idempotent on purpose: commands of agents and of nightly jobs are not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from chaos.results import OracleVerdict, Verdict

LEFT, RIGHT, WITNESS = "left", "right", "witness"


@dataclass(frozen=True, slots=True)
class End:
    """What a target has left: the lines of its three files, and how many `steps` the workload has."""

    steps: int
    witness: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The steps as they stand in the files."""
        return tuple(str(number) for number in range(1, self.steps + 1))


Find = Callable[[End], str]


def find_ran_twice(end: End) -> str:
    """A step that began its effect outside more than once."""
    counts = Counter(end.witness)
    return _first(f"step {name} ran {counts[f'did {name}']} times" for name in end.names if counts[f"did {name}"] > 1)


def find_lost(end: End) -> str:
    """A step of which the finished run holds nothing, or not all."""
    files = {WITNESS: [line.removeprefix("did ") for line in end.witness if line.startswith("did ")], LEFT: end.left, RIGHT: end.right}
    return _first(f"step {name} is not in {file}" for name in end.names for file, lines in files.items() if name not in lines)


def find_half_applied(end: End) -> str:
    """A part of an interrupted step in the workspace: the two files do not hold the same, or what no step writes."""
    for file, lines in ((LEFT, end.left), (RIGHT, end.right)):
        for line in lines:
            if line not in end.names:
                return f"{file} holds {line!r:.80}, which no step writes"
    left, right = Counter(end.left), Counter(end.right)
    return _first(f"step {name} stands {left[name]} times in left and {right[name]} times in right" for name in end.names
                  if left[name] != right[name])  # fmt: skip


def find_applied_twice(end: End) -> str:
    """A step that changed the whole workspace more than once."""
    left, right = Counter(end.left), Counter(end.right)
    return _first(f"step {name} was applied {min(left[name], right[name])} times" for name in end.names if min(left[name], right[name]) > 1)


def find_acknowledged_lost(end: End) -> str:
    """A step that was acknowledged and yet ran again, or is not in the workspace."""
    acknowledged: set[str] = set()
    for line in end.witness:
        verb, _, name = line.partition(" ")
        if verb == "did" and name in acknowledged:
            return f"step {name} ran again after it was acknowledged"
        if verb == "ack":
            acknowledged.add(name)
    missing = sorted(acknowledged - set(end.left).intersection(end.right))
    return f"step {missing[0]} was acknowledged and is not in the workspace" if missing else ""


VIOLATIONS: Mapping[str, Find] = {
    "ran-twice": find_ran_twice,
    "step-lost": find_lost,
    "half-applied": find_half_applied,
    "applied-twice": find_applied_twice,
    "acknowledged-lost": find_acknowledged_lost,
}
"""Kinds of violation: each names the first it finds, "" for none."""

_SPOILED: Mapping[str, Callable[[End], End]] = {
    "ran-twice": lambda end: replace(end, witness=("did 1", *end.witness)),
    "step-lost": lambda end: replace(end, right=end.right[1:]),
    "half-applied": lambda end: replace(end, left=(*end.left, "1")),
    "applied-twice": lambda end: replace(end, left=(*end.left, "1"), right=(*end.right, "1")),
    "acknowledged-lost": lambda end: replace(end, witness=(*end.witness, "did 1")),
}


def judge_end(end: End) -> tuple[OracleVerdict, ...]:
    """What each kind says of an end."""
    found = {kind: find(end) for kind, find in VIOLATIONS.items()}
    return tuple(OracleVerdict(kind, Verdict.FAIL if detail else Verdict.PASS, detail) for kind, detail in found.items())


def find_blind(end: End) -> str:
    """Of a sound end: the kind that does not notice what breaks it, "" when every one does."""
    return _first(kind for kind, spoil in _SPOILED.items() if not VIOLATIONS[kind](spoil(end)))


def _first(found: Iterable[str]) -> str:
    return next(iter(found), "")
