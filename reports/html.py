"""A run as one HTML page that needs nothing beside it: summary, failures by signature with their commands, coverage. Pure.

Every value from a run is escaped twice over: what cannot be printed is written as an escape, and what HTML would read is turned into
entities by the template engine. The page holds no script and asks for no other file.
"""

from pathlib import Path

import msgspec

from reports.aggregate import Group, group_troubles
from reports.document import make_document
from reports.load import Run
from reports.repeat import repeat_command, replay_command, shrink_command
from reports.words import describe_trial, escape

TEMPLATE = Path(__file__).resolve().parent / "run.html.j2"


class Cell(msgspec.Struct, frozen=True):
    """One cell of the matrix: trials, and the labels that they decided."""

    trials: int
    labels: str


def render_html(run: Run) -> str:
    """The page of one run."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["shown"] = lambda value: escape(str(value))
    document = make_document(run)
    faults = sorted({cell.fault for cell in document.matrix})
    matrix = {(cell.step, cell.fault): _make_cell(cell.trials, cell.labels) for cell in document.matrix}
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(
        run=run,
        document=document,
        summary=msgspec.to_builtins(document.summary),
        groups=[_describe_group(run, group) for group in group_troubles(run.results)],
        faults=faults,
        steps=sorted({step for step, _ in matrix}),
        matrix=matrix,
    )


def _make_cell(trials: int, labels: dict[str, int]) -> Cell:
    return Cell(trials, ", ".join(f"{label} {count}" for label, count in labels.items()))


def _describe_group(run: Run, group: Group) -> dict[str, object]:
    first, oracle = group.first, group.oracle
    facts = {"reason": first.reason}
    if oracle is not None:
        facts |= {"oracle": oracle.oracle, "detail": oracle.detail, "path": oracle.path, "expected": oracle.expected}
        facts |= {"found": oracle.found, "event": oracle.event}
    commands = {"repeat": repeat_command(run.config, first.trial), "replay": replay_command(run.config, first)}
    commands |= {"shrink": shrink_command(run.config, first), "kept": first.kept}
    return {
        "signature": str(group.signature),
        "verdict": group.verdict.value,
        "title": f"{group.scenario}: {describe_trial(first.trial)}",
        "facts": {name: value for name, value in facts.items() if value},
        "commands": {name: value for name, value in commands.items() if value},
        "others": [f"{one.trial.scenario}: {describe_trial(one.trial)}" for one in group.others],
    }
