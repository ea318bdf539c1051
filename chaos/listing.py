"""`chaos list`: what there is to choose from."""

import dataclasses
import json as json_text
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from chaos.catalogue import MODES, choose
from chaos.console import write_json
from chaos.launch import record_steps
from chaos.losses import LOSSES
from chaos.options import check_engine
from chaos.plan import BY_SCENARIO, FAULTS
from chaos.planted.bug import load_bugs
from chaos.powerloss.enumerate import MODE as POWERLOSS
from chaos.powerloss.syncs import find_syncs
from chaos.syscalls.available import find_lack
from chaos.syscalls.level import LEVELS, SYSCALL
from chaos.volume import find_lack as find_mount_lack

list_app = typer.Typer(help="List steps, faults, modes, levels or scenarios.", rich_markup_mode=None, add_completion=False)

Mode = Annotated[str, typer.Option(metavar="M", help="the mode whose scenarios are meant")]
Json = Annotated[str, typer.Option("--json", metavar="F", help="also write them to F as JSON; - prints only that")]


@list_app.command("steps")
def list_steps(
    mode: Mode = "ci",
    scenario: Annotated[str, typer.Option(metavar="S", help="only this scenario: its name, or the path of its file")] = "",
    engine: Annotated[str, typer.Option(metavar="DIR", help="an engine copy to run instead")] = "",
    json: Json = "",
) -> None:
    """Run each scenario once and list the steps its processes pass, in order."""
    scenarios = choose(mode, scenario)
    enumerations = record_steps(scenarios, check_engine(engine), min(os.cpu_count() or 1, len(scenarios)), mode)
    unreachable = {(one.scenario, step.step): step.reason for one in enumerations for step in one.unreachable}
    rows = [
        {"scenario": one.scenario, "step": step, "unreachable": unreachable.get((one.scenario, step), "")}
        for one in enumerations
        for step in one.steps
    ]
    _show([f"{row['scenario']} {row['step']} {row['unreachable']}".rstrip() for row in rows], rows, json)


@list_app.command("syncs")
def list_syncs(
    engine: Annotated[str, typer.Option(metavar="DIR", help="an engine copy to run instead")] = "",
    json: Json = "",
) -> None:
    """Run the scenarios of the mode powerloss once and list what they sync, with the planted bug that removes each sync."""
    scenarios = choose(POWERLOSS, "")
    enumerations = record_steps(scenarios, check_engine(engine), min(os.cpu_count() or 1, len(scenarios)), POWERLOSS)
    points = find_syncs([one.steps for one in enumerations], [bug.name for bug in load_bugs()])
    width = max(len(point.name) for point in points)
    told = [", ".join(point.bugs) or (f"needless: {point.reason}" if point.reason else "no planted bug yet") for point in points]
    lines = [f"{one.name:<{width}}  {one.count:>3} {','.join(one.roles):<22} {words}" for one, words in zip(points, told, strict=True)]
    _show(lines, [dataclasses.asdict(point) for point in points], json)


@list_app.command("faults")
def list_faults(json: Json = "") -> None:
    """List what --fault takes, then what can be lost; what is unavailable here says so."""
    lacks = {SYSCALL: find_lack(), "root unmounted": find_mount_lack()}
    rows = [{"fault": name, "about": about, "unavailable": lacks.get(name, "")} for name, about in FAULTS.items()]
    rows += [{"fault": name, "about": about, "unavailable": ""} for name, about in BY_SCENARIO.items()]
    rows += [{"fault": f"lose {name}", "about": about, "unavailable": lacks.get(name, "")} for name, about in LOSSES.items()]
    width = max(len(row["fault"]) for row in rows)
    told = [f" (unavailable here: {row['unavailable']})" if row["unavailable"] else "" for row in rows]
    _show([f"{row['fault']:<{width}}  {row['about']}{lack}" for row, lack in zip(rows, told, strict=True)], rows, json)


@list_app.command("modes")
def list_modes(json: Json = "") -> None:
    """List what --mode takes."""
    _show_table({name: mode.about for name, mode in MODES.items()}, "mode", json)


@list_app.command("levels")
def list_levels(json: Json = "") -> None:
    """List what --level takes, and whether it is available here."""
    lack = find_lack()
    words = {SYSCALL: f"unavailable here: {lack}"} if lack else {}
    lines = [f"{level:<7}  {about}" + (f" ({words[level]})" if level in words else "") for level, about in LEVELS.items()]
    _show(lines, [{"level": level, "about": about, "unavailable": words.get(level, "")} for level, about in LEVELS.items()], json)


@list_app.command("scenarios")
def list_scenarios(mode: Mode = "ci", json: Json = "") -> None:
    """List the scenarios of a mode."""
    _show_table({scenario.name: scenario.about for scenario in choose(mode, "")}, "scenario", json)


def _show_table(table: Mapping[str, str], word: str, json: str) -> None:
    width = max(map(len, table), default=0)
    _show(
        [f"{name:<{width}}  {about}" for name, about in table.items()],
        [{word: name, "about": about} for name, about in table.items()],
        json,
    )


def _show(lines: Sequence[str], rows: Sequence[Mapping[str, Any]], json: str) -> None:
    if json != "-":
        print("\n".join(lines))
    if json:
        write_json(json_text.dumps(rows, indent=2) + "\n", json)
