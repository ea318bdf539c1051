"""From a request to a campaign against a target: the pool, the runs and the enumeration that are a target's own."""

from dataclasses import replace
from pathlib import Path

import msgspec

from chaos.area import open_area
from chaos.campaign import Campaign, CampaignResult, Enumerate, Watcher
from chaos.depth import LEAST
from chaos.done import NOTHING, Done
from chaos.enumeration import Enumeration, Unreachable
from chaos.launch import open_pool
from chaos.options import Request
from chaos.results import Action, Recording, Trial
from chaos.rundir import Config, RunDirectory
from chaos.scenario import Scenario
from chaos.step import parse_step
from chaos.syscalls.enumerate import ENTRY as SYSCALL_ENTRY
from chaos.syscalls.enumerate import FAULT as SYSCALL_FAULT
from chaos.syscalls.enumerate import enumerate_kills
from chaos.target.client import TargetZygote
from chaos.target.target import AGAIN, DEEPER, ENTRY, LIVENESS, NAME, PROCESSES, Target, describe_target
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError


def make_target_config(config: Config, target: Target, first_words: str) -> Config:
    """What `config.json` says of a campaign against a target: the target in place of scenarios, and no label of the engine's."""
    return msgspec.structs.replace(config, scenarios=(describe_target(target),), labels=(), program=first_words)


def run_target_request(request: Request, run: RunDirectory, watcher: Watcher, done: Done = NOTHING) -> CampaignResult:
    """Run the campaign into `run`, without what it has `done` already. The verdict is returned, not written."""
    target = the_target(request)
    with open_area() as area, open_pool(lambda slot: TargetZygote(target, _log(run.path, slot), slot), request.jobs) as pool:
        enumerate_one, judges = _choose_enumeration(request), required_judges(target)
        campaign = Campaign(pool, run, area, watcher, enumerate_one=enumerate_one, done=done, require=lambda *_, **__: judges)
        result = campaign.run(request.scenarios, request.limits, request.seed)
    run.history.note("campaign ended", verdict=result.verdict)
    return result


def the_target(request: Request) -> Target:
    """The target of a request that has one."""
    if request.target is None:
        raise MisuseError("there is no --target")
    return request.target


def required_judges(target: Target) -> frozenset[str]:
    """Who must have spoken before a trial may pass."""
    return frozenset({LIVENESS, PROCESSES, *target.judges})


def enumerate_steps(recording: Recording, scenario: Scenario, trial_set: TrialSet, first_number: int = 1) -> Enumeration:
    """One kill for each step that the clean run's start announced; where kills come before, that the start after them did."""
    before = trial_set.before
    aimed = [step for step in recording.steps if parse_step(step).epoch == len(before) + 1]
    trials = tuple(make_trial(number, (*before, Action(step, "kill"))) for number, step in enumerate(aimed, first_number))
    left_out = tuple(Unreachable(step, "not yet") for step in recording.steps if step not in aimed)
    return Enumeration(NAME, recording.steps, trials, left_out, "", before)


def enumerate_calls(recording: Recording, first_number: int, request: Request) -> Enumeration:
    """Kills in system calls of the first start; where kills come before, in some of the start after them: few, as each kind of call has its
    share of them there too."""
    again = recording.prefix
    kills = request.kills if not again else request.limits.depth.draws
    made = enumerate_kills(recording, first_number, kills, request.seed, "" if again else request.limits.step)
    if not again:
        return made
    trials = tuple(make_trial(one.number, one.plan, SYSCALL_ENTRY) for one in made.trials)
    return replace(made, trials=trials)


def make_trial(number: int, plan: tuple[Action, ...], entry: str = ENTRY) -> Trial:
    """A trial of kills, one in each start: at announced steps, or (`SYSCALL_ENTRY`) in system calls."""
    first = SYSCALL_FAULT if entry == SYSCALL_ENTRY else "kill"
    return Trial(number, NAME, plan, entry, (first, AGAIN, DEEPER)[min(len(plan), LEAST) - 1])


def add_plan(made: Enumeration, plan: tuple[Action, ...]) -> Enumeration:
    """The enumeration with a trial of the plan that somebody gave, if any, unless it has one."""
    if not plan or any(trial.plan == plan for trial in made.trials):
        return made
    number = max((trial.number for trial in made.trials), default=0) + 1
    return replace(made, trials=(*made.trials, make_trial(number, plan, made.trials[0].entry if made.trials else ENTRY)))


def check_step(made: Enumeration, step: str) -> Enumeration:
    """The enumeration, found to hold the one step that was asked for, if any. MisuseError names those that there are."""
    if step and step not in {trial.plan[0].at for trial in made.trials}:
        raise MisuseError(f"--step {step}: the clean run announces no such step; it announces {', '.join(made.steps)}")
    return made


def _choose_enumeration(request: Request) -> Enumerate:
    step, plan = request.limits.step, request.limits.plan
    if not the_target(request).is_traced:
        return lambda recording, scenario, trial_set, first: add_plan(
            check_step(enumerate_steps(recording, scenario, trial_set, first), step), plan
        )
    return lambda recording, scenario, trial_set, first: add_plan(enumerate_calls(recording, first, request), plan)


def _log(run: Path, slot: int) -> Path:
    return run / "zygotes" / f"{slot}.txt"

