"""The command `chaos`: the composition root, and the one place of this package that knows reports."""

import os
import secrets
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from chaos import console
from chaos.launch import make_config, run_request, start_processes
from chaos.listing import list_app
from chaos.options import Options, Request, check_options, write_command
from chaos.planted.command import planted
from chaos.progress import make_progress
from chaos.results import RUN_FORMAT, Verdict
from chaos.rundir import RunDirectory
from chaos.syscalls.available import find_lack
from chaos.syscalls.level import STEP, SYSCALL
from eventlog.errors import MisuseError
from reports.aggregate import group_troubles, summarise
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


@app.callback(invoke_without_command=True)
def campaign(
    context: typer.Context,
    mode: Annotated[str, typer.Option(metavar="M", help="ci (chaos list modes)")] = "ci",
    level: Annotated[str, typer.Option(metavar="L", help="step or syscall (chaos list levels)")] = STEP,
    seed: Annotated[int | None, typer.Option(metavar="N", help="order of the trials; random when absent")] = None,
    runs: Annotated[int | None, typer.Option(metavar="N", help="at most N trials")] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="begin no trial after this time: 60s, 5m")] = "",
    jobs: Annotated[int | None, typer.Option(metavar="N", help="zygotes at work; cores + 1 when absent")] = None,
    scenario: Annotated[str, typer.Option(metavar="S", help="one scenario: its name, or the path of its file")] = "",
    step: Annotated[str, typer.Option(metavar="STEP", help="only trials aimed at ROLE:NAME:N or ROLE@EPOCH:NAME:N")] = "",
    fault: Annotated[str, typer.Option(metavar="F", help="only trials of this fault (chaos list faults)")] = "",
    engine: Annotated[str, typer.Option(metavar="DIR", help="run the engine copy in DIR instead of the installed one")] = "",
    out: Annotated[str, typer.Option(metavar="DIR", help="the run directory; chaos-runs/TIME-SEED when absent")] = "",
    stop_after: Annotated[int | None, typer.Option(metavar="N", help="stop after N failed trials")] = None,
    require: Annotated[str, typer.Option(metavar="F", help="unknown when this fault is unavailable here")] = "",
    json: Annotated[str, typer.Option(metavar="F", help="also write the verdict and the counts to F as JSON")] = "",
) -> int:
    """Run a campaign: one clean run per scenario, then one trial per step, each judged by the oracle."""
    options = Options(mode, seed, runs, budget, jobs, scenario, step, fault, engine, out, stop_after, json, level, require)
    if context.invoked_subcommand is not None:
        if options != Options():
            raise MisuseError(f"options before {context.invoked_subcommand!r} belong to a campaign; put its own after it")
        return console.ExitCode.PASS
    drawn = secrets.randbelow(1 << 32)
    chosen = drawn if seed is None else seed
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    request = check_options(options, drawn, (os.cpu_count() or 1) + 1, Path("chaos-runs") / f"{stamp}-{chosen}")
    if SYSCALL in (request.level, request.require):
        request = replace(request, lack=find_lack())
    return _run_campaign(request, options)


@app.command("report")
def report(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="a run directory")],
    json: Annotated[str, typer.Option(metavar="F", help="also write the verdict and the counts to F as JSON; - prints only that")] = "",
) -> int:
    """Show what a run directory holds; ends with the exit code of its verdict."""
    run = _load(Path(directory))
    document = _document(run)
    if json != "-":
        _print(f"{run.path}: {run.config.command}", *render_report(run, summarise(run), group_troubles(run.results)))
    if json:
        console.write_json(_encode(document), json)
    return console.exit_code_of(Verdict(document["verdict"]))


def _run_campaign(request: Request, options: Options) -> int:
    program = _program()
    command = write_command(program, options, request.seed)
    # What repeats one trial begins with these words; its level is one of them.
    first_words = program if request.level == STEP else f"{program} --level {request.level}"
    config = make_config(request, command, first_words, options.scenario)
    with RunDirectory(request.out, config, time.monotonic) as directory, console.keep_traceback(directory.path):
        repeat = f"seed {request.seed}, repeat with: {command}"
        _print(repeat, f"run directory {directory.path}, {request.jobs} jobs")
        try:
            with make_progress(Console(file=sys.stdout)) as watcher:
                result = run_request(request, directory, watcher, start_processes(directory, request.engine, request.is_traced))
            run = msgspec.structs.replace(_load(directory.path), judgement=None)
            summary = summarise(run)
            directory.finish(result.verdict, result.reasons, msgspec.to_builtins(summary))
            run = _load(directory.path)
            _print(*render_report(run, summary, group_troubles(run.results)), f"{result.verdict.upper()}")
            if request.json is not None:
                console.write_json(_encode(_document(run)), str(request.json))
        finally:
            _print(repeat)
    return console.exit_code_of(result.verdict)


def _document(run: Run) -> dict[str, Any]:
    """The JSON of a campaign and of `report`: the fields of `verdict.json`."""
    verdict = run.judgement.verdict if run.judgement else Verdict.UNKNOWN
    reasons = list(run.judgement.reasons) if run.judgement else ["this run was cut short"]
    return {"format": RUN_FORMAT, "verdict": verdict, "reasons": reasons, "summary": msgspec.to_builtins(summarise(run))}


def _encode(document: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"


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
