"""What a person asks of a campaign against a target, checked. Each mistake is one sentence with the next command."""

import os
import shlex
import shutil
from pathlib import Path

from chaos.actions import format_action, parse_plan
from chaos.campaign import Limits
from chaos.console import check_target as check_file
from chaos.depth import SECOND, Depth
from chaos.options import Options, Request, check_html, check_junit, check_numbers, parse_duration
from chaos.results import Action
from chaos.scenario import Scenario
from chaos.sim.options import LOCAL
from chaos.step import format_step, parse_short_step, parse_step
from chaos.syscalls.calls import parse_aim
from chaos.syscalls.enumerate import DEFAULT_KILLS
from chaos.syscalls.enumerate import ENTRY as SYSCALL_ENTRY
from chaos.syscalls.level import SYSCALL, check_level
from chaos.target.target import AGAIN, DEEPER, DEFAULT_PATIENCE_SECS, DEFAULT_STARTS, ENTRY, KILLS, NAME, Kill, Target
from eventlog.errors import MisuseError

MOST_STEPS = 1000
"""Of the standard workload: each is a trial for every instant in it."""
PAIRS, DRAWS, CALLS = 4, 2, 4
"""Of how many first kills the starts after them are killed too, and at how many steps each, where no depth was given: a dozen starts more
for any target, however many steps it announces. In how many system calls, whatever the depth."""


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
            fault=options.fault if not is_traced else "",
            plan=_check_plan(options, is_traced=is_traced),
            depth=_choose_depth(options, is_traced=is_traced),
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
        ("engine", options.engine),
        ("require-coverage", options.require_coverage),
        ("require", options.require),
        ("audit", options.audit is not None),
        ("backend", options.backend != LOCAL),
        ("fault", options.fault not in ("", "kill", AGAIN, DEEPER, SYSCALL)),
    ):
        if given:
            raise MisuseError(f"--{name} belongs to campaigns against the engine; leave it away beside --target")


def _check_plan(options: Options, *, is_traced: bool) -> tuple[Action, ...]:
    """The plan that was given: kills at steps, one in each start."""
    if not options.plan:
        return ()
    for name, given in (("--step", options.step), ("--fault", options.fault), ("--depth", options.depth)):
        if given:
            raise MisuseError(f"--plan is one whole trial and {name} chooses among those there are; leave one of the two away")
    plan = parse_plan(options.plan, "--plan")
    for start, action in enumerate(plan, 1):
        if action.do != "kill" or not action.at or action.who or parse_step(action.at).epoch != start:
            raise MisuseError(
                f"--plan: {format_action(action)!r} is no kill at a step of start {start}; a plan of a target is one kill a start, "
                "such as 'kill driver@1:paid:1; kill driver@2:paid:1'"
            )
        if is_traced:
            _check_call(action.at, start)
    return plan


def _check_call(step: str, start: int) -> None:
    try:
        parse_aim(step, start)
    except ValueError as error:
        raise MisuseError(f"--plan: {error}") from error


def _choose_depth(options: Options, *, is_traced: bool) -> Depth:
    """How many kills a trial has: second ones at some steps, drawn by the seed, or to a depth that was given at all."""
    wanted, entry = options.depth, SYSCALL_ENTRY if is_traced else ENTRY
    if wanted == 1:
        return Depth(kills=1, entry=entry)
    if is_traced:
        pairs = min(PAIRS, options.runs or PAIRS)
        return Depth(wanted or SECOND, pairs, CALLS, SECOND, entry)  # all calls of all starts would be days
    if wanted is None:
        return Depth(SECOND, PAIRS, DRAWS, SECOND, entry)
    return Depth(wanted, least=SECOND, entry=entry)


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
