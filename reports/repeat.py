"""The commands that a report hands out: one to run a trial again, one to replay what was kept of it. Pure.

A trial of one plain kill is named by its step; any other by its plan in text form, the actions joined by `; `:

    kill STEP                        freeze STEP who ROLE@EPOCH       wait STEP
    kill who ROLE@EPOCH              start                            end | wake | killed | release ROLE@EPOCH
    edit STEP "PATH" "CONTENT"       edit STEP "PATH" (removed)       lose | keep STEP "WHAT"
    parked ROLE@EPOCH "WORDS"        person "COMMAND"                 corrupt "WHAT" "DAMAGE"
    fail driver@EPOCH "FILES" "FAULT"

What stands in quotes are JSON strings of ASCII; STEP is left out where none is waited for.
"""

import itertools
import json
import shlex
from collections.abc import Sequence

from chaos.results import Action, Trial, TrialResult, Verdict
from reports.load import RunConfig
from reports.words import is_clean

AIMED = ("kill", "freeze")
BY_STEP = ("kill",)
REPLAYED = ("fork", "exec")
"""Entries of trials that `chaos replay` and `chaos shrink` take: those that are played by steps."""
TARGET = "target"
"""The mode of a campaign against somebody else's program, which has no scenario; its trials can be replayed, and not shrunk."""


def repeat_command(config: RunConfig, trial: Trial) -> str:
    """The command that runs this trial alone, after the clean run of its scenario."""
    scenario = config.arguments.get(trial.scenario, trial.scenario)
    which = [] if config.mode == TARGET else ["--mode", config.mode, "--scenario", scenario]
    words = [*shlex.split(config.program), *which, *_select(trial)]
    if config.engine:
        words += ["--engine", config.engine]
    return shlex.join([*words, "--seed", str(config.seed)])


def shrink_command(config: RunConfig, result: TrialResult) -> str:
    """The command that makes a kept failure smaller; "" where there is none."""
    if not result.kept or config.mode == TARGET or result.verdict is not Verdict.FAIL or result.trial.entry not in REPLAYED:
        return ""
    return shlex.join([*shlex.split(config.program), "shrink", result.kept.partition(" (incomplete: ")[0]])


def replay_command(config: RunConfig, result: TrialResult) -> str:
    """The command that plays a kept trial again and explains it; "" when nothing was kept, or there is no such thing."""
    is_target = config.mode == TARGET
    if not result.kept or not (is_target or result.trial.entry in REPLAYED):
        return ""
    program = shlex.split(config.program)
    if is_target:
        program = list(itertools.takewhile(lambda word: not word.startswith("--"), program))  # a transcript knows its target
    directory = result.kept.partition(" (incomplete: ")[0]
    engine = ["--engine", config.engine] if config.engine else []
    return shlex.join([*program, "replay", f"{directory}/trial.json", "--explain", *engine])


def format_plan(plan: Sequence[Action]) -> str:
    """A plan in text form; "" for a clean run."""
    return "; ".join(map(format_action, plan))


def format_action(action: Action) -> str:
    """One action in text form."""
    words = [action.do, action.at]
    if action.who:
        words += ["who", action.who] if action.do in AIMED else [action.who]
    if action.path:
        words += [json.dumps(text) for text in (action.path, action.content) if text is not None]
    return " ".join(filter(None, words))


def _select(trial: Trial) -> list[str]:
    """The options that choose this trial among those of its scenario."""
    if is_clean(trial):
        return []
    if trial.entry in ("power", "copy") or (trial.entry == "syscall" and len(trial.plan) == 1):
        return ["--step", trial.plan[-1].at]
    first = trial.plan[0]
    if trial.entry == "exec":
        return ["--step", first.at, "--fault", "exec"]
    if len(trial.plan) == 1 and first.do in BY_STEP and not first.who:
        return ["--step", first.at, "--fault", first.do]
    return ["--plan", format_plan(trial.plan)]
