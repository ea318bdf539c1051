"""The table of kills (kills.toml) as values, checked to be whole, and as the rows of recovery/README, "Kills".

A cell is a step and who is killed there: one process, a pair, or all at once with another boot after it. Every cell stands in the table,
with the state in which the session must end, or with the reason why there is nobody to kill.
"""

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("kills.toml")
ROLES = ("driver", "shim", "spawner", "worker", "command")
NAMES = {"worker": "file worker"}
SETS = (*((role,) for role in ROLES), *itertools.combinations(ROLES, 2))
ALL = "all, new boot"
HEAD = "| step | killed | its driver | decision | ran | workspace | next drive |\n|---|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a call. `at` is where a process waits; "" for none. A command that gets so far waits until the kills are done, but where
    `is_through`: there it has ended before. `missing` says why a role has no process there."""

    call: str
    name: str
    at: str
    is_through: bool
    missing: dict[str, str]

    @property
    def has_command(self) -> bool:
        """Whether a command runs there."""
        return self.call == "command" and "command" not in self.missing


@dataclass(frozen=True, slots=True)
class End:
    """The state after the kills. `driver` is how the first driver ended, minus the signal; `decision` the labels of the next one, in order;
    `ran` how often the command began (a file call: how many starting marks it has); `next` the exit code of the next drive, None where
    the first driver came to the end."""

    driver: int
    decision: str
    ran: int
    workspace: str
    next: int | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One row: who is killed at which step, and what must come of it."""

    step: Step
    killed: tuple[str, ...]
    boot: str
    end: End

    @property
    def name(self) -> str:
        return f"{self.step.call}: {self.step.name}: {name_killed(self.killed, self.boot)}"


def name_killed(killed: tuple[str, ...], boot: str = "") -> str:
    return ALL if boot else " + ".join(NAMES.get(role, role) for role in killed)


def load_table(file: Path = TABLE) -> list[Cell]:
    """Every cell that can be reached, in order. Raises AssertionError where a cell is missing, stands twice, or is nobody's."""
    return [cell for table in tomllib.loads(file.read_text("utf-8"))["step"] for cell in _cells(table)]


def load_steps(file: Path = TABLE) -> list[Step]:
    return [_step(table) for table in tomllib.loads(file.read_text("utf-8"))["step"]]


def _step(table: dict[str, Any]) -> Step:
    return Step(table["call"], table["name"], table.get("at", ""), table.get("is_through", False), table.get("missing", {}))


def _cells(table: dict[str, Any]) -> Iterator[Cell]:
    step = _step(table)
    there = [killed for killed in SETS if not set(killed) & step.missing.keys()]
    wanted = [*map(name_killed, there), ALL]
    by_name = dict(zip(wanted, [*there, tuple(role for role in ROLES if role not in step.missing)], strict=True))
    seen: list[str] = []
    for row in table["end"]:
        end = End(row["driver"], row["decision"], row["ran"], row["workspace"], row.get("next"))
        for name in row["killed"]:
            assert name in by_name, f"{step.call}: {step.name}: {name!r} is no cell; those are {wanted}"
            seen.append(name)
            yield Cell(step, by_name[name], "another boot" if name == ALL else "", end)
    assert sorted(seen) == sorted(wanted), f"{step.call}: {step.name}: missing {set(wanted) - set(seen)}, twice or foreign {seen}"


def render_table(call: str, file: Path = TABLE) -> str:
    """The rows of recovery/README for one kind of call: cells with one end state in one row."""
    lines = [HEAD]
    for table in tomllib.loads(file.read_text("utf-8"))["step"]:
        step = _step(table)
        if step.call != call:
            continue
        for row in table["end"]:
            killed = "; ".join(row["killed"])
            driver = "killed" if row["driver"] == -9 else f"exit {row['driver']}"
            following = f"exit {row['next']}" if "next" in row else "none needed"
            columns = (step.name, killed, driver, _render_decision(row["decision"]), row["ran"], row["workspace"], following)
            lines.append(f"| {' | '.join(map(str, columns))} |")
        for role, reason in step.missing.items():
            lines.append(f"| {step.name} | {NAMES.get(role, role)}, alone or in a pair | unreachable: {reason} | | | | |")
    return "\n".join(lines)


def _render_decision(decision: str) -> str:
    labels = [label.partition(" ") for label in decision.split(", ") if label]
    return ", ".join(f"`{label}`{blank}{of}" for label, blank, of in labels) or "none"
