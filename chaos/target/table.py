"""The table of violations, side by side: values, text and Markdown. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from chaos.results import TrialResult, Verdict
from chaos.target.peers import PEERS, Peer
from chaos.target.target import LIVENESS
from chaos.target.workload import VIOLATIONS

FORMAT = 1
KINDS = (*VIOLATIONS, LIVENESS)
PREFACE = (
    "Each number counts trials in which that kind of violation was seen; a trial has one kill. The work is not idempotent, which some of "
    "these drivers ask for: what each promises, and what of the numbers its promise allows, stands below the table. At the level "
    "`step` all are killed at the same instants, those of the workload; at the level `syscall` in calls of the started process's first "
    "thread, so that a driver that works in other threads or processes is mostly killed beside its work there."
)
KNOWN = {peer.name: peer for peer in PEERS}


class Row(msgspec.Struct, frozen=True):
    """One driver, killed in one way: `kills` that were proved, in how many trials each kind of violation was seen, how many trials were
    `unknown`. `lack` says why it was not run, "" where it was."""

    driver: str
    level: str
    kill: str
    kills: int = 0
    unknown: int = 0
    violations: dict[str, int] = {}
    versions: dict[str, str] = {}
    lack: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """The whole table, with what it was made with. `date` is a day, `steps` the length of the workload."""

    date: str
    steps: int
    seed: int
    python: str
    rows: tuple[Row, ...]
    format: int = FORMAT


def make_row(peer: Peer, level: str, kill: str, versions: Mapping[str, str], results: Sequence[TrialResult]) -> Row:
    """What the trials of one campaign say."""
    tried = [result for result in results if result.trial.number]
    unfit = [result for result in results if result.verdict is Verdict.UNKNOWN]
    judged = [result for result in tried if result.verdict is not Verdict.UNKNOWN]  # where nobody was killed, nothing is a kill's doing
    failed = [one.oracle for result in judged for one in result.oracles if one.verdict is Verdict.FAIL]
    kills = sum(fault.fired for result in tried for fault in result.faults)
    # A clean run that did not pass was refused, and nothing was killed.
    lack = unfit[0].reason if unfit and not tried else ""
    return Row(peer.name, level, kill, kills, len(unfit), {kind: failed.count(kind) for kind in KINDS}, dict(versions), lack)


def find_unadmitted(row: Row) -> list[str]:
    """The kinds of violation that a driver shows against what it promises."""
    return [kind for kind, count in row.violations.items() if count and kind not in KNOWN[row.driver].admits]


def render_text(found: Comparison) -> list[str]:
    """Lines for a terminal: one row each, then what each driver promises and what was seen against it."""
    header = ["driver", "level", "kill", "kills", *KINDS, "unknown"]
    cells = [header, *(_cells(row) for row in found.rows)]
    widths = [max(len(line[place]) for line in cells if place < len(line)) for place in range(len(header))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)).rstrip() for line in cells]
    return [*lines, "", *_explain(found, "{name}: {about}")]


def render_page(found: Comparison) -> str:
    """The same as a page of the documentation."""
    header = ["driver", "level", "kill", "kills", *KINDS, "unknown"]
    table = [header, ["---"] * len(header), *(_cells(row) for row in found.rows)]
    lines = [
        "# Drivers side by side",
        "",
        f"Made by `chaos compare` on {found.date}: the standard workload of {found.steps} steps (chaos/README, Targets), seed "
        f"{found.seed}, Python {found.python}. {PREFACE}",
        "",
        *(f"| {' | '.join(line)} |" for line in table),
        "",
        *_explain(found, "**{name}** ({about})"),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    if row.lack:
        return [row.driver, row.level, row.kill, f"not run: {row.lack}"]
    return [row.driver, row.level, row.kill, str(row.kills), *(str(row.violations.get(kind, 0)) for kind in KINDS), str(row.unknown)]


def _explain(found: Comparison, form: str) -> list[str]:
    """For each driver its promise, and of each kind that was seen why the promise allows it, or that it does not."""
    lines = []
    for name in dict.fromkeys(row.driver for row in found.rows):
        peer, rows = KNOWN[name], [row for row in found.rows if row.driver == name]
        versions = ", ".join(f"{package} {version}" for package, version in rows[0].versions.items())
        lines.append(f"{form.format(name=name, about=peer.about)}{f', {versions}' if versions else ''}. {peer.promise} ({peer.source})")
        seen = [kind for kind in KINDS if any(row.violations.get(kind) for row in rows)]
        lines += [f"- `{kind}`: {peer.admits.get(kind, 'against its promise')}." for kind in seen]
        lines.append("")
    return lines
