"""The command `chaos`: the composition root, and the one place of this package that knows reports."""

import dataclasses
import os
import secrets
import shutil
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from chaos import console
from chaos.campaign import CampaignResult
from chaos.launch import find_runner, has_mounts, make_config, run_request, start_processes
from chaos.listing import list_app
from chaos.options import Options, Request, check_environment, check_junit, check_options, name_environment, write_command
from chaos.planted.command import planted
from chaos.progress import make_progress
from chaos.replay import replay
from chaos.results import Verdict, merge_verdicts
from chaos.rundir import RunDirectory
from chaos.syscalls.available import find_lack
from chaos.syscalls.level import STEP, SYSCALL
from eventlog.errors import MisuseError
from reports.aggregate import group_troubles, summarise
from reports.coverage import find_gaps
from reports.document import encode_document, make_document
from reports.junit import render_junit
from reports.load import LoadError, Run, load_run
from reports.text import render_report

app = typer.Typer(
    name="chaos",
    help="Kill real drivers at every step and check that the workspace equals the log.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(list_app, name="list")
app.command("planted")(planted)
app.command("replay")(replay)


@app.callback(invoke_without_command=True)
def campaign(
    context: typer.Context,
    mode: Annotated[str, typer.Option(metavar="M", help="ci (chaos list modes)")] = "ci",
    level: Annotated[str, typer.Option(metavar="L", help="step or syscall (chaos list levels)")] = STEP,
    seed: Annotated[int | None, typer.Option(metavar="N", help="order of the trials; random when absent")] = None,
    runs: Annotated[int | None, typer.Option(metavar="N", help="at most N trials")] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="begin no trial after this time: 60s, 5m")] = "",
    jobs: Annotated[int | None, typer.Option(metavar="N", help="zygotes at work; two per core when absent")] = None,
    scenario: Annotated[str, typer.Option(metavar="S", help="one scenario: its name, or the path of its file")] = "",
    step: Annotated[str, typer.Option(metavar="STEP", help="only trials aimed at ROLE:NAME:N or ROLE@EPOCH:NAME:N")] = "",
    fault: Annotated[str, typer.Option(metavar="F", help="only trials of this fault (chaos list faults)")] = "",
    plan: Annotated[str, typer.Option(metavar="PLAN", help="play this one plan (chaos/README, Plans) on the scenario")] = "",
    engine: Annotated[str, typer.Option(metavar="DIR", help="run the engine copy in DIR instead of the installed one")] = "",
    out: Annotated[str, typer.Option(metavar="DIR", help="the run directory; chaos-runs/TIME-SEED when absent")] = "",
    stop_after: Annotated[int | None, typer.Option(metavar="N", help="stop after N failed trials")] = None,
    require: Annotated[str, typer.Option(metavar="F", help="unknown when this fault is unavailable here")] = "",
    json: Annotated[str, typer.Option(metavar="F", help="also write everything the report says to F as JSON")] = "",
    junit: Annotated[str, typer.Option(metavar="F", help="also write each trial to F as a test case of JUnit XML")] = "",
    depth: Annotated[int | None, typer.Option(metavar="N", help="at most N kills a trial, one inside recovery from the other")] = None,
    require_coverage: Annotated[bool, typer.Option("--require-coverage", help="unknown unless each label acted on was decided")] = False,
) -> int:
    """Run a campaign: one clean run per scenario, then one trial per step, each judged by the oracle."""
    selection = (mode, seed, runs, budget, jobs, scenario, step, fault, plan, engine)
    options = Options(*selection, out, stop_after, json, junit, require_coverage, level, require, depth)
    if context.invoked_subcommand is not None:
        if options != Options():
            raise MisuseError(f"options before {context.invoked_subcommand!r} belong to a campaign; put its own after it")
        return console.ExitCode.PASS
    drawn = secrets.randbelow(1 << 32)
    chosen = drawn if seed is None else seed
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    request = check_options(options, drawn, 2 * (os.cpu_count() or 1), Path("chaos-runs") / f"{stamp}-{chosen}")
    if SYSCALL in (request.level, request.require):
        request = replace(request, lack=find_lack())
    return _run_campaign(request, options)


@app.command("report")
def report(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="a run directory")],
    json: Annotated[str, typer.Option(metavar="F", help="also write everything it says to F as JSON; - prints only that")] = "",
    junit: Annotated[str, typer.Option(metavar="F", help="also write each trial to F as a test case of JUnit XML")] = "",
) -> int:
    """Show what a run directory holds; ends with the exit code of its verdict."""
    run = _load(Path(directory))
    check_junit(junit, json)
    document = make_document(run)
    if json != "-":
        _print(f"{run.path}: {run.config.command}", *render_report(run, document.summary, group_troubles(run.results)))
    _write_reports(run, json, junit)
    return console.exit_code_of(document.verdict)


def _run_campaign(request: Request, options: Options) -> int:
    check_environment(os.environ)
    program = name_environment(os.environ) + _program()
    command = write_command(program, options, request.seed)
    # What repeats one trial begins with these words; its level is one of them.
    first_words = program if request.level == STEP else f"{program} --level {request.level}"
    config = make_config(request, command, first_words, options.scenario)
    with RunDirectory(request.out, config, time.monotonic) as directory, console.keep_traceback(directory.path):
        review = partial(_require_coverage, directory.path) if request.require_coverage else None
        repeat = f"seed {request.seed}, repeat with: {command}"
        _print(repeat, f"run directory {directory.path}, {request.jobs} jobs")
        try:
            with make_progress(Console(file=sys.stdout)) as watcher:
                start = start_processes(directory, request.engine, find_runner(request), has_mounts(request.scenarios))
                result = run_request(request, directory, watcher, start, review)
            summary = summarise(_load(directory.path))
            directory.finish(result.verdict, result.reasons, msgspec.to_builtins(summary))
            run = _load(directory.path)
            _print(*render_report(run, summary, group_troubles(run.results)), f"{result.verdict.upper()}")
            _write_reports(run, str(request.json or ""), str(request.junit or ""))
        finally:
            _print(repeat)
    return console.exit_code_of(result.verdict)


def _require_coverage(directory: Path, result: CampaignResult) -> CampaignResult:
    """The result, less than a pass when a label that this version acts on was decided in no trial."""
    gaps = find_gaps(_load(directory))
    verdict = merge_verdicts([result.verdict, *(Verdict.UNKNOWN for _ in gaps)])
    return dataclasses.replace(result, verdict=verdict, reasons=(*result.reasons, *gaps))


def _write_reports(run: Run, json: str, junit: str) -> None:
    """What --json and --junit asked for; "" asks for nothing."""
    if json:
        console.write_json(encode_document(make_document(run)), json)
    if junit:
        console.write_file("--junit", render_junit(run), junit)


def _load(directory: Path) -> Run:
    try:
        return load_run(directory)
    except LoadError as error:
        raise MisuseError(str(error)) from error


def _program() -> str:
    """How to call this command again: as it was called, by its bare name when that leads here."""
    called = Path(sys.argv[0])
    if called.name != "chaos":
        return "python -m chaos"
    found = shutil.which("chaos")
    return "chaos" if found and Path(found).resolve() == called.resolve() else sys.argv[0]


def _print(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a campaign as Ctrl-C does: zygotes ended, the trials' area removed."""
    raise KeyboardInterrupt


def main() -> int:
    """Entry point of the console command; the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    return console.run(app)


if __name__ == "__main__":
    sys.exit(main())
