"""Reports as lines of text for a terminal or a log. Pure; names from a run are escaped, so that none can move a cursor."""

import shlex
from collections.abc import Mapping, Sequence

from chaos.results import TrialResult
from reports.aggregate import Group, Summary
from reports.load import Run, RunConfig

SHOWN = 10
NAMED = 5


def render_report(run: Run, summary: Summary, groups: Sequence[Group]) -> list[str]:
    """Everything a run has to say: what did not pass, what is missing, the three lines of counts."""
    lines = [line for group in groups[:SHOWN] for line in render_group(group, run.config)]
    if len(groups) > SHOWN:
        lines.append(f"... and {len(groups) - SHOWN} more groups: {run.path}/results.jsonl has them all")
    lines += render_notes(run, summary)
    return lines + render_summary(summary)


def render_summary(summary: Summary) -> list[str]:
    """The lines SUMMARY, LABELS and FAULTS."""
    counts = {
        "runs": summary.runs,
        "pass": summary.passed,
        "unknown": summary.unknown,
        "fail": summary.fail,
        "kills": summary.kills,
        "steps": summary.steps,
        "killed": summary.killed,
        "unreachable": summary.unreachable,
        "live": summary.live,
        "half_written": summary.half_written,
        "restored": summary.restored,
        "quarantined": summary.quarantined,
        "exec": summary.exec,
        "superseded": summary.superseded,
        "seconds": summary.seconds,
        "rate": summary.rate,
    }
    return [f"SUMMARY {_pairs(counts)}", f"LABELS {_pairs(summary.labels)}", f"FAULTS {_pairs(summary.faults)}"]


def render_notes(run: Run, summary: Summary) -> list[str]:
    """What the counts do not say: why steps are unreachable, which were left out, what else lowers the verdict."""
    lines = [f"NOTE {reason}" for reason in run.judgement.reasons] if run.judgement else []
    marks = sorted({one.kill_mark for one in run.scenarios})
    if marks:
        lines.append(f"NOTE kill mark in force: {', '.join(marks)}")
    if summary.reasons:
        lines.append(f"UNREACHABLE {', '.join(f'{count} {reason}' for reason, count in summary.reasons.items())}")
    if summary.unkilled:
        lines.append(f"NOTE steps = killed + unreachable + {len(summary.unkilled)} not killed in this run: {_first(summary.unkilled)}")
    if run.judgement is None:
        lines.append("NOTE this run was cut short: it has no verdict")
    return lines


def render_group(group: Group, config: RunConfig) -> list[str]:
    """One group: its first trial in full, the others by name, and the command that repeats the first."""
    result, oracle = group.first, group.oracle
    lines = [f"{group.verdict.upper()} {escape(group.scenario)} {describe_trial(result)}"]
    lines.append(f"  reason    {escape(result.reason)}")
    if oracle is not None:
        lines.append(f"  oracle    {escape(oracle.oracle)}{': ' if oracle.detail else ''}{escape(oracle.detail)}")
        facts = {"path": oracle.path, "expected": oracle.expected, "found": oracle.found, "event": oracle.event}
        lines += [f"  {name:<9} {escape(value)}" for name, value in facts.items() if value]
    unfired = [fault for fault in result.faults if not fault.fired]
    lines += [f"  unfired   {escape(f'{fault.do} at {fault.at} {fault.note}'.rstrip())}" for fault in unfired]
    if result.kept:
        lines.append(f"  kept      {escape(result.kept)}")
    lines.append(f"  repeat    {repeat_command(config, result)}")
    if group.others:
        lines.append(f"  likewise  {len(group.others)} more: {_first([describe_trial(other) for other in group.others])}")
    return lines


def describe_trial(result: TrialResult) -> str:
    """A trial in a few words: its faults, or that it is a clean run."""
    if not result.trial.plan:
        return "clean run"
    actions = ", ".join(f"{action.do} at {action.at}" for action in result.trial.plan)
    return escape(f"{actions} (the real command)" if result.trial.entry == "exec" else actions)


def repeat_command(config: RunConfig, result: TrialResult) -> str:
    """The command that runs this trial alone, after the clean run of its scenario."""
    trial = result.trial
    words = [*shlex.split(config.program), "--mode", config.mode, "--scenario", config.arguments.get(trial.scenario, trial.scenario)]
    if trial.plan:
        words += ["--step", trial.plan[0].at, "--fault", "exec" if trial.entry == "exec" else trial.plan[0].do]
    if config.engine:
        words += ["--engine", config.engine]
    return shlex.join([*words, "--seed", str(config.seed)])


def escape(text: str) -> str:
    """The text on one line, what cannot be printed written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode("ascii") for char in text)


def _pairs(counts: Mapping[str, float]) -> str:
    return " ".join(f"{escape(name)}={count}" for name, count in counts.items())


def _first(names: Sequence[str]) -> str:
    shown = "; ".join(names[:NAMED])
    return f"{shown}; ..." if len(names) > NAMED else shown
