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
    "file": "the image of the outcome restores it; it is for those who read the workspace without this engine",
    "holder.begun.directory": "the log stands by then, which says as much; the note counts only where the log is gone",
    "registry.directory": "a registry whose name is lost kept no log: the next driver makes it anew and claims its root again",
    "holder.directory": "the next driver claims its root again; a record that is lost keeps nobody from the log that is there",
    "identity.directory": "it tells a successor which living process holds a lock (rule L4); after a loss of power none lives",
    "ledger.create": "a ledger that holds zeros is made anew; the sync of its first record covers what was there before",
    "ledger.create.directory": "a ledger that is lost is made anew; what was acknowledged is in the log",
    "log": "SQLite's own, of the database before the WAL begins anew",
    "new-journal": "SQLite's own, of a log that has no name yet: it gets one after `log.create`",
    "new-journal.directory": "SQLite's own, likewise",
    "new-log": "SQLite's own, likewise",
    "restore.record": "it keeps attributes of what is changed in place, and no modelled state loses those of a path that stays",
    "wal.directory": "SQLite's own, of the WAL's name",
}
"""Points whose removal no cut has exposed, or that are not the engine's to remove, and why they are there."""


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
