"""The sync points of the engine: what a recorded run syncs, by name, with the planted bug that removes each, or why none can show. Pure.

A point is the step of the durable module (`ledger.create`; `.directory` for the directory), or for SQLite and for records that are
appended the file (`wal`, `ledger`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.powerloss.history import MARK
from chaos.step import parse_step, role_of

SYNCS = ("sync", "syncfs")
NEEDLESS = {
    "holder.directory": "the next driver claims its root again; a record that is lost keeps nobody from the log that is there",
    "holder.begun.directory": "the log stands by then, which says as much; the note counts only where the log is gone",
    "identity.directory": "it tells a successor which living process holds a lock (rule L4); after a loss of power none lives",
    "identity": "likewise: a file of another boot id is taken away unread",
}
"""Points whose removal no cut can expose, and why they are there all the same."""


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """One sync point: how often the recorded runs pass it, in which roles, and `bugs` that remove it."""

    name: str
    count: int
    roles: tuple[str, ...]
    bugs: tuple[str, ...]
    reason: str


def find_syncs(runs: Iterable[Sequence[str]], bugs: Iterable[str]) -> list[SyncPoint]:
    """Every sync point that recorded runs (the names of their cuts) pass, in order of name. `bugs` are the names of all planted bugs."""
    counts: Counter[str] = Counter()
    roles: dict[str, dict[str, None]] = {}
    for step in (parse_step(name) for names in runs for name in names):
        mark, kind, point = (*step.name.split(".", 2), "", "")[:3]
        if mark == MARK and kind in SYNCS:
            counts[point] += 1
            roles.setdefault(point, {})[role_of(step)] = None
    known = sorted(bugs)
    return [
        SyncPoint(point, counts[point], tuple(roles[point]), tuple(_find_bugs(point, known)), NEEDLESS.get(point, ""))
        for point in sorted(counts)
    ]


def bug_name(point: str) -> str:
    """What the planted bug is called that removes a sync point."""
    return f"unsynced-{point.replace('.', '-').replace('_', '-')}"


def _find_bugs(point: str, known: list[str]) -> list[str]:
    name = bug_name(point)
    return [bug for bug in known if bug == name or bug.startswith(f"{name}-of-")]
