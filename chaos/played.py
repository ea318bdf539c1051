"""What playing a plan takes and gives: the part that is played, who looks on, and what came of it. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from chaos.results import Action, Fault, OracleVerdict
from chaos.stage import Ended

MOST_DRIVERS = 8
QUIET_SECS = 10.0

Listing = dict[str, Any]


class Observer(Protocol):
    """The oracle, as far as it looks at a trial while it is played; `pid` is no process of the trial."""

    @property
    def pid(self) -> int:
        """Its process, 0 when there is none."""

    def list_tree(self, tree: Path) -> Listing:
        """A directory as the oracle sees it."""

    def read_head(self, log: Path, scratch: Path, stream: str) -> int:
        """The seq of the log's newest event; nobody may write the log meanwhile."""


@dataclass(slots=True)
class Woken:
    """The workspace and the log's head just before an old process was woken, and after its end (None: it was not waited for)."""

    who: str
    listing_before: Listing
    head_before: int
    listing_after: Listing | None = None
    head_after: int = 0


@dataclass(slots=True)
class Played:
    """What came of it. `edits` are those of the plan as the oracle is told of them, `looks` what the workspace held before each successor
    started (where nothing lived that could write in it), `parked` the words with which drivers asked for a person, `held` the epochs of
    processes frozen with a lock and the log's head then, `recorded_from` is the size of the trace when the plan was through."""

    faults: list[Fault] = field(default_factory=list)
    findings: list[OracleVerdict] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    woken: list[Woken] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    edits: list[dict[str, Any]] = field(default_factory=list)
    looks: list[Listing] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    trouble: str = ""
    recorded_from: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """What is played: a plan after `before` (the ends of drivers that a saved state already holds)."""

    plan: tuple[Action, ...]
    entry: str = "fork"
    before: tuple[Ended, ...] = ()


def unplayed(plan: Sequence[Action], faults: Sequence[Fault]) -> list[Fault]:
    """A Fault for each action that the plan did not come to."""
    return [Fault(action.at, action.do, False, False, note="the plan ended before", who=action.who) for action in plan[len(faults) :]]
