"""The command `chaos`: the composition root, and the one place of this package that knows reports."""

import contextlib
import dataclasses
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
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
from chaos.done import NOTHING, Done
from chaos.judge_again import judge
from chaos.launch import choose_runner, has_mounts, make_config, run_request, start_processes
from chaos.listing import list_app
from chaos.options import (
    Options,
    Request,
    check_environment,
    check_html,
    check_junit,
    check_options,
    name_environment,
    write_command,
    write_target_words,
)
from chaos.planted.command import planted
from chaos.program import name_program
from chaos.progress import make_progress
from chaos.replay import replay
from chaos.results import Verdict, merge_verdicts
from chaos.resume import FREE, check_resumed, check_same, take_up
from chaos.rundir import Config, RunDirectory, lock_run, read_config
from chaos.shrink.command import shrink
from chaos.sim.options import LOCAL, SIM
from chaos.syscalls.available import find_lack
from chaos.syscalls.level import STEP, SYSCALL
from chaos.target.compare import compare
from chaos.target.launch import make_target_config, run_target_request
from chaos.target.options import check_target_options
from eventlog.errors import MisuseError
from reports.aggregate import group_troubles, summarise
from reports.coverage import find_gaps
from reports.document import encode_document, make_document
from reports.html import render_html
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
app.command("judge")(judge)
app.command("replay")(replay)
app.command("shrink")(shrink)
app.command("compare")(compare)


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
    stop_after: Annotated[int | None, typer.Option(metavar="N", help="stop after N failures of different signatures")] = None,
    require: Annotated[str, typer.Option(metavar="F", help="unknown when this fault is unavailable here")] = "",
    json: Annotated[str, typer.Option(metavar="F", help="also write everything the report says to F as JSON")] = "",
    junit: Annotated[str, typer.Option(metavar="F", help="also write each trial to F as a test case of JUnit XML")] = "",
    depth: Annotated[int | None, typer.Option(metavar="N", help="at most N kills a trial, one inside recovery from the other")] = None,
    backend: Annotated[str, typer.Option(metavar="B", help="local or sim: real processes, or the engine in memory")] = LOCAL,
    require_coverage: Annotated[bool, typer.Option("--require-coverage", help="unknown unless each label acted on was decided")] = False,
    html: Annotated[str, typer.Option(metavar="F", help="also write the report to F as one HTML page")] = "",
    resume: Annotated[str, typer.Option(metavar="DIR", help="go on with a campaign that was killed")] = "",
    audit: Annotated[int | None, typer.Option(metavar="N", help="play N trials twice and compare their histories")] = None,
    target: Annotated[str, typer.Option(metavar="CMD", help="kill this program instead (chaos/README, Targets)")] = "",
    check: Annotated[str, typer.Option(metavar="CMD", help="of a target: says by its exit code whether the end is right")] = "",
    workload: Annotated[int | None, typer.Option(metavar="N", help="of a target: it plays the standard workload of N steps")] = None,
    kill: Annotated[str, typer.Option(metavar="K", help="of a target: tree (the default) or main")] = "",
    starts: Annotated[int | None, typer.Option(metavar="N", help="of a target: how often it is started after a kill")] = None,
    patience: Annotated[str, typer.Option(metavar="TIME", help="of a target: how long one start may take")] = "",
) -> int:
    """Run a campaign: one clean run per scenario, then one trial per step, each judged by the oracle."""
    selection = (mode, seed, runs, budget, jobs, scenario, step, fault, plan, engine)
    options = Options(*selection, out, stop_after, json, junit, require_coverage, level, require, depth, html, resume, audit, backend)
    options = replace(options, target=target, check=check, workload=workload, kill=kill, starts=starts, patience=patience)
    if context.invoked_subcommand is not None:
        if options != Options():
            raise MisuseError(f"options before {context.invoked_subcommand!r} belong to a campaign; put its own after it")
        return console.ExitCode.PASS
    if resume:
        options = check_resumed(Path(resume), options)
    drawn = secrets.randbelow(1 << 32)
    chosen = drawn if options.seed is None else options.seed
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    check_request = check_target_options if options.target else check_options
    request = check_request(options, drawn, 2 * (os.cpu_count() or 1), Path("chaos-runs") / f"{stamp}-{chosen}")
    if SYSCALL in (request.level, request.require):
        request = replace(request, lack=find_lack())
    return _run_campaign(request, options)


@app.command("report")
def report(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="a run directory")],
    json: Annotated[str, typer.Option(metavar="F", help="also write everything it says to F as JSON; - prints only that")] = "",
    junit: Annotated[str, typer.Option(metavar="F", help="also write each trial to F as a test case of JUnit XML")] = "",
    html: Annotated[str, typer.Option(metavar="F", help="also write the report to F as one HTML page")] = "",
) -> int:
    """Show what a run directory holds; ends with the exit code of its verdict."""
    run = _load(Path(directory))
    check_junit(junit, json)
    check_html(html, json, junit)
    document = make_document(run)
    if json != "-":
        _print(f"{run.path}: {run.config.command}", *render_report(run, document.summary, group_troubles(run.results)))
    _write_reports(run, json, junit, html)
    return console.exit_code_of(document.verdict)


def _run_campaign(request: Request, options: Options) -> int:
    check_environment(os.environ)
    program = name_environment(os.environ) + name_program()
    command = write_command(program, options, request.seed)
    # What repeats one trial begins with these words; its level is one of them.
    first_words = program if request.level == STEP else f"{program} --level {request.level}"
    first_words += f" --backend {SIM}" if request.backend == SIM else ""
    asked = {name: value for name, value in dataclasses.asdict(options).items() if name not in FREE}
    config = make_config(request, command, first_words, options.scenario, asked)
    if request.target is not None:
        config = make_target_config(config, request.target, write_target_words(first_words, options))
    with _open_run(request, options, config) as (directory, done), console.keep_traceback(directory.path):
        review = partial(_require_coverage, directory.path) if request.require_coverage else None
        repeat = f"seed {request.seed}, repeat with: {command}"
        _print(repeat, f"run directory {directory.path}, {request.jobs} jobs")
        try:
            with make_progress(Console(file=sys.stdout)) as watcher:
                if request.target is not None:
                    result = run_target_request(request, directory, watcher, done)
                else:
                    start = start_processes(directory, request.engine, choose_runner(request), has_mounts(request.scenarios, request.mode))
                    result = run_request(request, directory, watcher, start, review, done)
            summary = summarise(_load(directory.path))
            directory.finish(result.verdict, result.reasons, msgspec.to_builtins(summary))
            run = _load(directory.path)
            _print(*render_report(run, summary, group_troubles(run.results)), f"{result.verdict.upper()}")
            _write_reports(run, str(request.json or ""), str(request.junit or ""), str(request.html or ""))
        finally:
            _print(repeat)
    return console.exit_code_of(result.verdict)


@contextlib.contextmanager
def _open_run(request: Request, options: Options, config: Config) -> Iterator[tuple[RunDirectory, Done]]:
    """A new run directory, or the one of a campaign that goes on and what it holds."""
    if not options.resume:
        with RunDirectory(request.out, config, time.monotonic) as directory:
            yield directory, NOTHING
        return
    with lock_run(request.out):
        check_same(read_config(request.out), config, request.out)
        done = take_up(request.out)
        with RunDirectory(request.out, config, time.monotonic, goes_on=done) as directory:
            directory.history.note("campaign resumed")
            for result in done.missing:
                directory.add_result(result)
            _print(f"goes on: {len(done.recordings)} clean runs and {len(done.find_trials())} trials have results")
            yield directory, done


def _require_coverage(directory: Path, result: CampaignResult) -> CampaignResult:
    """The result, less than a pass when a label that this version acts on was decided in no trial."""
    gaps = find_gaps(_load(directory))
    verdict = merge_verdicts([result.verdict, *(Verdict.UNKNOWN for _ in gaps)])
    return dataclasses.replace(result, verdict=verdict, reasons=(*result.reasons, *gaps))


def _write_reports(run: Run, json: str, junit: str, html: str) -> None:
    """What --json, --junit and --html asked for; "" asks for nothing."""
    if json:
        console.write_json(encode_document(make_document(run)), json)
    if junit:
        console.write_file("--junit", render_junit(run), junit)
    if html:
        console.write_file("--html", render_html(run), html)


def _load(directory: Path) -> Run:
    try:
        return load_run(directory)
    except LoadError as error:
        raise MisuseError(str(error)) from error


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
