"""What a person asks of a campaign against a target, checked. Each mistake is one sentence with the next command."""

import os
import shlex
import shutil
from pathlib import Path

from chaos.campaign import Limits
from chaos.console import check_target as check_file
from chaos.options import Options, Request, check_html, check_junit, check_numbers, parse_duration
from chaos.scenario import Scenario
from chaos.sim.options import LOCAL
from chaos.step import format_step, parse_short_step
from chaos.syscalls.enumerate import DEFAULT_KILLS
from chaos.syscalls.level import SYSCALL, check_level
from chaos.target.target import DEFAULT_PATIENCE_SECS, DEFAULT_STARTS, KILLS, NAME, Kill, Target
from eventlog.errors import MisuseError

MOST_STEPS = 1000
"""Of the standard workload: each is a trial for every instant in it."""


def check_target_options(options: Options, seed: int, jobs: int, out: Path) -> Request:
    """The request; `seed`, `jobs` and `out` stand in for what was not given. MisuseError for what cannot be run."""
    check_numbers(options)
    _refuse_others(options)
    level = check_level(options.level)
    target = Target(
        command=parse_command("--target", options.target),
        check=parse_command("--check", options.check) if options.check else (),
        workload=_check_workload(options),
        kill=_check_kill(options.kill),
        starts=options.starts or DEFAULT_STARTS,
        patience_secs=parse_duration(options.patience, "--patience") if options.patience else DEFAULT_PATIENCE_SECS,
        is_traced=level == SYSCALL,
    )
    is_traced = target.is_traced
    return Request(
        mode=NAME,
        seed=seed if options.seed is None else options.seed,
        scenarios=(stand_in(options.target),),
        limits=Limits(
            runs=None if is_traced else options.runs,
            budget_secs=parse_duration(options.budget) if options.budget else None,
            stop_after=options.stop_after,
            step=format_step(parse_short_step(options.step, "--step")) if options.step else "",
        ),
        jobs=options.jobs or jobs,
        engine=None,
        out=Path(options.out) if options.out else out,
        json=check_file("--json", options.json) if options.json and options.json != "-" else None,
        junit=check_junit(options.junit, options.json),
        html=check_html(options.html, options.json, options.junit),
        level=level,
        kills=options.runs or DEFAULT_KILLS,
        target=target,
    )


def stand_in(about: str) -> Scenario:
    """What stands for a target where a campaign of the engine has its scenario: a name and nothing else."""
    return Scenario(NAME, about, "continue", (), (), (), "", "", False, ())


def parse_command(option: str, text: str) -> tuple[str, ...]:
    """The words of a command. A program is looked up now, and a word that names a file here becomes its whole path, because the command
    runs in a directory of its own. MisuseError when it is none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise MisuseError(f"{option} {text!r}: {str(error).lower()}; quote it as for a shell") from error
    if not words:
        raise MisuseError(f"{option} is empty; give the command that starts it, such as {option} 'python3 driver.py'")
    program = shutil.which(words[0])
    if program is None:
        raise MisuseError(f"{option} {text!r}: there is no program {words[0]!r}; give its path, or a name that is found on PATH")
    return (os.path.abspath(program), *(os.path.abspath(word) if os.path.isfile(word) else word for word in words[1:]))


def _refuse_others(options: Options) -> None:
    """Options that choose among the engine's own scenarios have no meaning for somebody else's program."""
    for name, given in (
        ("mode", options.mode not in ("ci", NAME)),
        ("scenario", options.scenario not in ("", NAME)),
        ("plan", options.plan),
        ("engine", options.engine),
        ("depth", options.depth is not None),
        ("require-coverage", options.require_coverage),
        ("require", options.require),
        ("audit", options.audit is not None),
        ("backend", options.backend != LOCAL),
        ("fault", options.fault not in ("", "kill", SYSCALL)),
    ):
        if given:
            raise MisuseError(f"--{name} belongs to campaigns against the engine; leave it away beside --target")


def _check_workload(options: Options) -> int:
    steps = options.workload or 0
    if options.workload is not None and not 1 <= steps <= MOST_STEPS:
        raise MisuseError(f"--workload {options.workload} must be a number of steps from 1 to {MOST_STEPS}")
    if steps and options.check:
        raise MisuseError("--workload has a judge of its own, so that --check would be a second one; leave one of the two away")
    return steps


def _check_kill(text: str) -> Kill:
    if text not in ("", *KILLS):
        raise MisuseError(f"--kill {text!r} is neither of {', '.join(KILLS)}; chaos/README, Targets, tells what they do")
    return "main" if text == "main" else "tree"
